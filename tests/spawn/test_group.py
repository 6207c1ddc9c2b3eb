"""A group of engines prefers the first, falls back to the next, and never starts a worker twice."""

import asyncio
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import (
    InvalidInput,
    InvalidSettings,
    NotFound,
    SpawnAmbiguous,
    SpawnCause,
    SpawnError,
    SpawnFailed,
    Unanswered,
)
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.runtime.snapshot import LIST_WITHIN
from drumbeat.runtime.timeouts import race
from drumbeat.spawn.contract import Controllers, PoolListContract, SurvivorContract
from drumbeat.spawn.fake import AnswerLost, FakeSpawner, ListFails, SpawnFails, TerminateRefused
from drumbeat.spawn.group import ENGINE, EngineGroup
from drumbeat.spawn.interface import Instance, InstanceState, Order, Spawner, SpawnerTraits, list_reachable
from drumbeat.spawn.local import LocalSpawner
from drumbeat.spawn.local_settings import LocalSettings
from simulate.virtual_time import VirtualClock, run_virtually

P = PoolId("p")
W = WorkerId("w")
SECOND = timedelta(seconds=1)


def order(worker_id: str = W, *, is_first: bool = True) -> Order:
    return Order(pool_id=P, worker_id=WorkerId(worker_id), slot=0, group_count=1, is_first=is_first)


class Priced(FakeSpawner):
    """A fake engine with traits of its own."""

    def __init__(self, clock: ManualClock, name: str, **traits: Any) -> None:
        super().__init__(clock, name=name)
        self.more = traits

    @property
    def traits(self) -> SpawnerTraits:
        return replace(super().traits, **self.more)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def first(clock: ManualClock) -> FakeSpawner:
    return FakeSpawner(clock, name="first")


@pytest.fixture
def second(clock: ManualClock) -> FakeSpawner:
    return FakeSpawner(clock, name="second")


@pytest.fixture
def group(first: FakeSpawner, second: FakeSpawner) -> EngineGroup:
    return EngineGroup([first, second])


class TestEngineGroup(SurvivorContract, PoolListContract):
    """Two local engines, of which the first has one slot, keep the whole contract of spawners together."""

    @pytest.fixture
    def controllers(self, tmp_path: Path) -> Controllers:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Spawner]:
            small = LocalSpawner(tmp_path / "a", {}, survive=True, name="small", settings=LocalSettings(slots=1))
            async with EngineGroup([small, LocalSpawner(tmp_path / "b", {}, survive=True, name="large")]) as group:
                yield group

        return opened

    @pytest.fixture
    def written(self, tmp_path: Path) -> Sequence[Path]:
        return [tmp_path]


def places(instances: object) -> list[tuple[str, str]]:
    assert isinstance(instances, list)
    return sorted((one.worker_id, one.meta[ENGINE]) for one in instances if isinstance(one, Instance))


async def test_a_worker_is_started_at_the_first_engine(group: EngineGroup, first: FakeSpawner, second: FakeSpawner) -> None:
    instance = await group.spawn(order())

    assert instance.meta[ENGINE] == "first"
    assert (first.running(P), second.running(P)) == ([W], [])


async def test_a_worker_that_the_first_engine_refuses_is_started_at_the_next(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner
) -> None:
    first.faults.append(SpawnFails(reason="full"))

    instance = await group.spawn(order())
    await group.spawn(order("v"))

    assert instance.meta[ENGINE] == "second"
    assert places(await group.list(P)) == [("v", "first"), ("w", "second")]


async def test_if_every_engine_refuses_the_error_names_each(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner
) -> None:
    first.faults.append(SpawnFails(reason="wrong key", cause=SpawnCause.AUTH))
    second.faults.append(SpawnFails(reason="full", retry_after=SECOND))

    with pytest.raises(SpawnFailed, match=r"every engine refused: first: .*wrong key; second: .*full") as caught:
        await group.spawn(order())

    assert caught.value.cause is SpawnCause.NO_CAPACITY, "what time may cure decides when to ask again"
    assert caught.value.retry_after is None, "one of them gave no time"


async def test_the_shortest_wait_counts(group: EngineGroup, first: FakeSpawner, second: FakeSpawner) -> None:
    first.faults.append(SpawnFails(retry_after=9 * SECOND))
    second.faults.append(SpawnFails(retry_after=2 * SECOND))

    with pytest.raises(SpawnFailed) as caught:
        await group.spawn(order())

    assert caught.value.retry_after == 2 * SECOND


