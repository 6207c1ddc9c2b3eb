"""An orchestrator that dies at any call, workers that are killed, stops and outages at any moment: the run ends right."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random

import pytest

from drumbeat.bench.control.orchestrator import Orchestrator
from drumbeat.bench.model import FindMaxPlan, LoadMode, LostPolicy, OnWorkerLost, QpsPlan, RunPlan, Scaling, ScalingMode
from drumbeat.core.errors import InvalidInput
from drumbeat.core.event import Event, EventType, Scope
from drumbeat.core.pool import PRESETS, PoolId, PoolKind
from drumbeat.core.run import RUN_ENDED, Phase, Run, RunStatus
from drumbeat.core.worker import WorkerId, WorkerStatus
from simulate.bench_line import Crash, dies, fails
from simulate.bench_world import World, simulated, unwatched
from thorough import THOROUGH, some

SAMPLED = some(16)  #: calls in the middle of a run at which an orchestrator is killed, each before and after it took effect
ONE_SECOND = 2000  #: operations a worker does in one at the most: what it may take with it when it is killed
PHASES = [Phase.WARMUP, Phase.MEASUREMENT, Phase.PROCESSING]


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


REPLACE = LostPolicy(action=OnWorkerLost.REPLACE)
THREE = Scaling(mode=ScalingMode.FIXED, min_workers=3, min_connections=20, cap=20)
FIXED = RunPlan(warmup=seconds(2), duration=seconds(4), scaling=THREE)
SEARCH = RunPlan(
    load_mode=LoadMode.FIND_MAX_CONCURRENCY,
    connections=None,
    warmup=seconds(1),
    scaling=Scaling(mode=ScalingMode.BOUNDED, max_workers=2, max_connections=15, cap=15),
    find_max=FindMaxPlan(start_connections=10, connections_increment=10, step_duration=seconds(3), settle=seconds(1)),
)
PACED = RunPlan(
    load_mode=LoadMode.QPS,
    connections=None,
    warmup=seconds(1),
    duration=seconds(20),
    scaling=Scaling(mode=ScalingMode.BOUNDED, min_workers=2, max_workers=4, max_connections=15, cap=15),
    qps=QpsPlan(target_qps=2000, interval=seconds(2)),
    on_worker_lost=REPLACE,
)


WRITES = frozenset(
    {"acquire", "renew", "release", "append", "update", "save", "spawn", "terminate"}
    | {"add", "move", "set_targets", "ask_to_drain", "mark_reaped"}
)


@dataclass(slots=True)
class Story:
    """What befalls a run: ``happens`` is called after each beat, with how long it has been measuring."""

    plan: RunPlan
    reason: str
    happens: Callable[[World, int], Awaitable[None]] | None = None
    stages: list[tuple[RunStatus, int]] = field(default_factory=list)  #: after each beat: the status, and the calls made


async def lived(world: World, story: Story, most: int = 300) -> Run:
    """Beat to the end; where an orchestrator dies, another goes on once the lease has run out."""
    measuring = 0
    for _ in range(most):
        try:
            await world.beat()
        except* Crash:
            world.crash()
        run = await world.run()
        story.stages.append((run.status, len(world.line.calls)))
        if run.status in RUN_ENDED:
            return run
        measuring += run.phase == Phase.MEASUREMENT
        if story.happens is not None:
            await story.happens(world, measuring)
    raise AssertionError(f"it did not end within {most} beats: {await world.run()}")


def kill_once(name: str, measured: int) -> Callable[[World, int], Awaitable[None]]:
    killed: list[str] = []

    async def happens(world: World, measuring: int) -> None:
        if measuring == measured and not killed:
            killed.append(name)
            world.spawner.kill(PoolId(world.run_id), WorkerId(name))

    return happens


STORIES: dict[str, Callable[[], Story]] = {
    "fixed": lambda: Story(FIXED, "DURATION"),
    "find-max": lambda: Story(SEARCH, "MAX_FOUND"),
    "qps, one worker replaced": lambda: Story(PACED, "DURATION", kill_once("worker-1", 2)),
}
FATES: dict[str, tuple[Callable[[str], Awaitable[None]], bool]] = {
    "dies before": (dies, False),
    "dies after": (dies, True),
    "fails before": (fails, False),
    "fails after": (fails, True),
}


async def moments(tell: Callable[[], Story]) -> list[tuple[int, str]]:
    """Calls at which something happens: those that write in the starting and the ending beats, and some of those between.

    Between two writes nothing differs: to die after a read is to die before the write that follows. For the same reason
    half of those before which it happens are enough.
    """
    story = tell()
    async with simulated() as world:
        await world.begin(story.plan)
        before = len(world.line.calls)
        await lived(world, story)
        calls = world.line.calls[before:]
    running = [made - before for status, made in story.stages if status is RunStatus.RUNNING]
    chosen = [n for n, call in enumerate(calls) if call.rpartition(".")[2] in WRITES]
    middle = [n for n in chosen if running[0] <= n < running[-1]]
    edges = [n for n in chosen if n not in middle]
    return [(n, calls[n]) for n in sorted([*edges[:: 1 if THOROUGH else 2], *Random(7).sample(middle, SAMPLED)])]


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("name", STORIES)
async def test_whatever_call_an_orchestrator_dies_at_or_gets_no_answer_to_the_run_ends_right(name: str, fate: str) -> None:
    what, after = FATES[fate]
    wrong = []
    for number, call in (await moments(STORIES[name]))[:: 1 if after else 2]:
        story = STORIES[name]()
        async with simulated() as world:
            await world.begin(story.plan)
            world.line.befall(number, what, after=after)
            run = await lived(world, story)
            wrong += [f"call {number}, {call}: {fault}" for fault in await faults(world, run, story)]

    assert not wrong, "\n".join(wrong)


async def faults(world: World, run: Run, story: Story) -> list[str]:
    """Everything that is not as it should be after a run that was to complete."""
    events = await every_event(world)
    workers = await world.workers()
    spawned = Counter(world.spawner.asked("spawn"))
    found = {
        f"ended {run.status} ({run.completion_reason})": (run.status, run.completion_reason)
        == (RunStatus.COMPLETED, story.reason),
        f"spawned twice: {spawned}": max(spawned.values()) == 1,
        f"slots {[worker.slot for worker in workers]}": len({worker.slot for worker in workers}) == len(workers),
        f"running still: {world.spawner.running(PoolId(world.run_id))}": not world.spawner.running(PoolId(world.run_id)),
        "not every worker was reaped": all(worker.reaped_at for worker in workers),
        f"phases {phases(events)}": phases(events) == PHASES,
        f"{count(events, EventType.START)} STARTs": count(events, EventType.START) == 1,
        f"{count(events, EventType.STOP)} STOPs of the run": count(events, EventType.STOP) == 1,
        "events have gaps": [event.sequence_id for event in events] == list(range(1, len(events) + 1)),
    }
    return [
        *(fault for fault, is_right in found.items() if not is_right),
        *await wrong_totals(world, run),
        *await wrong_targets(world, run, events),
        *await wrong_steps(world),
    ]


async def every_event(world: World) -> Sequence[Event]:
    return await world.store.events.read(PoolId(world.run_id), 0, 100_000)


def phases(events: Sequence[Event]) -> list[str]:
    return [event.payload["phase"] for event in events if event.type == EventType.SET_PHASE]


def count(events: Sequence[Event], kind: EventType) -> int:
    return sum(event.type == kind and event.scope is Scope.RUN for event in events)


async def wrong_totals(world: World, run: Run) -> list[str]:
    """The run's totals are the sum of its workers', and theirs are what they did; a killed one's, what it had said."""
    rows = await world.store.results.list(world.run_id)
    each = {row.worker_id: row.operations for row in rows if row.worker_id is not None and row.kind is None}
    whole = next(row for row in rows if row.worker_id is None and row.kind is None)
    killed = {row.worker_id for row in rows if row.custom_metrics.get("from_samples")}
    done = world.database.done
    found = {
        f"{whole.operations} in all, {each}, {run.operations} in the row": whole.operations
        == whole.latency.count
        == sum(each.values())
        == run.operations
        > 0,
        f"results {each}, done {done}": all(done[name] == each[name] for name in each if name and name not in killed),
        f"killed {killed}: results {each}, done {done}": all(
            0 <= done[name] - each[name] <= ONE_SECOND for name in killed if name
        ),
    }
    return [fault for fault, is_right in found.items() if not is_right]


