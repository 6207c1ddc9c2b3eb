"""How many workers there should be, and which must go. Pure: no clock, no I/O, no log."""

from collections.abc import Sequence

from drumbeat.core.decision import Decision
from drumbeat.core.recovery import never_started, next_number, recover
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.model import Action, AskToDrain, FleetView, SetTarget, Spawn


def decide(view: FleetView) -> Decision[Action]:
    """Recover first, then bring the number of workers to what the policy asks for."""
    recovered = recover(view.sight)
    staying = recovered.staying
    leaving = drain(view, staying)
    asked = {action.worker_id for action in leaving}
    kept = [worker for worker in staying if worker.worker_id not in asked]
    actions = [*recovered.actions, *respawn(view, kept), *spawn(view, staying), *leaving, *set_targets(view, kept)]
    why_not = None if actions else _why_nothing(view, recovered.living, staying)
    return Decision(actions=actions, why_not=why_not, summary=_summary(view))


def respawn(view: FleetView, kept: Sequence[Worker]) -> list[Spawn]:
    """Rows whose instance was never started: a controller died between the two."""
    if _is_paused(view):
        return []
    return [
        Spawn(
            worker_id=worker.worker_id,
            slot=worker.slot,
            group_count=view.policy.workers,
            reason="asked for, but no instance is there",
            is_new=False,
        )
        for worker in never_started(view.sight, kept)
    ]


def spawn(view: FleetView, staying: Sequence[Worker]) -> list[Spawn]:
    """New workers for the slots that have none."""
    if _is_paused(view):
        return []
    taken = {worker.slot for worker in staying}
    free = [slot for slot in range(view.policy.workers) if slot not in taken][: max(view.policy.workers - len(staying), 0)]
    first = next_number(view.sight)
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


def _is_paused(view: FleetView) -> bool:
    return view.paused_until is not None and view.paused_until > view.now


def _why_nothing(view: FleetView, living: Sequence[Worker], staying: Sequence[Worker]) -> str:
    draining = f", {len(living) - len(staying)} are draining" if len(staying) < len(living) else ""
    here = f"{len(staying)} of {view.policy.workers} workers are here{draining}"
    return f"paused until {view.paused_until:%Y-%m-%d %H:%M:%S}: {here}" if _is_paused(view) else f"{here} and none is ill"


def _summary(view: FleetView) -> dict[str, int]:
    by_status = {status.value: 0 for status in WorkerStatus}
    for worker in view.workers:
        by_status[worker.status] += 1
    return {"wanted": view.policy.workers, **by_status}
