"""Sort a pool's workers by state (busy, idle, starting, lost, failed) and recover from lost and failed ones before scaling."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from drumbeat.core.engine import covers
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
from drumbeat.fleet.decide.health import HealthFindings, JobsByWorker, check_health
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

_UNREADY = frozenset({WorkerStatus.SPAWNING, WorkerStatus.STARTING, WorkerStatus.WAITING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """The workers of a pool by state, and the actions to recover from failed ones."""

    actions: tuple[Action, ...]  #: recovery actions, in the order in which they are carried out
    living: tuple[Worker, ...]
    staying: tuple[Worker, ...]  #: live workers that were not asked to drain, without those exempt from capacity
    exempt: tuple[Worker, ...]
    outgoing: int  #: instances that may still run besides those of ``staying``: draining, ended, or without a row
    jobs_by_worker: JobsByWorker  #: the jobs each worker holds
    missing: frozenset[WorkerId]  #: live workers whose instance the provider does not list
    may_drain: bool  #: False: no worker is drained, because the queue or the instances are not fully known
    busy: tuple[Worker, ...]  #: staying workers that hold a job
    idle: tuple[Worker, ...]  #: staying workers that could take a job now
    starting: tuple[Worker, ...]


def has_queue(view: FleetView) -> bool:
    return view.policy.policy is not PolicyName.FIXED


def classify(view: FleetView) -> Classified:
    """Sort workers by state; for lost and failed ones, plan to close rows, release jobs and terminate instances."""
    jobs_by_worker = group_by_worker(view.held)
    recovered = recover(view.snapshot)
    closing = [*_closings(view, jobs_by_worker, recovered), *_vanished(view, recovered)]
    closed = {action.worker.worker_id for action in closing}
    unclosed = [worker for worker in recovered.living if worker.worker_id not in closed] if closed else recovered.living
    ill = check_health(view, unclosed, jobs_by_worker)
    gone = closed | {action.worker.worker_id for action in ill.failed}
    living, here = _still_here(view, gone, recovered)
    exempt = [worker for worker in here if worker.meta and is_exempt(worker)]
    staying = here if not exempt else [worker for worker in here if not is_exempt(worker)]
    busy, free = _split_busy(staying, jobs_by_worker)
    starting = [worker for worker in free if worker.status in _UNREADY]
    missing = _missing(recovered, living)
    return Classified(
        actions=_in_order(view, closing, ill, jobs_by_worker, recovered),
        living=living,
        staying=tuple(staying),
        exempt=tuple(exempt),
        outgoing=_outgoing(view, here, recovered),
        jobs_by_worker=jobs_by_worker,
        missing=missing,
        may_drain=_may_drain(view, missing),
        busy=tuple(busy),
        idle=tuple([worker for worker in free if worker.status not in _UNREADY] if starting else free),
        starting=tuple(starting),
    )


def _outgoing(view: FleetView, here: Sequence[Worker], recovered: Recovered) -> int:
    """Count the instances that might still run although their worker is leaving, has ended or has no row. Workers that are
    exempt from capacity (see ``is_exempt``) are not counted."""
    strays = sum(isinstance(action, EndStray) for action in recovered.actions)
    if len(here) == len(view.workers):
        return strays
    staying = {worker.worker_id for worker in here}
    return strays + sum(each.worker_id not in staying and not is_exempt(each) for each in may_run(view.snapshot))


def _split_busy(staying: Sequence[Worker], jobs_by_worker: JobsByWorker) -> tuple[Sequence[Worker], Sequence[Worker]]:
    """Split workers into those that hold a job and those that hold none."""
    if not jobs_by_worker:
        return (), staying
    busy: list[Worker] = []
    free: list[Worker] = []
    for worker in staying:
        (busy if worker.worker_id in jobs_by_worker else free).append(worker)
    return busy, free


def _still_here(view: FleetView, gone: set[WorkerId], recovered: Recovered) -> tuple[tuple[Worker, ...], Sequence[Worker]]:
    """Return the live workers, and the live workers not asked to drain. Both leave out workers whose rows this beat closes."""
    if not gone and not any(isinstance(action, Closing) for action in recovered.actions):
        return recovered.living, recovered.staying
    living = tuple([worker for worker in view.workers if worker.is_live and worker.worker_id not in gone])
    return living, [worker for worker in living if stays(worker)]


def is_exempt(worker: Worker) -> bool:
    """Whether a user exempted the worker from capacity: it is watched, but does not count as one of the wanted workers."""
    return bool(worker.meta.get(CAPACITY_EXEMPT))


def group_by_worker(held: Sequence[HeldJob]) -> dict[WorkerId, tuple[HeldJob, ...]]:
    jobs_by_worker: dict[WorkerId, tuple[HeldJob, ...]] = {each.worker_id: (each,) for each in held}
    if len(jobs_by_worker) == len(held):
        return jobs_by_worker
    jobs_by_worker.clear()
    for each in held:
        before = jobs_by_worker.get(each.worker_id)
        jobs_by_worker[each.worker_id] = (*before, each) if before else (each,)
    return jobs_by_worker


def _closings(view: FleetView, jobs_by_worker: JobsByWorker, recovered: Recovered) -> list[Closing]:
    """Return actions that close dead workers' rows. While no job is ready, idle workers may be silent for ``quiet_timeout``."""
    closing = [action for action in recovered.actions if isinstance(action, Closing)]
    if not has_queue(view) or view.queue is None or view.queue.ready or view.held_partial:
        return closing
    return [action for action in closing if not _may_be_quiet(view, jobs_by_worker, action)]


