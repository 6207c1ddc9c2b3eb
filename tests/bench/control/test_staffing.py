"""What workers are told of a pace: each its share, nobody more, and nobody none at all."""

from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, strategies as st

from drumbeat.bench.control.staffing import Staffing, reconcile_workers, staffing_of
from drumbeat.bench.model import (
    AssignedTarget,
    ControllerState,
    Figures,
    LoadDecision,
    RunPlan,
    RunView,
    Scaling,
    ScalingMode,
    SetTargets,
    SpawnBenchWorker,
)
from drumbeat.core.event import NewEvent, WorkerTarget, set_worker_target
from drumbeat.core.pool import PRESETS, PoolId, PoolKind
from drumbeat.core.recovery import ListedInstance, Recovered
from drumbeat.core.run import RunId, RunStatus
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VIEW = RunView(
    run_id=RunId("r"),
    now=NOW,
    looking_since=NOW,
    status=RunStatus.RUNNING,
    phase=None,
    started_at=NOW,
    warmup_started_at=None,
    warmup_ended_at=None,
    completion_reason=None,
    plan=RunPlan(),
    state=ControllerState(),
    thresholds=PRESETS[PoolKind.BENCH],
    workers=(),
    instances=(),
    recent=Figures(since=NOW, until=NOW),
)
LOST = Worker(pool_id=PoolId("r"), worker_id=WorkerId("worker-0"), slot=0, status=WorkerStatus.LOST)
NOBODY = Recovered(actions=(), living=(), staying=())


def told(held: list[int], pace: float | None) -> list[AssignedTarget]:
    """What workers are told that shall hold so much, together at this pace."""
    spawns = tuple(
        SpawnBenchWorker(
            worker_id=WorkerId(f"worker-{slot}"), slot=slot, group_count=len(held), connections=connections, reason=""
        )
        for slot, connections in enumerate(held)
    )
    staffing = Staffing(state=ControllerState(pace=pace), connections=dict(enumerate(held)), spawns=spawns, reason="")
    targets = [action for action in reconcile_workers(VIEW, NOBODY, staffing) if isinstance(action, SetTargets)]
    return [share for action in targets for share in action.targets.values()]


@given(st.lists(st.integers(0, 500), min_size=1, max_size=64), st.floats(0.1, 1e6))
def test_in_a_paced_run_nobody_is_without_a_share_and_all_make_the_pace(held: list[int], pace: float) -> None:
    shares = [share.qps for share in told(held, pace)]

    assert len(shares) == len(held)
    assert sum(share for share in shares if share is not None) == pytest.approx(pace if sum(held) else 0.0)
    assert [share == 0 for share in shares] == [connections == 0 for connections in held]


@given(st.lists(st.integers(0, 500), min_size=1, max_size=64))
def test_without_a_pace_nobody_has_a_share(held: list[int]) -> None:
    assert {share.qps for share in told(held, None)} == {None}


def test_a_share_of_nothing_is_kept_and_sent_as_such() -> None:
    state = ControllerState(pace=60.0, told={WorkerId("worker-1"): AssignedTarget(connections=0, qps=0.0)})
    event: NewEvent = set_worker_target(WorkerId("worker-1"), WorkerTarget(connections=0, qps=0.0, reason="less"))

    assert msgspec.convert(msgspec.to_builtins(state), ControllerState) == state
    assert event.payload["target_qps"] == 0


@pytest.mark.parametrize(
    ("rows", "shown", "started"),
    [
        ([], [], 2),
        ([LOST], [ListedInstance(worker_id=WorkerId("worker-0"), running=True)], 1),
        ([LOST], [ListedInstance(worker_id=WorkerId("worker-0"), running=False)], 2),
        ([replace(LOST, status=WorkerStatus.DRAINING)], [ListedInstance(worker_id=WorkerId("worker-0"), running=True)], 1),
        ([], [ListedInstance(worker_id=WorkerId("worker-7"), running=True)], 1),
    ],
    ids=["nobody is there", "a lost one may run", "a lost one is over", "one drains", "a stray runs"],
)
def test_never_more_run_at_once_than_the_plan_allows(rows: list[Worker], shown: list[ListedInstance], started: int) -> None:
    plan = RunPlan(scaling=Scaling(mode=ScalingMode.BOUNDED, min_workers=1, max_workers=2))
    seen = replace(VIEW, plan=plan, workers=tuple(rows), instances=tuple(shown))

    staffing = staffing_of(seen, NOBODY, LoadDecision(connections=4, workers=2, reason=""), ControllerState(), {})

    assert len(staffing.spawns) == started


def at_work(slot: int) -> Worker:
    return Worker(pool_id=PoolId("r"), worker_id=WorkerId(f"worker-{slot}"), slot=slot, status=WorkerStatus.ACTIVE)


@pytest.mark.parametrize(
    ("partitions", "had", "staying", "fresh"),
    [
        pytest.param(4, [], [], [0, 1, 2, 3], id="at first one after another"),
        pytest.param(4, [0, 1, 2, 3], [0, 2, 3], [5], id="the partition of one that was lost"),
        pytest.param(4, [0, 1, 2, 3], [2, 3], [4, 5], id="of two"),
        pytest.param(4, [*range(63)], [60, 62, 59], [63], id="no slot beyond the last there is"),
        pytest.param(1, [0, 1, 2], [0, 2], [3], id="keys that are not sharded"),
    ],
)
def test_a_replacement_takes_up_the_partition_that_nobody_has(
    partitions: int, had: list[int], staying: list[int], fresh: list[int]
) -> None:
    plan = RunPlan(scaling=Scaling(mode=ScalingMode.BOUNDED, min_workers=1, max_workers=9), partitions=partitions)
    living = tuple(at_work(slot) for slot in staying)
    gone = tuple(replace(LOST, slot=slot) for slot in had if slot not in staying)
    seen = replace(VIEW, plan=plan, workers=(*gone, *living))

    wanted = LoadDecision(connections=9, workers=len(staying) + len(fresh), reason="")
    staffing = staffing_of(seen, replace(NOBODY, living=living, staying=living), wanted, ControllerState(), {})

    assert [spawn.slot for spawn in staffing.spawns] == fresh
