"""Starts whose answer is lost, slots, and ends that Slurm has forgotten, with commands that stand in for Slurm's."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence, Set
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import InvalidInput, SpawnAmbiguous, SpawnCause, SpawnFailed, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import InstanceState, Order
from drumbeat.spawn.slurm import SlurmSettings, SlurmSpawner
from drumbeat.spawn.slurm.commands import Answered, SlurmCommands, SlurmTimeout
from drumbeat.spawn.slurm.jobs import JobLabel, SlurmJob
from drumbeat.spawn.slurm.queue import JobQueue

P, W = PoolId("p"), WorkerId("w")
REFUSED = "sbatch: error: Batch job submission failed: Invalid partition name specified"
TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
UNREACHABLE = "squeue: error: Unable to contact slurm controller (connect failure)"


def order(worker_id: str = W, *, is_first: bool = False) -> Order:
    return Order(pool_id=P, worker_id=WorkerId(worker_id), slot=0, group_count=1, command=("true",), is_first=is_first)


class FakeCluster(SlurmCommands):
    """A queue in memory. ``lose`` says what becomes of the next submissions: nothing known, with or without a job."""

    def __init__(self) -> None:
        super().__init__(timedelta(seconds=1))
        self.queue: dict[int, SlurmJob] = {}
        self.calls: list[str] = []
        self.lose: list[Callable[[], None]] = []  #: called by the next submissions, after which the answer is lost
        self.errors = ""  #: what sbatch writes, and submits nothing
        self.is_down = False
        self.next_id = 1

    async def submit(self, options: Sequence[str], script: Path, lock: int) -> Answered:
        self.calls.append("sbatch")
        assert script.is_file()
        if self.errors:
            return Answered(code=1, output="", errors=self.errors)
        label = JobLabel.read(next(each for each in options if each.startswith("--comment=")).partition("=")[2])
        assert label is not None
        if self.lose:
            self.pending = label
            self.lose.pop(0)()
            raise SlurmTimeout("sbatch did not end within 1 s")
        return Answered(code=0, output=f"{self.add(label)};cluster\n", errors="")

    def add(self, label: JobLabel | None = None, state: str = "PENDING") -> int:
        self.queue[self.next_id] = SlurmJob(job_id=self.next_id, label=label or self.pending, states=frozenset([state]))
        self.next_id += 1
        return self.next_id - 1

    async def jobs(self) -> Sequence[SlurmJob]:
        self.calls.append("squeue")
        await asyncio.sleep(0)
        if self.is_down:
            raise Unanswered(UNREACHABLE)
        return [*self.queue.values()]

    async def down_partitions(self) -> Set[str]:
        self.calls.append("sinfo")
        return {"broken"}

    async def cancel(self, *options: str, jobs: Sequence[int]) -> None:
        self.calls.append(" ".join(["scancel", *options, *map(str, jobs)]))
        if not options or options == ("--state=PENDING",):
            for job_id in jobs:
                self.move(job_id, "CANCELLED")

    def move(self, job_id: int, state: str) -> None:
        self.queue[job_id] = replace(self.queue[job_id], states=frozenset([state]))

    @property
    def live(self) -> list[int]:
        return [job.job_id for job in self.queue.values() if job.is_live]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def open_spawner(cluster: FakeCluster, folder: Path, scope: str = "s", **changed: Any) -> SlurmSpawner:
    settings = SlurmSettings(folder=folder / "shared", end_timeout=timedelta(milliseconds=100), **changed)
    return SlurmSpawner(settings, {}, scope, commands=cluster)


@pytest.fixture
async def spawner(cluster: FakeCluster, tmp_path: Path) -> AsyncIterator[SlurmSpawner]:
    async with open_spawner(cluster, tmp_path) as spawner:
        yield spawner


class TestLostAnswers:
    async def test_a_start_without_an_answer_is_found_by_its_comment(self, spawner: SlurmSpawner, cluster: FakeCluster) -> None:
        cluster.lose = [lambda: (cluster.add(), None)[1]]

        instance = await spawner.spawn(order())

        assert (instance.ref, cluster.live) == ("1", [1])
        assert (await spawner.spawn(order())).ref == "1"

    async def test_a_start_that_appears_nowhere_is_ambiguous(self, spawner: SlurmSpawner, cluster: FakeCluster) -> None:
        cluster.lose = [lambda: None]

        with pytest.raises(SpawnAmbiguous, match="worker w of p may have been submitted: sbatch did not end within 1 s; list"):
            await spawner.spawn(order())

        assert await spawner.list(P) == []

    async def test_a_start_that_appears_later_is_not_repeated(self, spawner: SlurmSpawner, cluster: FakeCluster) -> None:
        cluster.lose = [lambda: None]
        with pytest.raises(SpawnAmbiguous):
            await spawner.spawn(order())
        cluster.add()

        assert (await spawner.spawn(order())).ref == "1"
        assert cluster.calls.count("sbatch") == 1

    async def test_a_repeated_start_is_the_same_start_so_that_one_job_runs_the_worker(
        self, spawner: SlurmSpawner, cluster: FakeCluster
    ) -> None:
        cluster.lose = [lambda: None]
        with pytest.raises(SpawnAmbiguous):
            await spawner.spawn(order())
        late = cluster.pending

        second = await spawner.spawn(order())
        cluster.add(late)

        assert {job.label.run for job in cluster.queue.values()} == {late.run}
        assert [one.ref for one in await spawner.list(P)] == [second.ref]
        await spawner.terminate(P, W)
        assert cluster.live == []

    async def test_of_two_jobs_of_one_start_the_second_is_cancelled(self, spawner: SlurmSpawner, cluster: FakeCluster) -> None:
        cluster.lose = [lambda: None]
        with pytest.raises(SpawnAmbiguous):
            await spawner.spawn(order())
        answer = cluster.submit

        async def late(*given: Any) -> Answered:
            cluster.add(cluster.pending)
            return await answer(*given)

        cluster.submit = late  # type: ignore[assignment,method-assign]
        assert (await spawner.spawn(order())).ref == "1"
        assert cluster.live == [1]

    async def test_a_time_out_that_sbatch_tells_is_ambiguous_too(self, spawner: SlurmSpawner, cluster: FakeCluster) -> None:
        cluster.errors = TIMED_OUT

        with pytest.raises(SpawnAmbiguous, match="scontrol ping"):
            await spawner.spawn(order())

    async def test_a_worker_that_may_run_is_not_started_while_the_cluster_is_silent(
        self, spawner: SlurmSpawner, cluster: FakeCluster
    ) -> None:
        cluster.is_down = True

        with pytest.raises(SpawnAmbiguous, match="w of p was not started again, because it might already be"):
            await spawner.spawn(order())

        assert "sbatch" not in cluster.calls

    @pytest.mark.parametrize("hidden", ["lock", "folder"])
    async def test_a_worker_that_may_run_is_not_called_failed_if_it_cannot_be_looked_for(
        self, cluster: FakeCluster, tmp_path: Path, hidden: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with open_spawner(cluster, tmp_path, timeout=timedelta(milliseconds=100)) as spawner:
            await spawner.spawn(order(is_first=True))
            async with AsyncExitStack() as stack:
                if hidden == "lock":
                    await stack.enter_async_context(spawner._folder.lock(spawner._key((P, W)), timedelta()))
                else:
                    broken = spawner._folder.failure(OSError(5, "Input/output error"))
                    monkeypatch.setattr(spawner._folder, "find", Mock(side_effect=broken))

                with pytest.raises(SpawnAmbiguous, match="w of p was not started again, because it might already be"):
                    await spawner.spawn(order())
                with pytest.raises(SpawnFailed, match="worker w of p could not be started"):
                    await spawner.spawn(order(is_first=True))

        assert cluster.live == [1]

    async def test_a_job_that_may_have_a_twin_is_not_called_failed(self, spawner: SlurmSpawner, cluster: FakeCluster) -> None:
        cluster.lose = [lambda: None]
        with pytest.raises(SpawnAmbiguous):
            await spawner.spawn(order())
        submit = cluster.submit

        async def submit_and_fall_silent(options: Sequence[str], script: Path, lock: int) -> Answered:
            answer = await submit(options, script, lock)
            cluster.is_down = True
            return answer

        with (
            patch.object(cluster, "submit", submit_and_fall_silent),
            pytest.raises(SpawnAmbiguous, match="worker w of p may have been submitted twice"),
        ):
            await spawner.spawn(order())

        cluster.is_down = False
        assert ((await spawner.spawn(order())).ref, cluster.live) == ("1", [1])

    async def test_a_worker_that_was_never_asked_for_needs_one_command_only(
        self, spawner: SlurmSpawner, cluster: FakeCluster
    ) -> None:
        await spawner.spawn(order(is_first=True))

        assert cluster.calls == ["sbatch"]


class TestRefusals:
    async def test_what_is_refused_leaves_nothing(self, spawner: SlurmSpawner, cluster: FakeCluster, tmp_path: Path) -> None:
        cluster.errors = REFUSED

        with pytest.raises(SpawnFailed, match="worker w of p could not be started: sbatch: Invalid partition name") as failed:
            await spawner.spawn(order())

        assert failed.value.cause is SpawnCause.BAD_REQUEST
        assert [*tmp_path.glob("shared/*/workers/*")] == []

    async def test_a_controller_that_is_down_starts_nothing(self, spawner: SlurmSpawner, cluster: FakeCluster) -> None:
        cluster.errors = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"

        with pytest.raises(SpawnFailed, match="check that slurmctld runs: scontrol ping") as failed:
            await spawner.spawn(order(is_first=True))

        assert failed.value.cause is SpawnCause.TRANSIENT

    async def test_all_slots_are_taken_by_all_stores_together(self, cluster: FakeCluster, tmp_path: Path) -> None:
        async with open_spawner(cluster, tmp_path, slots=2) as one, open_spawner(cluster, tmp_path, "t", slots=2) as other:
            await one.spawn(order("a"))
            await other.spawn(order("b"))
            with pytest.raises(SpawnFailed, match="worker c of p could not be started: all 2 slots are taken") as full:
                await one.spawn(order("c"))
            assert full.value.cause is SpawnCause.NO_CAPACITY
            assert (await one.spawn(order("a"))).ref == "1"

            await other.terminate(P, WorkerId("b"))
            await one.spawn(order("c"))

    async def test_many_starts_at_once_take_no_more_than_all_slots(self, cluster: FakeCluster, tmp_path: Path) -> None:
        async with open_spawner(cluster, tmp_path, slots=3) as spawner:
            starts = (spawner.spawn(order(f"w{n}")) for n in range(10))

            results = await asyncio.gather(*starts, return_exceptions=True)

        assert sum(isinstance(each, SpawnFailed) for each in results) == 7
        assert len(cluster.live) == 3

    async def test_a_folder_that_cannot_be_written(self, cluster: FakeCluster, tmp_path: Path) -> None:
        (tmp_path / "shared").write_text("not a folder")

        async with open_spawner(cluster, tmp_path) as spawner:
            with pytest.raises(Unanswered, match=f"cannot write to the folder {tmp_path}/shared: .*; choose another folder"):
                await spawner.list(P)
            with pytest.raises(SpawnFailed, match="worker w of p could not be started: cannot write to the folder"):
                await spawner.spawn(order(is_first=True))

    async def test_no_sbatch_here(self, tmp_path: Path) -> None:
        settings = SlurmSettings(folder=tmp_path, programs=tmp_path / "nowhere")
        async with SlurmSpawner(settings, {}, "s") as spawner:
            with pytest.raises(SpawnFailed, match=r"could not run .*/nowhere/sbatch: No such file.*; install Slurm's commands"):
                await spawner.spawn(order(is_first=True))
            with pytest.raises(Unanswered, match=r"could not run .*/nowhere/squeue"):
                await spawner.list(P)

    async def test_a_closed_spawner_starts_nothing(self, cluster: FakeCluster, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match="async with"):
            await open_spawner(cluster, tmp_path).spawn(order())


class TestEnds:
    async def test_an_end_that_slurm_has_forgotten_keeps_its_exit_code(
        self, spawner: SlurmSpawner, cluster: FakeCluster, tmp_path: Path
    ) -> None:
        await spawner.spawn(order())
        [run] = tmp_path.glob("shared/*/workers/*")
        (run / "exit").write_text("3\n")
        cluster.queue.clear()

        for _ in range(2):
            assert [(one.ref, one.state, one.exit_code) for one in await spawner.list(P)] == [("1", InstanceState.EXITED, 3)]
        await spawner.terminate(P, W)
        assert await spawner.list(P) == []

    async def test_a_job_that_vanished_without_an_exit_code_has_ended(
        self, spawner: SlurmSpawner, cluster: FakeCluster
    ) -> None:
        await spawner.spawn(order())
        cluster.queue.clear()

        assert [(one.state, one.exit_code) for one in await spawner.list(P)] == [(InstanceState.EXITED, None)]
        assert (await spawner.spawn(order())).ref == "2"

    async def test_a_recorded_exit_counts_although_the_job_still_completes(
        self, spawner: SlurmSpawner, cluster: FakeCluster, tmp_path: Path
    ) -> None:
        await spawner.spawn(order())
        [run] = tmp_path.glob("shared/*/workers/*")
        (run / "exit").write_text("0\n")
        cluster.move(1, "COMPLETING")

        assert [one.exit_code for one in await spawner.list(P)] == [0]

    async def test_a_job_is_listed_although_its_run_folder_was_deleted(
        self, spawner: SlurmSpawner, cluster: FakeCluster, tmp_path: Path
    ) -> None:
        await spawner.spawn(order())
        for run in tmp_path.glob("shared/*/workers/*"):
            run.rename(tmp_path / "away")

        assert [one.ref for one in await spawner.list(P)] == ["1"]
        assert (await spawner.spawn(order())).ref == "1"
        await spawner.terminate(P, W)
        assert cluster.live == []

    async def test_a_pending_job_is_cancelled_when_it_is_drained(self, spawner: SlurmSpawner, cluster: FakeCluster) -> None:
        await spawner.spawn(order())

        await spawner.drain(P, W)

        assert [one.state for one in await spawner.list(P)] == [InstanceState.EXITED]

    async def test_a_running_job_is_signalled_and_marked_when_it_is_drained(
        self, spawner: SlurmSpawner, cluster: FakeCluster, tmp_path: Path
    ) -> None:
        await spawner.spawn(order())
        cluster.move(1, "RUNNING")

        await spawner.drain(P, W)

        assert cluster.calls[-1] == "scancel --batch --signal=USR1 1"
        assert len([*tmp_path.glob("shared/*/workers/*/drain")]) == 1

    async def test_a_job_that_does_not_end_is_told(self, spawner: SlurmSpawner, cluster: FakeCluster) -> None:
        await spawner.spawn(order())
        cluster.move(1, "COMPLETING")
        cluster.move = lambda job_id, state: None  # type: ignore[method-assign]

        with pytest.raises(
            Unanswered, match=r"job 1 is still COMPLETING on no node .* after scancel; check that the node is up"
        ):
            await spawner.terminate(P, W)

    async def test_a_job_that_ended_before_its_script_ran_explains_why_there_is_no_log(
        self, spawner: SlurmSpawner, cluster: FakeCluster
    ) -> None:
        await spawner.spawn(order())
        assert await spawner.logs(P, W) == ""
        cluster.move(1, "FAILED")

        assert "check that the folder" in await spawner.logs(P, W)


async def test_files_of_old_starts_are_deleted_unless_a_job_may_run(cluster: FakeCluster, tmp_path: Path) -> None:
    async with open_spawner(cluster, tmp_path) as spawner:
        await spawner.spawn(order("runs"))
        await spawner.spawn(order("ended"))
        cluster.lose = [lambda: None]
        with pytest.raises(SpawnAmbiguous):
            await spawner.spawn(order("never-submitted"))
    for path in [*tmp_path.glob("shared/*/workers/*"), *tmp_path.glob("shared/*/locks/*")]:
        if "ended" in path.name and path.is_dir():
            (path / "exit").write_text("0\n")
            os.utime(path / "exit", (0, 0))
        os.utime(path, (0, 0))

    async with open_spawner(cluster, tmp_path) as spawner:
        await spawner.list(P)

    assert [run.name.split("-")[2] for run in tmp_path.glob("shared/*/workers/*")] == ["runs"]
    assert [lock.name.split("-")[2] for lock in tmp_path.glob("shared/*/locks/*")] == ["runs"]


async def test_lists_at_the_same_time_share_one_call_of_squeue(cluster: FakeCluster) -> None:
    queue = JobQueue(cluster, SystemClock())
    cluster.add(JobLabel(pool_id=P, worker_id=W, run="r", scope="s"))

    found = await asyncio.gather(*(queue.jobs() for _ in range(20)))

    assert cluster.calls == ["squeue", "squeue"], "one for the first caller, and one for those who called after it began"
    assert [[job.job_id for job in jobs] for jobs in found] == [[1]] * 20


async def test_files_are_for_this_user_only(spawner: SlurmSpawner, tmp_path: Path) -> None:
    await spawner.spawn(order())

    assert {path.stat().st_mode & 0o077 for path in [tmp_path / "shared", *(tmp_path / "shared").rglob("*")]} == {0}


async def test_a_reason_for_waiting_is_told(spawner: SlurmSpawner, cluster: FakeCluster) -> None:
    await spawner.spawn(order())
    cluster.queue[1] = replace(cluster.queue[1], reason="Resources")

    [instance] = await spawner.list(P)

    assert instance.meta == {"state": "PENDING", "reason": "Resources: it waits for free nodes"}


async def test_a_worker_that_waits_for_nodes_that_are_down_says_so(spawner: SlurmSpawner, cluster: FakeCluster) -> None:
    await spawner.spawn(order())
    cluster.queue[1] = replace(cluster.queue[1], reason="Resources", partition="broken")

    reasons = {(await spawner.list(P))[0].meta["reason"] for _ in range(3)}

    assert reasons == {"NODES_DOWN: all nodes of the partition are down or drained; see: sinfo --list-reasons"}
    assert cluster.calls.count("sinfo") == 1, "sinfo is not asked at every list"
