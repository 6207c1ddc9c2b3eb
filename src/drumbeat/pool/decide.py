"""Decides which jobs to take back and how many workers to start. Pure: no clock, no I/O, no log."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil

from drumbeat.core.beat import CHECK
from drumbeat.core.decision import Decision
from drumbeat.core.recovery import (
    Closing,
    EndStray,
    Reap,
    Recovered,
    end_strays as strays,
    may_be_exiting,
    may_run,
    never_started,
    recover,
)
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.pool.breaker import breaker_message, next_start_at, start_limit
from drumbeat.pool.model import Action, Claim, ExpireLeases, PoolView, SpawnJobWorker, TakeBackJobs, no_handler, worker_name
from drumbeat.pool.refused import RefusedWorkers, refused_workers

SHOW_WITHIN = timedelta(seconds=10)  #: how long a new worker's instance may be missing before it is started again
MOST_REAPED = 50  #: at most this many ended workers are reaped in one beat
MAKES_ROOM = "makes_room"  #: key in a beat's summary: this beat ends a worker, so that the next one can start another
SPARED = "spared"  #: key in a beat's summary: number of silent workers that get time for a heartbeat before they count as lost


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """The actions that clean up after ended workers, the workers that remain, and the jobs that become ready again."""

    first: tuple[Action, ...]  #: done before workers are started: close rows, take back jobs, end stray instances
    last: tuple[Action, ...]  #: done after workers are started: reap ended workers
    living: tuple[Worker, ...]
    staying: tuple[Worker, ...]
    returning: Mapping[str, int]  #: number of jobs that become ready again, by the capability they need


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """How many jobs are ready, how many job slots the workers have, and how many more workers are allowed."""

    ready: int  #: ready jobs that workers of this pool can run
    out_of_reach: Mapping[str, int]  #: ready jobs that they cannot run, by the missing capability
    uncovered: int  #: ready jobs that exceed the free job slots
    busy: int  #: job slots that are in use
    free: int
    here: int  #: workers that might be running, including draining and silent ones
    room: int  #: how many more workers max_workers allows; negative if there are too many

    @property
    def wants(self) -> bool:
        return self.uncovered > 0


def decide(view: PoolView) -> Decision[Action]:
    """Decide the checker's actions: clean up after ended workers, then start workers for ready jobs, up to max_workers."""
    if view.is_scaled:
        return take_back(view)
    recovery = plan_recovery(view)
    refused = refused_workers(view, recovery.staying)
    need = compute_need(view, recovery)
    spawning = [] if _is_paused(view) else [*respawn(view, recovery.staying, need), *spawn(view, recovery, need, refused)]
    unneeded = [] if _is_paused(view) else refused.close(count_missing(view, recovery, need))
    actions = [*recovery.first, *unneeded, *spawning, *recovery.last]
    why = None if spawning else why_none_started(view, recovery, need, refused)
    made = {"spawned": len(spawning), **({MAKES_ROOM: True} if _makes_room(need, actions) else {})}
    return Decision(actions=actions, why_not=None if actions else why, summary=_summary(view, recovery, need) | made)


def _makes_room(need: Need, actions: Sequence[Action]) -> bool:
    """Whether the pool needs workers but is at max_workers, and this beat ends a worker, so the next beat can start one."""
    return need.wants and need.room <= 0 and any(isinstance(each, Closing | Reap | EndStray) for each in actions)


def decide_recovery(view: PoolView) -> Decision[Action]:
    """Decide the reaper's actions: clean up after ended workers, and start no workers."""
    if view.is_scaled:
        return take_back(view)
    recovery = plan_recovery(view)
    actions = [*recovery.first, *recovery.last]
    why_not = None if actions else f"{_count(len(recovery.living), 'live worker')}, all healthy; no ended worker holds a job"
    return Decision(actions=actions, why_not=why_not, summary=_summary(view, recovery, compute_need(view, recovery)))


def take_back(view: PoolView) -> Decision[Action]:
    """Decide the actions for a fleet's pool: only take back jobs, because the fleet starts and ends the workers."""
    ended = {row.worker_id for row in view.workers if not row.is_live}
    ready = sum(view.demand.values())
    return Decision(
        actions=[*release(view, ended), *expire(view, ended)],
        why_not=f"a fleet starts and ends the workers of this pool: drumbeat fleet beat {view.pool_id}; "
        f"{_count(ready, 'job')} ready",
        summary={"kind": CHECK, "ready": ready, "claimed": len(view.claims)},
    )


