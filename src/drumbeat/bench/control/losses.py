"""What a lost worker means for its run: fail, go on without it, or replace it. Pure."""

from drumbeat.bench.model import OnWorkerLost, RunEnding, RunView
from drumbeat.core.recovery import MarkFailed, MarkLost, Recovered
from drumbeat.core.run import RunStatus
from drumbeat.core.worker import ExitCode, Worker, WorkerStatus


def lost(view: RunView, recovered: Recovered) -> list[Worker]:
    """Workers that ended and were not asked to, those that are closed just now among them."""
    closing = {action.worker.worker_id for action in recovered.actions if isinstance(action, MarkLost | MarkFailed)}
    return [
        worker
        for worker in view.workers
        if worker.drain_deadline is None and (not worker.is_live or worker.worker_id in closing)
    ]


def while_starting(view: RunView, recovered: Recovered) -> RunEnding | None:
    """A worker that says its run cannot be done is right; another of its kind would say the same."""
    gone = lost(view, recovered)
    hopeless = [worker for worker in gone if worker.exit_code == ExitCode.CONFIGURATION]
    if hopeless:
        reason = f"{hopeless[0].worker_id} cannot work: {hopeless[0].error}"
        return RunEnding(status=RunStatus.FAILED, completion_reason="ERROR", reason=reason)
    return _judged(view, gone)


def while_running(view: RunView, recovered: Recovered) -> RunEnding | None:
    """Why the run must end, if it must."""
    return _judged(view, lost(view, recovered))


def workers_wanted(view: RunView, recovered: Recovered, wanted: int) -> int:
    """How many workers there shall be: the tolerated losses are not made good."""
    if view.plan.on_worker_lost.action is not OnWorkerLost.TOLERATE:
        return wanted
    return max(wanted - len(lost(view, recovered)), 1)


def _judged(view: RunView, gone: list[Worker]) -> RunEnding | None:
    policy = view.plan.on_worker_lost
    allowed = policy.tolerated if policy.action is OnWorkerLost.TOLERATE else _most_replacements(view)
    if policy.action is OnWorkerLost.FAIL:
        allowed = 0
    if len(gone) <= allowed:
        return None
    names = ", ".join(f"{worker.worker_id} ({_how(worker)})" for worker in gone)
    rule = {OnWorkerLost.FAIL: "none may be", OnWorkerLost.TOLERATE: f"{allowed} may be"}.get(
        policy.action, f"{allowed} were replaced"
    )
    return RunEnding(status=RunStatus.FAILED, completion_reason="WORKER_LOST", reason=f"lost {names}; {rule}")


def _most_replacements(view: RunView) -> int:
    """A run that loses worker after worker is ill; so many replacements, and it fails."""
    return max(3, 2 * max(view.state.workers, view.plan.scaling.min_workers))


def _how(worker: Worker) -> str:
    if worker.status in (WorkerStatus.ERROR, WorkerStatus.TERMINATED) and worker.error:
        return worker.error
    return str(worker.status)
