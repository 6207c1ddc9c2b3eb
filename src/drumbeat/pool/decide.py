"""Which jobs must be taken back, and how many workers the queue is worth. Pure: no clock, no I/O, no log."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil

from drumbeat.core.beat import CHECK
from drumbeat.core.decision import Decision
from drumbeat.core.recovery import Closing, EndStray, Reap, Recovered, lingers, may_run, never_started, recover
from drumbeat.core.recovery import end_strays as strays
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.pool.breaker import allowed, held_until, trouble
from drumbeat.pool.model import Action, Claim, ExpireLeases, PoolView, SpawnJobWorker, TakeBackJobs, no_handler, worker_name

SHOW_WITHIN = timedelta(seconds=10)  #: a new row without an instance is started again only after this long
MOST_REAPED = 50  #: in one beat
MAKES_ROOM = "makes_room"  #: in a beat's summary: the next beat may start workers that this one could not


@dataclass(frozen=True, slots=True, kw_only=True)
class Mending:
    """What recovery comes to."""

    first: tuple[Action, ...]  #: rows closed, jobs taken back, strays ended: before anything is started
    last: tuple[Action, ...]  #: what can wait
    living: tuple[Worker, ...]
    staying: tuple[Worker, ...]
    returning: Mapping[str, int]  #: jobs that are ready once this is done, by the capability they need


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """How the queue compares with the workers."""

    ready: int  #: jobs a worker started here could take
    out_of_reach: Mapping[str, int]  #: jobs it could not, by the capability it lacks
    uncovered: int  #: ready jobs that no free slot is there for
    busy: int  #: slots with a job in them
    free: int
    here: int  #: workers that may run, those that leave and those that are not known to be gone among them
    room: int  #: how many more the cap allows; below zero: there are more than may be

    @property
    def wants(self) -> bool:
        return self.uncovered > 0


def decide(view: PoolView) -> Decision[Action]:
    """Recover first, then start a worker for each ready job that nobody is free for, up to the cap (C51)."""
    if view.is_scaled:
        return take_back(view)
    mending = recover_jobs(view)
    need = weigh(view, mending)
    spawning = [] if _is_paused(view) else [*respawn(view, mending.staying, need), *spawn(view, mending, need)]
    actions = [*mending.first, *spawning, *mending.last]
    why = None if spawning else why_nobody(view, mending, need)
    made = {"spawned": len(spawning), **({MAKES_ROOM: True} if _makes_room(need, actions) else {})}
    return Decision(actions=actions, why_not=None if actions else why, summary=_summary(view, mending, need) | made)


def _makes_room(need: Need, actions: Sequence[Action]) -> bool:
    """Whether workers are missing, the cap is full, and this beat ends somebody who counts for it."""
    return need.wants and need.room <= 0 and any(isinstance(each, Closing | Reap | EndStray) for each in actions)


def decide_recovery(view: PoolView) -> Decision[Action]:
    """Recover, and start nobody: the reaper's beat."""
    if view.is_scaled:
        return take_back(view)
    mending = recover_jobs(view)
    actions = [*mending.first, *mending.last]
    why_not = None if actions else f"{_count(len(mending.living), 'worker')} here and none is ill; no job is held by the dead"
    return Decision(actions=actions, why_not=why_not, summary=_summary(view, mending, weigh(view, mending)))


def take_back(view: PoolView) -> Decision[Action]:
    """All that is left to do in a fleet's pool: jobs of those who are over. Its workers are elsewhere, and cost money."""
    over = {row.worker_id for row in view.workers if not row.is_live}
    ready = sum(view.demand.values())
    return Decision(
        actions=[*release(view, over), *expire(view, over)],
        why_not=f"workers of this pool are the fleet's, started and ended by: drumbeat fleet beat {view.pool_id}; "
        f"{_count(ready, 'job')} ready",
        summary={"kind": CHECK, "ready": ready, "claimed": len(view.claims)},
    )


def recover_jobs(view: PoolView) -> Mending:
    """Close the rows of workers that are over, take back what they held, and what is held beyond its lease."""
    recovered = recover(view.sight)
    closing = [action for action in recovered.actions if isinstance(action, Closing)]
    over = {action.worker.worker_id for action in closing} | {row.worker_id for row in view.workers if not row.is_live}
    released, expired = release(view, over), expire(view, over)
    last = [action for action in recovered.actions if isinstance(action, Reap) and not lingers(view.sight, action.worker_id)]
    return Mending(
        first=(*closing, *released, *expired, *end_strays(view, recovered)),
        last=tuple(last[:MOST_REAPED]),
        living=recovered.living,
        staying=recovered.staying,
        returning=Counter(
            claim.capability
            for claim in view.claims
            if claim.comes_back and ((claim.expired and claim.extended) or claim.worker_id in over)
        ),
    )


def release(view: PoolView, over: set[WorkerId]) -> list[TakeBackJobs]:
    """Jobs of workers that are over, or are about to be."""
    held = Counter(claim.worker_id for claim in view.claims if claim.worker_id in over)
    return [
        TakeBackJobs(worker_id=worker_id, reason=f"it is over and holds {_count(jobs, 'job')}")
        for worker_id, jobs in held.items()
    ]


def expire(view: PoolView, over: set[WorkerId]) -> list[ExpireLeases]:
    """Jobs whose lease has run out while their holder's row says nothing; looked for where not all claims were seen."""
    expired = sum(claim.expired and claim.worker_id not in over for claim in view.claims)
    if expired:
        return [ExpireLeases(reason=f"the lease of {_count(expired, 'job')} has run out")]
    if view.more_claims:
        return [
            ExpireLeases(reason=f"more than {len(view.claims)} jobs are claimed; there may be some whose lease has run out")
        ]
    return []