@pytest.mark.parametrize("started", [True, False])
async def test_a_start_without_an_answer_is_not_tried_elsewhere(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner, started: bool
) -> None:
    first.faults.append(AnswerLost(started=started))

    with pytest.raises(SpawnAmbiguous):
        await group.spawn(order())

    assert second.running(P) == []
    assert first.running(P) == ([W] if started else [])


async def test_a_worker_asked_for_again_is_found_where_it_runs(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner
) -> None:
    first.faults.append(SpawnFails())
    await group.spawn(order())

    again = await EngineGroup([first, second]).spawn(order(is_first=False))

    assert again.meta[ENGINE] == "second"
    assert (first.running(P), second.running(P)) == ([], [W])


async def test_two_controllers_that_see_other_engines_full_start_a_worker_once(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner
) -> None:
    await group.spawn(order())
    first.faults.append(SpawnFails(reason="full", times=9))

    again = await EngineGroup([first, second]).spawn(order(is_first=False))

    assert again.meta[ENGINE] == "first"
    assert second.running(P) == []


async def test_a_worker_that_an_unreachable_engine_may_run_is_not_started_again(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner
) -> None:
    second.faults.append(ListFails(reason="no route to host"))

    with pytest.raises(Unanswered, match=r"worker w was not started again, .*: 1 of the engines did not answer: .*route"):
        await group.spawn(order(is_first=False))

    assert first.running(P) == []


async def test_a_new_worker_is_started_although_an_engine_is_unreachable(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner
) -> None:
    first.faults += [ListFails(), SpawnFails(reason="no route to host", cause=SpawnCause.TRANSIENT)]

    assert (await group.spawn(order(is_first=True))).meta[ENGINE] == "second"


async def test_a_partial_list_is_an_error(group: EngineGroup, second: FakeSpawner) -> None:
    await group.spawn(order())
    second.faults.append(ListFails(reason="timeout"))

    with pytest.raises(Unanswered, match=r"the list of pool p is incomplete: .*second: .*timeout"):
        await group.list(P)


async def test_engines_that_answer_are_listed_and_the_others_named(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner
) -> None:
    await group.spawn(order())
    second.faults.append(ListFails(reason="timeout"))

    found = await group.list_reachable(P)

    assert places(found.instances) == [("w", "first")]
    assert [place.name for place in found.silent] == ["second"]
    assert (found.is_answered, "timeout" in found.problem) == (True, True)


class Hanging(FakeSpawner):
    """A fake engine whose lists take half a minute and then fail, as when a firewall drops its packets."""

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        await asyncio.sleep(30)
        raise Unanswered("no answer within 30 s")

    async def pools(self) -> Set[PoolId]:
        await asyncio.sleep(30)
        raise Unanswered("no answer within 30 s")


@pytest.mark.parametrize("names", [("works", "hangs"), ("hangs", "works")])
def test_an_engine_that_hangs_does_not_delay_the_others_list_for_too_long(names: Sequence[str]) -> None:
    async def story() -> None:
        clock = VirtualClock()
        members = {"works": FakeSpawner(clock, name="works"), "hangs": Hanging(clock, name="hangs")}
        group = EngineGroup([members[name] for name in names])
        await members["works"].spawn(order())

        found = await race(clock.sleep(LIST_WITHIN), group.list_reachable(P))

        assert places(found.instances) == [("w", "works")]
        assert ([place.name for place in found.silent], found.is_answered) == (["hangs"], True)
        assert "engine hangs did not answer within 15 s" in found.problem
        assert await race(clock.sleep(LIST_WITHIN), group.pools()) == {P}
        with pytest.raises(Unanswered, match=r"the list of pool p is incomplete: .*engine hangs did not answer within 15 s"):
            await race(clock.sleep(LIST_WITHIN), group.list(P))

    run_virtually(story())


async def test_a_worker_of_a_silent_engine_does_not_count_as_ended(group: EngineGroup, second: FakeSpawner) -> None:
    def row(status: WorkerStatus = WorkerStatus.ACTIVE, **meta: Any) -> Worker:
        return Worker(pool_id=P, worker_id=W, slot=0, status=status, provider="first,second", meta=meta)

    second.faults.append(ListFails())
    found = await group.list_reachable(P)

    assert [found.hidden([each]) for each in (row(), row(engine="second"), row(WorkerStatus.LOST))] == [[W], [W], [W]]
    assert found.hidden([row(engine="first")]) == []
    assert found.hidden([replace(row(), provider="first")]) == []


async def test_if_no_engine_answers_that_is_said(group: EngineGroup, first: FakeSpawner, second: FakeSpawner) -> None:
    for member in (first, second):
        member.faults.append(ListFails(times=2))

    assert not (await group.list_reachable(P)).is_answered
    with pytest.raises(Unanswered):
        await list_reachable(group, P)


