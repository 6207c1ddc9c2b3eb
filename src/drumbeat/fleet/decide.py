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
    staying = [worker for worker in living if _stays(worker)]
    recovery: list[Action] = [*closing, *reap(view), *end_strays(view)]
    leaving = drain(view, staying)
    asked = {action.worker_id for action in leaving}
    kept = [worker for worker in staying if worker.worker_id not in asked]
    actions = [*recovery, *respawn(view, kept), *spawn(view, staying), *leaving, *set_targets(view, kept)]
    return Decision(actions=actions, why_not=None if actions else _why_nothing(view, living, staying), summary=_summary(view))


def close(view: FleetView, live: Sequence[Worker]) -> list[Closing]:
    """Workers whose rows must be closed, each for the first reason that holds."""
    closing: dict[WorkerId, Closing] = {}
    for action in (*mark_failed(view, live), *mark_lost(view, live), *end_overdue(view, live)):
        closing.setdefault(action.worker.worker_id, action)
    return list(closing.values())


def mark_failed(view: FleetView, live: Sequence[Worker]) -> list[Closing]:
    """Workers whose rows are live and whose instances are over, all of them if a provider started two under one name."""
    running = {seen.worker_id for seen in view.instances if seen.running}
    ended = {seen.worker_id: seen.exit_code for seen in view.instances if seen.worker_id not in running}
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
    """Instances that no row asks for: the row comes first, so nobody will ever miss them.

    An ended worker's instance is ended by ``reap``; if it is seen again after that (its provider was late), it is a stray.
    """
    asked_for = {worker.worker_id for worker in view.workers if worker.is_live or worker.reaped_at is None}
    running = dict.fromkeys(seen.worker_id for seen in view.instances if seen.running)
    return [
        EndStray(worker_id=worker_id, reason="it runs without a live row")
        for worker_id in running
        if worker_id not in asked_for
    ]


def respawn(view: FleetView, kept: Sequence[Worker]) -> list[Spawn]:
    """Rows whose instance was never started: a controller died between the two."""
    if _is_paused(view):
        return []
    seen = {each.worker_id for each in view.instances}
    return [
        Spawn(
            worker_id=worker.worker_id,
            slot=worker.slot,
            group_count=view.policy.workers,
            reason="asked for, but no instance is there",
            is_new=False,
        )
        for worker in kept
        if worker.status is WorkerStatus.SPAWNING and worker.worker_id not in seen
    ]


def spawn(view: FleetView, staying: Sequence[Worker]) -> list[Spawn]:
    """New workers for the slots that have none."""
    if _is_paused(view):
        return []
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


def drain(view: FleetView, staying: Sequence[Worker]) -> list[AskToDrain]:
    """Workers beyond what the policy asks for: those in the highest slots."""
    by_slot = sorted(staying, key=lambda worker: worker.slot)
    return [
        AskToDrain(
            worker_id=worker.worker_id,
            within=view.thresholds.drain_within,
            reason=f"{len(staying)} workers are here, {view.policy.workers} are wanted",
        )
        for worker in by_slot[view.policy.workers :]
    ]


def set_targets(view: FleetView, kept: Sequence[Worker]) -> list[SetTarget]:
    """Workers that have joined and whose target is not the policy's."""
    return [
        SetTarget(
            worker_id=worker.worker_id,
            target=view.policy.target,
            ramp=view.policy.ramp,
            reason=f"the policy asks for {view.policy.target}, it was told {worker.target}",
        )
        for worker in kept
        if worker.status is not WorkerStatus.SPAWNING and worker.target != view.policy.target
    ]


def _stays(worker: Worker) -> bool:
    """Whether nobody, itself included, has told this worker to leave."""
    return worker.drain_deadline is None and worker.status is not WorkerStatus.DRAINING


def _is_paused(view: FleetView) -> bool:
    return view.paused_until is not None and view.paused_until > view.now


def _next_number(view: FleetView) -> int:
    """One above every number a worker or an instance of this pool is named by."""
    names = {*(worker.worker_id for worker in view.workers), *(seen.worker_id for seen in view.instances)}
    numbers = [int(number) for name in names if (number := name.removeprefix("worker-")).isdecimal()]
    return max(numbers, default=-1) + 1


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "nobody knows how"
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def _why_nothing(view: FleetView, living: Sequence[Worker], staying: Sequence[Worker]) -> str:
    draining = f", {len(living) - len(staying)} are draining" if len(staying) < len(living) else ""
    here = f"{len(staying)} of {view.policy.workers} workers are here{draining}"
    return f"paused until {view.paused_until:%Y-%m-%d %H:%M:%S}: {here}" if _is_paused(view) else f"{here} and none is ill"


def _summary(view: FleetView) -> dict[str, int]:
    by_status = {status.value: 0 for status in WorkerStatus}
    for worker in view.workers:
        by_status[worker.status] += 1
    return {"wanted": view.policy.workers, **by_status}
