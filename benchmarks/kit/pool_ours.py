"""Drumbeat's queue in the comparison: its public API, a worker with an async handler, fencing on."""

import os
from contextlib import AsyncExitStack

import drumbeat
import drumbeat.composition.workers
import drumbeat.pool.worker.assemble  # imported before the time is taken, like the workers of the other queues
from kit.pool_course import Course, Tally, main

POOL = "bench"


class Ours:
    """``push``, ``push_many`` and ``work`` on one connection."""

    async def open(self, course: Course) -> None:
        self._stack = AsyncExitStack()
        self._store = await self._stack.enter_async_context(drumbeat.connect(course.url))
        self._pool = self._store.pool(POOL)
        await self._pool.create(exist_ok=True)

    async def push_one(self, n: int) -> None:
        await self._pool.push(n)

    async def push_many(self, first: int, count: int) -> None:
        await self._pool.push_many(range(first, first + count))

    async def work(self, course: Course, tally: Tally) -> None:
        async def noop(n: int) -> None:
            tally.one()

        done = await self._store.work(POOL, noop, concurrency=int(course.setting), max_jobs=course.jobs)
        if done.failed or done.finished != course.jobs:
            raise SystemExit(f"expected {course.jobs} finished jobs, got {done.finished}, with {done.failed} failed attempts")


if __name__ == "__main__":
    os.environ.pop("DRUMBEAT_STORE", None)
    main({"ours": Ours})
