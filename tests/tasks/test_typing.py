"""What mypy --strict says of tasks and of the blocking API: right calls pass, wrong arguments, options and results do not."""

import re
import subprocess
import sys
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".mypy_cache" / "snippets"  #: makes all runs but the first fast

SNIPPET = """
import sqlite3
from datetime import timedelta
from typing import assert_type
from collections.abc import Sequence

import drumbeat
from drumbeat import Job, JobContext, PushedJob, Task, TaskJob, Workflow, task
from drumbeat.client import JobId, PoolStatus, WorkerSummary


@drumbeat.task
def add(first: int, second: int = 2) -> int:
    return first + second


@task(pool="mail", max_attempts=5, timeout=timedelta(minutes=1), unique="mail:{to}", rate="10/s", priority=3)
async def send(context: JobContext, to: str, *, subject: str) -> list[str]:
    return [to, subject]


@task
def report(context: JobContext, name: str) -> None: ...


@task
def total(numbers: Sequence[int], *, start: int = 0) -> float:
    return sum(numbers, start) / 2


def right() -> None:
    assert_type(add(1, second=2), int)
    assert_type(add.push(1, second=2), PushedJob[int])
    assert_type(add.push(1).result(timeout=5), int)
    assert_type(send.push("a@x", subject="hi").result(), list[str])
    add.push_in(5, 1)
    send.push_in(timedelta(1), "a@x", subject="hi")
    assert_type(add.push_many([add.bind(1), add.bind(2, 3)]), list[PushedJob[int]])
    report.push("x")
    assert_type(add.push_on(sqlite3.connect("shop.db"), 1, second=2), PushedJob[int])
    send.with_options(priority=9).push("a@x", subject="hi")
    either: Task[[int], int] = task(lambda n: n)
    assert_type(add.job(1).then(add, second=3), TaskJob[int])
    assert_type(add.job(1).then(add).push().result(), int)
    assert_type(drumbeat.group(add.job(1), add.job(2)).then(total, start=1), TaskJob[float])
    assert_type(total.job([add.job(1).output]).after(add.job(2), if_failed="run"), TaskJob[float])
    assert_type(drumbeat.chain(add.job(1), [add.job(2), add.job(3)]), Workflow)


async def right_within_a_loop(context: JobContext) -> None:
    assert_type(await send(context, "a@x", subject="hi"), list[str])
    assert_type(await (await send.apush("a@x", subject="hi")).aresult(), list[str])
    assert_type(await send.apush_many([send.bind("a", subject="b")]), list[PushedJob[list[str]]])


async def wrong(context: JobContext) -> None:
    add.push("1")  # E: Argument 1 to "push"
    add.push()  # E: Missing positional argument "first"
    add.push(1, third=3)  # E: Unexpected keyword argument "third"
    await send.apush("a@x")  # E: Missing named argument "subject"
    send.push_in(5, 3, subject="hi")  # E: Argument 2 to "push_in"
    add.push_in("5", 1)  # E: Argument 1 to "push_in"
    add.job("1")  # E: Argument 1 to "job"
    add.job(1).then(report)  # E: Argument 1 to "then"
    add.job(1).then(add, third=3)  # E: Unexpected keyword argument "third"
    drumbeat.group(add.job(1)).then(add)  # E: Argument 1 to "then"
    add.push_many([send.bind("a", subject="b")])  # E: List item 0 has incompatible type
    add.push_on(sqlite3.connect("shop.db"), "1")  # E: No overload variant
    add.push_many([1])  # E: List item 0 has incompatible type
    text: str = add.push(1).result()  # E: Incompatible types in assignment
    add.with_options(prio=3)  # E: Unexpected keyword argument "prio"
    add.with_options(priority="high")  # E: Argument "priority"
    report.push(context, "x")  # E: Too many arguments
    report("x")  # E: Missing positional argument

    @task(max_attempt=3)  # E: Unexpected keyword argument "max_attempt"
    def misspelt() -> None: ...

    @task(timeout="soon")  # E: No overload variant
    def untimely() -> None: ...


def blocking() -> None:
    with drumbeat.connect_blocking() as db:
        pool = db.pool("papers")
        assert_type(pool.push({"n": 1}, priority=3), JobId)
        assert_type(pool.push_many([1], delay=3), Sequence[JobId])
        assert_type(pool.job("j"), Job)
        assert_type(pool.status(), PoolStatus)
        assert_type(pool.size(), int)
        assert_type(pool.list(statuses=["done"], limit=3), Sequence[Job])
        assert_type(db.work("papers", add, mode="drain"), WorkerSummary)
        pool.push(1, prio=3)  # E: Unexpected keyword argument "prio"
        pool.push(1, priority="high")  # E: Argument "priority"
        pool.pusch(1)  # E: has no attribute "pusch"
        pool.result(3)  # E: Argument 1 to "result"
        pool.list(status="done")  # E: Unexpected keyword argument "status"
        db.wrok("papers", add)  # E: has no attribute "wrok"
        db.work("papers", add, concurrency="many")  # E: Argument "concurrency"
"""


def test_mypy_finds_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(SNIPPET)
    lines = SNIPPET.splitlines()
    expected = {n: line.partition("# E: ")[2] for n, line in enumerate(lines, start=1) if "# E: " in line}

    words = ("-m", "mypy", "--strict", "--no-error-summary", "--config-file=", f"--cache-dir={CACHE}", "snippet.py")
    said = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)

    found = dict[int, str]()
    for n, text in re.findall(r"^snippet\.py:(\d+): error: (.*)$", said.stdout, re.MULTILINE):
        found[int(n)] = found.get(int(n), "") + text
    assert len(expected) > 20
    assert set(found) == set(expected), said.stdout + said.stderr
    assert [(n, found[n]) for n in expected if expected[n] not in found[n]] == [], said.stdout
