"""The local spawner keeps the contract, and what is particular to processes of this machine."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import psutil
import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import InvalidInput, SpawnAmbiguous, SpawnCause, SpawnFailed
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import WorkerId
from drumbeat.pool.model import worker_name
from drumbeat.spawn import state_dir
from drumbeat.spawn.contract import Controllers, PoolListContract, ProcessContract, SurvivorContract
from drumbeat.spawn.inherited import withheld_names
from drumbeat.spawn.interface import Instance, InstanceState, Order, Spawner
from drumbeat.spawn.local import WORKER_COMMAND, LocalSpawner
from drumbeat.spawn.local_settings import LocalSettings
from drumbeat.spawn.private import private_append
from drumbeat.web.settings import READ_TOKEN_VARIABLE, TOKEN_VARIABLE
from spawn.programs import (
    CONTROLLER,
    LEASHED,
    LEAVES_A_CHILD,
    PARENT,
    PARENT_OF_A_STRANGER,
    PATIENCE_SECONDS,
    WORKER,
    eventually,
    exits,
    is_alive,
    process_of,
    python,
    said,
)

P = PoolId("p")
W = WorkerId("w")
SECRET = "postgresql://ann:s3cret@db/app"


def local_order(worker_id: str = W, pool_id: PoolId = P, command: Sequence[str] = python(WORKER)) -> Order:
    return Order(pool_id=pool_id, worker_id=WorkerId(worker_id), slot=2, group_count=5, command=command)


def _left_no_trace(pid: int) -> bool:
    return not psutil.pid_exists(pid)


async def until_exited(spawner: Spawner, worker_id: WorkerId = W) -> Instance:
    clock = SystemClock()
    deadline = clock.elapsed() + timedelta(seconds=20)
    while clock.elapsed() < deadline:
        for one in await spawner.list(P):
            if one.worker_id == worker_id and one.state is InstanceState.EXITED:
                return one
        await clock.sleep(timedelta(milliseconds=10))
    raise AssertionError(f"expected {worker_id} to exit within 20 s: {await spawner.list(P)}")


@pytest.fixture
async def spawner(tmp_path: Path) -> AsyncIterator[LocalSpawner]:
    async with LocalSpawner(tmp_path, {"DRUMBEAT_STORE": SECRET}, command=python(WORKER)) as spawner:
        yield spawner


class LocalContract(ProcessContract, PoolListContract):
    survive = False

    @pytest.fixture
    def controllers(self, tmp_path: Path) -> Controllers:
        return lambda: LocalSpawner(tmp_path, {}, survive=self.survive)

    @pytest.fixture
    def written(self, tmp_path: Path) -> Sequence[Path]:
        return [tmp_path]


class TestLocalSpawner(LocalContract):
    """Workers that end with their spawner."""


class TestSurvivors(LocalContract, SurvivorContract):
    survive = True


class TestSlots:
    @pytest.mark.parametrize("spawners", [1, 3])
    async def test_starts_at_the_same_time_take_no_more_slots_than_there_are(self, tmp_path: Path, spawners: int) -> None:
        settings = LocalSettings(slots=2)
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(LocalSpawner(tmp_path, {}, settings=settings)) for _ in range(spawners)]
            orders = [local_order(f"w{n}") for n in range(6)]
            starts = [opened[n % spawners].spawn(order) for n, order in enumerate(orders)]
            started = await asyncio.gather(*starts, return_exceptions=True)
            listed = [one.worker_id for one in await opened[0].list(P) if one.state is InstanceState.RUNNING]

        refused = [each for each in started if isinstance(each, SpawnFailed)]
        assert (len(refused), {each.cause for each in refused}) == (4, {SpawnCause.NO_CAPACITY})
        assert listed == sorted(one.worker_id for one in started if isinstance(one, Instance))

    async def test_a_worker_that_runs_is_found_although_no_slot_is_free(self, tmp_path: Path) -> None:
        async with LocalSpawner(tmp_path, {}, settings=LocalSettings(slots=1)) as spawner:
            first, again = await spawner.spawn(local_order()), await spawner.spawn(local_order())
            with pytest.raises(SpawnFailed, match="no free slot"):
                await spawner.spawn(local_order("other"))
            await spawner.terminate(P, W)
            other = await spawner.spawn(local_order("other"))

        assert (first.ref, other.worker_id) == (again.ref, "other")


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold a lock as another process does."""
    with private_append(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class TestLocks:
    @pytest.mark.parametrize(
        ("lock", "error"), [(f"locks/{P}/{W}.lock", SpawnAmbiguous), ("slots.lock", SpawnFailed)], ids=["worker", "slots"]
    )
    async def test_a_worker_that_another_process_may_be_starting_is_not_said_to_have_failed(
        self, tmp_path: Path, lock: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(state_dir, "_LOCKED_FOR_SECONDS", 0.05)
        async with LocalSpawner(tmp_path, {}, settings=LocalSettings(slots=2)) as spawner:
            with held(tmp_path / lock), pytest.raises(error, match="another process holds it"):
                await spawner.spawn(local_order())

            assert await spawner.list(P) == []


class TestStart:
    async def test_the_usual_command_is_that_of_the_seed(self, spawner: LocalSpawner) -> None:
        await spawner.spawn(local_order(command=()))

        arguments = await asyncio.to_thread(said, spawner.log_path(P, W), "ready")

        assert " ".join(arguments) == "--run-id p --worker-id w --worker-group-id 2 --worker-group-count 5"
        assert (sys.executable, "-m", "drumbeat", "worker") == WORKER_COMMAND

    async def test_secrets_are_in_the_environment_and_not_on_the_command_line(self, spawner: LocalSpawner) -> None:
        worker = process_of((await spawner.spawn(local_order(command=()))).ref)

        assert worker.environ()["DRUMBEAT_STORE"] == SECRET
        assert "s3cret" not in " ".join(worker.cmdline())

    async def test_an_order_may_add_to_the_environment(self, spawner: LocalSpawner) -> None:
        order = Order(pool_id=P, worker_id=W, slot=0, group_count=1, environment={"EXTRA": "1", "DRUMBEAT_POOL_ID": "other"})

        environment = process_of((await spawner.spawn(order)).ref).environ()

        assert (environment["EXTRA"], environment["DRUMBEAT_STORE"], environment["PATH"]) == ("1", SECRET, os.environ["PATH"])
        assert (environment["DRUMBEAT_POOL_ID"], environment["DRUMBEAT_WORKER_ID"]) == (P, W)

    async def test_what_lets_people_in_at_the_server_is_not_inherited(
        self, spawner: LocalSpawner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in (TOKEN_VARIABLE, READ_TOKEN_VARIABLE, "MINE"):
            monkeypatch.setenv(name, "17")

        environment = process_of((await spawner.spawn(local_order(command=()))).ref).environ()

        assert environment["MINE"] == "17"
        assert not environment.keys() & {TOKEN_VARIABLE, READ_TOKEN_VARIABLE}

    async def test_credentials_of_engines_are_inherited_only_if_the_settings_name_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("RUNPOD_API_KEY", "RAY_AUTH_TOKEN", "MINE"):
            monkeypatch.setenv(name, "17")
        names = {"RUNPOD_API_KEY", "RAY_AUTH_TOKEN", "UNSET"}
        settings = LocalSettings(variables=("RAY_AUTH_TOKEN",))
        async with LocalSpawner(tmp_path, {}, command=python(WORKER), settings=settings, credentials=names) as spawner:
            environment = process_of((await spawner.spawn(local_order(command=()))).ref).environ()

        assert (environment["MINE"], environment["RAY_AUTH_TOKEN"]) == ("17", "17")
        assert "RUNPOD_API_KEY" not in environment
        assert withheld_names(environment) == {"RUNPOD_API_KEY"}

    async def test_what_it_prints_is_kept_and_a_second_start_appends(self, spawner: LocalSpawner) -> None:
        program = "import os, sys; print('to stdout', flush=True); print('to stderr', file=sys.stderr)"
        for _ in range(2):
            await spawner.spawn(local_order(command=python(program)))
            await until_exited(spawner)

        assert spawner.log_path(P, W).read_text() == "to stdout\nto stderr\n" * 2

    @pytest.mark.parametrize(
        ("program", "reason"),
        [("no-such-program", "No such file"), ("plain-file", "Permission denied"), ("nul\0byte", "null byte")],
    )
    async def test_a_program_that_cannot_be_started_says_why(
        self, spawner: LocalSpawner, tmp_path: Path, program: str, reason: str
    ) -> None:
        (tmp_path / "plain-file").write_text("not a program")

        with pytest.raises(SpawnFailed, match=reason):
            await spawner.spawn(local_order(command=(str(tmp_path / program),)))

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "a\\b", "a\0b", "x" * 231, "ü" * 116])
    async def test_names_that_cannot_be_files_are_refused(self, spawner: LocalSpawner, name: str) -> None:
        with pytest.raises(InvalidInput, match="expected a worker id"):
            await spawner.spawn(local_order(name))
        with pytest.raises(InvalidInput, match="expected a pool id"):
            await spawner.spawn(local_order(W, PoolId(name)))

    @pytest.mark.parametrize("name", ["x" * 200, "ü" * 100])
    async def test_a_worker_of_a_pool_with_the_longest_name_is_started(self, spawner: LocalSpawner, name: str) -> None:
        row = pool(name, PoolKind.JOBS)
        worker_id = worker_name(row.pool_id, 123_456_789)

        await spawner.spawn(local_order(worker_id, row.pool_id, command=exits(0)))

        assert [each.worker_id for each in await spawner.list(row.pool_id)] == [worker_id]

    async def test_a_name_whose_worker_left_can_be_spawned_again(self, spawner: LocalSpawner) -> None:
        first = await spawner.spawn(local_order(command=exits(0)))
        await until_exited(spawner)

        second = await spawner.spawn(local_order())

        assert second.ref != first.ref
        assert await spawner.list(P) == [second]

    async def test_a_folder_that_cannot_be_written_says_so(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("not a folder")

        async with LocalSpawner(tmp_path / "file", {}) as spawner:
            with pytest.raises(SpawnFailed, match="expected a state folder that can be written"):
                await spawner.spawn(local_order())

    async def test_a_closed_spawner_starts_nothing(self, tmp_path: Path) -> None:
        spawner = LocalSpawner(tmp_path, {})

        with pytest.raises(InvalidInput, match="async with"):
            await spawner.spawn(local_order())


class TestEnd:
    async def test_a_worker_that_was_terminated_shows_the_signal(self, spawner: LocalSpawner) -> None:
        await spawner.spawn(local_order())

        await spawner.terminate(P, W)

        assert [(one.state, one.exit_code) for one in await spawner.list(P)] == [(InstanceState.EXITED, -signal.SIGKILL)]

    async def test_a_worker_that_does_not_answer_is_terminated_all_the_same(self, spawner: LocalSpawner) -> None:
        worker = process_of((await spawner.spawn(local_order())).ref)
        worker.suspend()

        await spawner.terminate(P, W)

        assert not is_alive(worker)

    @pytest.mark.parametrize("program", [PARENT, PARENT_OF_A_STRANGER])
    async def test_a_workers_own_children_go_with_it(self, spawner: LocalSpawner, program: str) -> None:
        worker = await spawner.spawn(local_order(command=python(program)))
        family = [process_of(pid) for pid in await asyncio.to_thread(said, spawner.log_path(P, W), "children")]
        assert [one.ref for one in await spawner.list(P)] == [worker.ref]
        assert all(is_alive(child) for child in family)

        await spawner.terminate(P, W)

        await asyncio.to_thread(eventually, lambda: not any(map(is_alive, family)), "its children to be gone")

    async def test_children_left_by_a_killed_worker_are_ended_too(self, spawner: LocalSpawner) -> None:
        worker = process_of((await spawner.spawn(local_order(command=python(PARENT)))).ref)
        family = [process_of(pid) for pid in await asyncio.to_thread(said, spawner.log_path(P, W), "children")]
        worker.kill()
        await asyncio.to_thread(eventually, lambda: not is_alive(worker), "the worker to be gone")
        assert family
        assert all(is_alive(child) for child in family)

        await spawner.terminate(P, W)

        assert [child for child in family if is_alive(child)] == []

    async def test_a_child_that_outlives_its_worker_is_not_taken_for_it(self, spawner: LocalSpawner) -> None:
        first = await spawner.spawn(local_order(command=python(LEAVES_A_CHILD)))
        [child] = [process_of(pid) for pid in await asyncio.to_thread(said, spawner.log_path(P, W), "children")]

        assert (await until_exited(spawner)).exit_code == 3
        assert is_alive(child)
        second = await spawner.spawn(local_order())

        assert process_of(second.ref) != child
        assert second.ref != first.ref
        assert await spawner.list(P) == [second]

    async def test_a_child_that_ends_leaves_no_zombie_though_nobody_asks(self, spawner: LocalSpawner) -> None:
        ended = [await spawner.spawn(local_order(f"w{n}", command=exits(n))) for n in range(5)]

        pids = [int(one.ref.partition(":")[0]) for one in ended]
        for pid in pids:
            await asyncio.to_thread(eventually, partial(_left_no_trace, pid), f"no trace of {pid}")

        assert len({*pids}) == 5

    async def test_leaving_the_spawner_ends_its_workers(self, tmp_path: Path) -> None:
        async with LocalSpawner(tmp_path, {}) as spawner:
            workers = [process_of((await spawner.spawn(local_order(f"w{n}"))).ref) for n in range(3)]
            assert all(is_alive(worker) for worker in workers)

        assert [worker for worker in workers if is_alive(worker)] == []

    async def test_leaving_a_spawner_of_survivors_lets_them_live(self, tmp_path: Path) -> None:
        async with LocalSpawner(tmp_path, {}, survive=True) as spawner:
            worker = process_of((await spawner.spawn(local_order())).ref)
        assert is_alive(worker)
        assert spawner.traits.outlives_controller

        worker.kill()

        await asyncio.to_thread(eventually, lambda: not psutil.pid_exists(worker.pid), "no zombie of the survivor")

    async def test_a_spawn_that_was_cancelled_leaves_nothing_behind(self, tmp_path: Path) -> None:
        before = set(psutil.Process().children())
        async with LocalSpawner(tmp_path, {}) as spawner:
            for n in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0):
                        await spawner.spawn(local_order(f"w{n}"))

        assert [child for child in set(psutil.Process().children()) - before if is_alive(child)] == []


class TestOthers:
    """Workers that another process started."""

    async def test_spawners_with_folders_of_their_own_do_not_see_each_other(
        self, tmp_path: Path, spawner: LocalSpawner
    ) -> None:
        await spawner.spawn(local_order())
        async with LocalSpawner(tmp_path / "other", {}) as other:
            await other.terminate(P, W)

            assert await other.list(P) == []
        assert [one.state for one in await spawner.list(P)] == [InstanceState.RUNNING]

    async def test_spawners_that_share_a_folder_see_and_end_the_same_workers(
        self, tmp_path: Path, spawner: LocalSpawner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mine = await spawner.spawn(local_order())
        monkeypatch.chdir(tmp_path)
        async with LocalSpawner(Path("."), {}) as other:
            assert (await other.spawn(local_order())).ref == mine.ref
            assert [one.ref for one in await other.list(P)] == [mine.ref]

            await other.terminate(P, W)

            assert [(one.ref, one.state, one.exit_code) for one in await other.list(P)] == [
                (mine.ref, InstanceState.EXITED, None)
            ]
        assert (await until_exited(spawner)).exit_code == -signal.SIGKILL

    async def test_a_worker_whose_starter_died_before_noting_it_is_found(self, tmp_path: Path, spawner: LocalSpawner) -> None:
        mine = await spawner.spawn(local_order())
        (tmp_path / "workers" / P / f"{W}.ref").unlink()

        async with LocalSpawner(tmp_path, {}) as other:
            assert [one.ref for one in await other.list(P)] == [mine.ref]
            assert (await other.spawn(local_order())).ref == mine.ref

    async def test_one_that_looks_for_the_first_time_sees_who_ended_before(self, tmp_path: Path) -> None:
        """A beat from cron is a process of its own; the worker of the same name in two other pools lives."""
        others = PoolId("beside"), PoolId("beside-too")
        async with LocalSpawner(tmp_path, {}, survive=True) as first:
            started = {pool_id: await first.spawn(local_order(pool_id=pool_id)) for pool_id in (P, *others)}
        killed = process_of(started[P].ref)
        killed.kill()
        eventually(lambda: not is_alive(killed), "the killed worker is gone")

        async with LocalSpawner(tmp_path, {}, survive=True) as later:
            seen = {pool_id: [(one.ref, one.state) for one in await later.list(pool_id)] for pool_id in started}
            assert seen[P] == [(started[P].ref, InstanceState.EXITED)]
            assert [seen[each] for each in others] == [[(started[each].ref, InstanceState.RUNNING)] for each in others]
            await later.terminate(P, W)
            assert await later.list(P) == []
            for each in others:
                await later.terminate(each, W)

    @pytest.mark.parametrize("age", [0.0, 100_000.0])
    async def test_a_note_from_another_machine_says_nothing_and_is_dropped_after_a_day(
        self, tmp_path: Path, spawner: LocalSpawner, age: float
    ) -> None:
        """A folder that two machines share: the pids of one mean nothing to the other."""
        note = tmp_path / "running" / P / f"{W}.ref"
        note.parent.mkdir(parents=True)
        note.write_text("1:1 another-machine")
        os.utime(note, (note.stat().st_mtime - age,) * 2)

        assert await spawner.list(P) == []
        assert note.exists() == (age == 0)

    async def test_a_worker_of_another_is_not_ended_with_us(self, tmp_path: Path, spawner: LocalSpawner) -> None:
        mine = await spawner.spawn(local_order())

        async with LocalSpawner(tmp_path, {}) as other:
            await other.spawn(local_order())
            await other.list(P)

        assert is_alive(process_of(mine.ref))

    async def test_a_worker_that_another_started_anew_takes_the_place_of_ours(
        self, tmp_path: Path, spawner: LocalSpawner
    ) -> None:
        await spawner.spawn(local_order(command=exits(3)))
        await until_exited(spawner)
        async with LocalSpawner(tmp_path, {}) as other:
            theirs = await other.spawn(local_order())

            assert [(one.ref, one.state) for one in await spawner.list(P)] == [(theirs.ref, InstanceState.RUNNING)]

    async def test_a_worker_we_started_anew_takes_the_place_of_anothers(self, tmp_path: Path, spawner: LocalSpawner) -> None:
        async with LocalSpawner(tmp_path, {}) as other:
            await other.spawn(local_order())
            await spawner.list(P)
        assert (await until_exited(spawner)).exit_code is None

        mine = await spawner.spawn(local_order())

        assert await spawner.list(P) == [mine]


@contextmanager
def controller(folder: Path, survive: str, program: str, *names: str) -> Iterator[subprocess.Popen[str]]:
    """A process with a LocalSpawner that spawns once it reads a line, and leaves once it reads another."""
    process = subprocess.Popen(
        (sys.executable, "-W", "error", "-c", CONTROLLER, str(folder), survive, program, *names),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            assert answers(process, 1) == ["started"]
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def answers(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


class TestControllers:
    """Real processes that start workers and go."""

    @pytest.fixture
    async def heir(self, tmp_path: Path) -> AsyncIterator[LocalSpawner]:
        """Another spawner on the same folder, which ends whatever is left."""
        async with LocalSpawner(tmp_path, {}) as heir:
            yield heir
            for one in await heir.list(P):
                await heir.terminate(P, one.worker_id)

    async def test_workers_end_with_a_parent_that_is_killed(self, tmp_path: Path, heir: LocalSpawner) -> None:
        with controller(tmp_path, "leash", LEASHED, "a", "b") as parent:
            tell(parent)
            workers = [process_of(ref) for ref in answers(parent, 2)]
            assert said(heir.log_path(P, WorkerId("a")), "leash") == ["True"]
            assert all(is_alive(worker) for worker in workers)

            parent.kill()

            eventually(lambda: not any(is_alive(worker) for worker in workers), "both workers to end with their parent")

    async def test_survivors_outlive_a_parent_that_is_killed_and_another_finds_them(
        self, tmp_path: Path, heir: LocalSpawner
    ) -> None:
        with controller(tmp_path, "survive", LEASHED, "a") as parent:
            tell(parent)
            [ref] = answers(parent, 1)
            assert said(heir.log_path(P, WorkerId("a")), "leash") == ["False"]
            said(heir.log_path(P, WorkerId("a")), "ready")
            parent.kill()
            parent.wait()

        assert [(one.ref, one.state) for one in await heir.list(P)] == [(ref, InstanceState.RUNNING)]
        assert (await heir.spawn(local_order("a"))).ref == ref
        await heir.drain(P, WorkerId("a"))
        assert (await until_exited(heir, WorkerId("a"))).ref == ref

    async def test_a_parent_that_leaves_properly_says_nothing_of_its_survivors(
        self, tmp_path: Path, heir: LocalSpawner
    ) -> None:
        with controller(tmp_path, "survive", WORKER, "a") as parent:
            tell(parent)
            [ref] = answers(parent, 1)
            tell(parent)

            assert parent.wait(PATIENCE_SECONDS) == 0
            assert parent.stderr is not None
            assert parent.stderr.read() == ""
        assert [(one.ref, one.state) for one in await heir.list(P)] == [(ref, InstanceState.RUNNING)]

    async def test_processes_that_spawn_the_same_workers_at_once_start_each_once(
        self, tmp_path: Path, heir: LocalSpawner
    ) -> None:
        names = ["a", "b", "c", "d"]
        with ExitStack() as stack:
            parents = [stack.enter_context(controller(tmp_path, "survive", WORKER, *names)) for _ in range(4)]
            for parent in parents:
                tell(parent)
            refs = [answers(parent, len(names)) for parent in parents]

        assert all(answer == refs[0] for answer in refs)
        assert [one.ref for one in await heir.list(P)] == refs[0]
        for name in names:
            said(heir.log_path(P, WorkerId(name)), "ready")
            assert heir.log_path(P, WorkerId(name)).read_text() == "ready\n"
