"""Drumbeat's durable steps in the comparison with DBOS: jobs are pushed and worked on by one process."""

import os

import drumbeat
from kit.steps_course import StepsCourse, main, measured

POOL = "bench"
BATCH = 1000  #: jobs that are pushed at once; DBOS has no call that starts many workflows


async def add(n: int) -> int:
    return n + 1


async def work(course: StepsCourse) -> None:
    async def handler(n: int) -> int:
        for _ in range(course.steps):
            n = await drumbeat.step(add, n)
        return n

    async with drumbeat.connect(course.url) as db:
        pool = db.pool(POOL)
        await pool.create(exist_ok=True)

        async def run() -> None:
            for first in range(0, course.jobs, BATCH):
                await pool.push_many(range(first, min(first + BATCH, course.jobs)))
            done = await db.work(POOL, handler, concurrency=course.at_once, max_jobs=course.jobs)
            if done.finished != course.jobs:
                raise SystemExit(f"expected {course.jobs} finished jobs, got {done.finished}")

        await measured(course, run)


if __name__ == "__main__":
    os.environ.pop("DRUMBEAT_STORE", None)
    main(work)
