import base64
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from drumbeat.bench.model.plan import ALL_KINDS, LoadMode, Objective, RunPlan
from drumbeat.bench.results import record as module
from drumbeat.bench.results.record import read_candidates, read_record, totals_of
from drumbeat.core.beat import NewBeat
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import NotFound
from drumbeat.core.event import EventType, NewEvent
from drumbeat.core.histogram import Histogram
from drumbeat.core.pool import PoolId, PoolKind, pool as pool_of
from drumbeat.core.run import Result, Run, RunId, RunStatus, Step, StepType
from drumbeat.core.sample import Sample
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.store.interface import JoinRequest, RunChange
from drumbeat.store.memory import MemoryStore

SECOND = timedelta(seconds=1)
RUN, POOL = RunId("run-1"), PoolId("run-1")
PATH = {
    RunStatus.STARTING: RunChange(status=RunStatus.STARTING, started=True),
    RunStatus.RUNNING: RunChange(status=RunStatus.RUNNING, phase="WARMUP", warmup_started=True),
    RunStatus.STOPPING: RunChange(status=RunStatus.STOPPING),
    RunStatus.COMPLETED: RunChange(status=RunStatus.COMPLETED, completion_reason="DURATION", ended=True),
}


def latencies(*milliseconds: float) -> Histogram:
    found = Histogram()
    found.record_all([int(each * 1e6) for each in milliseconds])
    return found


async def created(store: MemoryStore, run_id: RunId = RUN, **config: Any) -> Run:
    return await store.runs.create(Run(run_id=run_id, name="a run", config=config), pool_of(run_id, PoolKind.BENCH))


async def led_to(store: MemoryStore, run: Run, *path: RunStatus) -> Run:
    for status in path or tuple(PATH):
        run = await store.runs.update(run, PATH[status])
    return run


async def worked(
    store: MemoryStore, clock: ManualClock, workers: Sequence[str], seconds: int, phase: str = "MEASUREMENT"
) -> None:
    """Workers that measure for some seconds: each ten reads and one failed write a second."""
    for slot, name in enumerate(workers):
        who = JoinRequest(pool_id=POOL, worker_id=WorkerId(name), slot=slot, instance=name, host="h", pid=1)
        await store.membership.join(who)
    packed = base64.b64encode(latencies(*[2.0] * 10).to_bytes()).decode()
    kinds = {"read": {"operations": 10, "errors": 0, "response": packed}, "write": {"operations": 1, "errors": 1}}
    began = int(clock.elapsed().total_seconds())
    for n in range(began, began + seconds):
        await clock.advance(SECOND)
        for name in workers:
            sample = Sample(
                n=n, interval=SECOND, phase=phase, operations=11, errors=1, reads=10, latency=latencies(*[2.0] * 10),
                target=5, extra={"kinds": kinds, "held": 5},
            )  # fmt: skip
            await store.samples.append(POOL, WorkerId(name), name, [sample])


async def test_every_workers_samples_are_on_one_clock(store: MemoryStore, clock: ManualClock) -> None:
    run = await led_to(store, await created(store), RunStatus.STARTING)
    await worked(store, clock, ["a", "b"], 50)
    await led_to(store, run, RunStatus.RUNNING, RunStatus.STOPPING, RunStatus.COMPLETED)

    record = await read_record(store, RUN)

    assert [second.offset for second in record.timeline] == list(range(50))
    assert {(round(second.qps), second.held, second.workers) for second in record.timeline} == {(22, 10, 2)}
    assert [(worker.worker_id, len(worker.series), worker.measured.operations) for worker in record.workers] == [
        ("a", 50, 550),
        ("b", 50, 550),
    ]
    assert record.whole.operations == 1100
    assert (record.kinds["read"].operations, record.kinds["write"].errors) == (1000, 100)
    assert record.whole.latency.p95_ms == pytest.approx(2, rel=0.01)


