"""What one beat decides about a run, as a table: when it begins, changes phase and ends, and what a lost worker means."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.bench.control.decide import decide
from drumbeat.bench.model import (
    AssignedTarget,
    Begin,
    Conclude,
    ControllerState,
    EnterPhase,
    Figures,
    GuardrailMode,
    Guardrails,
    GuardState,
    LostPolicy,
    OnWorkerLost,
    Remember,
    RunEnding,
    RunPlan,
    RunView,
    Scaling,
    ScalingMode,
    SpawnBenchWorker,
    StopLoad,
)
from drumbeat.core.pool import PRESETS, PoolId, PoolKind
from drumbeat.core.recovery import ListedInstance
from drumbeat.core.run import Phase, RunId, RunStatus
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
FIXED = Scaling(mode=ScalingMode.FIXED, min_workers=2, min_connections=4, cap=4)
PLAN = RunPlan(warmup=30 * SECOND, duration=300 * SECOND, scaling=FIXED)
FAILED = RunEnding(status=RunStatus.FAILED, completion_reason="WORKER_LOST", reason="lost worker-1")


def worker(slot: int, status: WorkerStatus = WorkerStatus.ACTIVE, **more: Any) -> Worker:
    ended = {"ended_at": NOW, "reaped_at": NOW} if status in (WorkerStatus.LOST, WorkerStatus.TERMINATED) else {}
    return Worker(
        pool_id=PoolId("r"),
        worker_id=WorkerId(f"worker-{slot}"),
        slot=slot,
        status=status,
        created_at=NOW - 600 * SECOND,
        heartbeat_at=NOW,
        target=4,
        applied_target=4,
        **(ended | more),
    )


def view(workers: Sequence[Worker], **more: Any) -> RunView:
    told = {each.worker_id: AssignedTarget(connections=4) for each in workers}
    usual = RunView(
        run_id=RunId("r"),
        now=NOW,
        looking_since=NOW - 600 * SECOND,
        status=RunStatus.RUNNING,
        phase=Phase.MEASUREMENT,
        started_at=NOW - 100 * SECOND,
        warmup_started_at=NOW - 90 * SECOND,
        warmup_ended_at=NOW - 60 * SECOND,
        completion_reason=None,
        plan=PLAN,
        state=ControllerState(connections=8, workers=2, told=told),
        thresholds=PRESETS[PoolKind.BENCH],
        workers=tuple(workers),
        instances=tuple(ListedInstance(worker_id=each.worker_id, running=True) for each in workers if each.is_live),
        recent=Figures(since=NOW, until=NOW),
    )
    return replace(usual, **more)


def decided(seen: RunView) -> list[Any]:
    """What is decided, but for what is only remembered."""
    return [action for action in decide(seen).actions if not isinstance(action, Remember)]


STARTING: dict[str, Any] = {
    "status": RunStatus.STARTING,
    "phase": Phase.PREPARING,
    "started_at": NOW - 10 * SECOND,
    "warmup_started_at": None,
    "warmup_ended_at": None,
}


def test_a_run_begins_when_all_its_workers_are_ready() -> None:
    ready, late = worker(0, WorkerStatus.WAITING), worker(1, WorkerStatus.STARTING)

    assert decided(view([ready, late], **STARTING)) == []
    [begin] = decided(view([ready, replace(late, status=WorkerStatus.WAITING)], **STARTING))

    assert (type(begin), begin.phase, begin.workers) == (Begin, Phase.WARMUP, 2)


def test_a_run_without_warmup_begins_with_the_measurement() -> None:
    waiting = [worker(0, WorkerStatus.WAITING), worker(1, WorkerStatus.WAITING)]

    [begin] = decided(view(waiting, **STARTING, plan=replace(PLAN, warmup=timedelta())))

    assert begin.phase == Phase.MEASUREMENT


@pytest.mark.parametrize(
    ("what", "more", "fails"),
    [
        ("within its time", {"started_at": NOW - 60 * SECOND}, False),
        ("beyond it", {"started_at": NOW - 61 * SECOND}, True),
        ("while nobody looked", {"started_at": NOW - 61 * SECOND, "looking_since": NOW - 5 * SECOND}, False),
        ("no worker was ever started", {"started_at": None, "looking_since": NOW - 61 * SECOND}, True),
    ],
)
def test_a_run_whose_workers_do_not_get_ready_in_time_fails(what: str, more: dict[str, Any], fails: bool) -> None:
    late = [worker(0, WorkerStatus.WAITING), worker(1, WorkerStatus.STARTING)]

    stops = [action for action in decided(view(late, **(STARTING | more))) if isinstance(action, StopLoad)]

    assert [stop.completion_reason for stop in stops] == (["START_TIMEOUT"] if fails else []), what


@pytest.mark.parametrize(("warmed_up", "phases"), [(29, []), (30, [Phase.MEASUREMENT])])
def test_warmup_lasts_as_long_as_the_plan_says(warmed_up: int, phases: list[Phase]) -> None:
    warming = {"phase": Phase.WARMUP, "warmup_started_at": NOW - warmed_up * SECOND, "warmup_ended_at": None}

    actions = decided(view([worker(0), worker(1)], **warming))

    assert [action.phase for action in actions if isinstance(action, EnterPhase)] == phases


@pytest.mark.parametrize(("measured", "reasons"), [(299, []), (300, ["DURATION"])])
def test_a_run_is_measured_for_its_whole_duration_after_the_warmup(measured: int, reasons: list[str]) -> None:
    ended = {"warmup_started_at": NOW - 1000 * SECOND, "warmup_ended_at": NOW - measured * SECOND}

    actions = decided(view([worker(0), worker(1)], **ended))

    assert [action.completion_reason for action in actions] == reasons


@pytest.mark.parametrize(
    ("what", "policy", "gone", "fails", "spawned"),
    [
        ("nobody may be lost", LostPolicy(), [worker(1, WorkerStatus.LOST)], True, []),
        ("one may", LostPolicy(action=OnWorkerLost.TOLERATE, tolerated=1), [worker(1, WorkerStatus.LOST)], False, []),
        ("one is replaced", LostPolicy(action=OnWorkerLost.REPLACE), [worker(1, WorkerStatus.LOST)], False, [(2, "worker-2")]),
        (
            "one that was asked to leave is not lost",
            LostPolicy(action=OnWorkerLost.TOLERATE),
            [worker(1, WorkerStatus.TERMINATED, drain_deadline=NOW)],
            False,
            [(2, "worker-2")],
        ),
        (
            "six replacements are too many",
            LostPolicy(action=OnWorkerLost.REPLACE),
            [worker(slot, WorkerStatus.LOST) for slot in range(1, 7)],
            True,
            [],
        ),
    ],
)
def test_a_lost_worker_means_what_the_policy_says(
    what: str, policy: LostPolicy, gone: list[Worker], fails: bool, spawned: list[tuple[int, str]]
) -> None:
    """A slot is never used twice: its keys are taken."""
    actions = decided(view([worker(0), *gone], plan=replace(PLAN, on_worker_lost=policy)))

    assert [each.completion_reason for each in actions if isinstance(each, StopLoad)] == (["WORKER_LOST"] if fails else []), (
        what
    )
    assert [(each.slot, each.worker_id) for each in actions if isinstance(each, SpawnBenchWorker)] == spawned, what


def test_a_guardrail_that_fails_ends_the_run() -> None:
    hot = [worker(0), worker(1, cpu_percent=95.0)]

    actions = decided(view(hot, plan=replace(PLAN, guardrails=Guardrails(mode=GuardrailMode.HARD))))

    assert [each.completion_reason for each in actions if isinstance(each, StopLoad)] == ["GUARDRAIL"]


def test_a_run_never_has_more_workers_than_its_bound_though_guardrails_ask_for_one_more() -> None:
    bounded = Scaling(mode=ScalingMode.BOUNDED, min_workers=1, max_workers=2, cap=4)
    one_more = ControllerState(connections=8, workers=2, guard=GuardState(extra_workers=1))

    actions = decided(view([worker(0), worker(1)], plan=replace(PLAN, scaling=bounded, connections=40), state=one_more))

    assert [each for each in actions if isinstance(each, SpawnBenchWorker)] == []


def test_a_run_is_concluded_only_when_every_worker_has_left_and_is_gone() -> None:
    asked = {"status": RunStatus.STOPPING, "phase": Phase.COOLDOWN, "state": ControllerState(ending=FAILED)}
    leaving = worker(0, WorkerStatus.DRAINING, drain_deadline=NOW + 60 * SECOND)
    left = worker(0, WorkerStatus.TERMINATED, drain_deadline=NOW)

    assert decided(view([leaving], **asked)) == []
    assert not any(isinstance(each, EnterPhase) for each in decided(view([replace(left, reaped_at=None)], **asked)))
    assert [each.phase for each in decided(view([left], **asked))] == [Phase.PROCESSING]
    assert decided(view([left], **(asked | {"phase": Phase.PROCESSING}))) == [Conclude(ending=FAILED, reason=FAILED.reason)]


def test_a_run_that_was_cancelled_ends_so_whatever_it_was_about_to_do() -> None:
    cancelling = {"status": RunStatus.CANCELLING, "phase": Phase.PROCESSING, "state": ControllerState(ending=FAILED)}

    [conclude] = decided(view([worker(0, WorkerStatus.TERMINATED, drain_deadline=NOW)], **cancelling))

    assert (conclude.ending.status, conclude.ending.completion_reason) == (RunStatus.CANCELLED, "USER")
