"""Tests of how spawners start real commands: several controllers, odd names, repeated starts, environments, secrets."""

import asyncio
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from drumbeat.core.errors import InvalidInput, NotFound
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import programs
from drumbeat.spawn.contract.base import (
    ANN,
    BOB,
    OTHER_POOL,
    POOL,
    alive,
)
from drumbeat.spawn.contract.process_setup import THIRD_POOL, Controllers, ProcessSetup, new_mark
from drumbeat.spawn.interface import InstanceState, ReadsLogs, Spawner

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


class StartContract(ProcessSetup):
    """Tests of how workers are started; part of ``ProcessContract``."""

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
        assert ann.exit_code == self.drained_code(spawner)

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

            assert (ended.pool_id, ended.worker_id, ended.exit_code) == (pool_id, worker_id, self.drained_code(spawner))
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
        async with asyncio.timeout(self.timeout.total_seconds()), asyncio.TaskGroup() as group:
            start = group.create_task(self.running(spawner, order))
            while not start.done():
                assert await asyncio.to_thread(found_secrets, written) == []

        assert await asyncio.to_thread(found_secrets, written) == []
        await spawner.terminate(POOL, ANN)
        assert await asyncio.to_thread(found_secrets, written) == []


def decoded(digits: str) -> str:
    """Return the text that a program printed as hexadecimal digits."""
    return bytes.fromhex(digits).decode()


def found_secrets(folders: Iterable[Path]) -> Sequence[object]:
    """Return the command lines, and the files that all users can read, in which the tests' secret occurs."""
    files = [path for folder in folders for path in programs.readable_by_all(folder, SECRET)]
    return [*programs.command_lines_with(SECRET), *files]
