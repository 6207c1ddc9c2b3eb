"""Tests for spawners that run real commands: several controllers, odd names, environments, logs, exit codes, children."""

import asyncio
import os
import random
import re
import signal
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Protocol
from uuid import uuid4

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import InvalidInput, NotFound
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import programs
from drumbeat.spawn.contract.base import (
    ANN,
    BOB,
    OTHER_POOL,
    POOL,
    UNKNOWN,
    ExitCodeContract,
    OrderFactory,
    SpawnerContract,
    alive,
)
from drumbeat.spawn.interface import Instance, InstanceState, Order, ReadsLogs, Spawner

THIRD_POOL = PoolId("Contract-Pool")  # differs from POOL in case only
ODD_NAMES = (
    "UPPER and  spaces",
    "-leading-dash",
    "..dots..and.a.dot.",
    "ünïcode-工作者-🥁",
    "quo'tes\" and ^caret|",
    "$(touch hacked); `id` & *",
    "percent%2Fand%s{}#!",
    "x" * 200,
)
NEARLY_EQUAL = ("worker", "Worker", "worker ", "worker-", "worker_", "wörker", "wo\u0308rker", "w" * 200, "w" * 199 + "v")
SECRET = "s3cret-of-the-contract"  # noqa: S105  (not a real one)
VALUES: Mapping[str, str] = {
    "EMPTY": "",
    "LINES": "one\ntwo\n\n three\n",
    "QUOTES": """it's "quoted" and \\escaped\\""",
    "UNICODE": "ünïcode 工作者 🥁",
    "SHELL": "$(touch hacked) `id` $HOME ${x} ; & | > * ~ !",
    "SPACES": "  two  before and after  ",
    "EQUALS": "a=b=c",
}


class Controllers(Protocol):
    """Opens spawners that share one provider and store, as two controllers do that know nothing of each other."""

    def __call__(self) -> AbstractAsyncContextManager[Spawner]: ...


