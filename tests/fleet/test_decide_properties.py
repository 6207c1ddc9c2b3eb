"""What holds of every decision, whatever the pool looks like."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, strategies as st

from drumbeat.core.recovery import may_run
from drumbeat.core.worker import TERMINAL, Worker, WorkerId, WorkerStatus
from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import (
    Action,
    AskToDrain,
    EndOverdue,
    EndStray,
    FleetView,
    ListedInstance,
    MarkFailed,
    MarkLost,
    Reap,
    Spawn,
)
from fleet.given import LONG_AGO, NOW, POOL, view

moments = st.integers(-2000, 2000).map(lambda seconds: NOW + timedelta(seconds=seconds))
pasts = st.integers(0, 2000).map(lambda seconds: NOW - timedelta(seconds=seconds))


@st.composite
def workers(draw: st.DrawFn, name: WorkerId) -> Worker:
    status = draw(st.sampled_from(WorkerStatus))
    joined = status is not WorkerStatus.SPAWNING
    return Worker(
        pool_id=POOL,
        worker_id=name,
        slot=draw(st.integers(0, 6)),
        status=status,
        target=draw(st.integers(0, 2)),
        created_at=draw(pasts),
        heartbeat_at=draw(pasts) if joined else None,
        heartbeat_count=3 if joined else 0,
        drain_deadline=draw(st.none() | moments),
        ended_at=NOW if status in TERMINAL else None,
        reaped_at=draw(st.none() | st.just(NOW)) if status in TERMINAL else None,
    )


@st.composite
def views(draw: st.DrawFn) -> FleetView:
    names = draw(st.lists(st.integers(0, 12).map(lambda n: WorkerId(f"worker-{n}")), unique=True, max_size=8))
    seen = st.builds(
        ListedInstance,
        worker_id=st.sampled_from([*names, WorkerId("worker-20")]),
        running=st.booleans(),
        exit_code=st.none() | st.integers(-15, 5),
    )
    return view(
        *(draw(workers(name)) for name in names),
        wanted=draw(st.integers(0, 6)),
        instances=tuple(draw(st.lists(seen, max_size=8))),
        looking_since=draw(st.just(LONG_AGO) | pasts),
        paused_until=draw(st.none() | moments),
    )


def closed(actions: list[Action]) -> set[WorkerId]:
    return {action.worker.worker_id for action in actions if isinstance(action, MarkLost | MarkFailed | EndOverdue)}


def staying(seen: FleetView) -> set[WorkerId]:
    """Who is here and was not told to leave."""
    return {
        each.worker_id
        for each in seen.workers
        if each.is_live and each.drain_deadline is None and each.status is not WorkerStatus.DRAINING
    }


@given(views())
def test_deciding_twice_is_deciding_once(seen: FleetView) -> None:
    assert decide(seen) == decide(replace(seen))


@given(views())
def test_no_slot_gets_two_workers(seen: FleetView) -> None:
    new = [action for action in decide(seen).actions if isinstance(action, Spawn) and action.is_new]

    assert len({action.slot for action in new}) == len(new)
    assert all(0 <= action.slot < seen.policy.workers for action in new)


@given(views())
def test_no_name_is_given_twice(seen: FleetView) -> None:
    spawned = [action for action in decide(seen).actions if isinstance(action, Spawn)]
    taken = {each.worker_id for each in seen.workers} | {each.worker_id for each in seen.instances}

    assert len({action.worker_id for action in spawned}) == len(spawned)
    assert taken.isdisjoint(action.worker_id for action in spawned if action.is_new)


@given(views())
def test_never_more_stay_than_the_policy_asks_for(seen: FleetView) -> None:
    actions = list(decide(seen).actions)
    asked = {action.worker_id for action in actions if isinstance(action, AskToDrain)}
    new = {action.worker_id for action in actions if isinstance(action, Spawn) and action.is_new}

    after = (staying(seen) - closed(actions) - asked) | new

    assert len(after) <= seen.policy.workers
    assert not new or not asked


@given(views().filter(lambda seen: seen.paused_until is None))
def test_without_a_pause_as_many_stay_as_the_policy_asks_for(seen: FleetView) -> None:
    """Unless the breaker is open or the maximum reached: this policy has neither."""
    seen = replace(seen, policy=replace(seen.policy, failure_min=1_000_000, max_workers=100_000))
    slots = {each.worker_id: each.slot for each in seen.workers}
    actions = list(decide(seen).actions)
    kept = staying(seen) - closed(actions)
    clashes = len(kept) - len({slots[name] for name in kept})
    new = [action for action in actions if isinstance(action, Spawn) and action.is_new]

    assert len(kept) + len(new) >= min(seen.policy.workers, seen.policy.workers - clashes)


@given(views(), st.integers(0, 8))
def test_nobody_is_started_beside_as_many_as_may_run_at_all(seen: FleetView, most: int) -> None:
    """Whoever drains, was given up or is not known to be gone counts until its instance is."""
    seen = replace(seen, policy=replace(seen.policy, min_workers=0, max_workers=most))
    new = [action for action in decide(seen).actions if isinstance(action, Spawn) and action.is_new]

    assert not new or len(may_run(seen.snapshot)) + len(new) <= max(most, seen.policy.workers)


@given(views())
def test_each_worker_is_closed_at_most_once_and_only_while_it_lives(seen: FleetView) -> None:
    closing = [action for action in decide(seen).actions if isinstance(action, MarkLost | MarkFailed | EndOverdue)]

    assert len({action.worker.worker_id for action in closing}) == len(closing)
    assert all(action.worker.is_live for action in closing)


@given(views())
def test_no_instance_of_a_live_worker_is_ended(seen: FleetView) -> None:
    live = {each.worker_id for each in seen.workers if each.is_live}
    ended = {action.worker_id for action in decide(seen).actions if isinstance(action, Reap | EndStray)}

    assert live.isdisjoint(ended)


@given(views())
def test_there_is_a_reason_for_everything_and_for_nothing(seen: FleetView) -> None:
    decision = decide(seen)

    assert bool(decision.actions) != bool(decision.why_not)
    assert all(action.reason for action in decision.actions)
