"""What a pool's jobs pass through on their way to the store and back: middleware, and the storage of large values."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from drumbeat.core.errors import InvalidInput, LargeLost, LargeUnavailable, LargeValueError
from drumbeat.core.job import ENDED, AttemptOutcome, Job, JobId, JobOutcome, JobStatus, JobsWithTemplate, NewJob
from drumbeat.core.pool import PoolId
from drumbeat.pool.envelope import needs_envelope, open_envelope, seal
from drumbeat.pool.large.values import MOST_LARGE, LargeValues, fetch_value
from drumbeat.pool.middleware import AttemptCall, MiddlewareChain, OutgoingJob
from drumbeat.pool.outputs import filled_in, has_outputs
from drumbeat.pool.payload import MOST_BYTES, as_json
from drumbeat.runtime.timeouts import describe

log = logging.getLogger(__name__)

ReadParents = Callable[[JobId], Awaitable[Sequence[Job]]]  #: reads the jobs that a job waited for
Send = Callable[[Sequence[NewJob]], Awaitable[Sequence[JobId]]]
SendBlocking = Callable[[Sequence[NewJob]], Sequence[JobId]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlugins:
    """The middleware and the storage of large values (``large``) of this process; each can be missing."""

    middleware: MiddlewareChain | None = None
    large: LargeValues | None = None

    @property
    def most_bytes(self) -> int:
        """The largest size of a payload or result, in bytes of JSON."""
        return MOST_BYTES if self.large is None else MOST_LARGE

    def with_middleware(self, members: Sequence[object]) -> "PoolPlugins":
        """Return plugins with ``members`` added after the middleware. Raises InvalidInput for an object without any hook."""
        own = self.middleware.members if self.middleware else ()
        return replace(self, middleware=MiddlewareChain([*own, *members])) if members else self

    async def prepare(self) -> None:
        """Write the store's id for large values, if there is none yet. Otherwise the first push in a transaction of the caller
        would write it and, in SQLite, wait for that same transaction to end."""
        if self.large is not None:
            await self.large.store_id()

    async def push(self, pool_id: PoolId, jobs: Sequence[NewJob], send: Send) -> Sequence[JobId]:
        """Push jobs by calling ``send``, with the headers that middleware adds, and with large payloads outside the store."""
        if not jobs or self.middleware is None or not self.middleware.has("before_push", "after_push"):
            return await send(_escaped(jobs) if self.large is None else await self.large.store_jobs(pool_id, jobs))

        async def send_with_headers(outgoing: Sequence[OutgoingJob]) -> Sequence[JobId]:
            return await send(await self._sealed(pool_id, jobs, [job.headers for job in outgoing]))

        return await self.middleware.around_push(pool_id, jobs, send_with_headers)

    def push_blocking(self, pool_id: PoolId, jobs: Sequence[NewJob], send: SendBlocking) -> Sequence[JobId]:
        """Push jobs like ``push``, but without awaiting anything: async hooks are skipped, and payloads stay in the store.
        Raises InvalidInput for a payload that is too large for the store."""
        if self.large is not None:
            for job in jobs:
                as_json(job.payload)
        if not jobs or self.middleware is None or not self.middleware.has("before_push", "after_push"):
            return send(_escaped(jobs))
        return self.middleware.around_blocking_push(
            pool_id, jobs, lambda outgoing: send(_with_headers(jobs, [job.headers for job in outgoing]))
        )

    async def _sealed(self, pool_id: PoolId, jobs: Sequence[NewJob], headers: Sequence[dict[str, str]]) -> Sequence[NewJob]:
        if self.large is not None:
            return await self.large.store_jobs(pool_id, jobs, headers)
        return _with_headers(jobs, headers)

    async def opened(self, job: Job, most: int = MOST_LARGE) -> Job:
        """Return a job with its payload as it was pushed, and its result as the handler returned it. A large value stays a
        reference if it has more than ``most`` bytes, or if it cannot be read, which is logged."""
        if not needs_envelope(job.payload) and not needs_envelope(job.result):
            return job
        return replace(job, payload=await self._shown(job, job.payload, most), result=await self._shown(job, job.result, most))

    async def _shown(self, job: Job, stored: Any, most: int) -> Any:
        envelope = open_envelope(stored)
        if envelope.large is not None and envelope.large.size > most:
            return stored
        try:
            return await fetch_value(self.large, envelope)
        except LargeValueError as exc:
            log.warning("failed to read a large value of job %s: %s; showing its reference instead", job.job_id, exc)
            return stored

    async def opened_payload(self, job: Job) -> Job:
        """Return a job with its payload as it was pushed. Raises LargeValueError."""
        if not needs_envelope(job.payload):
            return job
        return replace(job, payload=await fetch_value(self.large, open_envelope(job.payload)))

    async def opened_claims(
        self,
        jobs: Sequence[Job],
        poison: Callable[[Job, str], Awaitable[None]],
        settle: Callable[[Sequence[JobOutcome]], Awaitable[object]],
        read_parents: ReadParents,
    ) -> Sequence[Job]:
        """Return claimed jobs with their payloads, results of parents filled in. Calls ``poison`` for a job whose payload is
        lost or needs a result that is not there, and leaves it out. If something cannot be read now, or if the caller is
        cancelled, calls ``settle`` to release all jobs before this raises."""
        opened: list[Job] = []
        try:
            for job in jobs:
                try:
                    opened.append(await self.with_results(await self.opened_payload(job), read_parents))
                except (LargeLost, InvalidInput) as exc:
                    await poison(job, str(exc))
        except BaseException:
            await _release(jobs, settle)
            raise
        return opened

    async def with_results(self, job: Job, read_parents: ReadParents) -> Job:
        """Return a job with the results of its parents filled in as arguments, if its payload refers to some; the result of a
        failed parent is None. Raises LargeValueError if a result cannot be read, InvalidInput if an argument needs a parent
        that has not ended."""
        if job.if_failed is None or not has_outputs(job.payload):
            return job
        ended = [parent for parent in await read_parents(job.job_id) if parent.status in ENDED]
        results = {str(parent.job_id): await self.opened_result(parent) for parent in ended}
        return replace(job, payload=filled_in(job.payload, results))

    async def tell_poisoned(self, jobs: Sequence[Job]) -> None:
        """Call the hook ``on_poison`` for each of these jobs that is now poisoned. Their workers have crashed."""
        if self.middleware is None:
            return
        for job in jobs:
            if job.status is JobStatus.POISONED:
                envelope = open_envelope(job.payload)
                outcome = JobOutcome(token=job.token, outcome=AttemptOutcome.CRASHED, error=job.last_error)
                call = AttemptCall(job=replace(job, payload=envelope.value), headers=dict(envelope.headers), outcome=outcome)
                await self.middleware.call("on_poison", call)

    async def opened_result(self, job: Job) -> Any:
        """Return a job's result as its handler returned it. Raises LargeValueError."""
        return await fetch_value(self.large, open_envelope(job.result)) if needs_envelope(job.result) else job.result

    async def sealed_result(self, job: Job, result: Any) -> Any:
        """Convert a result to what is stored. If the storage of large values does not answer, a large result stays in the store
        if it fits there. Raises InvalidInput; LargeUnavailable for a result that does not fit."""
        value = as_json(result, "result", self.most_bytes)
        if self.large is None:
            return seal(value)
        try:
            return await self.large.store_result(job, value)
        except LargeUnavailable as exc:
            if not _fits(value):
                raise
            log.warning("the large result of job %s could not be stored elsewhere, so the store keeps it: %s", job.job_id, exc)
            return seal(value)


