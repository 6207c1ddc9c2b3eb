"""Wrong tokens, counted by where they come from: further wrong ones are put off. A right token always gets in, for others may
share the address of somebody who guesses."""

import ipaddress
from collections import OrderedDict, deque
from datetime import timedelta

from drumbeat.core.clock import Clock

WRONG_AT_MOST = 10  #: in a window, from one address
WINDOW = timedelta(minutes=1)
MOST_ADDRESSES = 10_000  #: that are remembered; the one that failed longest ago is forgotten first
_OWN_NETWORK = 64  #: bits of an IPv6 address that one site has in common


class LoginAttempts:
    """Who has given wrong tokens of late. Its memory is bounded, whoever asks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, deque[timedelta]] = OrderedDict()

    def note(self, address: str) -> None:
        """One more wrong token."""
        name = network(address)
        self._wrong.setdefault(name, deque(maxlen=WRONG_AT_MOST)).append(self._clock.elapsed())
        self._wrong.move_to_end(name)
        if len(self._wrong) > MOST_ADDRESSES:
            self._wrong.popitem(last=False)

    def barred_for(self, address: str) -> timedelta:
        """How long wrong tokens from this address are put off; nothing: they are not."""
        wrong = self._wrong.get(network(address), deque())
        if len(wrong) < WRONG_AT_MOST:
            return timedelta()
        return max(wrong[0] + WINDOW - self._clock.elapsed(), timedelta())


def network(address: str) -> str:
    """Who counts as one: an address, or the network of one site where addresses are for the taking."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(found, ipaddress.IPv6Address) and not found.is_loopback:
        return str(ipaddress.ip_network((found, _OWN_NETWORK), strict=False))
    return str(found)
