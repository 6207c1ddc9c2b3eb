"""The fake spawner keeps the contract while nothing is wrong, and breaks it exactly as told."""

from datetime import timedelta

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import SpawnAmbiguous, SpawnError, SpawnFailed
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import ExitCodeContract, OrderFactory, PoolListContract, SpawnerContract, VolumeContract
from drumbeat.spawn.fake import (
    AnswerLost,
    DrainIgnored,
    ExitsAtOnce,
    FakeSpawner,
    Fault,
    ListFails,
    ListInvents,
    ListOmits,
    SpawnFails,
    StartDelayed,
    StartedTwice,
    TerminateRefused,
)
from drumbeat.spawn.interface import InstanceState, Order

P = PoolId("p")
A, B = WorkerId("a"), WorkerId("b")
MINUTE = timedelta(minutes=1)


def order(worker_id: WorkerId = A, pool_id: PoolId = P) -> Order:
    return Order(pool_id=pool_id, worker_id=worker_id, slot=0, group_count=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def spawner(clock: ManualClock) -> FakeSpawner:
    return FakeSpawner(clock)


class TestFakeSpawner(SpawnerContract, ExitCodeContract, PoolListContract, VolumeContract):
    @pytest.fixture
    def spawner(self, clock: ManualClock) -> FakeSpawner:
        return FakeSpawner(clock, volumes={"vol1": 100})

    @pytest.fixture
    def volume(self) -> str:
        return "vol1"

    @pytest.fixture
    def order(self, spawner: FakeSpawner) -> OrderFactory:
        def make(worker_id: WorkerId, pool_id: PoolId, *, exits: int | None = None, startable: bool = True) -> Order:
            if exits is not None:
                spawner.faults.append(ExitsAtOnce(worker_id=worker_id, exit_code=exits))
            if not startable:
                spawner.faults.append(SpawnFails(worker_id=worker_id))
            return order(worker_id, pool_id)

        return make


class TestSpawnFaults:
    async def test_a_failed_spawn_starts_nothing_and_the_next_succeeds(self, spawner: FakeSpawner) -> None:
        spawner.faults.append(SpawnFails(reason="quota"))

        with pytest.raises(SpawnFailed, match="quota"):
            await spawner.spawn(order())
        assert spawner.running(P) == []
        await spawner.spawn(order())
        assert spawner.running(P) == [A]

    @pytest.mark.parametrize(("started", "running"), [(True, [A]), (False, [])])
    async def test_a_lost_answer_is_ambiguous(self, spawner: FakeSpawner, started: bool, running: list[WorkerId]) -> None:
        spawner.faults.append(AnswerLost(started=started))

        with pytest.raises(SpawnAmbiguous, match="a: the provider gave no answer"):
            await spawner.spawn(order())

        assert spawner.running(P) == running

    async def test_a_delayed_start_is_pending_until_time_has_passed(self, spawner: FakeSpawner, clock: ManualClock) -> None:
        spawner.faults.append(StartDelayed(by=MINUTE))
        assert (await spawner.spawn(order())).state is InstanceState.PENDING

        await clock.advance(MINUTE - timedelta(seconds=1))
        assert [(one.state, one.started_at) for one in await spawner.list(P)] == [(InstanceState.PENDING, None)]
        await clock.advance(timedelta(seconds=1))

        assert [(one.state, one.started_at) for one in await spawner.list(P)] == [(InstanceState.RUNNING, clock.now())]

    async def test_one_started_twice_is_listed_twice_and_ends_twice(self, spawner: FakeSpawner) -> None:
        spawner.faults.append(StartedTwice())
        await spawner.spawn(order())

        assert len({one.ref for one in await spawner.list(P)}) == 2
        assert spawner.running(P) == [A, A]
        await spawner.terminate(P, A)
        assert spawner.running(P) == []


class TestListLies:
    @pytest.mark.parametrize(
        ("lie", "shown"),
        [
            (ListOmits(workers=[A]), [B]),
            (ListOmits(), []),
            (ListInvents(workers=[WorkerId("ghost")]), [A, B, "ghost"]),
        ],
    )
    async def test_the_list_lies_once_and_then_tells_the_truth(
        self, spawner: FakeSpawner, lie: Fault, shown: list[str]
    ) -> None:
        await spawner.spawn(order(A))
        await spawner.spawn(order(B))
        spawner.faults.append(lie)

        assert [one.worker_id for one in await spawner.list(P)] == shown
        assert [one.worker_id for one in await spawner.list(P)] == [A, B]
        assert spawner.running(P) == [A, B]

    async def test_a_list_may_fail(self, spawner: FakeSpawner) -> None:
        spawner.faults.append(ListFails(reason="timeout"))

        with pytest.raises(SpawnError, match="timeout"):
            await spawner.list(P)
        assert await spawner.list(P) == []


class TestEndFaults:
    async def test_a_refused_terminate_leaves_it_running(self, spawner: FakeSpawner) -> None:
        await spawner.spawn(order())
        spawner.faults.append(TerminateRefused(times=2))

        for _ in range(2):
            with pytest.raises(SpawnError, match="refused"):
                await spawner.terminate(P, A)
            assert spawner.running(P) == [A]
        await spawner.terminate(P, A)
        assert spawner.running(P) == []

    async def test_an_ignored_drain_leaves_it_running(self, spawner: FakeSpawner) -> None:
        await spawner.spawn(order())
        spawner.faults.append(DrainIgnored())

        await spawner.drain(P, A)

        assert spawner.running(P) == [A]

    async def test_a_drain_takes_its_time_and_a_terminate_does_not(self, clock: ManualClock) -> None:
        spawner = FakeSpawner(clock, drain_takes=MINUTE)
        for worker in (A, B):
            await spawner.spawn(order(worker))
            await spawner.drain(P, worker)
        await spawner.terminate(P, A)
        assert spawner.running(P) == [B]

        await clock.advance(MINUTE)

        assert [(one.worker_id, one.exit_code) for one in await spawner.list(P)] == [(A, -9), (B, 0)]

    async def test_one_that_died_of_itself_shows_its_exit_code_until_it_is_started_anew(self, spawner: FakeSpawner) -> None:
        await spawner.spawn(order())
        spawner.end(P, A, exit_code=4)
        assert [(one.state, one.exit_code) for one in await spawner.list(P)] == [(InstanceState.EXITED, 4)]

        again = await spawner.spawn(order())

        assert await spawner.list(P) == [again]


class TestScript:
    @pytest.mark.parametrize(
        ("faults", "failed"),
        [
            ([SpawnFails()], [A]),
            ([SpawnFails(worker_id=B)], [B]),
            ([SpawnFails(times=2)], [A, B]),
            ([SpawnFails(), AnswerLost()], [A, B]),
            ([TerminateRefused(), DrainIgnored()], []),
        ],
    )
    async def test_a_fault_befalls_the_calls_it_is_meant_for(
        self, clock: ManualClock, faults: list[Fault], failed: list[WorkerId]
    ) -> None:
        spawner = FakeSpawner(clock, faults)

        seen = [worker for worker in (A, B) if await _fails(spawner, worker)]

        assert seen == failed

    async def test_every_call_is_recorded_even_those_that_failed(self, spawner: FakeSpawner, clock: ManualClock) -> None:
        spawner.faults.append(SpawnFails())
        assert await _fails(spawner, A)
        await clock.advance(MINUTE)
        await spawner.list(P)
        await spawner.drain(P, A)
        await spawner.terminate(P, B)

        assert [(call.verb, call.worker_id) for call in spawner.calls] == [
            ("spawn", A),
            ("list", None),
            ("drain", A),
            ("terminate", B),
        ]
        assert spawner.calls[1].at - spawner.calls[0].at == MINUTE
        assert spawner.asked("terminate") == [B]


async def _fails(spawner: FakeSpawner, worker: WorkerId) -> bool:
    try:
        await spawner.spawn(order(worker))
    except SpawnError:
        return True
    return False
