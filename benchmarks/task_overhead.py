"""What a task costs beside a raw handler and a raw push, on SQLite: jobs per second, and CPU time per job.

Raw and task take turns in short rounds, so that a busy machine slows both. Work: one worker, an empty function, jobs pushed
beforehand. Push: one by one, from plain code, through connect_blocking and through a task.
Goal: a task is at most 10 % below raw.
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
from kit.report import Report, median, parser, print_table, say

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


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, worked, pushed = (5, 1_000, 100) if options.quick else (15, 4_000, 300)
    names = ("work, async", "work, plain", "push")
    costs = {(name, kind): Cost() for name in names for kind in ("raw", "task")}
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/jobs.db"
        with drumbeat.connect_blocking(url) as db:
            push_task(url, 1, Cost())
            for n in range(rounds):
                say(f"round {n + 1} of {rounds}")
                work(db, raw_async, worked, costs["work, async", "raw"])
                work(db, send_async, worked, costs["work, async", "task"])
                work(db, raw, worked, costs["work, plain", "raw"])
                work(db, send, worked, costs["work, plain", "task"])
                push_raw(db, pushed, costs["push", "raw"])
                push_task(url, pushed, costs["push", "task"])
        queues.close()
    report = Report("task_overhead")
    rows = []
    for name in names:
        first, second = costs[name, "raw"], costs[name, "task"]
        speed, cpu = median(first.wall) / median(second.wall), median(first.cpu) / median(second.cpu)
        rows.append([name, *(1 / median(each.wall) for each in (first, second)), speed, median(second.cpu) * 1e6, cpu])
        report.ratios |= {f"{name}: speed": speed, f"{name}: CPU": cpu}
    print_table(["", "raw/s", "task/s", "task/raw", "CPU µs", "raw/task CPU"], rows)
    say(f"goal: task/raw at least {GOAL}")
    report.note_versions(["drumbeat"])
    report.print()


if __name__ == "__main__":
    main()