def plan_recovery(view: PoolView) -> RecoveryPlan:
    """Decide how to clean up: close the rows of ended workers, take back their jobs, and jobs whose lease has run out."""
    recovered = recover(view.snapshot)
    closing = [action for action in recovered.actions if isinstance(action, Closing)]
    ended = {action.worker.worker_id for action in closing} | {row.worker_id for row in view.workers if not row.is_live}
    released, expired = release(view, ended), expire(view, ended)
    last = [
        action
        for action in recovered.actions
        if isinstance(action, Reap) and not may_be_exiting(view.snapshot, action.worker_id)
    ]
    return RecoveryPlan(
        first=(*closing, *released, *expired, *end_strays(view, recovered)),
        last=tuple(last[:MOST_REAPED]),
        living=recovered.living,
        staying=recovered.staying,
        returning=Counter(
            claim.capability
            for claim in view.claims
            if claim.comes_back and ((claim.expired and claim.extended) or claim.worker_id in ended)
        ),
    )


def release(view: PoolView, ended: set[WorkerId]) -> list[TakeBackJobs]:
    """Return the actions that take back the jobs of the ``ended`` workers: one action for each worker that still holds jobs."""
    held = Counter(claim.worker_id for claim in view.claims if claim.worker_id in ended)
    return [
        TakeBackJobs(worker_id=worker_id, reason=f"the worker ended but still holds {_count(jobs, 'job')}")
        for worker_id, jobs in held.items()
    ]


def expire(view: PoolView, ended: set[WorkerId]) -> list[ExpireLeases]:
    """Return the action that takes back all jobs with an expired lease, if a worker not in ``ended`` might hold such a job."""
    expired = sum(claim.expired and claim.worker_id not in ended for claim in view.claims)
    if expired:
        return [ExpireLeases(reason=f"the lease of {_count(expired, 'job')} has run out")]
    if view.more_claims:
        return [ExpireLeases(reason=f"more than {len(view.claims)} jobs are claimed; the lease of some might have run out")]
    return []


def end_strays(view: PoolView, recovered: Recovered) -> list[EndStray]:
    """Return the actions that end instances without a live worker, unless the worker has just left and is still exiting."""
    found = [action for action in recovered.actions if isinstance(action, EndStray)]
    return [action for action in found if not may_be_exiting(view.snapshot, action.worker_id)]


def compute_need(view: PoolView, recovery: RecoveryPlan) -> Need:
    """Compute how many ready jobs have no free job slot, and how many more workers are allowed."""
    offered = {"", *view.policy.capabilities}
    demand = Counter(view.demand) + Counter(recovery.returning)
    within = {capability: jobs for capability, jobs in demand.items() if capability in offered}
    held = _held(view.claims)
    staying = [worker for worker in recovery.staying if not worker.was_refused]
    free = [(worker, max(view.policy.concurrency - held[worker.worker_id], 0)) for worker in staying]
    free_slots, here = sum(slots for _, slots in free), count_running(view)
    return Need(
        ready=sum(within.values()),
        out_of_reach={capability: jobs for capability, jobs in sorted(demand.items()) if capability not in offered},
        uncovered=count_uncovered(within, free),
        busy=len(staying) * view.policy.concurrency - free_slots,
        free=free_slots,
        here=here,
        room=view.policy.max_workers - here,
    )


def count_running(view: PoolView) -> int:
    """Count the workers that might be running. A worker that has left by itself and is still exiting does not count."""
    rows = [row for row in may_run(view.snapshot) if row.is_live or not may_be_exiting(view.snapshot, row.worker_id)]
    return len(rows) + sum(not may_be_exiting(view.snapshot, stray.worker_id) for stray in strays(view.snapshot))


def count_uncovered(demand: Mapping[str, int], free: Iterable[tuple[Worker, int]]) -> int:
    """Count the jobs for which no job slot is free. ``demand``: jobs by the capability they need; "" if none.

    Assumes that workers with few capabilities fill up first, and that each worker takes jobs that need a capability first.
    """
    left = Counter(demand)
    for worker, slots in sorted(free, key=lambda each: len(each[0].capabilities)):
        for capability in (*worker.capabilities, ""):
            taken = min(left[capability], slots)
            left[capability] -= taken
            slots -= taken
    return sum(left.values())


def respawn(view: PoolView, staying: Sequence[Worker], need: Need) -> list[SpawnJobWorker]:
    """Return the actions that start workers that have a row but no instance: the controller died after it wrote the row."""
    unstarted = never_started(view.snapshot, [worker for worker in staying if not worker.was_refused])
    return [
        SpawnJobWorker(
            worker_id=worker.worker_id,
            slot=worker.slot,
            group_count=max(view.policy.max_workers, worker.slot + 1),
            capabilities=worker.capabilities,
            reason="its row exists, but its instance was never started",
            is_new=False,
            at=view.now,
        )
        for worker in unstarted[: max(need.room + len(unstarted), 0)]
        if worker.created_at is not None and view.now - worker.created_at > SHOW_WITHIN
    ]


