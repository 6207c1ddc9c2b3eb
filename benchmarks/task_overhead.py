"""Measure what a task costs compared with a raw handler and a raw push, on SQLite: jobs per second, and CPU time per job.

Both are measured in turn, in short rounds, and each goes first in every second round, so that a busy machine slows both alike;
the first round does not count. The quartiles of the rounds' ratios show how reliable the median is. Work: one worker runs an
empty function, with jobs pushed beforehand. Push: one by one, from code without asyncio, by connect_blocking and by a task.
Goal: a task is at most 10 % slower.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import drumbeat
import kit  # noqa: F401
from drumbeat.client import BlockingConnection
from drumbeat.tasks.queue import queues
from kit.report import Report, median, parser, percentile, print_table, say

POOL = "default"
ARGUMENTS = {"args": ["a@example.org"], "kwargs": {"subject": "hello"}}
GOAL = 0.9


@drumbeat.task
async def send_async(to: str, subject: str) -> None: ...


@drumbeat.task
def send(to: str, subject: str) -> None: ...


async def raw_async(payload: Any) -> None: ...


def raw(payload: Any) -> None: ...


@dataclass(slots=True)
class Cost:
    """Seconds of the clock and of the CPU for each job, one entry for each round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @contextmanager
    def measure(self, jobs: int) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall.append((time.perf_counter() - wall) / jobs)
        self.cpu.append((time.process_time() - cpu) / jobs)


def work(db: BlockingConnection, handler: Callable[..., Any], jobs: int, cost: Cost) -> None:
    db.pool(POOL).push_many([ARGUMENTS] * jobs, type="t")
    with cost.measure(jobs):
        db.work(POOL, {"t": handler}, concurrency=20)


def push_raw(db: BlockingConnection, jobs: int, cost: Cost) -> None:
    pool = db.pool(POOL)
    with cost.measure(jobs):
        for _ in range(jobs):
            pool.push(ARGUMENTS, type="t")


def push_task(url: str, jobs: int, cost: Cost) -> None:
    task = send.with_options(store=url)
    with cost.measure(jobs):
        for _ in range(jobs):
            task.push("a@example.org", subject="hello")


def ratios(first: list[float], second: list[float]) -> tuple[float, float, float]:
    """Return the median of the rounds' ratios, and their quartiles, which show how reliable the median is."""
    found = [one / other for one, other in zip(first, second, strict=True)]
    return median(found), percentile(found, 25), percentile(found, 75)


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, worked, pushed = (6, 1_000, 50) if options.quick else (24, 2_000, 100)
    names = ("work, async", "work, plain", "push")
    costs = {(name, kind): Cost() for name in names for kind in ("raw", "task")}
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/jobs.db"
        with drumbeat.connect_blocking(url) as db:
            push_task(url, 1, Cost())
            runs: dict[tuple[str, str], Callable[[Cost], None]] = {
                ("work, async", "raw"): lambda cost: work(db, raw_async, worked, cost),
                ("work, async", "task"): lambda cost: work(db, send_async, worked, cost),
                ("work, plain", "raw"): lambda cost: work(db, raw, worked, cost),
                ("work, plain", "task"): lambda cost: work(db, send, worked, cost),
                ("push", "raw"): lambda cost: push_raw(db, pushed, cost),
                ("push", "task"): lambda cost: push_task(url, pushed, cost),
            }
            for n in range(-1, rounds):
                say(f"round {n + 1} of {rounds}")
                for name in names:
                    for kind in ("raw", "task") if n % 2 else ("task", "raw"):  # each goes first in every second round
                        runs[name, kind](Cost() if n < 0 else costs[name, kind])
        queues.close()
    report = Report("task_overhead")
    rows = []
    for name in names:
        first, second = costs[name, "raw"], costs[name, "task"]
        speed, cpu = ratios(first.wall, second.wall), ratios(first.cpu, second.cpu)
        rows.append([name, 1 / median(second.wall), *speed, median(second.cpu) * 1e6, *cpu])
        report.ratios |= {f"{name}: speed": speed[0], f"{name}: CPU": cpu[0]}
        report.figures |= {f"{name}: quartiles": {"speed": speed[1:], "CPU": cpu[1:]}}
    print_table(["", "task/s", "task/raw", "25 %", "75 %", "CPU µs", "raw/task CPU", "25 %", "75 %"], rows)
    say(f"goal: task/raw at least {GOAL}")
    report.note_versions(["drumbeat"])
    report.print()


if __name__ == "__main__":
    main()