def end_strays(view: PoolView, recovered: Recovered) -> list[EndStray]:
    """Instances nobody asks for, but for those of workers that have only just left."""
    strays = [action for action in recovered.actions if isinstance(action, EndStray)]
    return [action for action in strays if not lingers(view.sight, action.worker_id)]


def weigh(view: PoolView, mending: Mending) -> Need:
    """Ready jobs against free slots. Slots are jobs at once: a worker has ``concurrency`` of them."""
    offered = {"", *view.policy.capabilities}
    demand = Counter(view.demand) + Counter(mending.returning)
    within = {capability: jobs for capability, jobs in demand.items() if capability in offered}
    held = _held(view.claims)
    free = [(worker, max(view.policy.concurrency - held[worker.worker_id], 0)) for worker in mending.staying]
    free_slots, here = sum(slots for _, slots in free), running(view)
    return Need(
        ready=sum(within.values()),
        out_of_reach={capability: jobs for capability, jobs in sorted(demand.items()) if capability not in offered},
        uncovered=left_over(within, free),
        busy=len(mending.staying) * view.policy.concurrency - free_slots,
        free=free_slots,
        here=here,
        room=view.policy.max_workers - here,
    )


def running(view: PoolView) -> int:
    """How many workers may run. One that has left by itself is as good as gone: it makes room for the next while it ends."""
    rows = [row for row in may_run(view.sight) if row.is_live or not lingers(view.sight, row.worker_id)]
    return len(rows) + sum(not lingers(view.sight, stray.worker_id) for stray in strays(view.sight))


def left_over(demand: Mapping[str, int], free: Iterable[tuple[Worker, int]]) -> int:
    """How much demand no free slot can take; the least able workers choose first, and what few can do is done first."""
    left = Counter(demand)
    for worker, slots in sorted(free, key=lambda each: len(each[0].capabilities)):
        for capability in (*worker.capabilities, ""):
            taken = min(left[capability], slots)
            left[capability] -= taken
            slots -= taken
    return sum(left.values())


def respawn(view: PoolView, staying: Sequence[Worker], need: Need) -> list[SpawnJobWorker]:
    """Rows whose instance was never started, within the cap: a checker died between the two."""
    unstarted = never_started(view.sight, staying)
    return [
        SpawnJobWorker(
            worker_id=worker.worker_id,
            slot=worker.slot,
            group_count=max(view.policy.max_workers, worker.slot + 1),
            capabilities=worker.capabilities,
            reason="asked for, but no instance is there",
            is_new=False,
        )
        for worker in unstarted[: max(need.room + len(unstarted), 0)]
        if worker.created_at is not None and view.now - worker.created_at > SHOW_WITHIN
    ]


def spawn(view: PoolView, mending: Mending, need: Need) -> list[SpawnJobWorker]:
    """New workers, in the lowest free slots."""
    wanted = max(min(ceil(need.uncovered / view.policy.concurrency), need.room), 0)
    limit = allowed(view.streak, mending.living, view.now)
    wanted = wanted if limit is None else min(wanted, limit)
    taken = {worker.slot for worker in mending.living}
    slots = [slot for slot in range(view.policy.max_workers) if slot not in taken][:wanted]
    reason = f"{_ready(need)}, {need.free} of {_slots(need)} slots are free, {need.room} more workers may come"
    return [
        SpawnJobWorker(
            worker_id=worker_name(view.pool_id, view.next_number + n),
            slot=slot,
            group_count=view.policy.max_workers,
            capabilities=view.policy.capabilities,
            reason=reason,
        )
        for n, slot in enumerate(slots)
    ]


def why_nobody(view: PoolView, mending: Mending, need: Need) -> str:
    """Why no worker was started."""
    if _is_paused(view):
        return f"paused until {view.paused_until:%Y-%m-%d %H:%M:%S}: {_ready(need)}"
    idle = no_handler(view.pool_id, view.unhandled)
    lacking = ", ".join(f"{jobs} need {name!r}" for name, jobs in need.out_of_reach.items())
    beyond = f"; of others, {lacking}, which no worker started here has" if lacking else ""
    beyond += f"; {idle}" if idle else ""
    if not need.ready:
        return f"no job is ready{beyond}"
    if not need.wants:
        return f"{_ready(need)} and {need.free} of {_slots(need)} slots are free{beyond}"
    if need.room > 0 and (why := trouble(view.streak)) is not None:
        return f"{_ready(need)}, but {why}"
    return f"{_ready(need)}, but {need.here} of at most {view.policy.max_workers} workers are here{beyond}"


def _summary(view: PoolView, mending: Mending, need: Need) -> dict[str, int]:
    return {
        "max_workers": view.policy.max_workers,
        "workers": len(mending.living),
        "busy": need.busy,
        "ready": need.ready,
        "out_of_reach": sum(need.out_of_reach.values()),
        "claimed": len(view.claims),
        **({"no_handler": sum(view.unhandled.values())} if view.unhandled else {}),
        **({} if held_until(view.streak) is None else {"failing": view.streak.failed}),
    }


def _held(claims: Iterable[Claim]) -> Counter[WorkerId]:
    """Jobs by holder, those beyond their lease too: whoever does not renew it is hardly free for another."""
    return Counter(claim.worker_id for claim in claims)


def _is_paused(view: PoolView) -> bool:
    return view.paused_until is not None and view.paused_until > view.now


def _slots(need: Need) -> int:
    return need.busy + need.free


def _ready(need: Need) -> str:
    return f"{_count(need.ready, 'job')} ready"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
