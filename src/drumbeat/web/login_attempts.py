"""Rate limit of wrong tokens by address. The right token always works: a user and an attacker may share an address."""

import ipaddress
from collections import OrderedDict, deque
from datetime import timedelta

from drumbeat.core.clock import Clock

WRONG_AT_MOST = 10  #: wrong tokens per address and minute; more get 429
WINDOW = timedelta(minutes=1)
MOST_ADDRESSES = 10_000  #: maximum number of addresses in memory; the one that failed longest ago is dropped first
_SITE_BITS = 64  #: length of the IPv6 prefix that one site owns


class LoginAttempts:
    """Counts recent wrong tokens by client address, in bounded memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, deque[timedelta]] = OrderedDict()

    def note(self, address: str) -> None:
        """Count a wrong token from this address."""
        name = network(address)
        self._wrong.setdefault(name, deque(maxlen=WRONG_AT_MOST)).append(self._clock.elapsed())
        self._wrong.move_to_end(name)
        if len(self._wrong) > MOST_ADDRESSES:
            self._wrong.popitem(last=False)

    def barred_for(self, address: str) -> timedelta:
        """Return how long further wrong tokens from this address are answered with 429; zero if they are not."""
        wrong = self._wrong.get(network(address), deque())
        if len(wrong) < WRONG_AT_MOST:
            return timedelta()
        return max(wrong[0] + WINDOW - self._clock.elapsed(), timedelta())


def network(address: str) -> str:
    """Return the key to count by: the IPv4 address, or the /64 network of an IPv6 address (one site has many addresses)."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(found, ipaddress.IPv6Address) and not found.is_loopback:
        return str(ipaddress.ip_network((found, _SITE_BITS), strict=False))
    return str(found)
