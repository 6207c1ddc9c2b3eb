"""Explains deviations from Little's law: throughput × latency = connections."""

from collections.abc import Mapping

from drumbeat.bench.model.words import told_apart

_MOST_OFF = 0.02  #: tolerated deviation


def off_because(little: Mapping[str, float] | None) -> str | None:
    """Why throughput × latency differs from the connections; None if it does not, within 2 %."""
    if little is None or max(little["off_by"], little["unexplained"]) <= _MOST_OFF:
        return None
    if little["unexplained"] > _MOST_OFF:
        share = f"{little['unexplained']:.1%} of their time is unaccounted for"
        return f"{_difference(little)}: {share}, so these figures are not reliable"
    waited = f"between operations they waited for the client, {little['client_share']:.1%} of the time"
    return f"{_difference(little)}: {waited}; latencies do not include that, throughput does"


def _difference(little: Mapping[str, float]) -> str:
    """What differs from the connections: throughput × latency, or that plus the pauses between operations."""
    found, held = little["throughput_times_latency"], little["connections"]
    if little["off_by"] > _MOST_OFF:
        one, other = told_apart(found, held)
        return f"throughput × latency is {one}, not the {other} connections held ({found / held - 1:+.1%})"
    both = found + little["client_share"] * held
    one, other = told_apart(both, held)
    return f"throughput × latency and the pauses between operations make {one}, not the {other} connections held"
