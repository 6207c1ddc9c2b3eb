"""Which living workers are ill, rule by rule: start, stuck task, not claiming, GPU, failing one job after another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.recovery import stays
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.model import Fail, FleetPolicy, FleetView, HeldJob, PolicyName, Warn

Bundles = Mapping[WorkerId, tuple[HeldJob, ...]]

INSTALLING = frozenset({"deps_installing", "installing"})  #: what a worker says while it installs (seed 004's workers)
SEEDS_STUCK = timedelta(seconds=300)  #: what seed 004 gives every task
_STARTING = WorkerStatus.STARTING
_PATIENCE = 3  #: a job without a timeout of its own may take so many times the longest seen of its type


@dataclass(frozen=True, slots=True, kw_only=True)
class Illness:
    """What the health rules found."""

    failed: tuple[Fail, ...] = ()
    warned: tuple[Warn, ...] = ()


def find_ill(view: FleetView, living: Sequence[Worker], bundles: Bundles) -> Illness:
    """Each worker by the first rule that finds it ill. A fixed fleet has no jobs to judge by."""
    if view.policy.policy is PolicyName.FIXED:
        return Illness()
    longest = {each.type: each.longest for each in view.state.services} if view.state else {}
    claims = _work_is_left(view, living, bundles)
    suspects = living if claims or view.policy.needs_gpu else _suspects(view, living)
    found = [failing for worker in suspects if (failing := _first(view, worker, bundles, longest, claims=claims))]
    found += _failing(view, living, {each.worker.worker_id for each in found})
    return Illness(failed=tuple(found), warned=tuple(_gpu_warnings(view, living, {each.worker.worker_id for each in found})))


def _suspects(view: FleetView, living: Sequence[Worker]) -> list[Worker]:
    """Those whom a rule could find ill at all: who gets ready, and who holds something for long."""
    told = stuck_timeout(view.policy)
    usual = view.now - told if told is not None else None
    long = {each.worker_id for each in view.held if each.timeout is not None or (usual and each.claimed_at < usual)}
    if not long:
        return [worker for worker in living if worker.status is _STARTING]
    return [worker for worker in living if worker.status is _STARTING or worker.worker_id in long]


def _first(view: FleetView, worker: Worker, bundles: Bundles, longest: Mapping[str, timedelta], *, claims: bool) -> Fail | None:
    held = bundles.get(worker.worker_id)
    failing = _stuck(view, worker, held, longest) if held else None
    if failing is None and worker.status is WorkerStatus.STARTING:
        failing = _never_ready(view, worker)
    if failing is None and claims and not held:
        failing = _not_claiming(view, worker)
    return failing or (_without_gpu(view, worker) if view.policy.needs_gpu else None)


def _never_ready(view: FleetView, worker: Worker) -> Fail | None:
    """Its process is up, beats, and never gets ready: a launcher may outlive the worker it was to launch."""
    installing = worker.phase in INSTALLING
    limit = view.policy.installing_timeout if installing else view.policy.startup_grace
    age = _since(view.now, worker.started_at)
    if age <= limit:
        return None
    doing = "installing" if installing else "getting ready"
    return Fail(worker=worker, rule="startup", reason=f"{doing} for {age.total_seconds():.0f} s, longer than {_say(limit)}")


def stuck_timeout(policy: FleetPolicy) -> timedelta | None:
    """How long a job without a timeout may be held: as told, or by the seed's rule. None: while its lease is renewed (C75)."""
    by_seed = SEEDS_STUCK if policy.policy is PolicyName.QUEUE_RATIO else None
    return by_seed if policy.stuck_timeout is None else policy.stuck_timeout


def _stuck(view: FleetView, worker: Worker, held: Sequence[HeldJob], longest: Mapping[str, timedelta]) -> Fail | None:
    """A job held longer than it may be (C75). Whoever drains has its own deadline, unless a lease ran out (C84)."""
    leaves, usual = not stays(worker), stuck_timeout(view.policy)
    for each in held:
        age = view.now - each.claimed_at
        if (each.timeout is None and (usual is None or age <= usual)) or (leaves and not _lease_over(view, each)):
            continue
        limit = each.timeout or max(usual or timedelta(), longest.get(each.type, timedelta()) * _PATIENCE)
        if age > limit + _slack(each):
            return Fail(
                worker=worker,
                rule="stuck",
                reason=f"Stuck task {each.job_id}: held for {age.total_seconds():.0f} s, limit {_say(limit)}",
            )
    return None


def _lease_over(view: FleetView, held: HeldJob) -> bool:
    return held.lease_until is not None and held.lease_until < view.now


def _slack(held: HeldJob) -> timedelta:
    """A worker ends a job that has a timeout itself, and is given time to say so."""
    return timedelta() if held.timeout is None else max(held.timeout * 0.1, timedelta(seconds=30))


