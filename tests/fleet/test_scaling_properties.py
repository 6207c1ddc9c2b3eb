"""What holds of every scaling decision, whatever the queue, the workers, the money and the limits look like."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, find, given, settings, strategies as st

from drumbeat.core.recovery import end_strays, may_run
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import (
    AskToDrain,
    EndOverdue,
    Fail,
    FleetState,
    FleetView,
    ListedInstance,
    MarkFailed,
    MarkLost,
    PolicyName,
    Provider,
    Reap,
    ReleaseJobs,
    ServiceTime,
    Spawn,
    Spending,
    WishedSize,
)
from drumbeat.fleet.money import tariff
from drumbeat.runtime.beat import encode
from fleet.given import NOW, job, queued, seconds, worker

CLOSES = MarkLost | MarkFailed | EndOverdue | Fail
QUEUES = st.sampled_from([PolicyName.QUEUE_RATIO, PolicyName.QUEUE_COVER, PolicyName.LAG_AWARE])
pasts = st.integers(0, 4000).map(lambda number: NOW - seconds(number))


@st.composite
def rows(draw: st.DrawFn, n: int) -> Any:
    status = draw(st.sampled_from([*WorkerStatus, WorkerStatus.ACTIVE, WorkerStatus.ACTIVE, WorkerStatus.SPAWNING]))
    made = draw(pasts)
    up = status not in (WorkerStatus.SPAWNING, WorkerStatus.STARTING)
    return worker(
        n,
        status=status,
        created_at=made,
        ready_at=made + seconds(draw(st.integers(1, 300))) if up else None,
        silent=draw(st.sampled_from([0, 0, 0, 61, 301, 900])),
        drain_deadline=draw(st.none() | st.none() | st.integers(-50, 500).map(lambda s: NOW + seconds(s))),
        reaped=draw(st.booleans()),
    )


@st.composite
def states(draw: st.DrawFn) -> FleetState | None:
    moments = st.none() | pasts
    wanted = draw(st.lists(st.integers(0, 12), max_size=3))
    return FleetState(
        wanted=tuple(WishedSize(at=NOW - seconds(20 * n), workers=each) for n, each in enumerate(wanted)),
        up_at=draw(moments),
        down_at=draw(moments),
        missing={f"worker-{n}": NOW - seconds(30) for n in draw(st.sets(st.integers(0, 8), max_size=3))},
        idle_since={f"worker-{n}": draw(pasts) for n in range(9)},
        services=draw(st.just(()) | st.just((ServiceTime(type="", count=5, mean=seconds(40), longest=seconds(90)),))),
    )


@st.composite
def views(draw: st.DrawFn) -> FleetView:
    workers = [draw(rows(n)) for n in range(draw(st.integers(0, 8)))]
    names = st.integers(0, 8)
    held = tuple(job(f"j{n}", draw(names), draw(st.integers(0, 400))) for n in range(draw(st.integers(0, 6))))
    most = draw(st.integers(0, 9))
    price = draw(st.sampled_from([0.0, 1.0]))
    running = tuple(
        ListedInstance(worker_id=each.worker_id, running=True)
        for each in workers
        if each.is_live and draw(st.sampled_from([True, True, False]))
    )
    return queued(
        *workers,
        instances=running,
        ready=draw(st.integers(0, 40)),
        oldest=draw(st.integers(0, 900)),
        held=held,
        policy=draw(QUEUES),
        min_workers=draw(st.integers(0, most)),
        max_workers=most,
        keep_idle=draw(st.integers(0, 2)),
        concurrency=draw(st.sampled_from([1, 1, 4])),
        max_per_hour=draw(st.none() | st.floats(0, 6)),
        max_per_day=draw(st.none() | st.floats(0, 6)),
        wait_slo=draw(st.none() | st.just(seconds(300))),
        step_up=draw(st.none() | st.integers(0, 3)),
        spent=Spending(hour=draw(st.floats(0, 3)), day=draw(st.floats(0, 6))),
        provider=Provider(unique_names=draw(st.booleans()), price_per_hour=price, usual_start=seconds(120)),
        state=draw(st.none() | states()),
        held_partial=draw(st.sampled_from([False, False, False, True])),
        paused_until=draw(st.none() | st.none() | st.just(NOW + seconds(60))),
    )


def new(seen: FleetView) -> list[Spawn]:
    return [each for each in decide(seen).actions if isinstance(each, Spawn) and each.is_new]


@given(views())
def test_whoever_is_started_never_makes_more_that_may_run_than_the_maximum(seen: FleetView) -> None:
    there = len(may_run(seen.snapshot)) + len(end_strays(seen.snapshot))

    assert not new(seen) or there + len(new(seen)) <= seen.policy.max_workers


def asked(seen: FleetView) -> list[AskToDrain]:
    return [each for each in decide(seen).actions if isinstance(each, AskToDrain)]


def left(seen: FleetView) -> set[WorkerId]:
    """Who stays, of those that nobody told to leave before."""
    closed = {each.worker.worker_id for each in decide(seen).actions if isinstance(each, CLOSES)}
    here = {
        each.worker_id
        for each in seen.workers
        if each.is_live and each.drain_deadline is None and each.status is not WorkerStatus.DRAINING
    }
    return here - closed


@given(views())
def test_never_spawn_and_drain_in_one_beat(seen: FleetView) -> None:
    actions = decide(seen).actions

    assert not (any(isinstance(each, Spawn) for each in actions) and any(isinstance(each, AskToDrain) for each in actions))


@pytest.mark.parametrize("kind", [Spawn, AskToDrain, ReleaseJobs, Reap, MarkLost])
def test_the_views_of_these_tests_lead_to_each_kind_of_action(kind: type) -> None:
    assert found(lambda seen: any(isinstance(each, kind) for each in decide(seen).actions))


def test_in_some_view_of_these_tests_a_busy_worker_is_asked_to_leave() -> None:
    assert found(lambda seen: bool({each.worker_id for each in seen.held} & {each.worker_id for each in asked(seen)}))


def found(wish: Callable[[FleetView], bool]) -> FleetView:
    """A view for which the wish is true. Raises NoSuchExample when there is none among many."""
    once = settings(max_examples=3000, database=None, deadline=None, phases=[Phase.generate])
    return find(views(), wish, settings=once, random=Random(1))


@given(views())
def test_never_above_the_maximum(seen: FleetView) -> None:
    assert not new(seen) or len(left(seen)) + len(new(seen)) <= seen.policy.max_workers


@given(views())
def test_never_above_the_ceiling(seen: FleetView) -> None:
    started, price = len(new(seen)), tariff(seen.policy, seen.provider).price
    running = sum(1 for each in seen.workers if each.reaped_at is None)
    if started and seen.policy.max_per_hour is not None:
        assert (running + started) * price <= seen.policy.max_per_hour + 1e-6
    if started and price and seen.policy.max_per_day is not None:
        assert seen.spent.day + started * price * (600 / 3600) <= seen.policy.max_per_day + 1e-6


@given(views())
def test_never_below_what_the_minimum_and_health_allow(seen: FleetView) -> None:
    if asked(seen) and seen.policy.max_per_hour is None and seen.policy.max_per_day is None:
        assert len(left(seen)) - len(asked(seen)) >= min(seen.policy.min_workers, seen.policy.max_workers)


@given(views())
def test_no_busy_worker_is_asked_to_leave_for_want_of_work_nor_ended_before_its_grace(seen: FleetView) -> None:
    holding = {each.worker_id for each in seen.held}
    for each in asked(seen):
        if each.worker_id in holding:
            assert "more workers are here than the limits allow" in each.reason
            assert each.within == timedelta(minutes=10)


@given(views(), st.integers(1, 30))
def test_a_longer_queue_never_wants_fewer(seen: FleetView, more: int) -> None:
    assert seen.queue is not None
    longer = replace(
        seen, queue=replace(seen.queue, ready=seen.queue.ready + more, oldest_ready=seen.queue.oldest_ready or NOW)
    )
    if not seen.queue.ready:
        return

    assert len(new(longer)) >= len(new(seen))
    assert len(asked(longer)) <= len(asked(seen))


@given(views())
def test_deciding_twice_is_deciding_once_also_from_json(seen: FleetView) -> None:
    again = msgspec.convert(msgspec.json.decode(msgspec.json.encode(encode(seen))), FleetView)

    assert again == seen
    assert decide(again) == decide(seen)


@given(views())
def test_what_is_remembered_survives_its_json(seen: FleetView) -> None:
    kept = msgspec.json.decode(msgspec.json.encode(decide(seen).summary))

    state = msgspec.convert(kept["state"], FleetState)

    assert kept == decide(seen).summary
    assert isinstance(decide(replace(seen, state=state)).summary, dict)


@given(views())
def test_jobs_go_back_before_instances_go(seen: FleetView) -> None:
    actions = list(decide(seen).actions)
    order = [n for n, each in enumerate(actions) if isinstance(each, ReleaseJobs)]
    reaps = [n for n, each in enumerate(actions) if isinstance(each, Reap)]

    assert not order or not reaps or max(order) < min(reaps)


@given(views())
def test_no_live_workers_jobs_are_released_unless_it_is_closed_first(seen: FleetView) -> None:
    over = {each.worker_id for each in seen.workers if not each.is_live}
    for each in decide(seen).actions:
        if isinstance(each, CLOSES):
            over.add(each.worker.worker_id)
        if isinstance(each, ReleaseJobs):
            assert each.worker_id in over


@given(views())
def test_forgetting_makes_nobody_leave(seen: FleetView) -> None:
    forgetful = replace(seen, state=None)
    above = len(left(forgetful)) > seen.policy.max_workers or seen.policy.max_per_hour is not None

    assert above or seen.policy.max_per_day is not None or asked(forgetful) == []


@given(views())
def test_there_is_a_reason_for_everything_and_for_nothing(seen: FleetView) -> None:
    decision = decide(seen)

    assert bool(decision.actions) != bool(decision.why_not)
    assert all(each.reason for each in decision.actions)
    assert decision.summary["wishes"]
