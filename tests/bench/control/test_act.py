"""Facts are told once, with the state that knows of them, wherever an orchestrator is cut off."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from drumbeat.bench.control.act import RunActor, change_of
from drumbeat.bench.model import (
    Action,
    AskWorkersToDrain,
    AssignedTarget,
    Begin,
    Conclude,
    ControllerState,
    EnterPhase,
    NoteFact,
    Remember,
    RunEnding,
    RunPlan,
    SaveStep,
    SetTargets,
    StopLoad,
)
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import Fenced, NotFound, Refused
from drumbeat.core.event import FACTS, EventType, NewEvent
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.run import Phase, Result, Run, RunId, RunStatus, Step, StepType
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.interface import RunChange, Store
from drumbeat.store.memory import MemoryStore

ENDING = RunEnding(status=RunStatus.COMPLETED, completion_reason="DURATION", reason="it is time")
RUN, MINUTE = RunId("r"), timedelta(minutes=1)
WARNING = NoteFact(event=NewEvent(type=EventType.GUARDRAIL_WARNING), reason="CPU 91 %")
KEEP = Remember(state=ControllerState(workers=1), operations=1, errors=0, qps=1.0, metrics={})
BEGIN = Begin(phase=Phase.WARMUP, workers=1, reason="all are ready")
STOP = StopLoad(state=ControllerState(), completion_reason="DURATION", drain_within=MINUTE, reason="measured")
Change = Begin | EnterPhase | StopLoad
OTHER, W0, PLAN = RunId("o"), WorkerId("worker-0"), msgspec.to_builtins(RunPlan())
STEP = Step(
    run_id=OTHER, n=1, type=StepType.FIND_MAX, from_target=None, to_target=5, started_at=datetime(2026, 1, 1, tzinfo=UTC)
)
_ON_THE_WAY = (RunStatus.STARTING, RunStatus.RUNNING, RunStatus.STOPPING)
NOBODY = SetTargets(targets={WorkerId("nobody"): AssignedTarget(connections=1)}, ramp=timedelta(), reason="more")


@dataclass(slots=True)
class Scene:
    store: Store
    spawner: FakeSpawner
    fence: Fence
    clock: ManualClock

    def orchestrator(self) -> RunActor:
        return RunActor(self.store, self.spawner, RUN)

    async def facts(self) -> list[EventType | str]:
        return [event.type for event in await self.store.events.read(PoolId(RUN), 0) if event.type in FACTS]


@pytest.fixture
async def scene() -> Scene:
    clock = ManualClock()
    store = MemoryStore(clock)
    run = await store.runs.create(
        Run(run_id=RUN, name="r", config={"plan": msgspec.to_builtins(RunPlan())}), pool(RUN, PoolKind.BENCH)
    )
    for status in (RunStatus.STARTING, RunStatus.RUNNING):
        run = await store.runs.update(run, RunChange(status=status))
    lease = await store.leases.acquire("controller", "me", MINUTE)
    assert lease is not None
    return Scene(store, FakeSpawner(clock), lease.fence, clock)


@pytest.mark.parametrize(
    ("status", "action", "changes"),
    [
        (RunStatus.STARTING, BEGIN, True),
        (RunStatus.RUNNING, BEGIN, False),
        (RunStatus.STOPPING, BEGIN, False),
        (RunStatus.RUNNING, EnterPhase(phase=Phase.MEASUREMENT, reason="warmed up"), True),
        (RunStatus.STOPPING, EnterPhase(phase=Phase.MEASUREMENT, reason="warmed up"), False),
        (RunStatus.RUNNING, EnterPhase(phase=Phase.PROCESSING, reason="all have left"), False),
        (RunStatus.CANCELLING, EnterPhase(phase=Phase.PROCESSING, reason="all have left"), True),
        (RunStatus.RUNNING, STOP, True),
        (RunStatus.STOPPING, STOP, False),
    ],
)
def test_what_was_decided_before_the_run_moved_on_changes_nothing(status: RunStatus, action: Change, changes: bool) -> None:
    run = Run(run_id=RUN, name="r", status=status, phase=Phase.WARMUP, config={})

    change, events = change_of(action, run)

    assert (change is not None, bool(events)) == (changes, changes)


async def test_a_fact_is_told_with_the_state(scene: Scene) -> None:
    actor = scene.orchestrator()

    await actor.act(WARNING, scene.fence)
    assert await scene.facts() == []
    await actor.act(KEEP, scene.fence)
    await actor.act(KEEP, scene.fence)

    assert await scene.facts() == [EventType.GUARDRAIL_WARNING]


async def test_a_fact_of_an_orchestrator_that_died_before_it_kept_its_state_is_told_once_by_the_next(scene: Scene) -> None:
    await scene.orchestrator().act(WARNING, scene.fence)
    successor = scene.orchestrator()

    await successor.act(WARNING, scene.fence)
    await successor.act(KEEP, scene.fence)

    assert await scene.facts() == [EventType.GUARDRAIL_WARNING]


async def test_a_fact_is_decided_again_where_the_state_could_not_be_kept(scene: Scene) -> None:
    actor = scene.orchestrator()
    await actor.act(WARNING, scene.fence)
    with pytest.raises(NotFound):
        await actor.act(NOBODY, scene.fence)
    with pytest.raises(Refused):
        await actor.act(KEEP, scene.fence)
    assert await scene.facts() == []

    await actor.act(WARNING, scene.fence)
    await actor.act(KEEP, scene.fence)

    assert await scene.facts() == [EventType.GUARDRAIL_WARNING]


async def test_a_fact_of_a_beat_under_an_older_lease_is_left_to_be_decided_again(scene: Scene) -> None:
    actor = scene.orchestrator()
    await actor.act(WARNING, Fence(name=scene.fence.name, epoch=scene.fence.epoch - 1))

    await actor.act(KEEP, scene.fence)

    assert await scene.facts() == []


async def test_the_last_fact_is_told_before_the_load_stops(scene: Scene) -> None:
    actor = scene.orchestrator()
    ending = RunEnding(status=RunStatus.FAILED, completion_reason="GUARDRAIL", reason="CPU 91 %")
    stop = StopLoad(state=ControllerState(ending=ending), completion_reason="GUARDRAIL", drain_within=MINUTE, reason="CPU 91 %")

    await actor.act(WARNING, scene.fence)
    await actor.act(stop, scene.fence)

    told = [event.type for event in await scene.store.events.read(PoolId(RUN), 0)]
    assert told[-2:] == [EventType.GUARDRAIL_WARNING, EventType.STOP]


async def someone_else_leads(scene: Scene) -> None:
    """From now on what is written under the scene's fence is too late."""
    await scene.clock.advance(MINUTE * 2)
    assert await scene.store.leases.acquire(scene.fence.name, "another", MINUTE) is not None


