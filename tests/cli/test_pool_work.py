"""drumbeat pool work as a real process: jobs survive its death, and it leaves in order when asked to."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

import drumbeat
from cli.given import PATIENCE, Said, drumbeat as run, eventually, started
from drumbeat.client import BlockingConnection, WorkPlan
from drumbeat.core.job import JobStatus
from drumbeat.core.worker import WorkerStatus

TESTS = str(Path(__file__).parents[1])
HERE = "pool.examples"


class Shop:
    """A pool on SQLite, and workers of it as processes."""

    def __init__(self, folder: Path, connection: BlockingConnection, url: str) -> None:
        self.folder = folder
        self.pool = connection.pool("p")
        self.url = url
        self.go = folder / "go"
        self.began = folder / "began"

    def slow_job(self, **options: Any) -> str:
        """A job that waits for a file."""
        job_id: str = self.pool.push({"began": str(self.began), "go": str(self.go)}, **options)
        return job_id

    def times_begun(self) -> int:
        return len(self.began.read_text().splitlines()) if self.began.exists() else 0

    def status(self, job_id: str) -> JobStatus:
        status: JobStatus = self.pool.job(job_id).status
        return status

    @contextmanager
    def worker(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        words = ("pool", "work", "p", *arguments)
        with started(*words, cwd=self.folder, DRUMBEAT_STORE=self.url, PYTHONPATH=TESTS) as process:
            yield process

    def work(self, *arguments: str) -> Said:
        return run("pool", "work", "p", *arguments, cwd=self.folder, DRUMBEAT_STORE=self.url, PYTHONPATH=TESTS)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with drumbeat.connect_blocking(url) as connection:
        yield Shop(tmp_path, connection, url)


def ended(process: subprocess.Popen[str]) -> Said:
    output, errors = process.communicate(timeout=PATIENCE)
    return Said(process.returncode, output, errors)


def test_once_does_one_job_and_says_when_there_is_none(shop: Shop) -> None:
    first, second = shop.pool.push_many([1, 2])

    did, last, nothing = (shop.work("--once", "--handler", f"{HERE}:echo", "--json") for _ in range(3))

    assert (did.code, last.code, nothing.code) == (0, 0, 6), did.errors
    assert (json.loads(did.output)["finished"], json.loads(nothing.output)["finished"]) == (1, 0)
    assert (shop.pool.result(first), shop.pool.result(second)) == (1, 2)


def test_a_failed_job_is_work_too(shop: Shop) -> None:
    job_id = shop.pool.push("x", max_attempts=1)

    said = shop.work("--once", "--handler", f"{HERE}:fail")

    assert (said.code, shop.status(job_id)) == (0, JobStatus.POISONED)
    assert f"job {job_id} failed: " in said.errors
    assert "; it is poisoned" in said.errors
    assert "1 attempt ended: 0 jobs are done, 1 failed" in said.errors


@pytest.mark.parametrize("executor", ["async", "threads", "processes"])
def test_a_drain_empties_the_pool(shop: Shop, executor: str) -> None:
    ids = shop.pool.push_many(range(40))

    said = shop.work("--drain", "--handler", f"{HERE}:echo", "--executor", executor, "--concurrency", "3")

    assert said.code == 0, said.errors
    assert [shop.pool.job(job_id).result for job_id in ids] == list(range(40))


def test_the_pool_keeps_its_handlers_for_workers_that_are_spawned(shop: Shop) -> None:
    shop.pool.create(WorkPlan(handlers={"": f"{HERE}:echo"}, concurrency=2))
    job_id = shop.pool.push("for a spawned one")
    named = ("--run-id", "p", "--worker-id", "p-worker-0", "--worker-group-id", "0", "--worker-group-count", "1")

    said = run("worker", *named, cwd=shop.folder, DRUMBEAT_STORE=shop.url, PYTHONPATH=TESTS)

    assert (said.code, shop.pool.job(job_id).result) == (0, "for a spawned one"), said.errors


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_a_killed_workers_job_comes_back_and_is_done_once(shop: Shop, executor: str) -> None:
    job_id = shop.slow_job()
    how = ("--handler", f"{HERE}:mark_and_wait", "--executor", executor, "--lease", "2s")
    with shop.worker(*how) as dead:
        eventually(lambda: shop.times_begun() == 1, "the job has begun")
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        running = [pid for pid in map(int, shop.began.read_text().split()) if executor == "processes"]
        eventually(lambda: not any(_is_alive(pid) for pid in running), "its handler ends with it")

        with shop.worker(*how):
            eventually(lambda: shop.times_begun() == 2, "another worker takes it up")
            shop.go.touch()
            eventually(lambda: shop.status(job_id) is JobStatus.DONE, "it is done")

    job = shop.pool.job(job_id)
    assert (job.attempts, job.crashes, job.failures, shop.times_begun()) == (2, 1, 0, 2)


def test_a_drain_takes_over_what_silent_workers_let_run_out(shop: Shop) -> None:
    ids = shop.pool.push_many(range(60))
    shop.pool.claim_many(60, lease=timedelta(seconds=1), worker_id="silent")
    eventually(lambda: shop.pool.explain(ids[0]).why == "stranded", "its lease runs out")

    said = shop.work("--drain", "--handler", f"{HERE}:echo", "--concurrency", "4")

    assert (said.code, {shop.status(job_id) for job_id in ids}) == (0, {JobStatus.DONE}), said.errors
    assert said.errors.endswith("60 attempts ended: 60 jobs are done, 0 failed\n")


def test_a_job_that_outlasts_the_grace_is_given_back(shop: Shop) -> None:
    job_id = shop.slow_job()
    with shop.worker("--handler", f"{HERE}:mark_and_wait", "--executor", "processes", "--grace", "200ms") as process:
        eventually(lambda: shop.times_begun() == 1, "the job has begun")
        process.send_signal(signal.SIGTERM)
        said = ended(process)

    job = shop.pool.job(job_id)
    assert (said.code, job.status, job.attempts, job.failures) == (0, JobStatus.PENDING, 0, 0), said.errors
    assert "stopping: waiting up to 200 ms for 1 running job; a second stop signal requeues what still runs" in said.errors
    assert "1 attempt ended: 0 jobs are done, 0 failed, 1 cancelled, requeued" in said.errors


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_job_that_kills_its_worker_is_poisoned(shop: Shop) -> None:
    job_id = shop.pool.push(None, max_crashes=2)

    for _ in range(2):
        said = shop.work("--drain", "--handler", f"{HERE}:kill_oneself", "--lease", "1s")
        assert said.code == -signal.SIGKILL
        eventually(lambda: bool(_expired(shop)), "its lease runs out")

    job = shop.pool.job(job_id)
    assert (job.status, job.crashes, job.failures) == (JobStatus.POISONED, 2, 0)


def _expired(shop: Shop) -> Any:
    pool: Any = shop.pool
    return pool._loop.run(_expire(pool))


async def _expire(pool: Any) -> Any:
    return await pool._inner._store.queue.expire()


def test_sigterm_finishes_what_runs_and_claims_no_more(shop: Shop) -> None:
    running, waiting = shop.slow_job(), shop.pool.push({})
    with shop.worker("--handler", f"{HERE}:mark_and_wait", "--executor", "threads") as process:
        eventually(lambda: shop.times_begun() == 1, "the job has begun")
        process.send_signal(signal.SIGTERM)
        eventually(lambda: _worker(shop).status is WorkerStatus.DRAINING, "it drains")
        shop.go.touch()
        said = ended(process)

    assert said.code == 0, said.errors
    assert (shop.status(running), shop.status(waiting)) == (JobStatus.DONE, JobStatus.PENDING)


def test_a_second_signal_gives_the_job_back_at_once(shop: Shop) -> None:
    job_id = shop.slow_job()
    with shop.worker("--handler", f"{HERE}:mark_and_wait", "--executor", "processes") as process:
        eventually(lambda: shop.times_begun() == 1, "the job has begun")
        process.send_signal(signal.SIGTERM)
        eventually(lambda: _worker(shop).status is WorkerStatus.DRAINING, "it drains")
        process.send_signal(signal.SIGTERM)
        said = ended(process)

    job = shop.pool.job(job_id)
    assert (said.code, job.status, job.attempts) == (0, JobStatus.PENDING, 0), said.errors


def _worker(shop: Shop) -> Any:
    return shop.pool.status().workers[0]


def test_a_busy_handler_in_a_process_does_not_starve_the_heartbeat(shop: Shop) -> None:
    assert run("pool", "create", "p", "--heartbeat", "1s", cwd=shop.folder, DRUMBEAT_STORE=shop.url).code == 0
    shop.pool.push(PATIENCE)
    with shop.worker("--handler", f"{HERE}:spin", "--executor", "processes") as process:
        eventually(lambda: bool(shop.pool.status().workers) and _worker(shop).active == 1, "the job runs")
        beats = _worker(shop).heartbeat_count
        eventually(lambda: _worker(shop).heartbeat_count > beats + 2, "its worker goes on beating")
        os.kill(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "expected a handler, got none"),
        (("--handler", "no.such:thing"), "cannot import 'no.such'"),
        (("--handler", f"{HERE}:nobody"), "has no 'nobody'"),
    ],
)
def test_a_worker_without_a_usable_handler_says_so_and_exits_with_1(shop: Shop, arguments: tuple[str, ...], says: str) -> None:
    shop.pool.push(1)

    said = shop.work("--once", *arguments)

    assert said.code == 1
    assert says in said.errors


def test_an_unknown_pool_is_one_line_and_exit_code_1(shop: Shop) -> None:
    shop.pool.push(1)

    said = run("pool", "work", "nowhere", "--once", cwd=shop.folder, DRUMBEAT_STORE=shop.url)

    assert said.code == 1
    assert "no pool 'nowhere'" in said.errors
    assert "Traceback" not in said.errors


def test_a_worker_id_that_cannot_be_a_file_name_is_refused_before_the_worker_starts(shop: Shop) -> None:
    shop.pool.create(WorkPlan())

    said = run("pool", "work", "p", "--once", "--worker-id", "a/b c", cwd=shop.folder, DRUMBEAT_STORE=shop.url)

    assert said.code == 1
    assert "expected a worker id that can be a file name (no slash" in said.errors
    assert "Traceback" not in said.errors
    assert shop.pool.status().workers == ()
