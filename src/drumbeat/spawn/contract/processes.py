"""Tests for spawners that run real commands: starts, output, exit codes, children, and workers that outlive a controller."""

import signal
from datetime import timedelta

import pytest

from drumbeat.core.errors import NotFound
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import programs
from drumbeat.spawn.contract.base import (
    ANN,
    POOL,
    UNKNOWN,
    alive,
)
from drumbeat.spawn.contract.process_setup import Controllers, new_mark
from drumbeat.spawn.contract.starts import StartContract
from drumbeat.spawn.interface import InstanceState, ReadsLogs, Spawner


class ProcessContract(StartContract):
    """Tests for spawners whose workers are real commands that run on this machine.

    Subclasses must provide the fixtures ``controllers`` and ``written`` (see the package docstring), and can override
    ``unstartable`` and ``kill_outside``.
    """

    async def test_a_spawner_whose_workers_survive_it_declares_so(self, spawner: Spawner) -> None:
        assert isinstance(self, SurvivorContract) == spawner.traits.outlives_controller
        assert spawner.traits.reports_logs

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
        assert ann.exit_code == self.drained_code(spawner)
        if spawner.traits.keeps_drained:
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
