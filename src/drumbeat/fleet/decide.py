"""How many workers there should be, and which must go. Pure: no clock, no I/O, no log."""

from collections.abc import Sequence

from drumbeat.core.decision import Decision
from drumbeat.core.worker import Health, Worker, WorkerId, WorkerStatus, judge, silence
from drumbeat.fleet.model import (
    Action,
    AskToDrain,
    Closing,
    EndOverdue,
    EndStray,
    FleetView,
    MarkFailed,
    MarkLost,
    Reap,
    SetTarget,
    Spawn,
)


def decide(view: FleetView) -> Decision[Action]:
    """Recover first, then bring the number of workers to what the policy asks for."""
    closing = close(view, [worker for worker in view.workers if worker.is_live])
    closed = {action.worker.worker_id for action in closing}
    living = [worker for worker in view.workers if worker.is_live and worker.worker_id not in closed]
    recovery: list[Action] = [*closing, *reap(view), *end_strays(view)]
    scaling: list[Action] = [*respawn(view, living), *spawn(view, living), *drain(view, living)]
    actions = [*recovery, *scaling, *set_targets(view, living)]
    return Decision(actions=actions, why_not=None if actions else _why_nothing(view, living), summary=_summary(view))


def close(view: FleetView, live: Sequence[Worker]) -> list[Closing]:
    """Workers whose rows must be closed, each for the first reason that holds."""
    closing: dict[WorkerId, Closing] = {}
    for action in (*mark_failed(view, live), *mark_lost(view, live), *end_overdue(view, live)):
        closing.setdefault(action.worker.worker_id, action)
    return list(closing.values())


def mark_failed(view: FleetView, live: Sequence[Worker]) -> list[Closing]:
    """Workers whose rows are live and whose instances are over."""
    ended = {seen.worker_id: seen.exit_code for seen in view.instances if not seen.running}
    return [
        MarkFailed(
            worker=worker,
            exit_code=ended[worker.worker_id],
            reason=f"its instance is over: {_how_it_ended(ended[worker.worker_id])}",
        )
        for worker in live
        if worker.worker_id in ended
    ]


def mark_lost(view: FleetView, live: Sequence[Worker]) -> list[Closing]:
    """Workers silent for too long, by what was seen while we were looking."""
    return [
        MarkLost(worker=worker, reason=f"silent for {silence(worker, view.now).total_seconds():.0f} s")
        for worker in live
        if judge(worker, view.now, view.thresholds, view.looking_since) is Health.LOST
    ]


def end_overdue(view: FleetView, live: Sequence[Worker]) -> list[Closing]:
    """Workers whose time to drain is over."""
    return [
        EndOverdue(worker=worker, reason=f"did not drain by {worker.drain_deadline:%H:%M:%S}")
        for worker in live
        if worker.drain_deadline is not None and worker.drain_deadline < view.now
    ]


def reap(view: FleetView) -> list[Reap]:
    """Ended workers whose instances are not known to be gone."""
    return [
        Reap(worker_id=worker.worker_id, reason=f"it ended as {worker.status}")
        for worker in view.workers
        if not worker.is_live and worker.reaped_at is None
    ]


def end_strays(view: FleetView) -> list[EndStray]:
    """Instances that no row asks for: the row comes first, so nobody will ever miss them."""
    known = {worker.worker_id for worker in view.workers}
    return [
        EndStray(worker_id=seen.worker_id, reason="it runs without a row")
        for seen in view.instances
        if seen.running and seen.worker_id not in known
    ]


def respawn(view: FleetView, living: Sequence[Worker]) -> list[Spawn]:
    """Rows whose instance was never started: a controller died between the two."""
    seen = {each.worker_id for each in view.instances}
    return [
        Spawn(
            worker_id=worker.worker_id,
            slot=worker.slot,
            group_count=view.policy.workers,
            reason="asked for, but no instance is there",
            is_new=False,
        )
        for worker in living
        if worker.status is WorkerStatus.SPAWNING and worker.worker_id not in seen and worker.drain_deadline is None
    ]


def spawn(view: FleetView, living: Sequence[Worker]) -> list[Spawn]:
    """New workers for the slots that have none."""
    if view.paused_until is not None and view.paused_until > view.now:
        return []
    staying = [worker for worker in living if worker.drain_deadline is None and worker.status is not WorkerStatus.DRAINING]
    taken = {worker.slot for worker in staying}
    free = [slot for slot in range(view.policy.workers) if slot not in taken][: max(view.policy.workers - len(staying), 0)]
    first = _next_number(view)
    return [
        Spawn(
            worker_id=WorkerId(f"worker-{first + n}"),
            slot=slot,
            group_count=view.policy.workers,
            reason=f"{len(staying)} of {view.policy.workers} workers are here; slot {slot} is free",
        )
        for n, slot in enumerate(free)
    ]


def drain(view: FleetView, living: Sequence[Worker]) -> list[AskToDrain]:
    """Workers beyond what the policy asks for, highest slot first."""
    staying = sorted((worker for worker in living if worker.drain_deadline is None), key=lambda worker: worker.slot)
    return [
        AskToDrain(
            worker_id=worker.worker_id,
            within=view.thresholds.drain_within,
            reason=f"{len(staying)} workers are here, {view.policy.workers} are wanted",
        )
        for worker in staying[view.policy.workers :]
    ]


def set_targets(view: FleetView, living: Sequence[Worker]) -> list[SetTarget]:
    """Workers whose target is not the policy's."""
    leaving = {action.worker_id for action in drain(view, living)}
    return [
        SetTarget(
            worker_id=worker.worker_id,
            target=view.policy.target,
            ramp=view.policy.ramp,
            reason=f"the policy asks for {view.policy.target}, it was told {worker.target}",
        )
        for worker in living
        if worker.status in (WorkerStatus.STARTING, WorkerStatus.WAITING, WorkerStatus.ACTIVE)
        and worker.drain_deadline is None
        and worker.worker_id not in leaving
        and worker.target != view.policy.target
    ]


def _next_number(view: FleetView) -> int:
    """One above every number a worker of this pool was ever named by."""
    numbers = [int(worker.worker_id.removeprefix("worker-")) for worker in view.workers if _is_numbered(worker)]
    return max(numbers, default=-1) + 1


def _is_numbered(worker: Worker) -> bool:
    return worker.worker_id.removeprefix("worker-").isdecimal()


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "nobody knows how"
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def _why_nothing(view: FleetView, living: Sequence[Worker]) -> str:
    if view.paused_until is not None and view.paused_until > view.now:
        return f"paused until {view.paused_until:%Y-%m-%d %H:%M:%S}"
    return f"{len(living)} of {view.policy.workers} workers are here and none is ill"


def _summary(view: FleetView) -> dict[str, int]:
    by_status = {status.value: 0 for status in WorkerStatus}
    for worker in view.workers:
        by_status[worker.status] += 1
    return {"wanted": view.policy.workers, **by_status}
