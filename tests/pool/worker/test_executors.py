"""Where handlers run makes no difference to what comes of them, but for what may hold up what."""

import asyncio
import json
import logging
import os
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psutil
import pytest

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import IfFailed, Job, JobId, JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.pool.payload import as_json
from drumbeat.pool.worker.context import JobContext
from drumbeat.pool.worker.executors import Executor, ProcessExecutor, executor
from drumbeat.pool.worker.failures import ChildProcessFailure, failure
from drumbeat.pool.worker.handlers import describe, load
from drumbeat.pool.worker.options import ExecutorKind
from drumbeat.pool.worker.process_pool import ChildProcess
from drumbeat.runtime.log_output import stderr_handler

HERE = "pool.examples"
TESTS = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


@pytest.fixture(params=list(ExecutorKind))
async def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PYTHONPATH", TESTS, prepend=os.pathsep)
    made = executor(request.param)
    yield made
    await made.close()


@pytest.fixture
async def processes(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PYTHONPATH", TESTS, prepend=os.pathsep)
    made = ProcessExecutor()
    yield made
    await made.close()


def given(payload: Any, tell: Any = None) -> JobContext:
    return JobContext(Job(job_id=JobId("j1"), pool_id=PoolId("p"), payload=payload), tell=tell)


async def run(where: Executor, name: str, payload: Any = None, tell: Any = None) -> Any:
    return await where.run(load(f"{HERE}:{name}"), given(payload, tell))


@pytest.mark.parametrize("name", ["echo", "echo_async"])
async def test_results_come_back(where: Executor, name: str) -> None:
    assert await run(where, name, {"a": ["ü", 1.5, None]}) == {"a": ["ü", 1.5, None]}


@pytest.mark.parametrize(
    ("name", "says", "fatal"),
    [
        ("fail", "ValueError: cannot read x", False),
        ("fail_for_good", "withdrawn", True),
        ("leave", "SystemExit: 3", False),
        ("read_paper", "payload is not a valid Paper", True),
    ],
)
async def test_failures_come_back_as_failures(where: Executor, name: str, says: str, fatal: bool) -> None:
    with pytest.raises(Exception) as caught:
        await run(where, name, "x")

    found = failure(caught.value)
    assert says in found.error
    assert found.fatal is fatal


@pytest.mark.parametrize("payload", [{"userId": 7, "since": "2026-11-19"}, {"user_id": 7, "since": "2026-11-19"}])
async def test_a_model_is_built_from_names_or_aliases_and_comes_back_by_names(where: Executor, payload: Any) -> None:
    result = as_json(await run(where, "read_account", payload))

    assert result == {"user_id": 7, "since": "2026-11-19"}


async def test_a_process_is_used_again_and_is_not_ours(processes: Executor) -> None:
    first, second = await run(processes, "where"), await run(processes, "where")

    assert first == second != os.getpid()


async def test_what_a_handler_prints_is_not_its_answer(processes: Executor) -> None:
    assert await run(processes, "chatter") == "the answer"


async def test_progress_is_heard_from_a_process(processes: Executor) -> None:
    heard: list[tuple[float, str | None]] = []

    await run(processes, "in_steps", tell=lambda _, share, note: heard.append((share, note)))

    assert heard == [(0.5, "half")]


async def test_a_handler_that_kills_its_process_has_failed_and_the_next_runs(processes: Executor) -> None:
    with pytest.raises(Exception, match="process ended with exit code -9"):
        await run(processes, "kill_oneself")

    assert await run(processes, "echo", 1) == 1


def kill_now(process: psutil.Process) -> None:
    """Kill a process and wait for its end, in which time the event loop notices nothing."""
    process.kill()
    with suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)


@pytest.mark.parametrize("noticed", [True, False], ids=["noticed", "not noticed yet"])
async def test_an_idle_process_that_ended_is_replaced(processes: Executor, noticed: bool) -> None:
    handler = load(f"{HERE}:where")
    await processes.prepare(handler)
    process = psutil.Process(await run(processes, "where"))
    kill_now(process)
    if noticed:
        await asyncio.sleep(0.2)

    await processes.prepare(handler)

    assert await run(processes, "where") != process.pid


async def test_a_job_that_an_ended_process_did_not_get_goes_to_another(
    processes: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChildProcess, "is_alive", True)
    process = psutil.Process(await run(processes, "where"))
    kill_now(process)

    assert await run(processes, "where") != process.pid


async def test_a_busy_process_can_be_stopped_and_the_loop_is_not_held_up(processes: Executor) -> None:
    begun = asyncio.Event()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        busy = group.create_task(run(processes, "spin_for_ever", tell=lambda *_: begun.set()))
        await begun.wait()
        busy.cancel()

    assert busy.cancelled()
    assert await run(processes, "echo", 2) == 2


async def test_programs_that_a_stopped_handler_started_in_its_process_end_too(processes: Executor) -> None:
    started: asyncio.Queue[int] = asyncio.Queue()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        busy = group.create_task(run(processes, "start_and_wait", tell=lambda *told: started.put_nowait(int(told[-1]))))
        program = psutil.Process(await started.get())
        busy.cancel()

    await asyncio.to_thread(psutil.wait_procs, [program], 60)
    assert not program.is_running() or program.status() == psutil.STATUS_ZOMBIE


