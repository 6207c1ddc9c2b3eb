"""Health rules for live workers: never ready, stuck on a job, not claiming, no GPU, failing one job after another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.recovery import stays
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.model import Fail, FleetPolicy, FleetView, HeldJob, PolicyName, Warn

JobsByWorker = Mapping[WorkerId, tuple[HeldJob, ...]]

INSTALLING = frozenset({"deps_installing", "installing"})  #: phases in which a worker installs its dependencies
LEGACY_STUCK_TIMEOUT = timedelta(seconds=300)  #: the earlier RunPod orchestrator's timeout for every task
_STARTING = WorkerStatus.STARTING
_STUCK_FACTOR = 3  #: a job without a timeout is stuck after this many times the duration of the longest job of its type


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFindings:
    """Result of the health checks: workers that have failed, and warnings."""

    failed: tuple[Fail, ...] = ()
    warned: tuple[Warn, ...] = ()


def check_health(view: FleetView, living: Sequence[Worker], jobs_by_worker: JobsByWorker) -> HealthFindings:
    """Apply the health rules to each worker until a rule finds a fault. Skip fleets without a job queue (policy ``fixed``)."""
    if view.policy.policy is PolicyName.FIXED:
        return HealthFindings()
    longest = {each.type: each.longest for each in view.state.services} if view.state else {}
    claims = _work_is_left(view, living, jobs_by_worker)
    suspects = living if claims or view.policy.needs_gpu else _suspects(view, living)
    found = [failing for worker in suspects if (failing := _find_illness(view, worker, jobs_by_worker, longest, claims=claims))]
    found += _failing(view, living, {each.worker.worker_id for each in found})
    return HealthFindings(
        failed=tuple(found), warned=tuple(_gpu_warnings(view, living, {each.worker.worker_id for each in found}))
    )


def _suspects(view: FleetView, living: Sequence[Worker]) -> list[Worker]:
    """Return the workers to check: starting ones, and workers that hold a job with a timeout or a job claimed long ago."""
    limit = stuck_timeout(view.policy)
    since = view.now - limit if limit is not None else None
    long = {each.worker_id for each in view.held if each.timeout is not None or (since and each.claimed_at < since)}
    if not long:
        return [worker for worker in living if worker.status is _STARTING]
    return [worker for worker in living if worker.status is _STARTING or worker.worker_id in long]


def _find_illness(
    view: FleetView, worker: Worker, jobs_by_worker: JobsByWorker, longest: Mapping[str, timedelta], *, claims: bool
) -> Fail | None:
    held = jobs_by_worker.get(worker.worker_id)
    failing = _stuck(view, worker, held, longest) if held else None
    if failing is None and worker.status is WorkerStatus.STARTING:
        failing = _never_ready(view, worker)
    if failing is None and claims and not held:
        failing = _not_claiming(view, worker)
    return failing or (_without_gpu(view, worker) if view.policy.needs_gpu else None)


def _never_ready(view: FleetView, worker: Worker) -> Fail | None:
    """Fail a worker that sends heartbeats but is not ready in time: its launcher might send them after the worker died."""
    installing = worker.phase in INSTALLING
    limit = view.policy.installing_timeout if installing else view.policy.startup_grace
    age = _time_since(view.now, worker.started_at)
    if age <= limit:
        return None
    doing = "installing" if installing else "getting ready"
    return Fail(worker=worker, rule="startup", reason=f"{doing} for {age.total_seconds():.0f} s, limit {_seconds(limit)}")


def stuck_timeout(policy: FleetPolicy) -> timedelta | None:
    """Return how long a worker can hold a job that has no timeout; None: no limit. ``queue_ratio`` has a default of 300 s."""
    legacy = LEGACY_STUCK_TIMEOUT if policy.policy is PolicyName.QUEUE_RATIO else None
    return legacy if policy.stuck_timeout is None else policy.stuck_timeout


def _stuck(view: FleetView, worker: Worker, held: Sequence[HeldJob], longest: Mapping[str, timedelta]) -> Fail | None:
    """Fail a worker that holds a job for too long. A draining worker fails only if the job's lease has expired too."""
    leaves, usual = not stays(worker), stuck_timeout(view.policy)
    for each in held:
        age = view.now - each.claimed_at
        if (each.timeout is None and (usual is None or age <= usual)) or (leaves and not _lease_over(view, each)):
            continue
        limit = each.timeout or max(usual or timedelta(), longest.get(each.type, timedelta()) * _STUCK_FACTOR)
        if age > limit + _slack(each):
            return Fail(
                worker=worker,
                rule="stuck",
                reason=f"Stuck task {each.job_id}: held for {age.total_seconds():.0f} s, limit {_seconds(limit)}",
            )
    return None


def _lease_over(view: FleetView, held: HeldJob) -> bool:
    return held.lease_until is not None and held.lease_until < view.now


def _slack(held: HeldJob) -> timedelta:
    """Return how long after its timeout a job counts as stuck: its worker needs time to end and report it. 0 if no timeout."""
    return timedelta() if held.timeout is None else max(held.timeout * 0.1, timedelta(seconds=30))