async def wrong_targets(world: World, run: Run, events: Sequence[Event]) -> list[str]:
    """What each worker was last told is what was wanted last, and what its row says."""
    told = {
        str(event.worker_id): event.payload["target_connections"]
        for event in events
        if event.type == EventType.SET_WORKER_TARGET
    }
    stayed = [worker for worker in await world.workers() if worker.status is WorkerStatus.TERMINATED]
    wanted = run.controller_state["connections"]
    found = {
        f"told {told}, rows {[worker.target for worker in stayed]}": all(
            worker.target == told[worker.worker_id] for worker in stayed
        ),
        f"told {told}, {wanted} wanted": sum(told[worker.worker_id] for worker in stayed) == wanted,
    }
    return [fault for fault, is_right in found.items() if not is_right]


async def wrong_steps(world: World) -> list[str]:
    numbers = [step.n for step in await world.store.steps.list(world.run_id)]
    return [] if numbers == list(range(1, len(numbers) + 1)) else [f"steps {numbers}"]


async def stopped(plan: RunPlan, number: int, *, after: bool) -> tuple[list[str], RunStatus]:
    """What is wrong after a run was stopped by somebody else in the middle of a beat."""
    story = Story(plan, "USER")
    async with simulated() as world:
        await world.begin(plan)
        user = Orchestrator(world.store, None, world.clock, "user", unwatched)
        asked: list[RunStatus] = []

        async def stops(call: str) -> None:
            asked.append(await user.stop_run(world.run_id))

        world.line.befall(number, stops, after=after)
        run = await lived(world, story)
        told = phases(await every_event(world))
        wanted = RunStatus.CANCELLED if asked[0] is RunStatus.CANCELLING else asked[0]
        found = {
            f"asked: {asked}, ended {run.status} ({run.completion_reason})": run.status is wanted,
            f"running still: {world.spawner.running(PoolId(world.run_id))}": not world.spawner.running(PoolId(world.run_id)),
            "not every worker was reaped": all(worker.reaped_at for worker in await world.workers()),
            f"phases {told}": told == [phase for phase in PHASES if phase in told],
            f"ended in {run.phase}": run.phase == Phase.PROCESSING,
        }
        return [fault for fault, is_right in found.items() if not is_right], run.status