@pytest.mark.parametrize(
    ("status", "action"),
    [
        (RunStatus.STARTING, BEGIN),
        (RunStatus.RUNNING, EnterPhase(phase=Phase.MEASUREMENT, reason="warmed up")),
        (RunStatus.RUNNING, STOP),
        (RunStatus.RUNNING, KEEP),
        (RunStatus.RUNNING, SaveStep(step=STEP, reason="it ended")),
        (RunStatus.RUNNING, AskWorkersToDrain(workers=(W0,), within=MINUTE, reason="fewer")),
        (RunStatus.STOPPING, Conclude(ending=ENDING, reason="all have left")),
    ],
    ids=lambda given: type(given).__name__ if not isinstance(given, RunStatus) else given,
)
async def test_an_orchestrator_that_leads_no_more_changes_nothing(scene: Scene, status: RunStatus, action: Action) -> None:
    store = scene.store
    run = await store.runs.create(Run(run_id=OTHER, name="o", config={"plan": PLAN}), pool(OTHER, PoolKind.BENCH))
    for each in _ON_THE_WAY[: _ON_THE_WAY.index(status) + 1]:
        run = await store.runs.update(run, RunChange(status=each))
    await store.workers.add([Worker(pool_id=PoolId(OTHER), worker_id=W0, slot=0)])
    await someone_else_leads(scene)

    with pytest.raises(Fenced):
        await RunActor(store, scene.spawner, OTHER).act(action, scene.fence)

    assert await store.runs.get(OTHER) == run
    assert (await store.workers.get(PoolId(OTHER), W0)).drain_deadline is None
    assert [*await store.steps.list(OTHER), *await store.results.list(OTHER)] == []


async def test_no_results_are_kept_by_an_orchestrator_that_leads_no_more(scene: Scene) -> None:
    await scene.store.runs.update(await scene.store.runs.get(RUN), RunChange(status=RunStatus.STOPPING))
    await someone_else_leads(scene)

    with pytest.raises(Fenced):
        await scene.orchestrator().act(Conclude(ending=ENDING, reason="all have left"), scene.fence)

    assert await scene.store.results.list(RUN) == []


async def test_targets_of_an_orchestrator_that_leads_no_more_are_refused(scene: Scene) -> None:
    worker = Worker(pool_id=PoolId(RUN), worker_id=WorkerId("worker-0"), slot=0)
    await scene.store.workers.add([worker])
    more = SetTargets(targets={worker.worker_id: AssignedTarget(connections=5)}, ramp=timedelta(), reason="more")
    await someone_else_leads(scene)

    with pytest.raises(Fenced):
        await scene.orchestrator().act(more, scene.fence)

    assert (await scene.store.workers.get(worker.pool_id, worker.worker_id)).target == 0


async def test_a_run_is_not_closed_by_an_orchestrator_that_led_until_its_results_were_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.store.runs.update(await scene.store.runs.get(RUN), RunChange(status=RunStatus.STOPPING))
    save = scene.store.results.save

    async def save_at_last(results: Sequence[Result], *, fence: Fence | None = None) -> None:
        await save(results, fence=fence)
        await someone_else_leads(scene)

    monkeypatch.setattr(scene.store.results, "save", save_at_last)

    with pytest.raises(Fenced):
        await scene.orchestrator().act(Conclude(ending=ENDING, reason="all have left"), scene.fence)

    assert (await scene.store.runs.get(RUN)).status is RunStatus.STOPPING