def count_missing(view: PoolView, recovery: RecoveryPlan, need: Need) -> int:
    """Return how many more workers the ready jobs need, within the limits of the pool and of the circuit breaker."""
    count = max(min(ceil(need.uncovered / view.policy.concurrency), need.room), 0)
    limit = start_limit(view.streak, recovery.living, view.now)
    return count if limit is None else min(count, limit)


def spawn(view: PoolView, recovery: RecoveryPlan, need: Need, refused: RefusedWorkers) -> list[SpawnJobWorker]:
    """Return the actions that start missing workers: first workers that the engine refused before, then new workers, each
    with the lowest free worker index (``slot``). Empty while it is too early to ask the engine again."""
    if refused.wait is not None:
        return []
    count = count_missing(view, recovery, need)
    again = refused.wanted[:count]
    taken = {worker.slot for worker in recovery.living}
    slots = [slot for slot in range(view.policy.max_workers) if slot not in taken][: count - len(again)]
    reason = f"{_ready(need)}, {need.free} of {_slots(need)} slots are free, {need.room} more workers are allowed"
    asked_again = [
        SpawnJobWorker(
            worker_id=worker.worker_id,
            slot=worker.slot,
            group_count=max(view.policy.max_workers, worker.slot + 1),
            capabilities=worker.capabilities,
            reason=f"{reason}; its engine refused to start it before",
            is_new=False,
            at=view.now,
        )
        for worker in again
    ]
    new = [
        SpawnJobWorker(
            worker_id=worker_name(view.pool_id, view.next_number + n),
            slot=slot,
            group_count=view.policy.max_workers,
            capabilities=view.policy.capabilities,
            reason=reason,
            at=view.now,
        )
        for n, slot in enumerate(slots)
    ]
    return [*asked_again, *new]


def why_none_started(view: PoolView, recovery: RecoveryPlan, need: Need, refused: RefusedWorkers) -> str:
    """Return a sentence that says why this beat starts no worker."""
    if _is_paused(view):
        return f"paused until {view.paused_until:%Y-%m-%d %H:%M:%S}: {_ready(need)}"
    no_handlers = no_handler(view.pool_id, view.unhandled, view.not_loaded)
    lacking = ", ".join(f"{jobs} need {name!r}" for name, jobs in need.out_of_reach.items())
    others = f"; jobs that need a capability which this pool's workers lack: {lacking}" if lacking else ""
    others += f"; {no_handlers}" if no_handlers else ""
    others += f"; paused job types: {', '.join(map(repr, sorted(view.policy.paused)))}" if view.policy.paused else ""
    others += f"; waiting for a heartbeat of {_count(len(view.spared), 'silent worker')}" if view.spared else ""
    if not need.ready:
        return f"no job is ready{others}"
    if not need.wants:
        return f"{_ready(need)} and {need.free} of {_slots(need)} slots are free{others}"
    if refused.wait is not None and need.room > 0:
        return f"{_ready(need)}, but {refused.wait.reason}; the next start is tried after {refused.wait.retry_at:%H:%M:%S} UTC"
    if need.room > 0 and (why := breaker_message(view.streak)) is not None:
        return f"{_ready(need)}, but {why}"
    return f"{_ready(need)}, but {need.here} of at most {view.policy.max_workers} workers are here{others}"


def _summary(view: PoolView, recovery: RecoveryPlan, need: Need) -> dict[str, int]:
    return {
        "max_workers": view.policy.max_workers,
        "workers": sum(not worker.was_refused for worker in recovery.living),
        "busy": need.busy,
        "ready": need.ready,
        "out_of_reach": sum(need.out_of_reach.values()),
        "claimed": len(view.claims),
        **({"no_handler": sum(view.unhandled.values())} if view.unhandled else {}),
        **({} if next_start_at(view.streak) is None else {"failing": view.streak.failed}),
        **({SPARED: len(view.spared)} if view.spared else {}),
    }


def _held(claims: Iterable[Claim]) -> Counter[WorkerId]:
    """Count claimed jobs per worker. A job with an expired lease counts too: its worker probably still runs it."""
    return Counter(claim.worker_id for claim in claims)


def _is_paused(view: PoolView) -> bool:
    return view.paused_until is not None and view.paused_until > view.now


def _slots(need: Need) -> int:
    return need.busy + need.free


def _ready(need: Need) -> str:
    return f"{_count(need.ready, 'job')} ready"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
