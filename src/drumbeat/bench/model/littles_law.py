"""Explains deviations from Little's law: throughput × latency = connections."""

from collections.abc import Mapping

from drumbeat.bench.model.words import texts_that_differ

_MOST_OFF = 0.02  #: a deviation of up to 2 % is tolerated


def explain_deviation(little: Mapping[str, float] | None) -> str | None:
    """Explain why throughput × latency differs from the number of connections; None if it differs by at most 2 %, or was not
    checked."""
    if little is None or max(little["off_by"], little["unexplained"]) <= _MOST_OFF:
        return None
    if little["unexplained"] > _MOST_OFF:
        share = f"{little['unexplained']:.1%} of the connections' time is unexplained"
        return f"{_difference(little)}: {share}, so these figures are not reliable"
    waited = f"between operations connections waited for the client, {little['client_share']:.1%} of the time"
    return f"{_difference(little)}: {waited}; latencies do not include that, throughput does"


def _difference(little: Mapping[str, float]) -> str:
    """Return a text that says how throughput × latency differs from the number of connections. If they agree, the text says
    how the sum of throughput × latency and the pauses between operations differs from it."""
    found, held = little["throughput_times_latency"], little["connections"]
    if little["off_by"] > _MOST_OFF:
        one, other = texts_that_differ(found, held)
        return f"throughput × latency is {one}, not {other}, the number of open connections ({found / held - 1:+.1%})"
    both = found + little["client_share"] * held
    one, other = texts_that_differ(both, held)
    return f"throughput × latency plus the pauses between operations is {one}, not {other}, the number of open connections"