def _may_be_quiet(view: FleetView, jobs_by_worker: JobsByWorker, action: Closing) -> bool:
    worker = action.worker
    if not isinstance(action, MarkLost) or worker.status in _UNREADY or worker.worker_id in jobs_by_worker:
        return False
    return silence(worker, view.now) <= view.policy.quiet_timeout and stays(worker)


def _vanished(view: FleetView, recovered: Recovered) -> list[Closing]:
    """Mark as lost each worker that is silent for longer than ``stale_after`` and missing from two provider lists in a row."""
    if view.instances_partial or view.state is None or not view.state.missing:
        return []
    stale = view.policy.limits(view.thresholds).stale_after
    listed = {each.worker_id for each in view.instances}
    return [
        MarkLost(
            worker=worker,
            reason=f"not in the provider's last two lists and silent for {silence(worker, view.now).total_seconds():.0f} s",
        )
        for worker in recovered.living
        if worker.worker_id in view.state.missing
        and worker.worker_id not in listed
        and worker.status is not WorkerStatus.SPAWNING
        and not is_at_other_provider(view, worker)
        and min(silence(worker, view.now), view.now - view.looking_since) > stale
    ]


def _missing(recovered: Recovered, living: Sequence[Worker]) -> frozenset[WorkerId]:
    absent = {worker.worker_id for worker in recovered.absent}
    return frozenset(absent.intersection([worker.worker_id for worker in living])) if absent else frozenset()


def _may_drain(view: FleetView, missing: frozenset[WorkerId]) -> bool:
    """Whether it is safe to drain workers: queue, jobs and instances were read completely, and no worker is missing from the
    provider's list for the first time."""
    if not has_queue(view):
        return True
    before = view.state.missing if view.state else {}
    complete = not (view.instances_partial or view.held_partial or view.queue is None or view.state is None)
    return complete and all(name in before for name in missing)


