"""Moves payloads and results above a size limit to a folder or bucket outside the store, and brings them back."""

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar
from uuid import uuid4

from drumbeat.core.clock import Clock
from drumbeat.core.errors import LargeLost, LargeUnavailable, first_error
from drumbeat.core.job import Job, JobId, NewJob
from drumbeat.core.pool import PoolId
from drumbeat.pool.envelope import Envelope, LargeReference, seal
from drumbeat.pool.large.place import LargePlace, ValueKey
from drumbeat.store.interface import Store

T = TypeVar("T")
OnLoop = Callable[[Coroutine[Any, Any, str]], Awaitable[str]]

MOST_LARGE = 256 * 1024 * 1024  #: the most bytes of JSON of one large payload or result
NOTE = "large"  #: name of the note with the store's id, the first part of every key
LEASE = "large/id"  #: name of the lease for making that id; names of leases without a slash belong to pools
_ID_LEASE = timedelta(days=1)  #: far longer than it takes to write that note
_USABLE_ID = re.compile(r"[A-Za-z0-9_-]+")  #: an id that can be part of a key
_EARLIER_ID = re.compile(r"[0-9a-f]{32}")  #: an id of an earlier version, which was the owner of a lease named ``NOTE``
_PAUSES = tuple(timedelta(milliseconds=100 * 4**n) for n in range(3))  #: pauses between tries, if the storage does not answer
_IN_THREAD_ABOVE = 1024 * 1024  #: bytes whose checksum takes about a millisecond
_AT_ONCE = 8  #: the most values that one push writes at the same time


@dataclass(frozen=True, kw_only=True)
class LargeValues:
    """The large values of one store: those above ``max_inline`` bytes of JSON are written to ``place``."""

    place: LargePlace
    store: Store
    clock: Clock
    max_inline: int
    on_loop: OnLoop | None = None  #: runs calls of the store on its event loop, if pushes are also awaited on others

    async def store_jobs(
        self, pool_id: PoolId, jobs: Sequence[NewJob], headers: Sequence[Mapping[str, str]] | None = None
    ) -> Sequence[NewJob]:
        """Return the jobs with large payloads replaced by references. A job without an id gets one, because the key of its
        payload contains it. Raises LargeUnavailable before anything is pushed."""
        sealed = list(jobs)
        given: Sequence[Mapping[str, str] | None] = headers or [None] * len(jobs)
        large = [(number, data) for number, job in enumerate(jobs) if (data := self._too_large(job.payload)) is not None]
        limit = asyncio.Semaphore(_AT_ONCE)

        async def move(number: int, data: bytes) -> None:
            async with limit:
                job = jobs[number]
                job_id = job.job_id or JobId(f"large-{uuid4().hex}")
                reference = await self._write(pool_id, job_id, f"payload-{uuid4().hex}", data)
                sealed[number] = replace(job, job_id=job_id, payload=seal(None, given[number], reference))

        try:
            async with asyncio.TaskGroup() as group:
                for number, data in large:
                    group.create_task(move(number, data))
        except ExceptionGroup as exc:
            raise first_error(exc) from exc
        moved = {number for number, _ in large}
        for number, job in enumerate(jobs):
            if number not in moved:
                sealed[number] = replace(job, payload=seal(job.payload, given[number]))
        return sealed

    async def store_result(self, job: Job, result: Any) -> Any:
        """Return what to store as the job's result: the result, or a reference if it is large. Raises LargeUnavailable."""
        data = self._too_large(result)
        if data is None:
            return seal(result)
        name = f"result-{job.lease_epoch}-{uuid4().hex}"
        return seal(None, None, await self._write(job.pool_id, job.job_id, name, data))

    async def fetch(self, envelope: Envelope) -> Any:
        """Return the value of an envelope. Raises LargeUnavailable; LargeLost if the value is missing or was changed."""
        reference = envelope.large
        if reference is None:
            return envelope.value
        data = await self._retried(lambda: self.place.read(reference.key, reference.size))
        if len(data) != reference.size or await _checksum(data) != reference.sha256:
            raise LargeLost(
                f"expected {reference.size} bytes with the checksum {reference.sha256[:12]}… under {reference.key} in "
                f"{self.place.name}, got other content: the file was changed; restore it, then requeue the job"
            )
        return json.loads(data)

    def _too_large(self, value: Any) -> bytes | None:
        """Return a value as JSON if that is longer than ``max_inline`` bytes; None if it is not."""
        if isinstance(value, str | None) and (value is None or len(value) * 6 + 2 <= self.max_inline):
            return None
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        return data if len(data) > self.max_inline else None

    async def _write(self, pool_id: PoolId, job_id: JobId, name: str, data: bytes) -> LargeReference:
        key = str(ValueKey(store_id=await self.store_id(), pool_id=pool_id, job_id=job_id, name=name))
        await self._retried(lambda: self.place.write(key, data))
        return LargeReference(key=key, size=len(data), sha256=await _checksum(data))

    async def _retried(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        for pause in _PAUSES:
            try:
                return await work()
            except LargeUnavailable:
                await self.clock.sleep(pause)
        return await work()

    async def store_id(self) -> str:
        """Return the id of the store. Two stores can share a folder or bucket: each deletes only values under its own id."""
        if "id" not in self._identity:
            found = self._find_store_id()
            self._identity["id"] = await (found if self.on_loop is None else self.on_loop(found))
        return self._identity["id"]

    async def _find_store_id(self) -> str:
        """Read the id of the store, or make it. Makes a new one if no value can be written under the id in the store."""
        note = await self.store.notes.find(NOTE)
        if note is None or not _USABLE_ID.fullmatch(str(note.value["id"])):
            note = await self.store.notes.put(NOTE, {"id": await self._agree_on_id()})
        return str(note.value["id"])

    async def _agree_on_id(self) -> str:
        """Return an id that is the same in all processes that make one at the same time: only one of them acquires a lease,
        and all of them take the owner of that lease as the id."""
        earlier = await self.store.leases.find(NOTE)
        proposed = earlier.owner if earlier is not None and _EARLIER_ID.fullmatch(earlier.owner) else uuid4().hex
        lease = await self.store.leases.acquire(LEASE, proposed, _ID_LEASE) or await self.store.leases.find(LEASE)
        return proposed if lease is None else lease.owner

    @cached_property
    def _identity(self) -> dict[str, str]:
        return {}


async def _checksum(data: bytes) -> str:
    """Return the SHA-256 of a value. For a long value it is computed in a thread, so that the event loop goes on.

    For JSON a thread would not help: Python's encoder and decoder let no other thread run meanwhile.
    """
    if len(data) <= _IN_THREAD_ABOVE:
        return hashlib.sha256(data).hexdigest()
    return await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())


async def fetch_value(large: LargeValues | None, envelope: Envelope) -> Any:
    """Return the value of an envelope, large or not. Raises LargeUnavailable, LargeLost."""
    if envelope.large is None:
        return envelope.value
    if large is None:
        raise LargeUnavailable(
            f"expected the setting [pool] large (or DRUMBEAT_LARGE), got none, but this value of {envelope.large.size} bytes "
            "is stored outside the store; set it here as in the process that wrote the value"
        )
    return await large.fetch(envelope)
