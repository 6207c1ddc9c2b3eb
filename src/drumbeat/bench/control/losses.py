"""Handles lost workers by the run's policy: fail the run, tolerate the loss, or replace the worker. Pure."""

from drumbeat.bench.control.waiting import refused_for_good, refused_too_long
from drumbeat.bench.model import OnWorkerLost, RunEnding, RunView
from drumbeat.core.recovery import MarkFailed, MarkLost, Recovered
from drumbeat.core.run import RunStatus
from drumbeat.core.worker import ExitCode, Worker, WorkerStatus


def lost(view: RunView, recovered: Recovered) -> list[Worker]:
    """Return workers that ended without being asked to stop, including those that this beat marks as lost or failed. A worker
    that an engine on other machines refused to start does not count as lost."""
    closing = {action.worker.worker_id for action in recovered.actions if isinstance(action, MarkLost | MarkFailed)}
    return [
        worker
        for worker in view.workers
        if worker.drain_deadline is None
        and (not worker.is_live or worker.worker_id in closing)
        and not refused_for_good(worker)
    ]


def while_starting(view: RunView, recovered: Recovered) -> RunEnding | None:
    """Return how a starting run must end because of lost or refused workers, or None. A configuration error always ends it."""
    gone = lost(view, recovered)
    misconfigured = [worker for worker in gone if worker.exit_code == ExitCode.CONFIGURATION]
    if misconfigured:
        reason = f"{misconfigured[0].worker_id} cannot run with this configuration: {misconfigured[0].error}"
        return RunEnding(status=RunStatus.FAILED, completion_reason="ERROR", reason=reason)
    return _refused(view) or _judged(view, gone)


def while_running(view: RunView, recovered: Recovered) -> RunEnding | None:
    """Return how a running run must end because of lost or refused workers; None if the run can go on."""
    return _refused(view) or refused_too_long(view, recovered) or _judged(view, lost(view, recovered))


def _refused(view: RunView) -> RunEnding | None:
    """Return how to end the run if its engine refused to start a worker and would refuse again, else None."""
    refused = [worker for worker in view.workers if refused_for_good(worker)]
    if not refused:
        return None
    reason = f"{refused[0].worker_id} could not be started at {refused[0].provider}: {refused[0].error}"
    return RunEnding(status=RunStatus.FAILED, completion_reason="ERROR", reason=reason)


def workers_wanted(view: RunView, recovered: Recovered, wanted: int) -> int:
    """Return how many workers the run should have. Under the policy TOLERATE lost workers are not replaced."""
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
    rule = {OnWorkerLost.FAIL: "the run tolerates no loss", OnWorkerLost.TOLERATE: f"the run tolerates at most {allowed}"}.get(
        policy.action, f"at most {allowed} are replaced"
    )
    return RunEnding(status=RunStatus.FAILED, completion_reason="WORKER_LOST", reason=f"lost {names}; {rule}")


def _most_replacements(view: RunView) -> int:
    """Return how many lost workers are replaced at most. A run that loses more fails: new workers would likely be lost too."""
    return max(3, 2 * max(view.state.workers, view.plan.scaling.min_workers))


def _how(worker: Worker) -> str:
    if worker.not_started is not None:
        return f"not started: {worker.not_started}"
    if worker.status in (WorkerStatus.ERROR, WorkerStatus.TERMINATED) and worker.error:
        return worker.error
    return str(worker.status)