@pytest.mark.parametrize("plan", [FIXED, SEARCH], ids=["fixed", "find-max"])
async def test_a_run_stopped_in_the_middle_of_any_beat_is_cancelled_and_leaves_nobody(plan: RunPlan) -> None:
    wrong, ends = [], Counter[RunStatus]()
    for number, call in await moments(lambda: Story(plan, "", None)):
        faulty, status = await stopped(plan, number, after=bool(number % 2))
        wrong += [f"call {number}, {call}: {fault}" for fault in faulty]
        ends[status] += 1

    assert not wrong, "\n".join(wrong)
    assert ends[RunStatus.CANCELLED] > 10


@pytest.mark.parametrize(
    ("policy", "status", "reason", "workers"),
    [
        (LostPolicy(), RunStatus.FAILED, "WORKER_LOST", 3),
        (LostPolicy(action=OnWorkerLost.TOLERATE, tolerated=1), RunStatus.COMPLETED, "DURATION", 3),
        (REPLACE, RunStatus.COMPLETED, "DURATION", 4),
    ],
    ids=["fail", "tolerate", "replace"],
)
@pytest.mark.parametrize("seed", range(some(16)))
async def test_a_worker_killed_at_any_moment_means_what_the_policy_says(
    policy: LostPolicy, status: RunStatus, reason: str, workers: int, seed: int
) -> None:
    chance = Random(seed)
    async with simulated() as world:
        await world.begin(replace(FIXED, on_worker_lost=policy, duration=seconds(8)))
        await world.beat()
        await pass_time(world, chance.uniform(0, 8))
        await die(world, WorkerId(f"worker-{chance.randrange(3)}"))
        run = await lived(world, Story(FIXED, reason))
        rows = await world.workers()
        totals = await wrong_totals(world, run) if run.operations else []

    assert (run.status, run.completion_reason) == (status, reason)
    assert [row.slot for row in rows] == list(range(workers))
    assert not totals
    assert not world.spawner.running(PoolId(world.run_id))


async def pass_time(world: World, span: float) -> None:
    """Beats, and a part of the time between two of them."""
    await world.beats(int(span))
    await world.clock.advance(seconds(span % 1), settle=40)


async def die(world: World, name: WorkerId) -> None:
    world.spawner.kill(PoolId(world.run_id), name)


@pytest.mark.parametrize("outage", [5, 20])
@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.WARMUP, Phase.MEASUREMENT])
@pytest.mark.parametrize("plan", [FIXED, SEARCH, PACED], ids=["fixed", "find-max", "qps"])
async def test_a_run_survives_that_its_store_is_away(plan: RunPlan, phase: Phase, outage: int) -> None:
    story = Story(replace(plan, duration=seconds(40)), "MAX_FOUND" if plan is SEARCH else "DURATION")
    async with simulated(limits=PRESETS[PoolKind.BENCH]) as world:
        await world.begin(story.plan)
        await world.until(lambda run: run.phase == phase)
        await world.beat()
        with world.store.unavailable():
            await world.beats(outage)
        run = await lived(world, story)
        found = await faults(world, run, story)

    assert not found, found


async def test_a_run_nobody_orchestrated_for_long_is_not_late_for_that() -> None:
    async with simulated() as world:
        await world.begin(FIXED)
        await world.clock.advance(timedelta(hours=1))
        run = await lived(world, Story(FIXED, "DURATION"))

    assert (run.status, run.completion_reason) == (RunStatus.COMPLETED, "DURATION")


async def test_a_run_without_a_plan_is_refused_when_it_is_made() -> None:
    async with simulated() as world:
        with pytest.raises(InvalidInput, match="has no valid plan"):
            await world.service.create_run(None, {"workload": {}})

        assert not await world.store.runs.list()
