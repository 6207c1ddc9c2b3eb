"""The public API, with a loop and without: what users write is what runs here."""

import asyncio
import gc
import json
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import drumbeat
from drumbeat.client import BlockingConnection
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import AlreadyExists, InvalidInput, InvalidSettings, JobEnded, NotFound, StaleWrite
from drumbeat.core.job import JobStatus
from drumbeat.core.worker import ExitCode


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def blocking(url: str) -> Iterator[BlockingConnection]:
    with drumbeat.connect_blocking(url) as connection:
        yield connection


@dataclass
class Paper:
    title: str


async def summarise(paper: Paper) -> dict[str, Any]:
    return {"summary": paper.title[:3]}


async def test_a_pool_is_made_by_its_first_push(url: str) -> None:
    async with drumbeat.connect(url) as db:
        papers = db.pool("papers")
        ids = [await papers.push({"n": 1}), *await papers.push_many([{"n": 2}, {"n": 3}], priority=5)]

        assert await papers.size() == 3
        assert [job.payload["n"] for job in await papers.list()] == [1, 2, 3]
        assert len(set(ids)) == 3


async def test_a_connection_opens_with_its_first_call(tmp_path: Path) -> None:
    db = drumbeat.connect(f"sqlite:///{tmp_path}/jobs.db")
    papers = db.pool("papers")
    try:
        assert (await papers.job(await papers.push("x"))).payload == "x"
    finally:
        await db.close()


async def test_typed_payloads_are_pushed_worked_on_and_answered(url: str) -> None:
    async with drumbeat.connect(url) as db:
        papers = db.pool("papers")
        job_id = await papers.push(Paper(title="Queues"))

        done = await db.work("papers", summarise)

        assert (done.code, done.finished, done.failed) == (ExitCode.CLEAN, 1, 0)
        assert await papers.result(job_id, timeout=60) == {"summary": "Que"}


async def test_a_payload_that_does_not_fit_poisons_its_job_and_names_the_field(url: str) -> None:
    async with drumbeat.connect(url) as db:
        papers = db.pool("papers")
        job_id = await papers.push({"titel": "Queues"})

        await db.work("papers", {"": summarise})

        with pytest.raises(JobEnded, match=r"is poisoned: payload is not a valid Paper: .*`title`"):
            await papers.result(job_id)


async def test_a_job_of_a_type_that_no_live_worker_takes_is_explained(url: str) -> None:
    """As after a task was renamed: its old jobs stay, and the worker of the new code takes only the new name."""
    async with drumbeat.connect(url) as db:
        papers = db.pool("papers")
        old = await papers.push(1, type="old_name")
        explained: list[str] = []

        async def look(payload: int) -> None:
            explained.append(str(await papers.explain(old)))

        await papers.push(2, type="new_name")
        await db.work("papers", {"new_name": look})

        assert "no live worker has a handler for type 'old_name'; they have: new_name" in explained[0]


async def test_a_result_that_does_not_come_is_not_waited_for_longer_than_asked(url: str) -> None:
    async with drumbeat.connect(url) as db:
        papers = db.pool("papers")

        with pytest.raises(TimeoutError, match="is still pending"):
            await papers.result(await papers.push(1), timeout=timedelta(milliseconds=1))


async def test_jobs_can_be_claimed_and_settled_by_hand(url: str) -> None:
    async with drumbeat.connect(url) as db:
        papers = db.pool("papers")
        ids = await papers.push_many([1, 2, 3], backoff={"first": 0, "jitter": 0}, max_attempts=1)
        done, failed, back = await papers.claim_many(3)

        await papers.progress(done, 0.5, "half")
        assert await papers.renew(done) is False
        await papers.complete(done, {"sum": 3})
        await papers.fail(failed, "no such page")
        await papers.release(back)

        jobs = [await papers.job(job_id) for job_id in ids]
        assert [job.status for job in jobs] == [JobStatus.DONE, JobStatus.POISONED, JobStatus.PENDING]
        assert (jobs[0].result, jobs[1].last_error, jobs[2].attempts) == ({"sum": 3}, "no such page", 0)
        with pytest.raises(StaleWrite, match="no longer held"):
            await papers.complete(done)


async def test_a_pool_can_be_paused_and_its_jobs_cancelled_and_requeued(url: str) -> None:
    async with drumbeat.connect(url) as db:
        papers = db.pool("papers")
        job_id = await papers.push(1)

        await papers.pause()
        paused, nothing = (await papers.status()).is_paused, await papers.claim()
        await papers.resume()
        await papers.cancel(job_id)
        cancelled = (await papers.job(job_id)).status
        await papers.requeue(job_id)

        assert (paused, nothing, cancelled) == (True, None, JobStatus.CANCELLED)
        assert (await papers.claim()) is not None


