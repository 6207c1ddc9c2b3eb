"""Where throughput × latency is not the connections, and why."""

from collections.abc import Mapping

from drumbeat.bench.model.words import told_apart

_MOST_OFF = 0.02  #: how far throughput × latency may be from the connections


def off_because(little: Mapping[str, float] | None) -> str | None:
    """Why throughput × latency is not the connections; None when it is, within 2 %."""
    if little is None or max(little["off_by"], little["unexplained"]) <= _MOST_OFF:
        return None
    if little["unexplained"] > _MOST_OFF:
        share = f"{little['unexplained']:.1%} of their time is unaccounted for"
        return f"{_difference(little)}: {share}, so these figures are not to be trusted"
    waited = f"between operations they waited for the client, {little['client_share']:.1%} of the time"
    return f"{_difference(little)}: {waited}; latencies leave that out, throughput does not"


def _difference(little: Mapping[str, float]) -> str:
    """What differs: the product from the connections, or the product together with the pauses between operations."""
    found, held = little["throughput_times_latency"], little["connections"]
    if little["off_by"] > _MOST_OFF:
        one, other = told_apart(found, held)
        return f"throughput × latency is {one}, not the {other} connections held ({found / held - 1:+.1%})"
    both = found + little["client_share"] * held
    one, other = told_apart(both, held)
    return f"throughput × latency and the pauses between operations make {one}, not the {other} connections held"
