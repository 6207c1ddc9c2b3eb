"""Rate limit of wrong tokens, by client address. The right token is always accepted, because other clients may share the
address of an attacker."""

import ipaddress
from collections import OrderedDict, deque
from datetime import timedelta

from drumbeat.core.clock import Clock

WRONG_AT_MOST = 10  #: per window and address
WINDOW = timedelta(minutes=1)
MOST_ADDRESSES = 10_000  #: in memory; the address that failed longest ago is dropped first
_SITE_BITS = 64  #: length of the IPv6 prefix that one site owns


class LoginAttempts:
    """Recent wrong tokens by address, in bounded memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, deque[timedelta]] = OrderedDict()

    def note(self, address: str) -> None:
        """Count a wrong token."""
        name = network(address)
        self._wrong.setdefault(name, deque(maxlen=WRONG_AT_MOST)).append(self._clock.elapsed())
        self._wrong.move_to_end(name)
        if len(self._wrong) > MOST_ADDRESSES:
            self._wrong.popitem(last=False)

    def barred_for(self, address: str) -> timedelta:
        """How long wrong tokens from this address are still answered with 429; zero if they are not."""
        wrong = self._wrong.get(network(address), deque())
        if len(wrong) < WRONG_AT_MOST:
            return timedelta()
        return max(wrong[0] + WINDOW - self._clock.elapsed(), timedelta())


def network(address: str) -> str:
    """The key to count by: an IPv4 address, or the network of an IPv6 address, because one site has many addresses."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(found, ipaddress.IPv6Address) and not found.is_loopback:
        return str(ipaddress.ip_network((found, _SITE_BITS), strict=False))
    return str(found)