async def test_explain_says_why_nothing_happens(url: str) -> None:
    async with drumbeat.connect(url) as db:
        papers = db.pool("papers")

        assert "has no live worker" in str(await papers.explain(await papers.push(1)))


async def test_what_cannot_be_used_is_refused_before_anything_is_pushed(url: str) -> None:
    async with drumbeat.connect(url) as db:
        papers = db.pool("papers")
        await papers.create()

        with pytest.raises(InvalidInput, match=r"job 1: expected payload\.x to be JSON, got object"):
            await papers.push_many([1, {"x": object()}])
        with pytest.raises(InvalidInput, match="unknown option 'prio'"):
            await papers.push(1, prio=3)
        with pytest.raises(InvalidInput, match="at most 1048576 bytes"):
            await papers.push("x" * 1_100_000)
        with pytest.raises(AlreadyExists):
            await papers.create()

        assert await papers.size() == 0


async def test_an_unknown_pool_or_job_is_named(url: str) -> None:
    async with drumbeat.connect(url) as db:
        with pytest.raises(NotFound, match="no pool 'nowhere'"):
            await db.pool("nowhere").status()
        other = await db.pool("other").push(1)
        with pytest.raises(NotFound, match="pool 'papers' has no job"):
            await db.pool("papers").job(other)


async def test_a_filter_or_a_status_that_is_none_is_named(url: str) -> None:
    async with drumbeat.connect(url) as db:
        papers = db.pool("papers")
        job_id = await papers.push(1)

        assert [job.job_id for job in await papers.list(statuses=["pending"], limit=5, job_type=None)] == [job_id]
        for filters, says in (
            ({"status": "pending"}, "got 'status'; did you mean statuses?"),
            ({"statusses": ["pending"]}, "got 'statusses'; did you mean statuses?"),
            ({"type": "x"}, "did you mean job_type?"),
            (
                {"statuses": ["nosuch"]},
                "expected a list of waiting, pending, claimed, done, poisoned, cancelled, .* got \\['nosuch'\\]",
            ),
            ({"statuses": "done"}, "statuses: expected a list of"),
            ({"group": 5}, "group: expected text, got 5"),
        ):
            with pytest.raises(InvalidInput, match=says.replace("?", "\\?")):
                await papers.list(**filters)


async def test_a_function_that_no_process_finds_is_refused_before_a_job_is_claimed(url: str) -> None:
    async with drumbeat.connect(url) as db:
        papers = db.pool("papers")
        job_id = await papers.push(1)

        with pytest.raises(InvalidInput, match="the executor 'processes' runs it in a child process, which cannot import it"):
            await db.work("papers", lambda payload: payload, executor="processes")

        assert ((await papers.job(job_id)).status, (await papers.job(job_id)).attempts) == (JobStatus.PENDING, 0)
        done = await db.work("papers", json.dumps, executor="processes")
        assert (done.finished, await papers.result(job_id)) == (1, "1")


async def test_pushing_in_a_transaction_needs_a_database_with_transactions() -> None:
    async with drumbeat.connect("memory:") as db:
        with pytest.raises(InvalidInput, match="push_on needs a PostgreSQL or SQLite store; with this store use push"):
            db.pool("papers").push_on(object(), 1)


@pytest.mark.parametrize(("triggers", "pulled"), [(True, ["papers", "papers"]), (False, [])])
async def test_a_push_pulls_triggers_only_when_asked_to(
    url: str, monkeypatch: pytest.MonkeyPatch, triggers: bool, pulled: list[str]
) -> None:
    heard: list[str] = []

    async def note(self: ControlPlane, pool_id: str) -> None:
        heard.append(pool_id)

    monkeypatch.setattr(ControlPlane, "work_added", note)
    async with drumbeat.connect(url, triggers=triggers) as db:
        await db.pool("papers").push(1)
        await db.pool("papers").push_many([2, 3])

    assert heard == pulled


async def test_a_file_of_triggers_that_cannot_be_used_is_refused_before_there_is_work(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "triggers.yml").write_text("triggers:\n  - name: odd\n    kind: subprocess\n")
    papers = (opened := drumbeat.connect(url, triggers=True)).pool("papers")

    with pytest.raises(InvalidSettings, match="type: expected"):
        await papers.push(1)

    (tmp_path / "triggers.yml").unlink()
    await papers.push(2)
    assert [job.payload for job in await papers.list()] == [2]
    await opened.close()


@pytest.mark.parametrize(
    "broken", ["triggers:\n  - name: odd\n    kind: subprocess\n", "\t{", "triggers: [{name: a, type: cron}]"]
)
async def test_what_is_stored_is_pushed_even_if_the_file_of_triggers_has_become_unusable(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "triggers.yml").write_text("triggers: []\n")
    async with drumbeat.connect(url, triggers=True) as db:
        (tmp_path / "triggers.yml").write_text(broken)

        job_id = await db.pool("papers").push(1)
        ids = await db.pool("papers").push_many([2, 3])

        assert [job.job_id for job in await db.pool("papers").list()] == [job_id, *ids]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2
    assert warnings[0].startswith(f"stored jobs in pool papers, but fired no trigger: {tmp_path}/triggers.yml: ")
    assert warnings[0].endswith("; see: drumbeat trigger check")