def _work_is_left(view: FleetView, living: Sequence[Worker], jobs_by_worker: JobsByWorker) -> bool:
    """Whether jobs have been claimable for so long that a ready worker without a job must be faulty.

    True only if every beat in that time found claimable jobs. (While the pool is paused or a job group is at its limit,
    jobs are not claimable.) If some workers hold jobs, there must also be a ready job for each worker that holds none.
    """
    queue, since = view.queue, view.state.claimable_since if view.state else None
    if queue is None or queue.oldest_ready is None or not queue.ready or since is None:
        return False
    if view.is_paused or view.held_partial:
        return False
    if view.now - max(queue.oldest_ready, since) <= view.policy.ready_not_claiming_timeout:
        return False
    return not jobs_by_worker or queue.ready >= len(
        [each for each in living if each.worker_id not in jobs_by_worker and stays(each)]
    )


def _not_claiming(view: FleetView, worker: Worker) -> Fail | None:
    """Fail a worker that is ready but idle, although jobs it could claim have been waiting for long."""
    if worker.status is not WorkerStatus.ACTIVE or not stays(worker):
        return None
    idle = view.now - _idle_since(view, worker)
    if view.queue is None or idle <= view.policy.ready_not_claiming_timeout or not _could_claim(view, worker):
        return None
    return Fail(worker=worker, rule="not_claiming", reason=f"ready and idle for {idle.total_seconds():.0f} s while jobs wait")


def _could_claim(view: FleetView, worker: Worker) -> bool:
    """Whether a worker can claim every waiting job, except jobs that need a capability that no worker of this pool has."""
    offered = [needed for needed in view.queue.demand if view.plan.offers(needed)] if view.queue else []
    return bool(offered) and all(not needed or needed in worker.capabilities for needed in offered)


def _idle_since(view: FleetView, worker: Worker) -> datetime:
    """Return the time since which a worker has held no job; the current time if the last beat did not record it."""
    known = view.state.idle_since.get(worker.worker_id) if view.state else None
    return known or view.now


def _failing(view: FleetView, living: Sequence[Worker], found: set[WorkerId]) -> list[Fail]:
    """Fail workers on which ``max_task_failures`` jobs in a row failed within ``task_failure_window``."""
    most, known = view.policy.max_task_failures, view.state.streaks if view.state else {}
    suspects = {each.worker_id for each in view.finished if not each.ok} | known.keys()
    if not most or not suspects:
        return []
    streaks = [
        (worker, len(streak_of(known.get(worker.worker_id, ()), view, worker.worker_id)))
        for worker in living
        if worker.worker_id in suspects and worker.worker_id not in found and stays(worker)
    ]
    return [
        Fail(worker=worker, rule="task_failures", reason=f"{count} jobs in a row failed on this worker")
        for worker, count in streaks
        if count >= most
    ]


def streak_of(before: Iterable[datetime], view: FleetView, worker_id: WorkerId) -> tuple[datetime, ...]:
    """Return the times of a worker's latest failures in a row: the earlier times in ``before``, updated with the
    jobs that ended since the last beat."""
    streak = [at for at in before if view.now - at <= view.policy.task_failure_window]
    for each in view.finished:
        if each.worker_id == worker_id:
            streak = [] if each.ok else [*streak, each.at or view.now]
    return tuple(streak)


def _without_gpu(view: FleetView, worker: Worker) -> Fail | None:
    age = _time_since(view.now, worker.ready_at)
    if worker.ready_at is None or _gpu_memory(worker) or age <= view.policy.gpu_not_detected_timeout:
        return None
    reason = f"no GPU detected {age.total_seconds():.0f} s after the worker was ready"
    return Fail(worker=worker, rule="gpu_not_detected", reason=reason)


def _gpu_warnings(view: FleetView, living: Sequence[Worker], failed: set[WorkerId]) -> Iterable[Warn]:
    """Warn about GPUs that report no memory and about outdated GPU figures. Neither causes an action."""
    for worker, gpu in [(each, each.gpu) for each in living if each.gpu is not None and each.has_gpu_data]:
        if worker.worker_id in failed:
            continue
        age = _gpu_age(gpu, view.now)
        if age is not None and age > view.policy.gpu_stale_timeout:
            yield Warn(
                worker_id=worker.worker_id, rule="gpu_stale", reason=f"Stale VRAM data ({age.total_seconds():.0f} s old)"
            )
        elif not _gpu_memory(worker) and _time_since(view.now, worker.ready_at) > view.policy.gpu_not_detected_timeout:
            yield Warn(worker_id=worker.worker_id, rule="gpu_not_detected", reason="the worker's GPU reports no memory")


def _gpu_memory(worker: Worker) -> float:
    """Return the GPU memory that a worker reports under any of the known names; 0 if none."""
    reported: Mapping[str, Any] = worker.gpu or {}
    figures = [reported.get(name) for name in ("memory_total", "memory_total_mb", "vram_total_mb", "memory_percent")]
    return max((float(each) for each in figures if isinstance(each, int | float)), default=0.0)


def _gpu_age(gpu: Mapping[str, Any], now: datetime) -> timedelta | None:
    timestamp = gpu.get("at") or gpu.get("vram_timestamp")
    if not isinstance(timestamp, str):
        return None
    try:
        at = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return now - at if at.tzinfo else None


def _time_since(now: datetime, moment: datetime | None) -> timedelta:
    return now - moment if moment is not None else timedelta()


def _seconds(limit: timedelta) -> str:
    return f"{limit.total_seconds():g} s"
