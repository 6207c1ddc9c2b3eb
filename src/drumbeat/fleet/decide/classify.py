"""Who is here, who is ill and what must be recovered first: one judgement of each worker, before anything is scaled."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from drumbeat.core.recovery import (
    Closing,
    EndStray,
    MarkLost,
    Recovered,
    asked_at,
    may_run,
    never_started,
    recover,
    stays,
)
from drumbeat.core.worker import CAPACITY_EXEMPT, Worker, WorkerId, WorkerStatus, silence
from drumbeat.fleet.decide.health import Illness, find_ill
from drumbeat.fleet.model import (
    Action,
    ExpireJobs,
    FleetView,
    HeldJob,
    NoteInstance,
    PolicyName,
    Reap,
    ReleaseJobs,
    Warn,
)

Bundles = Mapping[WorkerId, tuple[HeldJob, ...]]

_UNREADY = frozenset({WorkerStatus.SPAWNING, WorkerStatus.STARTING, WorkerStatus.WAITING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """The workers of a pool, judged."""

    actions: tuple[Action, ...]  #: what recovery wants done, in order
    living: tuple[Worker, ...]
    staying: tuple[Worker, ...]  #: nobody told them to leave; those exempt from capacity are not among them
    exempt: tuple[Worker, ...]
    outgoing: int  #: workers that leave or have ended, and instances without a row, which may all still run
    bundles: Bundles  #: what each worker holds
    missing: frozenset[WorkerId]  #: live, and not listed by the provider
    sure: bool  #: False: something could not be read, or is doubted; nobody is sent away for it
    busy: tuple[Worker, ...]  #: of those who stay: who holds a job
    idle: tuple[Worker, ...]  #: who could take one now
    starting: tuple[Worker, ...]


def is_starting(worker: Worker) -> bool:
    return worker.status in _UNREADY


def has_queue(view: FleetView) -> bool:
    return view.policy.policy is not PolicyName.FIXED


def classify(view: FleetView) -> Classified:
    """Close the rows of those that are over or ill, give back what they held, see that their instances go."""
    bundles = bundle(view.held)
    recovered = recover(view.sight)
    closing = [*_spared(view, bundles, recovered), *_vanished(view, recovered)]
    closed = {action.worker.worker_id for action in closing}
    unclosed = [worker for worker in recovered.living if worker.worker_id not in closed] if closed else recovered.living
    ill = find_ill(view, unclosed, bundles)
    gone = closed | {action.worker.worker_id for action in ill.failed}
    living, here = _left(view, gone, recovered)
    exempt = [worker for worker in here if worker.meta and is_exempt(worker)]
    staying = here if not exempt else [worker for worker in here if not is_exempt(worker)]
    busy, free = _parted(staying, bundles)
    starting = [worker for worker in free if worker.status in _UNREADY]
    missing = _missing(recovered, living)
    return Classified(
        actions=_in_order(view, closing, ill, bundles, recovered),
        living=living,
        staying=tuple(staying),
        exempt=tuple(exempt),
        outgoing=_outgoing(view, here, recovered),
        bundles=bundles,
        missing=missing,
        sure=_is_sure(view, missing),
        busy=tuple(busy),
        idle=tuple([worker for worker in free if worker.status not in _UNREADY] if starting else free),
        starting=tuple(starting),
    )


def _outgoing(view: FleetView, here: Sequence[Worker], recovered: Recovered) -> int:
    """How many may run beside those who stay. Exempt workers never count."""
    strays = sum(isinstance(action, EndStray) for action in recovered.actions)
    if len(here) == len(view.workers):
        return strays
    kept = {worker.worker_id for worker in here}
    return strays + sum(each.worker_id not in kept and not is_exempt(each) for each in may_run(view.sight))


def _parted(staying: Sequence[Worker], bundles: Bundles) -> tuple[Sequence[Worker], Sequence[Worker]]:
    """Who holds a job, and who does not."""
    if not bundles:
        return (), staying
    busy: list[Worker] = []
    free: list[Worker] = []
    for worker in staying:
        (busy if worker.worker_id in bundles else free).append(worker)
    return busy, free


def _left(view: FleetView, gone: set[WorkerId], recovered: Recovered) -> tuple[tuple[Worker, ...], Sequence[Worker]]:
    """Who lives and who stays: as recovery found, unless it closed rows that are spared, or others were closed since."""
    if not gone and not any(isinstance(action, Closing) for action in recovered.actions):
        return recovered.living, recovered.staying
    living = tuple([worker for worker in view.workers if worker.is_live and worker.worker_id not in gone])
    return living, [worker for worker in living if stays(worker)]


def is_exempt(worker: Worker) -> bool:
    """A worker that is watched and swept like any other, and counts for nothing."""
    return bool(worker.meta.get(CAPACITY_EXEMPT))


def bundle(held: Sequence[HeldJob]) -> dict[WorkerId, tuple[HeldJob, ...]]:
    bundles: dict[WorkerId, tuple[HeldJob, ...]] = {each.worker_id: (each,) for each in held}
    if len(bundles) == len(held):
        return bundles
    bundles.clear()
    for each in held:
        before = bundles.get(each.worker_id)
        bundles[each.worker_id] = (*before, each) if before else (each,)
    return bundles


def _spared(view: FleetView, bundles: Bundles, recovered: Recovered) -> list[Closing]:
    """What recovery closes, but for silent workers that hold nothing while nothing is queued: they get longer (C74)."""
    closing = [action for action in recovered.actions if isinstance(action, Closing)]
    if not has_queue(view) or view.queue is None or view.queue.ready or view.held_partial:
        return closing
    return [action for action in closing if not _may_be_quiet(view, bundles, action)]


def _may_be_quiet(view: FleetView, bundles: Bundles, action: Closing) -> bool:
    worker = action.worker
    if not isinstance(action, MarkLost) or is_starting(worker) or worker.worker_id in bundles:
        return False
    return silence(worker, view.now) <= view.policy.quiet_timeout and stays(worker)


def _vanished(view: FleetView, recovered: Recovered) -> list[Closing]:
    """Workers that are silent beyond suspicion and were absent from two lists in a row."""
    if view.instances_partial or view.state is None or not view.state.missing:
        return []
    stale = view.policy.limits(view.thresholds).stale_after
    seen = {each.worker_id for each in view.instances}
    return [
        MarkLost(
            worker=worker, reason=f"absent from two lists and silent for {silence(worker, view.now).total_seconds():.0f} s"
        )
        for worker in recovered.living
        if worker.worker_id in view.state.missing
        and worker.worker_id not in seen
        and worker.status is not WorkerStatus.SPAWNING
        and not is_elsewhere(view, worker)
        and min(silence(worker, view.now), view.now - view.looking_since) > stale
    ]


def _missing(recovered: Recovered, living: Sequence[Worker]) -> frozenset[WorkerId]:
    absent = {worker.worker_id for worker in recovered.absent}
    return frozenset(absent.intersection([worker.worker_id for worker in living])) if absent else frozenset()


def _is_sure(view: FleetView, missing: frozenset[WorkerId]) -> bool:
    """Whether this look may send workers away: everything was read, and no list has shrunk that was not seen so before."""
    if not has_queue(view):
        return True
    before = view.state.missing if view.state else {}
    whole = not (view.instances_partial or view.held_partial or view.queue is None or view.state is None)
    return whole and all(name in before for name in missing)


def _in_order(
    view: FleetView, closing: Sequence[Closing], ill: Illness, bundles: Bundles, recovered: Recovered
) -> tuple[Action, ...]:
    """Rows first, then their jobs, and only then their instances (C78)."""
    elsewhere = {worker.worker_id: worker for worker in recovered.ended if is_elsewhere(view, worker)}
    reaping = [action for action in recovered.actions if isinstance(action, Reap | EndStray)]
    return (
        *closing,
        *ill.failed,
        *_released(view, [*(action.worker for action in (*closing, *ill.failed)), *_ended(recovered)], bundles),
        *_expired(view),
        *(action for action in reaping if isinstance(action, EndStray) or action.worker_id not in elsewhere),
        *_unreachable(view, elsewhere.values()),
        *ill.warned,
        *_late(view, recovered),
    )


def is_elsewhere(view: FleetView, worker: Worker) -> bool:
    """Whether a worker's instance is another provider's: the one that is asked here knows nothing of it."""
    return bool(worker.provider and view.provider.name) and worker.provider != view.provider.name


def _unreachable(view: FleetView, ended: Iterable[Worker]) -> list[Warn]:
    """Nobody but the provider that has them can end them; until then they are taken to cost."""
    return [
        Warn(
            worker_id=worker.worker_id,
            rule="other_provider",
            reason=f"its instance is to be ended by {worker.provider}, not by {view.provider.name}, and may still run",
        )
        for worker in ended
        if worker.reaped_at is None
    ]


def _released(view: FleetView, over: Sequence[Worker], bundles: Bundles) -> list[ReleaseJobs]:
    return [
        ReleaseJobs(worker_id=worker.worker_id, reason=f"it holds {len(bundles.get(worker.worker_id, ()))} jobs and is over")
        for worker in over
        if worker.worker_id in bundles or (view.held_partial and worker.reaped_at is None)
    ]


def _expired(view: FleetView) -> list[ExpireJobs]:
    late = len([each for each in view.held if each.lease_until is not None and each.lease_until < view.now])
    return [ExpireJobs(reason=f"the leases of {late} jobs have run out")] if late else []


def _late(view: FleetView, recovered: Recovered) -> list[Warn]:
    """Ended workers whose instances could not be ended for long: they may still cost money."""
    grace: timedelta = view.policy.error_cleanup_grace
    return [
        Warn(
            worker_id=worker.worker_id,
            rule="terminate_failed",
            reason=f"it ended at {worker.ended_at:%H:%M:%S} and may still run",
        )
        for worker in _ended(recovered)
        if worker.reaped_at is None and worker.ended_at and view.now - worker.ended_at > grace
    ]


def _ended(recovered: Recovered) -> list[Worker]:
    return [worker for worker in recovered.ended if worker.ended_at is not None]


def unstarted(view: FleetView, crew: Classified) -> list[Worker]:
    """Rows whose instance was never started, or got no answer. Where names are not unique, two lists must say so."""
    if view.instances_partial:
        return []
    rows = [row for row in never_started(view.sight, crew.starting) if not is_elsewhere(view, row)]
    if view.provider.unique_names:
        return rows
    return [worker for worker in rows if view.state and worker.worker_id in view.state.missing and _was_due(view, worker)]


def _was_due(view: FleetView, worker: Worker) -> bool:
    """Whether the last beat's list, too, would have shown an instance that was asked for."""
    settle = view.provider.settle
    return not settle or (view.last is not None and view.last.at - asked_at(worker, view.now) >= settle)


def note(view: FleetView) -> list[NoteInstance]:
    """Instances whose rows do not know of them, as whoever made them died before: the next list may leave them out."""
    return [
        NoteInstance(worker_id=worker_id, ref=ref, reason=f"its provider calls it {ref}, its row does not say so")
        for worker_id, ref in view.unnoted.items()
    ]
