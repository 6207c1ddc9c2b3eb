"""Whole runs on one clock: each load mode from its start to its results, by an orchestrator that remembers nothing itself."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
import pytest

from drumbeat.bench.control.decide import decide
from drumbeat.bench.model import (
    FindMaxPlan,
    GuardrailMode,
    Guardrails,
    LoadMode,
    LostPolicy,
    OnWorkerLost,
    QpsPlan,
    RunPlan,
    RunVerdict,
    RunView,
    Scaling,
    ScalingMode,
    stored_judgement,
)
from drumbeat.bench.model.plan import Prices
from drumbeat.bench.results.cost import cost_of
from drumbeat.bench.results.record import read_record
from drumbeat.core.beat import Beat
from drumbeat.core.event import EventType
from drumbeat.core.pool import PoolId
from drumbeat.core.run import Phase, RunStatus
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.runtime.beat import encode_action
from simulate.bench_world import Database, simulated


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def plan(**given: object) -> RunPlan:
    usual: dict[str, object] = {"warmup": seconds(5), "duration": seconds(20), "connections": 10}
    return RunPlan(**(usual | given))  # type: ignore[arg-type]


HOURS = timedelta(hours=1)
FIXED = plan(scaling=Scaling(mode=ScalingMode.FIXED, min_workers=3, min_connections=20, cap=20))


async def test_the_time_a_run_waited_for_an_orchestrator_is_not_part_of_it() -> None:
    async with simulated() as world:
        await world.begin(replace(FIXED, prices=Prices(target_hour=10.0)))
        await world.clock.advance(8 * HOURS)
        assert (await world.run()).started_at is None
        run = await world.finish()
        record = await read_record(world.store, world.run_id)

    assert run.started_at is not None
    assert run.ended_at is not None
    assert timedelta(seconds=25) <= run.ended_at - run.started_at <= timedelta(seconds=60)
    assert cost_of(record).target_hours == (run.ended_at - run.started_at) / HOURS
    assert 0 <= record.timeline[0].offset <= 10
    assert min(each.created_at for each in await world.workers() if each.created_at) >= run.started_at


async def test_a_run_without_an_orchestrator_costs_nothing_when_it_is_cancelled() -> None:
    async with simulated() as world:
        await world.begin(replace(FIXED, prices=Prices(target_hour=10.0)))
        await world.clock.advance(8 * HOURS)
        await world.service.stop_run(world.run_id)
        run = await world.finish()
        record = await read_record(world.store, world.run_id)

    assert (run.status, run.started_at, cost_of(record).total) == (RunStatus.CANCELLED, None, None)


async def test_a_fixed_run_has_exactly_what_was_specified_and_ends_with_its_duration() -> None:
    async with simulated() as world:
        await world.begin(FIXED)
        await world.until(lambda run: run.phase == Phase.MEASUREMENT)
        held = [(worker.slot, worker.target) for worker in await world.workers(WorkerStatus.ACTIVE)]
        run = await world.finish()
        results = await world.store.results.list(world.run_id)

    assert held == [(0, 20), (1, 20), (2, 20)]
    assert (run.status, run.completion_reason) == (RunStatus.COMPLETED, "DURATION")
    whole = results[0]
    workers = [row for row in results if row.worker_id is not None and row.kind is None]
    assert whole.operations == sum(row.operations for row in workers) == run.operations > 0
    assert whole.latency.count == whole.operations
    assert all(worker.reaped_at for worker in await world.workers())
    assert not world.spawner.running(PoolId(world.run_id))


async def test_phases_follow_one_another_and_warmup_counts_from_the_barrier() -> None:
    async with simulated() as world:
        await world.begin(FIXED)
        await world.finish()
        run = await world.run()
        events = await world.store.events.read(PoolId(world.run_id), 0, 1000)

    assert [event.payload["phase"] for event in events if event.type == EventType.SET_PHASE] == [
        Phase.WARMUP,
        Phase.MEASUREMENT,
        Phase.PROCESSING,
    ]
    assert run.warmup_started_at is not None
    assert run.warmup_ended_at is not None
    assert seconds(5) <= run.warmup_ended_at - run.warmup_started_at <= seconds(6)


async def test_a_run_without_warmup_measures_from_the_start() -> None:
    async with simulated() as world:
        await world.begin(plan(warmup=seconds(0)))
        run = await world.until(lambda run: run.status is RunStatus.RUNNING)
        finished = await world.finish()

    assert run.phase == Phase.MEASUREMENT
    assert finished.operations > 0


async def test_a_stopped_run_is_cancelled_and_leaves_nobody() -> None:
    async with simulated() as world:
        await world.begin(FIXED)
        await world.until(lambda run: run.phase == Phase.MEASUREMENT)
        await world.service.stop_run(world.run_id)
        run = await world.finish()

        assert (run.status, run.completion_reason) == (RunStatus.CANCELLED, "USER")
        assert not world.spawner.running(PoolId(world.run_id))


async def test_find_max_finds_the_knee_and_says_so() -> None:
    knee = 60
    database = Database(latency=lambda connections: max(0.01, 0.01 * connections / knee))
    search = FindMaxPlan(start_connections=10, connections_increment=10, step_duration=seconds(10), settle=seconds(1))
    async with simulated(database) as world:
        await world.begin(plan(load_mode=LoadMode.FIND_MAX_CONCURRENCY, find_max=search, connections=None))
        run = await world.finish()
        whole = (await world.store.results.list(world.run_id))[0]
        steps = await world.store.steps.list(world.run_id)

    assert (run.status, run.completion_reason) == (RunStatus.COMPLETED, "MAX_FOUND")
    assert whole.find_max_result is not None
    assert whole.find_max_result["max_type"] == "TRUE_MAX"
    assert whole.find_max_result["best_connections"] == pytest.approx(knee * 1.2, rel=0.05)
    assert len(steps) >= 6


async def test_a_bound_below_the_knee_is_said_to_be_the_limit() -> None:
    database = Database(latency=lambda connections: max(0.01, 0.01 * connections / 200))
    search = FindMaxPlan(start_connections=10, connections_increment=10, step_duration=seconds(10), settle=seconds(1))
    bounds = Scaling(mode=ScalingMode.BOUNDED, max_workers=2, max_connections=20, cap=20)
    async with simulated(database) as world:
        await world.begin(plan(load_mode=LoadMode.FIND_MAX_CONCURRENCY, find_max=search, connections=None, scaling=bounds))
        await world.finish()
        whole = (await world.store.results.list(world.run_id))[0]

    assert whole.find_max_result is not None
    assert (whole.find_max_result["max_type"], whole.find_max_result["best_connections"]) == ("BOUNDED_MAX", 40)


async def test_a_throughput_is_held_with_the_connections_it_takes() -> None:
    async with simulated() as world:
        await world.begin(plan(load_mode=LoadMode.QPS, qps=QpsPlan(target_qps=2000), duration=seconds(90), connections=None))
        await world.finish()
        samples = [each for each in await world.store.samples.list(PoolId(world.run_id)) if each.phase == Phase.MEASUREMENT]

    settled = samples[-30:]
    assert sum(sample.qps for sample in settled) / len(settled) == pytest.approx(2000, rel=0.05)


async def test_bounds_that_cannot_hold_a_throughput_end_the_run_early() -> None:
    bounds = Scaling(mode=ScalingMode.BOUNDED, min_workers=1, max_workers=2, min_connections=2, max_connections=5, cap=5)
    asked = plan(load_mode=LoadMode.QPS, qps=QpsPlan(target_qps=5000), duration=seconds(600), scaling=bounds, connections=None)
    async with simulated() as world:
        await world.begin(asked)
        run = await world.finish()

    assert (run.status, run.completion_reason) == (RunStatus.COMPLETED, "BOUNDS_LIMIT_REACHED")
    judgement = stored_judgement(run)
    assert judgement is not None
    assert (judgement.verdict, judgement.gate) == (RunVerdict.MISSED, 4)
    assert "of 5,000 operations/s, and the bounds were reached" in judgement.reason


async def test_a_throughput_is_measured_once_it_has_settled_and_looked_at_each_interval() -> None:
    asked = QpsPlan(target_qps=2000, interval=seconds(4))
    async with simulated() as world:
        await world.begin(plan(load_mode=LoadMode.QPS, qps=asked, warmup=seconds(0), duration=seconds(40), connections=None))
        run = await world.finish()
        whole = (await world.store.results.list(world.run_id))[0]
        beats = await world.store.beats.list(PoolId(world.run_id), limit=1000)

    judgement = stored_judgement(run)
    assert judgement is not None
    assert judgement.verdict is RunVerdict.PASSED, judgement.reason
    assert whole.qps == pytest.approx(2000, rel=0.05)
    assert run.warmup_started_at is not None
    assert run.warmup_ended_at is not None
    assert seconds(4) <= run.warmup_ended_at - run.warmup_started_at <= seconds(8 * 4 + 1)
    begun = [beat.at for beat in beats if any(action.get("phase") == Phase.MEASUREMENT for action in beat.actions)]
    looks = looked_at(beats, since=begun[0])
    assert (looks[-1] - looks[0]) / (len(looks) - 1) == pytest.approx(4, abs=0.25)


def looked_at(beats: Sequence[Beat], since: datetime) -> list[float]:
    """When the controller judged a window, in seconds."""
    counted = [(beat.at, state["looks"]) for beat in beats if (state := (beat.view or {})["state"].get("qps"))]
    pairs = itertools.pairwise(counted)
    return [(at - since).total_seconds() for (_, before), (at, after) in pairs if after > before and at >= since]


@pytest.mark.parametrize(
    ("policy", "status", "reason", "workers"),
    [
        (LostPolicy(), RunStatus.FAILED, "WORKER_LOST", 3),
        (LostPolicy(action=OnWorkerLost.TOLERATE, tolerated=1), RunStatus.COMPLETED, "DURATION", 3),
        (LostPolicy(action=OnWorkerLost.TOLERATE, tolerated=0), RunStatus.FAILED, "WORKER_LOST", 3),
        (LostPolicy(action=OnWorkerLost.REPLACE), RunStatus.COMPLETED, "DURATION", 4),
    ],
)
async def test_a_killed_worker_means_what_the_policy_says(
    policy: LostPolicy, status: RunStatus, reason: str, workers: int
) -> None:
    async with simulated() as world:
        await world.begin(plan(scaling=FIXED.scaling, on_worker_lost=policy))
        await world.until(lambda run: run.phase == Phase.MEASUREMENT)
        await world.beats(3)
        world.spawner.kill(PoolId(world.run_id), WorkerId("worker-1"))
        run = await world.finish()
        rows = await world.workers()
        results = await world.store.results.list(world.run_id)

    assert (run.status, run.completion_reason) == (status, reason)
    assert len(rows) == workers
    assert len({row.slot for row in rows}) == workers, "a slot is never used twice: its keys are taken"
    dead = next(row for row in results if row.worker_id == "worker-1" and row.kind is None)
    assert dead.operations > 0, "what a killed worker had measured is not lost"
    assert results[0].operations == sum(row.operations for row in results if row.worker_id and row.kind is None)


async def test_a_worker_that_cannot_start_fails_the_run_by_name() -> None:
    async with simulated() as world:
        await world.begin(FIXED)
        await world.beats(1)
        world.spawner.kill(PoolId(world.run_id), WorkerId("worker-2"))
        run = await world.finish()

    assert (run.status, run.completion_reason) == (RunStatus.FAILED, "WORKER_LOST")


async def test_one_overloaded_worker_is_backed_off_and_the_run_survives() -> None:
    async with simulated() as world:
        world.database.cpu[WorkerId("worker-1")] = 95.0
        rails = Guardrails(interval=seconds(2))
        await world.begin(plan(scaling=FIXED.scaling, guardrails=rails, duration=seconds(40)))
        await world.until(lambda run: run.phase == Phase.MEASUREMENT)
        await world.beats(12)
        worker = (await world.workers())[1]
        shown = (await world.run()).custom_metrics["soft_guardrails"]
        run = await world.finish()
        events = await world.store.events.read(PoolId(world.run_id), 0, 1000)

    assert worker.target < 20
    assert shown["state"] in ("warning", "degraded")
    assert run.status is RunStatus.COMPLETED
    assert {EventType.SCALE_DOWN, EventType.GUARDRAIL_WARNING} <= {event.type for event in events}


async def test_all_overloaded_for_too_long_is_resource_exhaustion() -> None:
    async with simulated() as world:
        world.database.cpu |= {WorkerId(f"worker-{n}"): 99.0 for n in range(3)}
        await world.begin(plan(scaling=FIXED.scaling, guardrails=Guardrails(interval=seconds(2)), duration=seconds(60)))
        run = await world.finish()

    assert (run.status, run.completion_reason) == (RunStatus.FAILED, "RESOURCE_EXHAUSTION")
    assert run.custom_metrics["soft_guardrails"]["state"] == "critical"


async def test_a_hard_guardrail_fails_the_run_at_once_and_the_run_says_it_is_critical() -> None:
    async with simulated() as world:
        world.database.cpu[WorkerId("worker-1")] = 95.0
        rails = Guardrails(mode=GuardrailMode.HARD, interval=seconds(2))
        await world.begin(plan(scaling=FIXED.scaling, guardrails=rails, duration=seconds(60)))
        run = await world.finish()

    assert (run.status, run.completion_reason) == (RunStatus.FAILED, "GUARDRAIL")
    assert run.custom_metrics["soft_guardrails"]["state"] == "critical"


def replayed(beat: Beat) -> None:
    """Decide a beat again, from nothing but the JSON of its row."""
    assert beat.view is not None
    decision = decide(msgspec.convert(json.loads(json.dumps(beat.view)), RunView))
    kept = [{name: value for name, value in action.items() if name != "error"} for action in beat.actions]

    assert json.loads(json.dumps([encode_action(action) for action in decision.actions])) == json.loads(json.dumps(kept))
    assert decision.why_not == beat.why_not


async def test_every_beat_of_a_run_can_be_decided_again() -> None:
    knee = 40
    database = Database(latency=lambda connections: max(0.01, 0.01 * connections / knee), noise=0.02)
    search = FindMaxPlan(start_connections=10, connections_increment=10, step_duration=seconds(10), settle=seconds(1))
    async with simulated(database) as world:
        await world.begin(plan(load_mode=LoadMode.FIND_MAX_CONCURRENCY, find_max=search, connections=None))
        await world.finish()
        beats = await world.kept()

    assert len(beats) > 50
    for beat in beats:
        replayed(beat)
