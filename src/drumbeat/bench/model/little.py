"""Where throughput × latency is not the connections, and why."""

from collections.abc import Mapping

_MOST_OFF = 0.02  #: how far throughput × latency may be from the connections


def off_because(little: Mapping[str, float] | None) -> str | None:
    """Why throughput × latency is not the connections; None when it is, within 2 %."""
    if little is None or max(little["off_by"], little["unexplained"]) <= _MOST_OFF:
        return None
    found, held = little["throughput_times_latency"], little["connections"]
    off = f"throughput × latency is {found:.1f}, not the {held:.1f} connections held"
    if little["unexplained"] > _MOST_OFF:
        return f"{off}: {little['unexplained']:.1%} of their time is unaccounted for, so these figures are not to be trusted"
    waited = f"between operations they waited for the client, {little['client_share']:.1%} of the time"
    return f"{off}: {waited}; latencies leave that out, throughput does not"