class ProcessContract(SpawnerContract, ExitCodeContract):
    """Tests for spawners whose workers are real commands that can be seen on this machine.

    Fixtures: ``controllers`` and ``written``, see the package. May be overridden: ``unstartable``, ``kill_outside``.
    """

    shell: ClassVar[Sequence[str]] = ("sh", "-c")

    @pytest.fixture
    async def spawner(self, controllers: Controllers) -> AsyncIterator[Spawner]:
        async with controllers() as spawner:
            yield spawner

    @pytest.fixture
    def order(self) -> OrderFactory:
        def make(worker_id: WorkerId, pool_id: PoolId, *, exits: int | None = None, startable: bool = True) -> Order:
            made = self.order_of(programs.WORKER, worker_id=worker_id, pool_id=pool_id)
            if exits is not None:
                made = self.order_of(programs.EXITS, str(exits), worker_id=worker_id, pool_id=pool_id)
            return made if startable else self.unstartable(made)

        return make

    @pytest.fixture(autouse=True)
    async def _terminated_afterwards(self, spawner: Spawner) -> AsyncIterator[None]:
        """Terminate what a test leaves in the usual pools."""
        yield
        for pool_id in (POOL, OTHER_POOL, THIRD_POOL):
            for worker_id in {one.worker_id for one in await spawner.list(pool_id)}:
                await spawner.terminate(pool_id, worker_id)

    def order_of(
        self,
        program: str,
        *arguments: str,
        worker_id: WorkerId = ANN,
        pool_id: PoolId = POOL,
        mark: str = "contract-worker",
        environment: Mapping[str, str] | None = None,
    ) -> Order:
        """Create an order for a shell program; its process can be found by ``mark``."""
        command = (*self.shell, program, mark, *arguments)
        return Order(
            pool_id=pool_id, worker_id=worker_id, slot=0, group_count=1, command=command, environment=dict(environment or {})
        )

    def unstartable(self, order: Order) -> Order:
        """Change an order so that the provider refuses to start it."""
        return Order(
            pool_id=order.pool_id, worker_id=order.worker_id, slot=0, group_count=1, command=("/nowhere/no-such-program",)
        )

    async def kill_outside(self, instance: Instance, mark: str) -> None:
        """Kill the worker's process, as a stranger or the kernel would."""
        for process in programs.processes_named(mark):
            os.kill(process.pid, signal.SIGKILL)

    # Waiting

    async def running(self, spawner: Spawner, ordered: Order) -> None:
        """Start the worker, and wait until it runs and handles SIGTERM."""
        await super().running(spawner, ordered)
        await self.said(spawner, "ready", worker_id=ordered.worker_id, pool_id=ordered.pool_id)

    async def said(self, spawner: Spawner, line: str, worker_id: WorkerId = ANN, pool_id: PoolId = POOL) -> str:
        """Wait until the worker has written a line, and return its whole output."""
        assert isinstance(spawner, ReadsLogs)
        clock, output = SystemClock(), ""
        deadline = clock.elapsed() + self.patience
        while line not in output.splitlines():
            assert clock.elapsed() < deadline, f"expected {worker_id} to write {line!r} within {self.patience}, got {output!r}"
            with suppress(NotFound):
                output = await spawner.logs(pool_id, worker_id, lines=10_000)
            await clock.sleep(self.interval)
        return output

    async def until_processes(self, mark: str, count: int) -> None:
        """Wait until so many processes have this mark."""
        clock = SystemClock()
        deadline = clock.elapsed() + self.patience
        while len(found := await asyncio.to_thread(programs.processes_named, mark)) != count:
            assert clock.elapsed() < deadline, f"expected {count} processes named {mark} within {self.patience}, got {found}"
            await clock.sleep(self.interval)

    async def until_ended(self, spawner: Spawner, pool_id: PoolId = POOL) -> Sequence[Instance]:
        """Wait until no instance of the pool runs."""
        return await self.until(spawner, lambda instances: alive(instances) == [], pool_id)

    async def test_a_spawner_whose_workers_survive_it_declares_so(self, spawner: Spawner) -> None:
        assert isinstance(self, SurvivorContract) == spawner.traits.outlives_controller
        assert spawner.traits.reports_logs

    # Several controllers

    async def test_two_controllers_that_spawn_the_same_worker_at_once_start_one(
        self, spawner: Spawner, controllers: Controllers
    ) -> None:
        mark = new_mark()
        async with controllers() as other:
            order = self.order_of(programs.WORKER, mark=mark)
            answers = await asyncio.gather(*(each.spawn(order) for each in (spawner, other) * 3))

            assert len({one.ref for one in answers}) == 1
            await self.until_processes(mark, 1)
            assert [one.ref for one in await spawner.list(POOL)] == [one.ref for one in await other.list(POOL)]

    async def test_another_controller_lists_what_the_first_started(self, spawner: Spawner, controllers: Controllers) -> None:
        await self.running(spawner, self.order_of(programs.WORKER))
        [mine] = await spawner.list(POOL)

        async with controllers() as other:
            [seen] = await other.list(POOL)

            assert (seen.worker_id, seen.ref, seen.state) == (ANN, mine.ref, InstanceState.RUNNING)

    async def test_another_controller_that_spawns_gets_what_the_first_started(
        self, spawner: Spawner, controllers: Controllers
    ) -> None:
        mine = await spawner.spawn(self.order_of(programs.WORKER))

        async with controllers() as other:
            assert (await other.spawn(self.order_of(programs.WORKER))).ref == mine.ref

    async def test_another_controller_drains_what_the_first_started(self, spawner: Spawner, controllers: Controllers) -> None:
        await self.running(spawner, self.order_of(programs.FINISHES))

        async with controllers() as other:
            await other.drain(POOL, ANN)

            await self.until_ended(other)
        [ann] = await self.until_ended(spawner)
        assert ann.exit_code == 0

    async def test_another_controller_terminates_what_the_first_started(
        self, spawner: Spawner, controllers: Controllers
    ) -> None:
        mark = new_mark()
        await self.running(spawner, self.order_of(programs.WORKER, mark=mark))

        async with controllers() as other:
            await other.terminate(POOL, ANN)

            assert alive(await other.list(POOL)) == []
        await self.until_ended(spawner)
        assert programs.processes_named(mark) == []

    async def test_another_controller_reads_the_output(self, spawner: Spawner, controllers: Controllers) -> None:
        await self.running(spawner, self.order_of(programs.WORKER))

        async with controllers() as other:
            assert await self.said(other, "ready") == "ready\n"

    # Names

    async def test_three_pools_with_equal_worker_ids_are_apart(self, spawner: Spawner) -> None:
        pools = (POOL, OTHER_POOL, THIRD_POOL)
        for pool_id in pools:
            for worker_id in (ANN, BOB):
                await self.running(spawner, self.order_of(programs.WORKER, worker_id=worker_id, pool_id=pool_id))
        refs = [one.ref for pool_id in pools for one in await spawner.list(pool_id)]
        assert len(set(refs)) == 6

        await spawner.drain(OTHER_POOL, ANN)
        await spawner.terminate(THIRD_POOL, BOB)
        await self.until(spawner, lambda instances: alive(instances) == [BOB], OTHER_POOL)

        assert [alive(await spawner.list(pool_id)) for pool_id in pools] == [[ANN, BOB], [BOB], [ANN]]

    @pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
    async def test_an_odd_name_works_for_pool_and_worker(self, spawner: Spawner, name: str) -> None:
        pool_id, worker_id = PoolId(name), WorkerId(name)
        try:
            await self.running(spawner, self.order_of(programs.WORKER, pool_id=pool_id, worker_id=worker_id))
            await spawner.drain(pool_id, worker_id)
            [ended] = await self.until_ended(spawner, pool_id)

            assert (ended.pool_id, ended.worker_id, ended.exit_code) == (pool_id, worker_id, 0)
        finally:
            await spawner.terminate(pool_id, worker_id)

    @pytest.mark.parametrize("name", ["..", "a/b", "../../a", "/a", "a\\b"])
    async def test_a_name_that_is_a_path_works_or_is_refused(self, spawner: Spawner, name: str) -> None:
        worker_id = WorkerId(name)
        try:
            instance = await spawner.spawn(self.order_of(programs.WORKER, worker_id=worker_id))
        except InvalidInput:
            assert await spawner.list(POOL) == []
        else:
            assert [(one.worker_id, one.ref) for one in await spawner.list(POOL)] == [(worker_id, instance.ref)]

    async def test_nearly_equal_names_are_different_workers(self, spawner: Spawner) -> None:
        workers = [WorkerId(name) for name in NEARLY_EQUAL]
        spawned = [await spawner.spawn(self.order_of(programs.WORKER, worker_id=worker_id)) for worker_id in workers]
        assert len({one.ref for one in spawned}) == len(workers)

        await spawner.terminate(POOL, workers[0])

        assert alive(await spawner.list(POOL)) == sorted(workers[1:])

    # Starts

    async def test_a_cancelled_spawn_can_be_repeated_and_leaves_one_instance(self, spawner: Spawner) -> None:
        mark = new_mark()
        order = self.order_of(programs.WORKER, mark=mark)
        for within in (0.0, 0.001, *(random.SystemRandom().uniform(0, 0.05) for _ in range(4))):
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await spawner.spawn(order)
            instance = await spawner.spawn(order)

            await self.until_processes(mark, 1)
            assert [one.ref for one in await spawner.list(POOL) if one.state is not InstanceState.EXITED] == [instance.ref]
            await spawner.terminate(POOL, ANN)
            assert await asyncio.to_thread(programs.processes_named, mark) == []

    async def test_a_slow_start_is_pending_or_running_but_never_missing(self, spawner: Spawner) -> None:
        assert isinstance(spawner, ReadsLogs)
        await spawner.spawn(self.order_of(programs.SLOW))

        output = ""
        while "ready" not in output:
            assert alive(await spawner.list(POOL)) == [ANN]
            with suppress(NotFound):
                output = await spawner.logs(POOL, ANN)
        assert [one.state for one in await spawner.list(POOL)] == [InstanceState.RUNNING]

    async def test_many_can_be_started_and_ended_at_once(self, spawner: Spawner) -> None:
        workers = [WorkerId(f"w{n:02}") for n in range(20)]
        mark = new_mark()

        spawned = await asyncio.gather(
            *(spawner.spawn(self.order_of(programs.WORKER, worker_id=each, mark=mark)) for each in workers)
        )
        await self.until_processes(mark, len(workers))

        assert len({one.ref for one in spawned}) == len(workers)
        assert alive(await spawner.list(POOL)) == workers
        await asyncio.gather(*(spawner.terminate(POOL, each) for each in workers))
        assert alive(await spawner.list(POOL)) == []
        assert programs.processes_named(mark) == []

    async def test_a_terminated_worker_can_be_spawned_again_as_a_new_instance(self, spawner: Spawner) -> None:
        first = await spawner.spawn(self.order_of(programs.WORKER))
        await spawner.terminate(POOL, ANN)

        second = await spawner.spawn(self.order_of(programs.WORKER))

        assert second.ref != first.ref
        assert [one.ref for one in await spawner.list(POOL)] == [second.ref]

    async def test_a_worker_that_exited_can_be_spawned_again_as_a_new_instance(self, spawner: Spawner) -> None:
        first = await spawner.spawn(self.order_of(programs.EXITS, "0"))
        await self.until_ended(spawner)

        second = await spawner.spawn(self.order_of(programs.WORKER))

        assert second.ref != first.ref
        assert [(one.ref, one.exit_code) for one in await spawner.list(POOL)] == [(second.ref, None)]

    # Arguments, environment, secrets

    async def test_arguments_arrive_exactly(self, spawner: Spawner) -> None:
        arguments = [*VALUES.values(), "-x", "--", "*"]

        await spawner.spawn(self.order_of(programs.ARGUMENTS, *arguments))

        output = await self.said(spawner, "done")
        assert [decoded(each) for each in re.findall(r"^argument (\w*)\.$", output, re.MULTILINE)] == arguments

    async def test_the_environment_arrives_exactly(self, spawner: Spawner) -> None:
        await spawner.spawn(self.order_of(programs.VARIABLES, *VALUES, environment=VALUES))

        output = await self.said(spawner, "done")
        assert {name: decoded(value) for name, value in re.findall(r"^(\w+) (\w*)\.$", output, re.MULTILINE)} == VALUES

    async def test_a_long_variable_arrives(self, spawner: Spawner) -> None:
        await spawner.spawn(self.order_of(programs.LENGTH, environment={"LONG": "x" * 60_000}))

        assert "60000" in (await self.said(spawner, "done")).split()

    async def test_secrets_are_on_no_command_line_and_in_no_file_that_others_can_read(
        self, spawner: Spawner, written: Sequence[Path]
    ) -> None:
        order = self.order_of(programs.WORKER, environment={"CONTRACT_SECRET": SECRET})
        async with asyncio.timeout(self.patience.total_seconds()), asyncio.TaskGroup() as group:
            start = group.create_task(self.running(spawner, order))
            while not start.done():
                assert await asyncio.to_thread(found_secrets, written) == []

        assert await asyncio.to_thread(found_secrets, written) == []
        await spawner.terminate(POOL, ANN)
        assert await asyncio.to_thread(found_secrets, written) == []

    # Output

    async def test_the_output_of_a_running_worker_can_be_read(self, spawner: Spawner) -> None:
        await self.running(spawner, self.order_of(programs.WORKER))

        assert await self.said(spawner, "ready") == "ready\n"

    async def test_the_output_of_an_ended_worker_can_be_read(self, spawner: Spawner) -> None:
        await spawner.spawn(self.order_of(programs.WRITES_ERRORS))
        await self.until_ended(spawner)

        assert sorted((await self.said(spawner, "done")).splitlines()) == ["done", "to stderr", "to stdout"]

    async def test_the_last_lines_of_long_output_are_returned(self, spawner: Spawner) -> None:
        assert isinstance(spawner, ReadsLogs)
        await self.running(spawner, self.order_of(programs.TALKS, "2000"))

        assert (await spawner.logs(POOL, ANN, lines=3)).splitlines() == ["line 1999", "line 2000", "ready"]

    async def test_the_output_of_an_unknown_worker_is_not_found(self, spawner: Spawner) -> None:
        assert isinstance(spawner, ReadsLogs)

        with pytest.raises(NotFound, match=UNKNOWN):
            await spawner.logs(POOL, UNKNOWN)

    # Ends

    @pytest.mark.parametrize("code", [0, 1, 3, 99])
    async def test_a_worker_that_exits_shows_its_exit_code(self, spawner: Spawner, code: int) -> None:
        await spawner.spawn(self.order_of(programs.EXITS, str(code)))

        [ann] = await self.until_ended(spawner)

        assert (ann.state, ann.exit_code) == (InstanceState.EXITED, code)

    async def test_a_worker_that_a_signal_ended_shows_it(self, spawner: Spawner) -> None:
        await spawner.spawn(self.order_of(programs.KILLS_ITSELF))

        [ann] = await self.until_ended(spawner)

        assert ann.exit_code in {-signal.SIGKILL, 128 + signal.SIGKILL}

    async def test_a_worker_that_was_killed_from_outside_is_seen_as_exited(self, spawner: Spawner) -> None:
        mark = new_mark()
        await self.running(spawner, self.order_of(programs.WORKER, mark=mark))
        [instance] = await spawner.list(POOL)

        await self.kill_outside(instance, mark)

        [ann] = await self.until_ended(spawner)
        assert (ann.ref, ann.state) == (instance.ref, InstanceState.EXITED)
        assert ann.exit_code != 0

    async def test_drain_lets_the_worker_finish_its_work(self, spawner: Spawner) -> None:
        await self.running(spawner, self.order_of(programs.FINISHES))

        await spawner.drain(POOL, ANN)

        [ann] = await self.until_ended(spawner)
        assert ann.exit_code == 0
        assert (await self.said(spawner, "finished")).splitlines() == ["ready", "finishing", "finished"]

    async def test_terminate_ends_a_worker_that_ignores_drain(self, spawner: Spawner) -> None:
        mark = new_mark()
        await self.running(spawner, self.order_of(programs.STUBBORN, mark=mark))

        await spawner.drain(POOL, ANN)
        assert alive(await spawner.list(POOL)) == [ANN]
        await spawner.terminate(POOL, ANN)

        assert alive(await spawner.list(POOL)) == []
        assert programs.processes_named(mark) == []

    async def test_the_children_of_a_worker_end_with_it(self, spawner: Spawner) -> None:
        near, far = new_mark(), new_mark()
        await self.running(spawner, self.order_of(programs.PARENT, near, far))
        for child in (near, far):
            await self.until_processes(child, 1)

        await spawner.terminate(POOL, ANN)

        for child in (near, far):
            await self.until_processes(child, 0)

    async def test_a_child_that_a_worker_leaves_behind_ends_at_the_latest_with_terminate(self, spawner: Spawner) -> None:
        child = new_mark()
        await spawner.spawn(self.order_of(programs.LEAVES_A_CHILD, child))

        [ann] = await self.until_ended(spawner)
        await spawner.terminate(POOL, ANN)

        assert ann.exit_code == 3
        await self.until_processes(child, 0)

    async def test_when_all_have_ended_nothing_is_alive(self, spawner: Spawner) -> None:
        workers = [WorkerId(f"w{n}") for n in range(4)]
        for n, each in enumerate(workers):
            await spawner.spawn(self.order_of(programs.EXITS, str(n), worker_id=each))

        ended = await self.until_ended(spawner)

        assert {one.worker_id: one.exit_code for one in ended} == dict(zip(workers, range(4), strict=True))
        for each in workers:
            await spawner.terminate(POOL, each)
        assert alive(await spawner.list(POOL)) == []

    # Price

    async def test_an_instance_costs_at_most_what_the_traits_say(self, spawner: Spawner) -> None:
        await self.running(spawner, self.order_of(programs.WORKER))

        [ann] = await spawner.list(POOL)

        assert (ann.price_per_hour or 0) <= spawner.traits.price_per_hour
        assert spawner.traits.usual_start > timedelta()


