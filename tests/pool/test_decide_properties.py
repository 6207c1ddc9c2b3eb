"""What holds of every decision, whatever the pool and its queue look like."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, strategies as st

from drumbeat.core.worker import TERMINAL, Worker, WorkerId, WorkerStatus
from drumbeat.pool.decide import decide, decide_recovery
from drumbeat.pool.model import (
    Claim,
    EndOverdue,
    ListedInstance,
    MarkFailed,
    MarkLost,
    PoolPolicy,
    PoolView,
    SpawnJobWorker,
    TakeBackJobs,
)
from pool.seen import LONG_AGO, NOW, POOL, name, view

moments = st.integers(-2000, 2000).map(lambda seconds: NOW + timedelta(seconds=seconds))
pasts = st.integers(0, 2000).map(lambda seconds: NOW - timedelta(seconds=seconds))
able = st.sampled_from([(), ("gpu",), ("gpu", "tpu")])


@st.composite
def workers(draw: st.DrawFn, number: int) -> Worker:
    status = draw(st.sampled_from(WorkerStatus))
    joined = status is not WorkerStatus.SPAWNING
    return Worker(
        pool_id=POOL,
        worker_id=name(number),
        slot=draw(st.integers(0, 6)),
        status=status,
        capabilities=draw(able),
        created_at=draw(pasts),
        heartbeat_at=draw(pasts) if joined else None,
        heartbeat_count=3 if joined else 0,
        drain_deadline=draw(st.none() | moments),
        ended_at=draw(pasts) if status in TERMINAL else None,
        reaped_at=draw(st.none() | st.just(NOW)) if status in TERMINAL else None,
    )


@st.composite
def views(draw: st.DrawFn) -> PoolView:
    numbers = draw(st.lists(st.integers(0, 12), unique=True, max_size=8))
    names = st.sampled_from([*map(name, numbers), name(20)])
    seen = st.builds(ListedInstance, worker_id=names, running=st.booleans(), exit_code=st.none() | st.integers(-15, 5))
    claims = st.builds(
        Claim, worker_id=names, expired=st.booleans(), capability=st.sampled_from(["", "gpu"]), comes_back=st.booleans()
    )
    policy = st.builds(PoolPolicy, max_workers=st.integers(0, 6), concurrency=st.integers(1, 4), capabilities=able)
    return replace(
        view(*(draw(workers(number)) for number in numbers), instances=tuple(draw(st.lists(seen, max_size=8)))),
        looking_since=draw(st.just(LONG_AGO) | pasts),
        paused_until=draw(st.none() | moments),
        policy=draw(policy),
        demand=draw(st.dictionaries(st.sampled_from(["", "gpu", "tpu"]), st.integers(0, 30))),
        claims=tuple(draw(st.lists(claims, max_size=12))),
        more_claims=draw(st.booleans()),
        next_number=21,
    )


def closed(seen: PoolView) -> set[WorkerId]:
    closings = (MarkLost, MarkFailed, EndOverdue)
    return {action.worker.worker_id for action in decide(seen).actions if isinstance(action, closings)}


def new(seen: PoolView) -> list[SpawnJobWorker]:
    return [action for action in decide(seen).actions if isinstance(action, SpawnJobWorker) and action.is_new]


@given(views())
def test_deciding_twice_is_deciding_once(seen: PoolView) -> None:
    assert decide(seen) == decide(replace(seen))


@given(views())
def test_never_above_the_cap(seen: PoolView) -> None:
    living = {row.worker_id for row in seen.workers if row.is_live} - closed(seen)

    assert len(living) + len(new(seen)) <= max(seen.policy.max_workers, len(living))


@given(views())
def test_never_more_slots_than_jobs_could_fill(seen: PoolView) -> None:
    jobs = sum(seen.demand.values()) + len(seen.claims)

    assert len(new(seen)) <= jobs


@given(views())
def test_without_ready_jobs_nobody_is_started(seen: PoolView) -> None:
    assert new(replace(seen, demand={}, claims=())) == []


@given(views())
def test_no_slot_and_no_name_is_given_twice(seen: PoolView) -> None:
    spawned = new(seen)
    living = {row.slot for row in seen.workers if row.is_live and row.worker_id not in closed(seen)}
    taken = {row.worker_id for row in seen.workers} | {each.worker_id for each in seen.instances}

    assert len({action.slot for action in spawned}) == len(spawned)
    assert all(0 <= action.slot < action.group_count == seen.policy.max_workers for action in spawned)
    assert living.isdisjoint(action.slot for action in spawned)
    assert taken.isdisjoint(action.worker_id for action in spawned)


@given(views())
def test_only_those_who_are_over_lose_their_jobs(seen: PoolView) -> None:
    released = {action.worker_id for action in decide(seen).actions if isinstance(action, TakeBackJobs)}
    over = closed(seen) | {row.worker_id for row in seen.workers if not row.is_live}

    assert released == over & {claim.worker_id for claim in seen.claims}


@given(views())
def test_while_paused_nobody_is_started_and_recovery_is_the_reapers(seen: PoolView) -> None:
    paused = replace(seen, paused_until=NOW + timedelta(seconds=1))

    assert list(decide(paused).actions) == list(decide_recovery(seen).actions)


@given(views())
def test_something_is_done_or_it_is_said_why_not(seen: PoolView) -> None:
    for decision in (decide(seen), decide_recovery(seen)):
        assert bool(decision.actions) != bool(decision.why_not)
        assert all(value >= 0 for value in decision.summary.values())


@given(views(), st.integers(1, 5))
def test_more_jobs_never_mean_fewer_workers(seen: PoolView, more: int) -> None:
    fuller = replace(seen, demand={**seen.demand, "": seen.demand.get("", 0) + more})

    assert len(new(fuller)) >= len(new(seen))