async def test_pools_of_the_engines_that_answer_are_named(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> Set[PoolId]:
        raise Unanswered("no route to host")

    await group.spawn(order())
    monkeypatch.setattr(second, "pools", fail)

    assert await group.pools() == {"p"}
    monkeypatch.setattr(first, "pools", fail)
    with pytest.raises(Unanswered):
        await group.pools()


async def test_a_worker_is_ended_at_the_engine_that_runs_it(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner
) -> None:
    first.faults.append(SpawnFails())
    await group.spawn(order())

    await group.drain(P, W)
    await group.terminate(P, W)

    assert (first.asked("drain"), second.asked("drain")) == ([], [W])
    assert (first.asked("terminate"), second.asked("terminate")) == ([], [W])


async def test_a_worker_that_no_engine_lists_is_ended_at_all(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner
) -> None:
    await group.terminate(P, W)

    assert first.asked("terminate") == second.asked("terminate") == [W]


async def test_a_worker_that_may_run_at_an_unreachable_engine_does_not_count_as_ended(
    group: EngineGroup, first: FakeSpawner
) -> None:
    first.faults.append(ListFails())

    with pytest.raises(Unanswered, match="worker w cannot be stopped now, because no engine that answers runs it"):
        await group.terminate(P, W)


async def test_a_worker_is_ended_although_another_engine_is_unreachable(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner
) -> None:
    await group.spawn(order())
    second.faults.append(ListFails())

    await group.terminate(P, W)

    assert first.running(P) == []


async def test_a_refused_end_is_an_error(group: EngineGroup, first: FakeSpawner) -> None:
    await group.spawn(order())
    first.faults.append(TerminateRefused())

    with pytest.raises(SpawnError):
        await group.terminate(P, W)


@pytest.mark.parametrize("refuses", [0, 1])
async def test_an_engine_that_refuses_to_end_a_worker_keeps_no_other_from_ending_it(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner, refuses: int
) -> None:
    engines = [first, second]
    for engine in engines:
        await engine.spawn(order())
    engines[refuses].faults.append(TerminateRefused())

    with pytest.raises(SpawnError):
        await group.terminate(P, W)

    assert [engine.running(P) for engine in engines] == [[W] if n == refuses else [] for n in range(2)]


async def test_traits_promise_only_what_every_engine_keeps(clock: ManualClock) -> None:
    cheap = Priced(clock, "cheap", price_per_hour=1.0, settle=SECOND, usual_start=9 * SECOND, owns_all=True, asked_with="k")
    dear = Priced(clock, "dear", price_per_hour=3.0, unique_names=False, reports_exit_codes=False, billing_granule=60 * SECOND)
    dear.more["keeps_drained"] = False

    traits = EngineGroup([cheap, dear]).traits

    assert traits.name == "cheap,dear"
    assert (traits.unique_names, traits.reports_exit_codes, traits.owns_all) == (False, False, False)
    assert (cheap.traits.keeps_drained, traits.keeps_drained) == (True, False)
    assert (traits.price_per_hour, traits.settle, traits.usual_start) == (3.0, SECOND, 9 * SECOND)
    assert traits.billing_granule == 60 * SECOND
    assert traits.asked_with not in {"", "k"}


async def test_each_instance_has_the_price_of_its_engine(clock: ManualClock) -> None:
    cheap, dear = Priced(clock, "cheap", price_per_hour=1.0), Priced(clock, "dear", price_per_hour=3.0)
    group = EngineGroup([cheap, dear])
    await group.spawn(order("a"))
    cheap.faults.append(SpawnFails())
    await group.spawn(order("b"))

    assert {one.worker_id: one.price_per_hour for one in await group.list(P)} == {"a": 1.0, "b": 3.0}


async def test_an_exited_worker_may_be_started_at_another_engine(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner
) -> None:
    await group.spawn(order())
    first.end(P, W, exit_code=1)
    first.faults.append(SpawnFails())

    assert (await group.spawn(order(is_first=False))).meta[ENGINE] == "second"
    assert {one.state for one in await group.list(P)} == {InstanceState.EXITED, InstanceState.RUNNING}


async def test_pools_of_all_engines_are_named(group: EngineGroup, second: FakeSpawner) -> None:
    await group.spawn(order())
    await second.spawn(replace(order(), pool_id=PoolId("q")))

    assert await group.pools() == {"p", "q"}


async def test_output_that_no_engine_has_is_not_found(group: EngineGroup) -> None:
    with pytest.raises(NotFound, match="no engine of first,second has it"):
        await group.logs(P, W)


async def test_a_group_needs_an_engine() -> None:
    with pytest.raises(InvalidInput):
        EngineGroup([])


class Mute(Hanging):
    """A fake engine that takes every request and never answers: it hangs when asked for a list, and at a start."""

    def __init__(self, clock: ManualClock | VirtualClock, name: str) -> None:
        super().__init__(clock, name=name)
        self.lists = 0

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        self.lists += 1
        return await super().list(pool_id)

    async def spawn(self, order: Order) -> Instance:
        await asyncio.sleep(30)
        raise SpawnAmbiguous("no answer within 30 s")


def test_an_engine_that_hangs_is_passed_over_and_not_asked_again_at_every_start() -> None:
    async def story() -> None:
        clock = VirtualClock()
        mute, works = Mute(clock, "mute"), FakeSpawner(clock, name="works")
        group = EngineGroup([mute, works])

        for number in range(4):
            assert (await group.spawn(order(f"w{number}"))).meta[ENGINE] == "works"
        assert (mute.lists, clock.elapsed()) == (1, 15 * SECOND)

        await clock.sleep(60 * SECOND)
        await group.spawn(order("w9"))
        assert mute.lists == 2

    run_virtually(story())


def test_if_the_engines_that_answer_refuse_the_one_that_hangs_is_named_and_not_tried() -> None:
    async def story() -> None:
        clock = VirtualClock()
        full = FakeSpawner(clock, name="full")
        full.faults.append(SpawnFails(cause=SpawnCause.NO_CAPACITY))

        with pytest.raises(SpawnFailed, match=r"mute: engine mute did not answer within 15 s.*; full: ") as refused:
            await EngineGroup([Mute(clock, "mute"), full]).spawn(order())
        assert refused.value.cause is SpawnCause.NO_CAPACITY

    run_virtually(story())


async def test_if_no_engine_answers_a_new_worker_is_tried_at_the_first(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner
) -> None:
    first.faults.append(ListFails())
    second.faults.append(ListFails())

    assert (await group.spawn(order())).meta[ENGINE] == "first"


class Broken(FakeSpawner):
    """A fake engine with a wrong key, which it notices when it is opened or when it is asked."""

    def __init__(self, clock: ManualClock, when: str) -> None:
        super().__init__(clock, name="broken")
        self.when = when

    def _check(self, when: str) -> None:
        if self.when == when:
            raise InvalidSettings("cannot use the key file k")

    async def __aenter__(self) -> Self:
        self._check("opened")
        return await super().__aenter__()

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        self._check("asked")
        return await super().list(pool_id)

    async def spawn(self, order: Order) -> Instance:
        self._check("started")
        return await super().spawn(order)


@pytest.mark.parametrize("when", ["opened", "asked", "started"])
async def test_an_engine_with_a_wrong_key_does_not_stop_the_others(
    when: str, second: FakeSpawner, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken(clock, when)
    async with EngineGroup([broken, second]) as group:
        assert (await group.spawn(order("w0"))).meta[ENGINE] == "second"
        assert (await group.spawn(order("w1"))).meta[ENGINE] == "second"
        assert (
            caplog.messages.count(
                "engine broken cannot be used: cannot use the key file k; check it with: drumbeat engine check broken"
            )
            == 1
        )
        if when != "started":
            [silent] = (await group.list_reachable(P)).silent
            assert (silent.name, silent.error.cause) == ("broken", SpawnCause.AUTH)
            with pytest.raises(Unanswered, match="cannot use the key file k"):
                await group.terminate(P, WorkerId("w7"))

        broken.when = "never"
        assert (await group.spawn(order("w2"))).meta[ENGINE] == "broken"


async def test_if_every_engine_has_a_wrong_key_none_is_opened(clock: ManualClock) -> None:
    with pytest.raises(SpawnError, match="cannot use the key file k"):
        async with EngineGroup([Broken(clock, "opened"), Broken(clock, "opened")]):
            pass


@pytest.mark.parametrize("verb", ["drain", "terminate"])
async def test_a_worker_whose_ended_instance_is_listed_may_run_at_a_silent_engine(
    group: EngineGroup, first: FakeSpawner, second: FakeSpawner, verb: str
) -> None:
    await first.spawn(order())
    first.end(P, W, 1)
    second.faults.append(ListFails())

    with pytest.raises(Unanswered, match="worker w cannot be stopped now"):
        await getattr(group, verb)(P, W)
    await getattr(group, verb)(P, W)
    assert (first.asked(verb), second.asked(verb)) == ([W], [])