def test_the_blocking_front_does_the_same_without_a_loop(blocking: BlockingConnection) -> None:
    papers = blocking.pool("papers")
    job_id = papers.push(Paper(title="Queues"))

    blocking.work("papers", summarise)

    assert papers.result(job_id, timeout=60) == {"summary": "Que"}
    assert papers.status().counts.done == 1


def test_the_blocking_front_raises_what_the_other_raises(blocking: BlockingConnection) -> None:
    with pytest.raises(NotFound, match="no pool 'nowhere'"):
        blocking.pool("nowhere").status()


def test_the_blocking_front_can_be_used_from_many_threads(blocking: BlockingConnection) -> None:
    papers = blocking.pool("papers")
    papers.create()
    threads = [threading.Thread(target=lambda n=n: papers.push_many(range(n))) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert papers.size() == sum(range(1, 9))


def test_the_blocking_front_ends_with_its_block(url: str) -> None:
    with drumbeat.connect_blocking(url) as connection:
        connection.pool("p").push(1)
        inside = {thread.name for thread in threading.enumerate()}

    assert "drumbeat" in inside
    assert "drumbeat" not in {thread.name for thread in threading.enumerate()}
    connection.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"concurency": 2}, "got 'concurency'; did you mean concurrency?"),
        ({"bogus": 1}, "expected an option of a worker, one of mode, executor, .*, gather; got 'bogus'$"),
        ({"handlers": {}}, "got 'handlers'"),
    ],
)
def test_an_unknown_option_of_a_worker_is_refused_by_name(blocking: BlockingConnection, options: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        asyncio.run(drumbeat.connect("memory:").work("papers", len, **options))
    with pytest.raises(InvalidInput, match=says):
        blocking.work("papers", len, **options)


def test_after_its_end_the_blocking_front_says_so(url: str) -> None:
    with drumbeat.connect_blocking(url) as connection:
        papers = connection.pool("papers")

    with pytest.raises(InvalidInput, match="this connection is closed; connect again"):
        papers.push(1)


def test_a_blocking_connection_is_closed_while_other_threads_wait_in_it(url: str) -> None:
    connection, begun = drumbeat.connect_blocking(url), threading.Event()
    papers = connection.pool("papers")
    job_id = papers.push(1)
    raised: list[BaseException] = []

    def wait(call: Callable[[], object]) -> None:
        begun.set()
        try:
            call()
        except BaseException as exc:
            raised.append(exc)

    async def slowly(payload: object) -> None:
        await asyncio.sleep(600)

    calls = [lambda: papers.result(job_id), lambda: connection.work("papers", slowly, mode="loop")]
    threads = [threading.Thread(target=wait, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    begun.wait(60)
    while papers.status().counts.claimed != 1:
        time.sleep(0.01)

    closing = threading.Thread(target=connection.close, daemon=True)
    closing.start()
    for thread in (closing, *threads):
        thread.join(60)

    assert not [thread for thread in (closing, *threads) if thread.is_alive()]
    assert {type(exc) for exc in raised} == {InvalidInput}
    assert {str(exc).partition(",")[0] for exc in raised} == {"this connection was closed while a call ran"}
    if url != "memory:":
        with drumbeat.connect_blocking(url) as again:
            status = again.pool("papers").status()
        assert (status.counts.ready, status.counts.claimed, status.workers) == (1, 0, ())


class _Ending:
    """Middleware that breaks the event loop on which it runs."""

    def __init__(self, end: Callable[[], object]) -> None:
        self.end = end

    def before_push(self, push: drumbeat.PushCall) -> None:
        if push.jobs[0].payload == "end":
            self.end()


def _exit() -> None:
    raise SystemExit(3)


def test_a_task_that_exits_does_not_end_the_blocking_front(url: str) -> None:
    with drumbeat.connect_blocking(url, middleware=[_Ending(_exit)]) as connection:
        papers = connection.pool("papers")
        with pytest.raises(SystemExit):
            papers.push("end")

        papers.push("next")
        assert papers.size() == 1


def test_a_loop_that_a_task_stops_goes_on(url: str) -> None:
    with drumbeat.connect_blocking(url, middleware=[_Ending(lambda: asyncio.get_running_loop().stop())]) as connection:
        papers = connection.pool("papers")
        papers.push("end")

        assert papers.size() == 1


def test_a_blocking_connection_nobody_can_close_in_time_is_left_to_the_end_of_the_process(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("drumbeat.loop_thread._LONGEST_CLOSE", 0.1)
    blocked = threading.Event()
    connection = drumbeat.connect_blocking(url, middleware=[_Ending(lambda: blocked.wait(60))])
    pushing = threading.Thread(target=lambda: connection.pool("papers").push("end"), daemon=True)
    pushing.start()
    time.sleep(0.2)

    connection.close()

    assert "has not ended within 0.1 s" in caplog.text
    blocked.set()
    pushing.join(60)
    connection.close()


def test_a_blocking_connection_that_nobody_holds_is_closed_without_a_word(tmp_path: Path) -> None:
    program = f"""
import drumbeat, gc, threading, time

def push():
    return drumbeat.connect_blocking("sqlite:///{tmp_path}/jobs.db").pool("papers").push(1)

push()
push()
gc.collect()
for _ in range(1000):
    if threading.active_count() == 1:
        break
    time.sleep(0.01)
print([thread.name for thread in threading.enumerate()])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("['MainThread']\n", "")


def test_a_pool_keeps_its_blocking_connection_open(url: str) -> None:
    papers = drumbeat.connect_blocking(url).pool("papers")
    gc.collect()
    papers.push(1)

    assert papers.size() == 1
    with pytest.warns(ResourceWarning, match="a blocking connection was not closed"):
        del papers


def test_an_interrupt_ends_the_work_of_the_blocking_front(url: str, tmp_path: Path) -> None:
    program = f"""
import asyncio, drumbeat

async def slowly(payload):
    print("begun", flush=True)
    await asyncio.sleep(600)

with drumbeat.connect_blocking({url!r}) as db:
    db.pool("papers").push(1)
    try:
        db.work("papers", slowly, mode="loop")
    except KeyboardInterrupt:
        status = db.pool("papers").status()
        print(status.counts.ready, status.counts.claimed, len(status.workers), flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()

    assert (said, process.returncode) == ("1 0 0\n", 0)


async def test_work_that_is_cancelled_leaves_nobody_behind(url: str) -> None:
    begun = asyncio.Event()

    async def slowly(payload: Any) -> None:
        begun.set()
        await asyncio.sleep(600)

    async with drumbeat.connect(url) as db:
        papers = db.pool("papers")
        await papers.push(1)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            work = group.create_task(db.work("papers", slowly))
            await begun.wait()
            work.cancel()
        status = await papers.status()

    assert (status.counts.ready, status.counts.claimed, status.workers) == (1, 0, ())


def test_importing_drumbeat_loads_nothing_else() -> None:
    program = "import sys, drumbeat; print(sorted(name for name in sys.modules if name.startswith('drumbeat.')))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", drumbeat.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(drumbeat, name) is not None


def test_every_public_name_has_its_type() -> None:
    stub = Path(drumbeat.__file__).with_name("__init__.pyi").read_text()

    typed = set(re.findall(r"(\w+) as \1\b|^(__version__)", stub, re.MULTILINE))
    assert {first or second for first, second in typed} == set(drumbeat.__all__)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'conect'"):
        getattr(drumbeat, "conect")  # noqa: B009


async def test_a_push_in_a_callers_transaction_is_there_once_it_commits(postgres_url: str) -> None:
    import asyncpg

    async with drumbeat.connect(postgres_url) as db:
        papers = db.pool("papers")
        await papers.create()
        connection = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                job_id = await papers.push_on(connection, {"n": 1}, priority=2)
                before = await papers.size()
        finally:
            await connection.close()

        assert (before, (await papers.job(job_id)).priority) == (0, 2)


async def test_a_push_on_a_connection_to_another_place_is_refused(postgres_url: str, tmp_path: Path) -> None:
    import asyncpg

    async with drumbeat.connect(postgres_url) as db:
        papers = db.pool("papers")
        await papers.create(exist_ok=True)
        with (
            closing(sqlite3.connect(tmp_path / "other.db")) as foreign,
            pytest.raises(InvalidInput, match=r"the store's own database in PostgreSQL, got one to SQLite; use push"),
        ):
            papers.push_on(foreign, 1)
        async with asyncpg.create_pool(postgres_url, min_size=1) as pool, pool.acquire() as own, own.transaction():
            kept = await papers.push_on(own, 1)
        other = await asyncpg.connect(postgres_url, database="template1")
        try:
            with pytest.raises(InvalidInput, match=r"a connection to the store's own database .*, got one to 'template1'"):
                async with other.transaction():
                    await papers.push_on(other, 1)
        finally:
            await other.close()

        assert (await papers.job(kept)).payload == 1


def test_the_earlier_name_of_a_pool_is_accepted_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"drumbeat\.PoolDesk is now called drumbeat\.Pool"):
        assert drumbeat.PoolDesk is drumbeat.Pool  # type: ignore[attr-defined]