def _in_order(
    view: FleetView, closing: Sequence[Closing], ill: HealthFindings, jobs_by_worker: JobsByWorker, recovered: Recovered
) -> tuple[Action, ...]:
    """Order the recovery actions: first close workers' rows, then release the workers' jobs, then terminate their instances."""
    elsewhere = {worker.worker_id: worker for worker in recovered.ended if is_at_other_provider(view, worker)}
    reaping = [action for action in recovered.actions if isinstance(action, Reap | EndStray)]
    return (
        *closing,
        *ill.failed,
        *_released(view, [*(action.worker for action in (*closing, *ill.failed)), *_ended(recovered)], jobs_by_worker),
        *_expired(view),
        *(action for action in reaping if isinstance(action, EndStray) or action.worker_id not in elsewhere),
        *_of_other_providers(view, elsewhere.values()),
        *ill.warned,
        *_not_terminated(view, recovered),
    )


def is_at_other_provider(view: FleetView, worker: Worker) -> bool:
    """Whether a worker's instance belongs to another provider, so this provider cannot list or terminate it."""
    return not covers(view.provider.name, worker.provider)


def _of_other_providers(view: FleetView, ended: Iterable[Worker]) -> list[Warn]:
    """Warn about ended workers whose instance is at another provider: it might run on, and this fleet cannot terminate it."""
    return [
        Warn(
            worker_id=worker.worker_id,
            rule="other_provider",
            reason=f"its instance at {worker.provider} may still run; this fleet uses {view.provider.name} and cannot end it",
        )
        for worker in ended
        if worker.reaped_at is None
    ]


def _released(view: FleetView, over: Sequence[Worker], jobs_by_worker: JobsByWorker) -> list[ReleaseJobs]:
    return [
        ReleaseJobs(
            worker_id=worker.worker_id,
            reason=f"the worker has ended and holds {len(jobs_by_worker.get(worker.worker_id, ()))} jobs",
        )
        for worker in over
        if worker.worker_id in jobs_by_worker or (view.held_partial and worker.reaped_at is None)
    ]


def _expired(view: FleetView) -> list[ExpireJobs]:
    late = len([each for each in view.held if each.lease_until is not None and each.lease_until < view.now])
    return [ExpireJobs(reason=f"the leases of {late} jobs have expired")] if late else []


def _not_terminated(view: FleetView, recovered: Recovered) -> list[Warn]:
    """Warn about workers that ended more than ``error_cleanup_grace`` ago and whose instance might still run."""
    grace: timedelta = view.policy.error_cleanup_grace
    return [
        Warn(
            worker_id=worker.worker_id,
            rule="terminate_failed",
            reason=f"the worker ended at {worker.ended_at:%H:%M:%S}, but its instance may still run and cost money",
        )
        for worker in _ended(recovered)
        if worker.reaped_at is None and worker.ended_at and view.now - worker.ended_at > grace
    ]


def _ended(recovered: Recovered) -> list[Worker]:
    return [worker for worker in recovered.ended if worker.ended_at is not None]


def unstarted(view: FleetView, classified: Classified) -> list[Worker]:
    """Return the workers without an instance: it was never requested, or the provider did not answer the request.

    If the provider allows two instances of one name, a worker is returned only if the provider's last two lists lack its
    instance. If the provider's list is incomplete, no worker is returned.
    """
    if view.instances_partial:
        return []
    rows = [row for row in never_started(view.snapshot, classified.starting) if not is_at_other_provider(view, row)]
    if view.provider.unique_names:
        return rows
    return [worker for worker in rows if view.state and worker.worker_id in view.state.missing and _was_due(view, worker)]


def _was_due(view: FleetView, worker: Worker) -> bool:
    """Whether this worker's instance was requested long enough before the last beat to be in the provider's list by then."""
    settle = view.provider.settle
    return not settle or (view.last is not None and view.last.at - asked_at(worker, view.now) >= settle)


def note_instances(view: FleetView) -> list[NoteInstance]:
    """Return actions that write an instance's id into its worker's row, where it is missing because a controller died."""
    return [
        NoteInstance(worker_id=worker_id, ref=ref, reason=f"the worker's row lacks its instance, {ref}")
        for worker_id, ref in view.unnoted.items()
    ]
