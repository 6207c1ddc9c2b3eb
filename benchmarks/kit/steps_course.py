"""The measurement of durable steps that each library runs in its own process: start many jobs of several steps, finish them.

python -m kit.steps_dbos '{"url": …, "jobs": 200, "steps": 3, "at_once": 50}' prints one JSON object. Needs only the standard
library, because it runs in the other library's environment.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsCourse:
    """How many jobs, of how many steps each, run how many at once."""

    url: str
    jobs: int
    steps: int
    at_once: int


async def measured(course: StepsCourse, run: Callable[[], Awaitable[None]]) -> None:
    """Run all jobs and print jobs per second of the clock and of the CPU; then end the process."""
    began, cpu = time.perf_counter(), time.process_time()
    await run()
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    print(json.dumps({"jobs/s": course.jobs / wall, "jobs per CPU second": course.jobs / used}), flush=True)
    os._exit(0)


def main(work: Callable[[StepsCourse], Awaitable[None]]) -> None:
    """The command line of a module: the course as JSON."""
    course = StepsCourse(**json.loads(sys.argv[1]))

    async def run() -> None:
        await work(course)

    asyncio.run(run())
