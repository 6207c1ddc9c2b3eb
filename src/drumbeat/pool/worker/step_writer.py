"""Records the steps of all jobs that a worker runs: those that finish while one write runs are written together by the next."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from drumbeat.core.clock import Clock
from drumbeat.core.errors import StoreLocked, StoreUnavailable
from drumbeat.core.job import JobId, Token
from drumbeat.core.job_step import JobStep, NewStep
from drumbeat.pool.own_transaction import stale_write
from drumbeat.pool.worker.claims import Claims
from drumbeat.pool.worker.store_retry import PAUSES, until_answered
from drumbeat.runtime.timeouts import describe

log = logging.getLogger(__name__)

MOST_AT_ONCE = 500  #: the most steps that are written in one transaction

Waiting = tuple[NewStep, "asyncio.Future[None]"]


class StepWriter:
    """Writes steps in batches, in the order in which they finished. Belongs to the worker's event loop."""

    def __init__(
        self,
        claims: Claims,
        clock: Clock,
        forget: Callable[[Token], bool],
        lease_left: Callable[[Token], timedelta | None],
    ) -> None:
        """``forget`` is called with the token of a job that was taken from this worker, and stops its handler; ``lease_left``
        returns for how long the lease of a job holds for sure, None if the worker does not hold the job any more."""
        self._claims = claims
        self._clock = clock
        self._forget = forget
        self._lease_left = lease_left
        self._waiting: list[Waiting] = []
        self._wake = asyncio.Event()
        self._is_closed = False

    async def read(self, job_id: JobId) -> Sequence[JobStep]:
        """Read the recorded steps of a job, and the events that were sent to it. Waits until the store answers."""
        return await until_answered(self._clock, partial(self._claims.steps.list, job_id), f"the steps of job {job_id}")

    async def write(self, new: NewStep) -> None:
        """Record a step. If the caller is cancelled, the step is still recorded before this raises CancelledError, so that a
        worker that is asked to stop does not lose a finished step."""
        if self._is_closed:
            raise stale_write(new.token)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((new, written))
        self._wake.set()
        try:
            await asyncio.shield(written)
        except asyncio.CancelledError:
            await asyncio.wait([written])
            if not written.cancelled():
                written.exception()
            raise

    async def sleep(self, duration: timedelta) -> None:
        await self._clock.sleep(duration)

    async def run(self) -> None:
        """Write steps until this is cancelled."""
        batch: list[Waiting] = []
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(0)  # handlers that are ready now finish their steps before the write begins
                self._wake.clear()
                while self._waiting:
                    batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                    await self._write(batch)
        finally:
            self._is_closed = True
            for _, written in (*batch, *self._waiting):
                written.cancel()

    async def _write(self, batch: Sequence[Waiting]) -> None:
        pause = PAUSES[0]
        while batch:
            try:
                stale = await self._claims.record_steps([new for new, _ in batch])
            except StoreUnavailable as exc:
                log.warning("failed to record %d steps: %s; retrying", len(batch), exc)
                await self._clock.sleep(pause)
                pause = min(pause * 2, PAUSES[1])
                batch = [each for each in batch if not self._gives_up(each, exc)]
            except Exception as exc:
                await self._write_one_by_one(batch, exc)
                return
            else:
                self._settle(batch, set(stale))
                return

    def _gives_up(self, waiting: Waiting, exc: StoreUnavailable) -> bool:
        """Whether to stop trying to record a step, so that the step raises an error. True if the worker no longer holds the
        job, or if the store was locked until the job's lease ran out: the lock may be an open transaction of the same handler,
        and then the transaction and the step would wait for each other."""
        new = waiting[0]
        left = self._lease_left(new.token)
        if left is None:
            _answer(waiting, stale_write(new.token))
            return True
        if left > timedelta() or not isinstance(exc, StoreLocked):
            return False
        _answer(
            waiting,
            StoreLocked(
                f"step {new.step.name!r} of job {new.token.job_id} was not recorded before its lease ran out: {exc}; "
                "a handler must end a transaction of its own on the store's database before it runs a step"
            ),
        )
        return True

    async def _write_one_by_one(self, batch: Sequence[Waiting], exc: Exception) -> None:
        """Write steps one by one after the store has refused them together; ``write`` raises an error only for refused ones."""
        if len(batch) == 1:
            _answer(batch[0], exc)
            return
        log.warning("the store refused %d steps: %s; writing them one by one", len(batch), describe(exc))
        for each in batch:
            await self._write([each])

    def _settle(self, batch: Sequence[Waiting], stale: set[Token]) -> None:
        for token in stale:
            if self._forget(token):
                log.warning("job %s was taken from this worker; its step is dropped", token.job_id)
        for each in batch:
            token = each[0].token
            _answer(each, stale_write(token) if token in stale else None)


def _answer(waiting: Waiting, exc: Exception | None) -> None:
    """End the call of ``write`` that waits for this step: it returns, or raises ``exc`` if that is not None."""
    written = waiting[1]
    if written.done():
        return
    if exc is None:
        written.set_result(None)
    else:
        written.set_exception(exc)