class SurvivorContract(ProcessContract):
    """Tests for spawners that declare ``outlives_controller``."""

    async def test_workers_outlive_the_controller_and_the_next_one_finds_them(self, controllers: Controllers) -> None:
        mark = new_mark()
        async with controllers() as first:
            assert first.traits.outlives_controller
            await self.running(first, self.order_of(programs.WORKER, mark=mark))
            [started] = await first.list(POOL)

        async with controllers() as second:
            assert [(one.ref, one.state) for one in await second.list(POOL)] == [(started.ref, InstanceState.RUNNING)]
            assert (await second.spawn(self.order_of(programs.WORKER, mark=mark))).ref == started.ref
            await self.until_processes(mark, 1)
            await second.drain(POOL, ANN)
            await self.until_ended(second)

    async def test_a_later_controller_terminates_what_an_earlier_one_left(self, controllers: Controllers) -> None:
        mark = new_mark()
        async with controllers() as first:
            await self.running(first, self.order_of(programs.STUBBORN, mark=mark))

        async with controllers() as second:
            await second.terminate(POOL, ANN)

            assert alive(await second.list(POOL)) == []
        assert programs.processes_named(mark) == []

    async def test_a_worker_that_ended_between_two_controllers_is_not_alive(self, controllers: Controllers) -> None:
        mark = new_mark()
        async with controllers() as first:
            await self.running(first, self.order_of(programs.WORKER, mark=mark))
            [instance] = await first.list(POOL)

        await self.kill_outside(instance, mark)
        await self.until_processes(mark, 0)

        async with controllers() as second:
            await self.until_ended(second)


def new_mark() -> str:
    """Return an argument by which the processes of one test can be found."""
    return f"contract-{uuid4().hex}"


def decoded(digits: str) -> str:
    """Return the text that a program printed as hexadecimal digits."""
    return bytes.fromhex(digits).decode()


def found_secrets(folders: Iterable[Path]) -> Sequence[object]:
    """Return the command lines and the files readable by all that contain the secret."""
    files = [path for folder in folders for path in programs.readable_by_all(folder, SECRET)]
    return [*programs.command_lines_with(SECRET), *files]
