"""DBOS in the comparison of durable steps: workflows are called and finished by one process."""

import asyncio
from importlib import import_module
from typing import Any

from kit.steps_course import StepsCourse, main, measured

DBOS: Any = import_module("dbos").DBOS


async def add(n: int) -> int:
    return n + 1


step: Any = DBOS.step()(add)


async def add_often(n: int, steps: int) -> int:
    for _ in range(steps):
        n = await step(n)
    return n


flow: Any = DBOS.workflow()(add_often)


async def work(course: StepsCourse) -> None:
    settings = {"name": "bench", "system_database_url": course.url, "run_admin_server": False, "log_level": "ERROR"}
    DBOS(config=settings)
    DBOS.launch()
    slots = asyncio.Semaphore(course.at_once)

    async def one(n: int) -> None:
        async with slots:
            if await flow(n, course.steps) != n + course.steps:
                raise SystemExit(f"expected {n + course.steps} from workflow {n}")

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(course.jobs):
                group.create_task(one(n))

    await measured(course, run)


if __name__ == "__main__":
    main(work)
