"""Calls hooks for jobs taken back from silent workers, in a task of its own, so that slow hooks delay no lease renewal."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from drumbeat.core.job import Job

log = logging.getLogger(__name__)


async def _no_hooks(jobs: Sequence[Job]) -> None:
    """Do nothing: the worker has no middleware."""


class TakenBackJobs:
    """The jobs that were taken back and whose hooks are still to be called. A slow hook delays only other hooks."""

    def __init__(self, call_hooks: Callable[[Sequence[Job]], Awaitable[None]] = _no_hooks) -> None:
        self._call_hooks = call_hooks
        self._waiting: asyncio.Queue[Sequence[Job]] = asyncio.Queue()

    def add(self, jobs: Sequence[Job]) -> None:
        self._waiting.put_nowait(jobs)

    async def run(self) -> None:
        """Call hooks until this is cancelled."""
        while True:
            jobs = await self._waiting.get()
            try:
                await self._call_hooks(jobs)
            except Exception:
                log.exception(
                    "failed to call the middleware hooks of %d jobs that were taken back from silent workers; "
                    "the jobs are not affected, and their hooks are not called again",
                    len(jobs),
                )
            finally:
                self._waiting.task_done()

    async def until_called(self) -> None:
        """Wait until the hooks of all jobs that were added so far have been called."""
        await self._waiting.join()
