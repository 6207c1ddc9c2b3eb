"""A beat writes one row of what it saw, did and could not do, and no failure ends the loop."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from drumbeat.core.beat import Beat
from drumbeat.core.decision import Decision
from drumbeat.core.errors import Fenced, SpawnFailed, StoreUnavailable
from drumbeat.core.lease import Fence
from drumbeat.runtime.beat import BeatReport, ControlLoop
from drumbeat.runtime.lease import Leadership
from runtime.given import POOL, Slow, World, seconds, settle

TTL = seconds(10)
SEEN = {"workers": 2, "now": "2026-01-01T00:00:00Z", "waits": "PT30S"}  #: by the first beat of a world


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    workers: int
    now: datetime
    waits: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Spawn:
    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class Drain(Spawn):
    """An action of another type."""


@dataclass(slots=True, kw_only=True)
class Controller:
    """Stages that do as they are told, and note what was asked of them."""

    world: World
    actions: Sequence[Spawn] = ()
    why_not: str | None = None
    fails: dict[str, Exception] = field(default_factory=dict)  #: by stage, or by the worker an action is about
    during_act: Callable[[str], None] = lambda _: None
    act_takes: timedelta = timedelta()
    hangs: frozenset[str] = frozenset()  #: the workers whose action does not end by itself
    observe_takes: timedelta = timedelta()
    ahead: timedelta = timedelta()  #: of the store's clock, against the controller's own
    gaps: list[timedelta] = field(default_factory=list)
    observed_at: list[timedelta] = field(default_factory=list)
    done: list[tuple[str, Fence]] = field(default_factory=list)

    async def observe(self, gap: timedelta) -> View:
        self.gaps.append(gap)
        self.observed_at.append(self.world.clock.elapsed())
        self._maybe_fail("observe")
        await self.world.clock.sleep(self.observe_takes)
        return View(workers=2, now=self.world.clock.now() + self.ahead)

    def decide(self, view: View) -> Decision[Spawn]:
        self._maybe_fail("decide")
        return Decision(actions=self.actions, why_not=self.why_not, summary={"workers": view.workers})

    async def act(self, action: Spawn, fence: Fence) -> None:
        await self.world.clock.sleep(seconds(3600) if action.worker in self.hangs else self.act_takes)
        self.during_act(action.worker)
        self._maybe_fail(action.worker)
        self.done.append((action.worker, fence))

    def _maybe_fail(self, where: str) -> None:
        if failure := self.fails.get(where):
            raise failure

    def loop(self, owner: str = "a", leadership: Leadership | None = None) -> ControlLoop[View, Spawn]:
        return ControlLoop(
            store=self.world.store,
            pool_id=POOL,
            leadership=leadership or Leadership(self.world.store, POOL, owner, TTL, self.world.clock),
            clock=self.world.clock,
            every=timedelta(seconds=1),
            observe=self.observe,
            decide=self.decide,
            act=self.act,
        )


def spawns(*workers: str) -> Sequence[Spawn]:
    return [Spawn(worker, "too few") for worker in workers]


async def rows(world: World) -> Sequence[Beat]:
    return await world.store.beats.list(POOL)


async def during(world: World, beat: asyncio.Task[BeatReport], duration: float) -> BeatReport:
    await world.passes(duration)
    assert beat.done()
    return beat.result()


async def test_a_beat_is_one_row_with_view_actions_and_reasons(world: World) -> None:
    controller = Controller(world=world, actions=spawns("w1", "w2"))

    report = await controller.loop().beat()

    (row,) = await rows(world)
    assert row.view == SEEN
    assert row.actions == [
        {"type": "Spawn", "worker": "w1", "reason": "too few"},
        {"type": "Spawn", "worker": "w2", "reason": "too few"},
    ]
    assert (row.owner, row.epoch, row.error, row.why_not, row.summary) == ("a", 1, None, None, {"workers": 2})
    assert (report.led, report.n, report.epoch, report.error) == (True, 1, 1, None)
    assert (report.view, list(report.actions)) == (row.view, row.actions)


async def test_doing_nothing_says_why_not(world: World) -> None:
    report = await Controller(world=world, why_not="all is well").loop().beat()
    (row,) = await rows(world)
    assert (row.why_not, row.actions, report.why_not) == ("all is well", [], "all is well")


async def test_a_beat_says_how_long_it_took(world: World) -> None:
    controller = Controller(world=world, observe_takes=seconds(2), actions=spawns("w1"), act_takes=seconds(1))
    await world.passes(5)
    async with asyncio.TaskGroup() as group:
        beat = group.create_task(controller.loop().beat())
        report = await during(world, beat, 3)
    assert report.duration == (await rows(world))[0].duration == seconds(3)


async def test_actions_carry_the_fence(world: World) -> None:
    controller = Controller(world=world, actions=spawns("w1"))
    await controller.loop().beat()
    assert controller.done == [("w1", Fence(name=POOL, epoch=1))]


@pytest.mark.parametrize(
    ("stage", "view"),
    [("observe", None), ("decide", SEEN)],
)
@pytest.mark.parametrize(("failure", "told"), [(SpawnFailed("no quota"), "no quota"), (KeyError("x"), "KeyError: 'x'")])
async def test_a_failing_stage_is_named_in_the_row_and_nothing_is_done(
    world: World, stage: str, view: object, failure: Exception, told: str
) -> None:
    controller = Controller(world=world, actions=spawns("w1"), fails={stage: failure})

    report = await controller.loop().beat()

    (row,) = await rows(world)
    assert (row.error, row.view, row.actions) == (f"{stage}: {told}", view, [])
    assert report.error == row.error
    assert controller.done == []


async def test_one_failing_action_does_not_stop_the_others(world: World) -> None:
    controller = Controller(world=world, actions=spawns("w1", "w2", "w3"), fails={"w2": SpawnFailed("no quota")})

    report = await controller.loop().beat()

    (row,) = await rows(world)
    assert [action.get("error") for action in row.actions] == [None, "no quota", None]
    assert [worker for worker, _ in controller.done] == ["w1", "w3"]
    assert report.error is None


async def test_a_fenced_action_stops_the_beat_at_once(world: World) -> None:
    controller = Controller(world=world, actions=spawns("w1", "w2", "w3"), fails={"w2": Fenced("another leads")})
    leadership = Leadership(world.store, POOL, "a", TTL, world.clock)
    loop = controller.loop(leadership=leadership)

    report = await loop.beat()

    assert not leadership.trusted
    assert [worker for worker, _ in controller.done] == ["w1"]
    assert report.error == "act: another leads"
    assert [action.get("error") for action in report.actions] == [
        None,
        "another leads",
        "not done: another controller leads now",
    ]


async def test_a_row_that_cannot_be_written_is_reported_not_raised(world: World) -> None:
    controller = Controller(world=world, actions=spawns("w1"))
    controller.during_act = lambda _: world.store.fail_next()

    report = await controller.loop().beat()

    assert await rows(world) == []
    assert report.n is None
    assert report.error is not None
    assert report.error.startswith("record: ")
    assert controller.done != []


async def test_a_row_is_refused_once_another_leads(world: World) -> None:
    controller = Controller(world=world, actions=spawns("w1"))
    loop, rival = controller.loop(), Leadership(world.store, POOL, "b", TTL, world.clock)
    lease = await world.store.leases.acquire(POOL, "before", seconds(0))
    assert lease is not None
    await loop.beat()
    held = await world.store.leases.find(POOL)
    assert held is not None

    async def usurp() -> None:
        await world.store.leases.release(held)
        await rival.hold()

    controller.act_takes = seconds(1)
    async with asyncio.TaskGroup() as group:
        beat = group.create_task(loop.beat())
        await settle()
        await usurp()
        report = await during(world, beat, 1)

    assert report.error is not None
    assert report.error.startswith("record: ")
    assert len(await rows(world)) == 1
    assert (await loop.beat()).why_not == "standing by: b leads"


async def test_of_two_loops_one_acts_and_the_other_stands_by(world: World) -> None:
    first, second = Controller(world=world, actions=spawns("w1")), Controller(world=world, actions=spawns("w2"))
    leading, waiting = first.loop("a"), second.loop("b")

    reports = [await leading.beat(), await waiting.beat(), await leading.beat(), await waiting.beat()]

    assert [report.led for report in reports] == [True, False, True, False]
    assert reports[1].why_not == "standing by: a leads"
    assert second.gaps == []
    assert [row.owner for row in await rows(world)] == ["a", "a"]


async def test_the_second_takes_over_once_the_first_is_silent(world: World) -> None:
    first, second = Controller(world=world), Controller(world=world, actions=spawns("w2"))
    leading, waiting = first.loop("a"), second.loop("b")
    await leading.beat()
    await waiting.beat()

    await world.passes(10)
    report = await waiting.beat()

    assert (report.led, report.epoch) == (True, 2)
    assert second.done == [("w2", Fence(name=POOL, epoch=2))]
    assert (await leading.beat()).why_not == "standing by: b leads"


async def test_a_lease_that_cannot_be_renewed_in_time_stops_the_acting(world: World) -> None:
    controller = Controller(world=world, actions=spawns("w1", "w2", "w3", "w4"), act_takes=seconds(3))
    loop = controller.loop()
    async with asyncio.TaskGroup() as group:
        beat = group.create_task(loop.beat())
        await settle()
        with world.store.unavailable():
            report = await during(world, beat, 9)

    assert [worker for worker, _ in controller.done] == ["w1", "w2", "w3"]
    assert report.error == "act: 1 actions not done: this controller's lease may have expired"
    assert report.actions[-1]["error"] == "not done: this controller's lease may have expired"


async def test_a_long_beat_renews_its_lease_between_actions(world: World) -> None:
    controller = Controller(world=world, actions=spawns(*(f"w{n}" for n in range(10))), act_takes=seconds(3))
    async with asyncio.TaskGroup() as group:
        beat = group.create_task(controller.loop().beat())
        report = await during(world, beat, 30)

    assert report.error is None
    assert {fence.epoch for _, fence in controller.done} == {1}
    assert len(controller.done) == 10


class Paused(Leadership):
    """That of a process that is stopped while it looks: nothing of it runs, so nothing is renewed."""

    async def _renew_until(self, over: asyncio.Event) -> None:
        return None


async def test_a_long_look_keeps_its_lease(world: World) -> None:
    controller = Controller(world=world, actions=spawns("w1"), observe_takes=seconds(20))
    rival = Leadership(world.store, POOL, "b", TTL, world.clock)
    async with asyncio.TaskGroup() as group:
        beat = group.create_task(controller.loop().beat())
        await world.passes(15)
        assert await rival.hold() is None
        report = await during(world, beat, 5)

    assert (report.error, len(controller.done)) == (None, 1)


async def test_a_process_that_was_paused_does_not_act_on_what_it_saw_before(world: World) -> None:
    controller = Controller(world=world, actions=spawns("w1"), observe_takes=seconds(20))
    rival = Leadership(world.store, POOL, "b", TTL, world.clock)
    async with asyncio.TaskGroup() as group:
        beat = group.create_task(controller.loop(leadership=Paused(world.store, POOL, "a", TTL, world.clock)).beat())
        await world.passes(15)
        assert await rival.hold() is not None
        report = await during(world, beat, 5)

    assert controller.done == []
    assert report.error == "act: 1 actions not done: this controller's lease may have expired"


async def test_what_hangs_is_given_up(world: World) -> None:
    controller = Controller(world=world, actions=spawns("w1"), observe_takes=seconds(3600))
    async with asyncio.TaskGroup() as group:
        beat = group.create_task(controller.loop().beat())
        report = await during(world, beat, 60)
    assert report.error == "observe: TimeoutError: did not finish within 60 s and was cancelled"


async def test_an_action_that_hangs_costs_its_beat_one_timeout(world: World) -> None:
    actions = [*spawns("w1", "w2", "w3"), Drain("w4", "too many")]
    controller = Controller(world=world, actions=actions, hangs=frozenset({"w1", "w2"}))
    async with asyncio.TaskGroup() as group:
        beat = group.create_task(controller.loop().beat())
        report = await during(world, beat, 60)

    not_tried = "not tried: an earlier Spawn in this beat did not finish in time"
    timeout = "TimeoutError: did not finish within 60 s and was cancelled"
    assert [action.get("error") for action in report.actions] == [timeout, not_tried, not_tried, None]
    assert [worker for worker, _ in controller.done] == ["w4"]


async def test_the_next_beat_tries_again_what_hung(world: World) -> None:
    controller = Controller(world=world, actions=spawns("w1", "w2"), hangs=frozenset({"w1"}))
    loop = controller.loop()
    async with asyncio.TaskGroup() as group:
        beat = group.create_task(loop.beat())
        await during(world, beat, 60)
    controller.hangs = frozenset()

    report = await loop.beat()

    assert [action.get("error") for action in report.actions] == [None, None]


async def test_without_a_store_a_beat_says_so(world: World) -> None:
    loop = Controller(world=world).loop()
    with world.store.unavailable():
        report = await loop.beat()
    assert not report.led
    assert report.error is not None
    assert report.error.startswith("lease: ")


async def test_observers_are_told_how_long_the_controller_was_blind(world: World) -> None:
    controller = Controller(world=world)
    loop = controller.loop()
    for _ in range(2):
        await loop.beat()
        await world.passes(1)
    controller.fails["observe"] = StoreUnavailable("no answer")
    with world.store.unavailable():
        for _ in range(70):
            await loop.beat()
            await world.passes(1)
    controller.fails.clear()
    await loop.beat()
    await world.passes(1)
    await loop.beat()

    assert controller.gaps[:2] == [seconds(0), seconds(1)]
    assert controller.gaps[-2:] == [seconds(71), seconds(1)]


async def test_a_failed_look_does_not_count_as_seeing(world: World) -> None:
    controller = Controller(world=world)
    loop = controller.loop()
    await loop.beat()
    controller.fails["observe"] = SpawnFailed("no answer")
    await world.passes(5)
    await loop.beat()
    controller.fails.clear()
    await world.passes(5)
    await loop.beat()
    assert controller.gaps == [seconds(0), seconds(5), seconds(10)]


async def test_when_the_stores_clock_leaps_nobody_is_judged_by_a_silence_from_before(world: World) -> None:
    controller = Controller(world=world)
    loop = controller.loop()
    await loop.beat()
    await world.passes(5)
    await loop.beat()
    controller.ahead = seconds(60)
    await world.passes(5)
    await loop.beat()
    await world.passes(5)
    await loop.beat()

    assert controller.gaps == [seconds(0), seconds(5), seconds(5), timedelta(days=365), seconds(5)]


async def test_who_stands_by_is_not_blind(world: World) -> None:
    first, second = Controller(world=world), Controller(world=world)
    await first.loop("a").beat()
    waiting = second.loop("b")
    await world.passes(5)
    await waiting.beat()
    await world.passes(6)
    await waiting.beat()
    assert second.gaps == [seconds(6)]


async def test_a_slow_beat_neither_drifts_nor_piles_up(world: World) -> None:
    controller, stop = Controller(world=world), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.loop().run(stop))
        await world.passes(2.5)
        controller.observe_takes = seconds(2.7)
        await world.passes(1)
        controller.observe_takes = timedelta()
        await world.passes(4)
        stop.set()
    assert controller.observed_at == [seconds(at) for at in (0, 1, 2, 3, 6, 7)]


async def test_the_loop_survives_every_kind_of_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    controller, stop = Controller(world=world), asyncio.Event()
    loop = controller.loop()
    async with asyncio.TaskGroup() as group:
        group.create_task(loop.run(stop))
        await world.passes(0.5)
        controller.fails["observe"] = RuntimeError("boom")
        await world.passes(1)
        controller.fails.clear()
        with monkeypatch.context() as broken:
            broken.setattr(loop, "beat", _raise)
            await world.passes(1)
        with world.store.unavailable():
            await world.passes(1)
        await world.passes(1)
        stop.set()
    assert [row.error for row in await rows(world)] == [None, "observe: RuntimeError: boom", None]


async def _raise() -> BeatReport:
    raise RuntimeError("a bug")


async def test_a_loop_that_is_stopped_lets_another_lead_at_once(world: World) -> None:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(Controller(world=world).loop("a").run(stop))
        await world.passes(3)
        stop.set()
    report = await Controller(world=world).loop("b").beat()
    assert (report.led, report.epoch) == (True, 2)


async def test_a_store_that_hangs_does_not_hang_the_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(world.store.leases, world.clock)
    monkeypatch.setattr(world.store, "leases", slow)
    controller, stop = Controller(world=world), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.loop().run(stop))
        await world.passes(0.5)
        slow.before = seconds(3600)
        await world.passes(10)
        slow.before = timedelta()
        await world.passes(20)
        stop.set()
    assert len(await rows(world)) > 5