async def _release(jobs: Sequence[Job], settle: Callable[[Sequence[JobOutcome]], Awaitable[object]]) -> None:
    """Return claimed jobs to the queue without counting an attempt. If the store does not answer, that is logged."""
    try:
        await settle([JobOutcome(token=job.token, outcome=AttemptOutcome.RELEASED) for job in jobs])
    except Exception as exc:
        said = "failed to release %d claimed jobs: %s; they are retried when their leases run out"
        log.warning(said, len(jobs), describe(exc))


def _with_headers(jobs: Sequence[NewJob], headers: Sequence[dict[str, str]]) -> Sequence[NewJob]:
    if any(headers):
        return [replace(job, payload=seal(job.payload, each)) for job, each in zip(jobs, headers, strict=True)]
    return _escaped(jobs)


def _escaped(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Return the jobs, with each payload that would be taken for an envelope put into an envelope."""
    payloads = jobs.payloads if isinstance(jobs, JobsWithTemplate) else [job.payload for job in jobs]
    for payload in payloads:
        if needs_envelope(payload):
            return [replace(job, payload=seal(job.payload)) for job in jobs]
    return jobs


def _fits(value: Any) -> bool:
    try:
        as_json(value, "result")
    except InvalidInput:
        return False
    return True


NO_PLUGINS = PoolPlugins()
