"""Handlers are found by name, understood once, and called with what they ask for."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import Job, JobId
from drumbeat.core.pool import PoolId
from drumbeat.pool.worker.command import _feed
from drumbeat.pool.worker.context import JobContext, JobFailure
from drumbeat.pool.worker.executors import call
from drumbeat.pool.worker.handlers import handler_for, load, load_all

HERE = "pool.examples"


def context(payload: Any) -> JobContext:
    return JobContext(Job(job_id=JobId("j1"), pool_id=PoolId("p"), payload=payload, attempts=2, type="t"))


async def ask(spec: str, payload: Any) -> Any:
    return await asyncio.to_thread(call, load(spec), context(payload))


@pytest.mark.parametrize(
    ("name", "payload", "result"),
    [
        ("echo", {"a": [1, None]}, {"a": [1, None]}),
        ("echo_async", "x", "x"),
        ("greet", {"name": "Ada", "age": 36}, {"hello": "Ada", "attempt": 2}),
        ("nothing_given", {"ignored": True}, "done"),
        ("only_context", {}, "j1"),
    ],
)
async def test_a_handler_is_given_what_it_takes(name: str, payload: Any, result: Any) -> None:
    assert await ask(f"{HERE}:{name}", payload) == result


async def test_a_typed_payload_is_built_and_its_result_can_be_dumped() -> None:
    found = await ask(f"{HERE}:read_paper", {"title": "on queues"})

    assert (found.title, found.pages) == ("ON QUEUES", 2)


@pytest.mark.parametrize(
    ("name", "payload", "field"),
    [
        ("read_paper", {"title": "x", "pages": "many"}, "pages"),
        ("read_paper", {"pages": 3}, "title"),
        ("read_paper", "just text", "Paper"),
        ("greet", {"name": "Ada", "age": "old"}, "age"),
        ("greet", {"name": "Ada"}, "age"),
    ],
)
async def test_a_payload_that_does_not_fit_names_the_field(name: str, payload: Any, field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        await ask(f"{HERE}:{name}", payload)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("echo", "expected module:function"),
        (":echo", "expected module:function"),
        ("no.such.module:f", "cannot import 'no.such.module'"),
        (f"{HERE}:nobody", "has no 'nobody'"),
        (f"{HERE}:not_a_function", "expected a function, got int"),
        (f"{HERE}:too_many", "got 'other'"),
        ("command:no-such-program-here x", "not on the PATH"),
        ("command:echo 'unclosed", "cannot be split"),
    ],
)
def test_a_handler_that_cannot_be_had_is_refused_by_name(spec: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        load(spec)


def test_a_handler_is_found_in_the_current_folder_and_where_modules_are_looked_for_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "handlers_of_this_folder.py").write_text("def echo(payload): return payload\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)

    assert load("handlers_of_this_folder:echo").name == "handlers_of_this_folder:echo"
    assert sys.path == before


def test_a_plan_without_handlers_is_refused() -> None:
    with pytest.raises(InvalidInput, match="expected a handler, got none"):
        load_all({})


def test_a_type_without_a_handler_is_refused_and_the_others_named() -> None:
    handlers = load_all({"a": f"{HERE}:echo"})

    assert handler_for(handlers, "a").name == f"{HERE}:echo"
    with pytest.raises(InvalidInput, match="no handler for type 'b'; this worker has: a"):
        handler_for(handlers, "b")


@pytest.mark.parametrize(
    ("command", "payload", "result"),
    [
        ("cat", {"a": 1}, {"a": 1}),
        ("echo plain words", {}, "plain words"),
        ("echo $HOME; id", {}, "$HOME; id"),
        ("sh -c 'echo $DRUMBEAT_JOB_ID $DRUMBEAT_JOB_ATTEMPT $DRUMBEAT_JOB_TYPE'", {}, "j1 2 t"),
        ("true", {"never": "read" * 100_000}, ""),
    ],
)
async def test_a_command_reads_the_payload_and_prints_the_result(command: str, payload: Any, result: Any) -> None:
    assert await ask(f"command:{command}", payload) == result


async def test_a_command_that_fails_tells_the_end_of_its_complaint() -> None:
    with pytest.raises(JobFailure, match=r"exit code 7: [0-9\n]*too late") as caught:
        await ask("command:sh -c 'seq 100000 >&2; echo too late >&2; exit 7'", {})

    assert len(str(caught.value)) < 5000


async def test_a_program_that_ended_before_it_read_its_payload_has_its_own_outcome() -> None:
    class ClosedPipe:
        """As uvloop has it: the pipe of a program that has ended refuses to be written to with a RuntimeError."""

        asked = 0

        def is_closing(self) -> bool:
            self.asked += 1
            return True

        def write(self, data: bytes) -> None:
            raise RuntimeError("the handler is closed")

    pipe = ClosedPipe()
    await _feed(pipe, {"a": 1})  # type: ignore[arg-type]

    assert pipe.asked, "it raised nothing because it looked first"


async def test_a_command_that_prints_too_much_fails() -> None:
    with pytest.raises(InvalidInput, match="at most 1048576 bytes"):
        await ask(f"command:{sys.executable} -c 'print(\"x\" * 3000000)'", {})


async def test_a_cancelled_command_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    handler = load(f"command:sh -c 'echo $$ > {note}; exec sleep 60'")

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        work = group.create_task(handler.invoke(context({})))
        while not note.exists() or not note.read_text().strip():
            await asyncio.sleep(0.01)
        work.cancel()

    assert work.cancelled()
    assert await ends(int(note.read_text()))


def is_over(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def ends(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while not is_over(pid) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return is_over(pid)


async def test_what_a_command_leaves_behind_holds_nobody_up_and_ends_with_it() -> None:
    handler = load("command:sh -c 'sleep 60 & echo $!'")

    async with asyncio.timeout(30):
        left_behind = await handler.invoke(context({}))

    assert await ends(left_behind)


async def test_what_a_stopped_command_had_started_ends_too(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    handler = load(f"command:sh -c 'trap \"\" TERM; sleep 60 & echo $! > {note}; wait'")

    async with asyncio.TaskGroup() as group:
        work = group.create_task(handler.invoke(context({})))
        while not note.exists() or not note.read_text().strip():
            await asyncio.sleep(0.01)
        work.cancel()

    assert await ends(int(note.read_text()))


@pytest.mark.parametrize("turns", range(6))
async def test_a_command_that_is_stopped_while_it_starts_leaves_nothing(tmp_path: Path, turns: int) -> None:
    note = tmp_path / "pid"
    handler = load(f"command:sh -c 'sleep 60 & echo $! > {note}; wait'")

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        work = group.create_task(handler.invoke(context({})))
        for _ in range(turns):
            await asyncio.sleep(0)
        for _ in range(50 if turns else 0):
            time.sleep(0.02)  # not a turn of the loop: the program goes on, we do not
            if note.exists() and note.read_text().strip():
                break
        work.cancel()

    left_behind = note.read_text().strip() if note.exists() else ""
    assert not left_behind or await ends(int(left_behind))


async def test_a_command_is_over_though_what_it_started_has_gone_its_own_way_with_its_pipes() -> None:
    away = 'import subprocess; print(subprocess.Popen(["sleep", "60"], start_new_session=True).pid)'
    handler = load(f"command:{sys.executable} -c '{away}'")

    async with asyncio.timeout(30):
        gone_away = await handler.invoke(context({}))

    assert not is_over(gone_away)
    os.kill(gone_away, signal.SIGKILL)


SECRETS = ["DRUMBEAT_STORE_PASSWORD", "DRUMBEAT_KEY", "DRUMBEAT_TOKEN", "DRUMBEAT_READ_TOKEN", "DRUMBEAT_TARGET_PASSWORD"]


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("sqlite:///jobs@home:1.db", True),
        ("postgresql://me@db.example/jobs", True),
        ("redis://db.example:6379/1", True),
        ("postgresql://me:tiger@db.example/jobs", False),
        ("postgresql://me:ti/g?er@db.example/jobs", False),
        ("postgresql://db.example/jobs?user=me&password=tiger", False),
        ("redis://:tiger@db.example", False),
        ("postgresql://[me:tiger@db.example", False),
    ],
)
async def test_a_command_is_told_no_secrets(monkeypatch: pytest.MonkeyPatch, store: str, told: bool) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "tiger")
    monkeypatch.setenv("DRUMBEAT_STORE", store)
    monkeypatch.setenv("DRUMBEAT_STATE_DIR", "here")
    monkeypatch.setenv("PLAIN", "words")

    heard = await ask("command:env", {})

    lines = [line for line in heard.splitlines() if not line.startswith("PYTEST_")]
    assert "tiger" not in "\n".join(lines)
    assert (f"DRUMBEAT_STORE={store}" in lines) is told
    assert {"DRUMBEAT_STATE_DIR=here", "PLAIN=words", "DRUMBEAT_JOB_ID=j1"} <= set(lines)
