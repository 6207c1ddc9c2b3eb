"""The seed's verification list, through the example's real command lines."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from adapters.flatmachines.example import PATIENCE, Example
from drumbeat.core.job import JobStatus
from drumbeat.core.worker import WorkerStatus

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(600)]


async def test_the_seeds_verification_list(tmp_path: Path) -> None:
    example = Example("distributed_worker", tmp_path, "worker.sqlite", "echo")
    pushed = (await example.run("seed_jobs", "--count", "10", "--delay", "0.2"))["pushed"]
    await _work_off_ten_jobs(example, pushed)
    await _kill_a_worker_and_reap(example)
    await _poison_a_job(example)

    assert {worker.status for worker in (await example.workers()).values()} == {WorkerStatus.TERMINATED, WorkerStatus.LOST}


async def _work_off_ten_jobs(example: Example, pushed: list[str]) -> None:
    """Steps 1 to 5: three at a time, every job done once."""
    for expected in (3, 3, 3, 1, 0):
        assert await example.run("run_checker", "--max-workers", "3") == {"spawned": expected}
        await example.until_all_left()

    jobs = await example.jobs()
    assert list(jobs) == pushed
    assert [job.status for job in jobs.values()] == [JobStatus.DONE] * 10
    assert [job.attempts for job in jobs.values()] == [1] * 10
    assert [job.result["echo"]["n"] for job in jobs.values()] == list(range(10))
    workers = await example.workers()
    assert {(await example.holders(each))[0] for each in pushed} == set(workers)
    assert {worker.status for worker in workers.values()} == {WorkerStatus.TERMINATED}
    assert len(workers) == 10


async def _kill_a_worker_and_reap(example: Example) -> None:
    """Steps 6 to 8: its job returns to the pool and it is marked lost."""
    (job_id,) = (await example.run("seed_jobs", "--count", "1", "--delay", "600"))["pushed"]
    assert await example.run("run_checker", "--max-workers", "3") == {"spawned": 1}
    job = (await example.until_jobs(lambda jobs: jobs[job_id].status is JobStatus.CLAIMED))[job_id]
    victim = (await example.workers())[str(job.lease_owner)]
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)

    async with asyncio.timeout(PATIENCE):
        while (await example.run("run_reaper", "--stale-threshold-seconds", "1"))["reaped_count"] == 0:
            await asyncio.sleep(0.1)

    released = (await example.jobs())[job_id]
    assert (released.status, released.attempts, released.crashes) == (JobStatus.PENDING, 1, 1)
    assert (await example.workers())[victim.worker_id].status is WorkerStatus.LOST


async def _poison_a_job(example: Example) -> None:
    """Step 9: failed max_retries times, it is poisoned and keeps its error. A worker told to stop gives its job back."""
    (waiting,) = [job_id for job_id, job in (await example.jobs()).items() if job.status is JobStatus.PENDING]
    first = await example.start("run_worker", "--worker-id", "first")
    await example.until_jobs(lambda jobs: jobs[waiting].lease_owner == "first")
    (job_id,) = (await example.run("seed_jobs", "--count", "1", "--delay", "0", "--fail", "no paper", "--max-retries", "2"))[
        "pushed"
    ]
    for _ in range(2):
        await example.run("run_worker")

    job = (await example.jobs())[job_id]
    assert (job.status, job.failures, job.last_error) == (JobStatus.POISONED, 2, "no paper")
    assert await example.run("run_worker") == {"status": "no_work_available"}

    first.terminate()
    await first.communicate()
    assert first.returncode == 0
    shown = {each["id"]: each["status"] for each in await example.run("work_pool")}
    assert (shown[waiting], shown[job_id]) == ("pending", "poisoned")
    assert next(each for each in await example.run("worker_registry") if each["worker_id"] == "first")["status"] == "terminated"