def _work_is_left(view: FleetView, living: Sequence[Worker], bundles: Bundles) -> bool:
    """Whether jobs could have been claimed for so long that a worker which takes none is ill.

    By every beat of that time: a pause, or a group that is full now and then, leaves nothing to claim. Where others work,
    there must be enough for everybody who does not.
    """
    queue, since = view.queue, view.state.claimable_since if view.state else None
    if queue is None or queue.oldest_ready is None or not queue.ready or since is None:
        return False
    if view.is_paused or view.held_partial:
        return False
    if view.now - max(queue.oldest_ready, since) <= view.policy.ready_not_claiming_timeout:
        return False
    return not bundles or queue.ready >= len([each for each in living if each.worker_id not in bundles and stays(each)])


def _not_claiming(view: FleetView, worker: Worker) -> Fail | None:
    """Ready, with work it could do queued for long, and it takes none."""
    if worker.status is not WorkerStatus.ACTIVE or not stays(worker):
        return None
    idle = view.now - _idle_since(view, worker)
    if view.queue is None or idle <= view.policy.ready_not_claiming_timeout or not _could_claim(view, worker):
        return None
    return Fail(worker=worker, rule="not_claiming", reason=f"ready and idle for {idle.total_seconds():.0f} s while jobs wait")


def _could_claim(view: FleetView, worker: Worker) -> bool:
    """Whether everything the pool's workers are for could be done by this one, so that none of it may be left."""
    offered = [needed for needed in view.queue.demand if view.plan.offers(needed)] if view.queue else []
    return bool(offered) and all(not needed or needed in worker.capabilities for needed in offered)


def _idle_since(view: FleetView, worker: Worker) -> datetime:
    """Since when a worker is known to hold nothing; now, if nothing is remembered."""
    known = view.state.idle_since.get(worker.worker_id) if view.state else None
    return known or view.now


def _failing(view: FleetView, living: Sequence[Worker], found: set[WorkerId]) -> list[Fail]:
    """Workers on which so many jobs in a row failed, lately."""
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
        Fail(worker=worker, rule="task_failures", reason=f"{count} jobs in a row failed on it")
        for worker, count in streaks
        if count >= most
    ]


def streak_of(before: Iterable[datetime], view: FleetView, worker_id: WorkerId) -> tuple[datetime, ...]:
    """When the jobs failed that failed in a row, with those that ended since the last beat."""
    streak = [at for at in before if view.now - at <= view.policy.task_failure_window]
    for each in view.finished:
        if each.worker_id == worker_id:
            streak = [] if each.ok else [*streak, each.at or view.now]
    return tuple(streak)


def _without_gpu(view: FleetView, worker: Worker) -> Fail | None:
    age = _since(view.now, worker.ready_at)
    if worker.ready_at is None or _gpu_memory(worker) or age <= view.policy.gpu_not_detected_timeout:
        return None
    return Fail(worker=worker, rule="gpu_not_detected", reason=f"no GPU seen {age.total_seconds():.0f} s after it was ready")


def _gpu_warnings(view: FleetView, living: Sequence[Worker], failed: set[WorkerId]) -> Iterable[Warn]:
    """GPUs that show no memory, and figures about them that are old. Nothing is done about either (seed 004, Health 3)."""
    for worker, gpu in [(each, each.gpu) for each in living if each.gpu is not None and each.tells_of_gpu]:
        if worker.worker_id in failed:
            continue
        age = _gpu_age(gpu, view.now)
        if age is not None and age > view.policy.gpu_stale_timeout:
            yield Warn(
                worker_id=worker.worker_id, rule="gpu_stale", reason=f"Stale VRAM data ({age.total_seconds():.0f} s old)"
            )
        elif not _gpu_memory(worker) and _since(view.now, worker.ready_at) > view.policy.gpu_not_detected_timeout:
            yield Warn(worker_id=worker.worker_id, rule="gpu_not_detected", reason="its GPU shows no memory")


def _gpu_memory(worker: Worker) -> float:
    """What its GPU has, by whichever name it is told."""
    told: Mapping[str, Any] = worker.gpu or {}
    figures = [told.get(name) for name in ("memory_total", "memory_total_mb", "vram_total_mb", "memory_percent")]
    return max((float(each) for each in figures if isinstance(each, int | float)), default=0.0)


def _gpu_age(gpu: Mapping[str, Any], now: datetime) -> timedelta | None:
    told = gpu.get("at") or gpu.get("vram_timestamp")
    if not isinstance(told, str):
        return None
    try:
        at = datetime.fromisoformat(told)
    except ValueError:
        return None
    return now - at if at.tzinfo else None


def _since(now: datetime, moment: datetime | None) -> timedelta:
    return now - moment if moment is not None else timedelta()


def _say(limit: timedelta) -> str:
    return f"{limit.total_seconds():g} s"
