"""Names of instances at providers that allow only short names of few characters, such as DNS labels.

A name consists of a readable part and a hash of store, pool and worker. The hash alone makes it unique: two workers whose names
differ in any way, such as in case or after 200 characters, have different provider names. The same worker always has the same
name, so that a provider with unique names refuses to start it twice.
"""

import base64
import hashlib
import unicodedata
from typing import Final

from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId

Name = tuple[PoolId, WorkerId]  #: identifies a worker: its pool and its id

POOL: Final = "DRUMBEAT_POOL_ID"  #: environment variable that tells an instance its pool
WORKER: Final = "DRUMBEAT_WORKER_ID"  #: environment variable that tells an instance its worker id
DNS_LABEL: Final = 63  #: the longest label of a host name, and the longest name of a Kubernetes Job's pods
_HASH: Final = 16  #: characters of 5 bits: among 10⁹ workers, two have the same hash with a probability of 1 in 2 million
_SHORTEST: Final = 32


def instance_name(
    scope: str, pool_id: PoolId, worker_id: WorkerId, *, prefix: str = "drumbeat", longest: int = DNS_LABEL
) -> str:
    """Return the provider's name for a worker: lower-case letters, digits and single dashes, starting with a letter.

    ``scope`` tells stores apart, ``prefix`` must itself be such a name. Raises InvalidInput if ``longest`` is below 32.
    """
    tail = digest(scope, pool_id, worker_id)
    room = _room(prefix, longest, tail)
    words = [slug(pool_id, room // 2), slug(worker_id, room - room // 2 - 1)]
    return "-".join([prefix, *(word for word in words if word), tail])


def pool_name(scope: str, pool_id: PoolId, *, prefix: str = "drumbeat", longest: int = DNS_LABEL) -> str:
    """Return the provider's name for a pool, for labels by which its instances are listed. Same rules as ``instance_name``."""
    tail = digest(scope, pool_id)
    return "-".join([prefix, *filter(None, [slug(pool_id, _room(prefix, longest, tail))]), tail])


def scope_name(scope: str) -> str:
    """Return a short name of a store: letters and digits, starting with a letter, the same length for every store."""
    return f"s{digest(scope)}"


def slug(text: str, longest: int) -> str:
    """Return the letters and digits of a text in lower case, with single dashes between; empty if nothing readable remains."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = "".join(character if character.isalnum() else " " for character in plain).split()
    return "-".join(words)[: max(longest, 0)].strip("-")


def digest(*parts: str) -> str:
    """Return 16 letters and digits that are different for different parts; ("ab", "c") and ("a", "bc") differ, too."""
    whole = b"".join(len(data := part.encode("utf-8", "surrogatepass")).to_bytes(8) + data for part in parts)
    return base64.b32encode(hashlib.sha256(whole).digest()).decode().lower()[:_HASH]


def _room(prefix: str, longest: int, tail: str) -> int:
    """Return how many characters are left for the readable part. Raises InvalidInput if ``longest`` is too small."""
    if longest < _SHORTEST or longest < len(prefix) + len(tail) + 2:
        least = max(_SHORTEST, len(prefix) + len(tail) + 2)
        raise InvalidInput(f"expected names of at least {least} characters for prefix {prefix!r}, got {longest}")
    return longest - len(prefix) - len(tail) - 2