async def test_a_slice_too_full_to_read_at_once_is_read_in_halves(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_SAMPLES", 7)
    await led_to(store, await created(store), RunStatus.STARTING)
    await worked(store, clock, ["a", "b", "c"], 41)

    record = await read_record(store, RUN)

    assert sum(second.operations for second in record.timeline) == pytest.approx(41 * 33)


@pytest.mark.parametrize("path", [(), (RunStatus.STARTING,)])
async def test_a_run_that_measured_nothing_has_an_empty_record(store: MemoryStore, path: tuple[RunStatus, ...]) -> None:
    run = await created(store)
    for status in path:
        run = await store.runs.update(run, PATH[status])
    await store.runs.update(run, RunChange(status=RunStatus.FAILED, completion_reason="NO_WORKERS", ended=True))

    record = await read_record(store, RUN)

    assert (record.timeline, record.workers, record.totals, record.phases) == ((), (), {}, ())
    assert (record.origin is None) == (not path)
    assert record.whole.operations == 0


async def test_a_run_that_is_not_there_is_not_found(store: MemoryStore) -> None:
    with pytest.raises(NotFound):
        await read_record(store, RunId("nobody"))


async def test_decisions_come_from_beats_and_events_in_time_order(store: MemoryStore, clock: ManualClock) -> None:
    await led_to(store, await created(store), RunStatus.STARTING)
    await clock.advance(SECOND)
    await store.events.append(POOL, [NewEvent(type=EventType.SET_PHASE, payload={"phase": "WARMUP"})])
    await clock.advance(SECOND)
    actions: Sequence[Mapping[str, Any]] = [
        {"type": "Spawn", "worker_id": "w1", "reason": "one more", "error": "no room"},
        {"type": "Remember", "reason": "so that any orchestrator can go on"},
    ]
    probe = {"sessions": 4, "active": 3, "waiting": 2, "lock_waits": 1, "wait_events": {"Lock": 2}}
    await store.beats.append(POOL, NewBeat(owner="o", epoch=1, view={"probe": probe}, actions=actions))
    await store.beats.append(POOL, NewBeat(owner="o", epoch=1, view={"probe": None}))
    await store.beats.append(POOL, NewBeat(owner="o", epoch=1, view=None, error="observe: away"))
    await clock.advance(SECOND)
    await store.events.append(
        POOL, [NewEvent(type=EventType.SCALE_DOWN, payload={"reason": "CPU 91 %"}, worker_id=WorkerId("w1"))]
    )

    record = await read_record(store, RUN)

    assert [(each.offset, each.what, each.reason, each.error) for each in record.decisions] == [
        (1, "SET_PHASE WARMUP", "", None),
        (2, "Spawn w1", "one more", "no room"),
        (3, "SCALE_DOWN w1", "CPU 91 %", None),
    ]
    assert [(each.offset, each.active, each.waiting, dict(each.wait_events)) for each in record.server] == [
        (2, 3, 2, {"Lock": 2})
    ]


async def test_a_phase_the_orchestrator_entered_is_told_once_with_its_reason(store: MemoryStore, clock: ManualClock) -> None:
    await led_to(store, await created(store), RunStatus.STARTING)
    await store.events.append(POOL, [NewEvent(type=EventType.SET_PHASE, payload={"phase": "MEASUREMENT"})])
    action = {"type": "EnterPhase", "phase": "MEASUREMENT", "reason": "30 s of warmup are over"}
    await store.beats.append(POOL, NewBeat(owner="o", epoch=1, view={}, actions=[action]))

    record = await read_record(store, RUN)

    assert [(each.what, each.reason) for each in record.decisions] == [("EnterPhase MEASUREMENT", "30 s of warmup are over")]


async def test_a_fact_is_told_once_with_the_reason_the_orchestrator_gave(store: MemoryStore, clock: ManualClock) -> None:
    await led_to(store, await created(store), RunStatus.STARTING)
    fact = NewEvent(type=EventType.GUARDRAIL_WARNING, payload={"threshold_type": "cpu"})
    await store.events.append(POOL, [fact])
    action = {"type": "NoteFact", "event": {"type": "GUARDRAIL_WARNING", "worker_id": None}, "reason": "all over 80 %"}
    await store.beats.append(POOL, NewBeat(owner="o", epoch=1, view={}, actions=[action]))

    record = await read_record(store, RUN)

    assert [(each.what, each.reason) for each in record.decisions] == [("GUARDRAIL_WARNING", "all over 80 %")]


async def test_a_fact_nobody_gave_a_reason_for_tells_itself(store: MemoryStore) -> None:
    await created(store)
    await store.events.append(POOL, [NewEvent(type=EventType.GUARDRAIL_WARNING, payload={"threshold_type": "cpu"})])

    assert [each.reason for each in (await read_record(store, RUN)).decisions] == ["threshold_type cpu"]


async def test_a_lost_worker_is_told_and_its_samples_count(store: MemoryStore, clock: ManualClock) -> None:
    await led_to(store, await created(store), RunStatus.STARTING)
    await worked(store, clock, ["a", "killed"], 10)
    killed = await store.workers.get(POOL, WorkerId("killed"))
    await store.workers.move(killed, WorkerStatus.LOST, "silent for 60 s")
    finished = Result(run_id=RUN, worker_id=WorkerId("a"), status=RunStatus.COMPLETED, operations=110, qps=11.0)
    await store.results.save([finished])

    record = await read_record(store, RUN)

    assert [each.reason for each in record.decisions if "lost" in each.what] == ["silent for 60 s"]
    assert {worker.worker_id: worker.measured.operations for worker in record.workers} == {"a": 110, "killed": 110}
    assert record.whole.operations == 220


async def test_steps_are_read(store: MemoryStore, clock: ManualClock) -> None:
    await created(store)
    step = Step(run_id=RUN, type=StepType.FIND_MAX, n=1, from_target=None, to_target=5, started_at=clock.now())
    await store.steps.save([step])

    assert (await read_record(store, RUN)).steps == (step,)


def row(operations: int, qps: float, worker: str | None = None, kind: str | None = None, *ms: float) -> Result:
    who = None if worker is None else WorkerId(worker)
    return Result(run_id=RUN, worker_id=who, kind=kind, operations=operations, qps=qps, latency=latencies(*ms))


def test_the_whole_runs_rows_are_its_totals() -> None:
    rows = [row(30, 3.0, None, None, 1, 2), row(20, 2.0, None, "read", 1), row(7, 1.0, "a")]

    totals = totals_of(rows, ())

    assert {kind: (each.operations, each.qps) for kind, each in totals.items()} == {ALL_KINDS: (30, 3), "read": (20, 2)}


def test_without_them_the_workers_are_merged_exactly() -> None:
    rows = [row(30, 3.0, "a", None, 1, 2), row(10, 1.0, "b", None, 50), row(5, 0.5, "b", "read", 50)]

    totals = totals_of(rows, ())

    assert [totals[ALL_KINDS].operations, totals[ALL_KINDS].qps] == pytest.approx([40, 4])
    assert Histogram.from_bytes(totals[ALL_KINDS].histogram) == latencies(1, 2, 50)
    assert totals["read"].operations == 5


async def test_measurement_counts_the_same_by_phase_as_in_all(store: MemoryStore, clock: ManualClock) -> None:
    """Samples of it also hold what began before, so they count a little more."""
    run = await led_to(store, await created(store), RunStatus.STARTING, RunStatus.RUNNING)
    await worked(store, clock, ["a"], 3)
    await store.results.save([row(30, 10.0, None, None, 2), row(28, 9.3, None, "read", 2)])
    await led_to(store, run, RunStatus.STOPPING, RunStatus.COMPLETED)

    record = await read_record(store, RUN)

    (phase,) = record.phases
    assert (phase.whole.operations, record.whole.operations) == (30, 30)
    assert {kind: each.operations for kind, each in phase.kinds.items()} == {"read": 28}


async def test_a_search_that_kept_its_levels_where_it_ended_is_a_good_candidate(store: MemoryStore, clock: ManualClock) -> None:
    objectives = {ALL_KINDS: Objective(p95_ms=5)}
    plan = msgspec.to_builtins(RunPlan(load_mode=LoadMode.FIND_MAX_CONCURRENCY, objectives=objectives))
    run = await led_to(store, await created(store, plan=plan))
    await store.results.save([Result(run_id=RUN, operations=10, latency=latencies(9), find_max_result={"best_connections": 4})])
    step = Step(
        run_id=RUN, type=StepType.FIND_MAX, n=1, from_target=None, to_target=4, started_at=await store.now(),
        operations=5, p95_ms=3.0, outcome="STABLE",
    )  # fmt: skip
    await store.steps.save([step])
    await clock.advance(SECOND)

    (found,) = await read_candidates(store, await created(store, RunId("newest"), plan=plan))

    assert (found.run.run_id, found.passed) == (run.run_id, True)


async def test_candidates_are_older_completed_runs_with_their_verdicts(store: MemoryStore, clock: ManualClock) -> None:
    plan = msgspec.to_builtins(RunPlan(objectives={ALL_KINDS: Objective(p95_ms=5)}))
    for name, slowness in (("good", 3.0), ("slow", 9.0), ("failed", 3.0)):
        run_id = RunId(name)
        run = await led_to(store, await created(store, run_id, plan=plan), *([*PATH][:1] if name == "failed" else PATH))
        whole = Result(run_id=run_id, operations=10, qps=1.0, latency=latencies(slowness))
        await store.results.save([whole])
        if name == "failed":
            await store.runs.update(run, RunChange(status=RunStatus.FAILED, ended=True))
        await clock.advance(SECOND)
    newest = await created(store, RunId("newest"), plan=plan)

    candidates = await read_candidates(store, newest)

    assert {each.run.run_id: each.passed for each in candidates} == {"good": True, "slow": False}
