"""The storage of large values: its interface, and the keys (names) of the values in it."""

import base64
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from drumbeat.core.errors import LargeLost
from drumbeat.core.job import JobId
from drumbeat.core.pool import PoolId

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,100}")
_KEY = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)+\.json")
_LONGEST_PART = 200  #: file systems allow 255 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValue:
    """One large value, as the storage lists it."""

    key: str
    modified: datetime


class LargePlace(Protocol):
    """Storage for large values. Every method raises LargeUnavailable if the storage does not answer."""

    name: str  #: for messages; contains no secret

    async def write(self, key: str, data: bytes) -> None:
        """Write a value. When this returns, the value is durable. Keys are never reused."""
        ...

    async def read(self, key: str, most: int) -> bytes:
        """Return a value. If it is longer than ``most`` bytes, return only the first ``most`` + 1, so that the caller notices.
        Raises LargeLost if it does not exist."""
        ...

    def list(self, prefix: str, after: str) -> AsyncIterator[StoredValue]:
        """Yield the values whose keys begin with ``prefix`` and come after the key ``after``, sorted by key."""
        ...

    async def delete(self, key: str) -> None:
        """Delete a value; does nothing if it does not exist."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueKey:
    """The key of a large value: which store, pool and job it belongs to, and whether it is a payload or a result."""

    store_id: str
    pool_id: PoolId
    job_id: JobId
    name: str  #: payload-… or result-…

    def __str__(self) -> str:
        return f"{self.store_id}/{_part(self.pool_id)}/{_part(self.job_id)}/{self.name}.json"

    @property
    def is_result(self) -> bool:
        return self.name.startswith("result-")


def pool_prefix(store_id: str, pool_id: PoolId) -> str:
    """Return the prefix of the keys of all values of a pool."""
    return f"{store_id}/{_part(pool_id)}/"


def parse_key(key: str) -> ValueKey | None:
    """Parse a key; None if Drumbeat does not write such keys, so that files of other programs are left alone."""
    parts = key.removesuffix(".json").split("/")
    if not _KEY.fullmatch(key) or len(parts) < 4 or not parts[-1].startswith(("payload-", "result-")):
        return None
    names: list[str] = []
    for part in parts[1:-1]:
        if part.startswith("c-") and names:
            names[-1] += part.removeprefix("c-")
        else:
            names.append(part)
    read = [_read_part(name) for name in names]
    if len(read) != 2 or read[0] is None or read[1] is None:
        return None
    return ValueKey(store_id=parts[0], pool_id=PoolId(read[0]), job_id=JobId(read[1]), name=parts[-1])


def check_key(key: str) -> str:
    """Return the key if it has the form that ``ValueKey`` writes, so that it cannot name a file elsewhere. Raises LargeLost."""
    if not _KEY.fullmatch(key):
        raise LargeLost(
            f"expected a reference to a large payload or result, got {key[:80]!r}; its row was changed; push the job again"
        )
    return key


def _part(name: str) -> str:
    """Return a name as path parts of safe characters: ``n-NAME``, or ``x-`` and base64, continued in parts ``c-…``."""
    if _PLAIN.fullmatch(name):
        return f"n-{name}"
    text = base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode().rstrip("=")
    pieces = [text[start : start + _LONGEST_PART] for start in range(0, len(text), _LONGEST_PART)]
    return "/".join(f"{'c' if number else 'x'}-{piece}" for number, piece in enumerate(pieces))


def _read_part(part: str) -> str | None:
    kind, _, text = part.partition("-")
    if kind == "n":
        return text
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8", "surrogatepass") if kind == "x" else None
    except ValueError:
        return None