async def test_a_program_that_a_handler_leaves_behind_takes_no_later_job(processes: Executor) -> None:
    async with asyncio.timeout(60):
        await run(processes, "leave_a_reader")

        assert [await run(processes, "echo", n) for n in range(3)] == [0, 1, 2]


async def test_the_standard_input_of_a_handler_in_a_process_is_empty(processes: Executor) -> None:
    async with asyncio.timeout(60):
        assert await run(processes, "read_input") == ""


async def test_a_process_imports_a_handler_before_its_job_is_sent(processes: Executor) -> None:
    handler = load(f"{HERE}:imported_at")
    await processes.prepare(handler)
    prepared = time.monotonic()

    assert await run(processes, "imported_at") < prepared
    assert await run(processes, "where") == await run(processes, "where")


async def test_a_handler_that_a_process_cannot_import_fails_before_its_job_is_sent(processes: Executor) -> None:
    handler = replace(load(f"{HERE}:echo"), name=f"{HERE}:no_such_handler")
    with pytest.raises(ChildProcessFailure, match="no_such_handler"):
        await processes.prepare(handler)

    assert await run(processes, "echo", 1) == 1


async def test_a_function_without_a_name_cannot_go_to_a_process(processes: Executor) -> None:
    with pytest.raises(InvalidInput, match="a child process cannot import it"):
        await processes.run(describe(lambda payload: payload), given(1))


async def test_a_stopped_thread_lingers_until_it_is_over() -> None:
    where, go = executor(ExecutorKind.THREADS), threading.Event()
    begun, freed = threading.Event(), asyncio.Event()
    where.on_free = freed.set

    def stay(payload: object) -> None:
        begun.set()
        go.wait(60)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        work = group.create_task(where.run(describe(stay), given(1)))
        assert await asyncio.to_thread(begun.wait, 60)
        work.cancel()
    lingering = where.lingering
    go.set()
    async with asyncio.timeout(60):
        await freed.wait()

    assert (lingering, where.lingering) == (1, 0)
    await where.close()


def given_parents(*results: Any) -> JobContext:
    """The context of a job whose parents had these results."""
    job = Job(job_id=JobId("child"), pool_id=PoolId("p"), payload=None, if_failed=IfFailed.BLOCK)
    context = JobContext(job)
    parents = [
        Job(job_id=JobId(f"p{n}"), pool_id=PoolId("p"), payload=None, status=JobStatus.DONE, result=result)
        for n, result in enumerate(results)
    ]

    async def read(job_id: JobId) -> list[Job]:
        assert job_id == "child"
        return parents

    context.read_parents_by(read, asyncio.get_running_loop())
    return context


async def test_handlers_read_parents_wherever_they_run(where: Executor) -> None:
    assert await where.run(load(f"{HERE}:parents_plain"), given_parents({"a": "ü"}, None)) == [{"a": "ü"}, None]
    assert await where.run(load(f"{HERE}:parents_async"), given_parents(1)) == [[1, "done", 1.0]]
    assert await where.run(load(f"{HERE}:parents_plain"), given(None)) == []


async def test_a_job_that_left_with_a_question_open_does_not_disturb_the_next(processes: Executor) -> None:
    for n in range(5):
        assert await processes.run(load(f"{HERE}:ask_and_leave"), given_parents("earlier")) == "left"
        assert await processes.run(load(f"{HERE}:parents_plain"), given_parents(n)) == [n]


async def test_a_process_is_told_if_the_parents_cannot_be_read(processes: Executor) -> None:
    job = Job(job_id=JobId("child"), pool_id=PoolId("p"), payload=None, if_failed=IfFailed.BLOCK)

    with pytest.raises(ChildProcessFailure) as failed:
        await processes.run(load(f"{HERE}:parents_plain"), JobContext(job))

    assert "cannot read the parents of job child" in failure(failed.value).error


@pytest.mark.parametrize("as_json", [True, False])
async def test_log_lines_of_a_child_process_have_their_job_and_the_format_of_the_worker(
    processes: Executor, as_json: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    handler = stderr_handler(as_json=as_json)
    logging.getLogger().addHandler(handler)
    try:
        await run(processes, "complain", "torn")
    finally:
        logging.getLogger().removeHandler(handler)

    [line] = [each for each in capfd.readouterr().err.splitlines() if "complaint" in each]
    if as_json:
        found = json.loads(line)
        assert (found["message"], found["job_id"], found["pool"], found["page"]) == ("complaint: torn", "j1", "p", 7)
    else:
        assert line.endswith("WARNING papers: complaint: torn [job j1]")


async def test_without_log_lines_of_the_worker_a_child_process_leaves_logging_alone(
    processes: Executor, capfd: pytest.CaptureFixture[str]
) -> None:
    await run(processes, "complain", "torn")

    assert "complaint: torn\n" in capfd.readouterr().err
