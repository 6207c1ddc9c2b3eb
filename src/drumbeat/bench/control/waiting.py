"""Says which workers a run waits for if its engine does not start them, and ends the run if that takes too long. Pure."""

from collections.abc import Sequence
from datetime import timedelta

from drumbeat.bench.model import Action, ControllerState, NoteFact, RunEnding, RunView
from drumbeat.core.engine import DEFAULT_ENGINE, silent_engine
from drumbeat.core.event import EventType, NewEvent
from drumbeat.core.recovery import Recovered
from drumbeat.core.refusal import refusal_of
from drumbeat.core.run import RunStatus
from drumbeat.core.worker import SPAWN_FAILED, Worker, WorkerStatus

READY = frozenset({WorkerStatus.WAITING, WorkerStatus.ACTIVE})
_START_LIMIT = timedelta(seconds=60)
_USUAL_STARTS = 3  #: an engine may take this many times as long as usual, if that is longer than the start limit
_PER_CONNECTION = timedelta(milliseconds=20)  #: added to the start limit for each connection that workers must open


def waiting_for(view: RunView, recovered: Recovered, wanted: int) -> str | None:
    """Return which workers the run waits for, and why its engine does not start them; None if there is no such problem."""
    missing = wanted - sum(worker.status in READY for worker in recovered.staying)
    if missing <= 0 or (reason := _reason(view, recovered.staying)) is None:
        return None
    return f"waiting for {missing} {'worker' if missing == 1 else 'workers'}: {reason}"


def _reason(view: RunView, staying: Sequence[Worker]) -> str | None:
    if view.unlisted is not None:
        return silent_engine(view.engine, view.unlisted)
    return next((worker.not_started for worker in staying if worker.not_started), None)


def note_waiting(state: ControllerState, waiting: str | None) -> list[Action]:
    """Return an action that stores ``waiting`` (what the run waits for) as an event; empty if it is None or has not changed."""
    if waiting is None or waiting == state.waiting:
        return []
    return [NoteFact(event=NewEvent(type=EventType.WAITING_FOR_WORKERS, payload={"reason": waiting}), reason=waiting)]


def start_overdue(view: RunView, recovered: Recovered, wanted: int, connections: int) -> RunEnding | None:
    """If workers are not ready in time, return how to end the run, else None. Time without an orchestrator does not count."""
    limit = max(_START_LIMIT, _USUAL_STARTS * view.usual_start) + _PER_CONNECTION * connections
    if view.now - max(view.started_at or view.looking_since, view.looking_since) <= limit:
        return None
    late = [worker.worker_id for worker in recovered.staying if worker.status not in READY]
    missing = ", ".join(late) or f"{wanted - len(recovered.staying)} workers"
    waiting = waiting_for(view, recovered, wanted)
    reason = f"Worker registration timeout: not ready after {limit.total_seconds():g} s: {waiting or missing}"
    return RunEnding(status=RunStatus.FAILED, completion_reason="START_TIMEOUT", reason=reason)


def refused_too_long(view: RunView, recovered: Recovered) -> RunEnding | None:
    """Return how to end a running run if its engine has refused for too long to start an additional worker, else None."""
    for worker in recovered.staying:
        asked = max(worker.created_at or view.now, view.looking_since)
        if (refusal := refusal_of(worker)) is not None and view.now - asked > _START_LIMIT:
            reason = f"{worker.worker_id} could not be started within {_START_LIMIT.total_seconds():g} s: {refusal.reason}"
            return RunEnding(status=RunStatus.FAILED, completion_reason="START_TIMEOUT", reason=reason)
    return None


def refused_for_good(worker: Worker) -> bool:
    """Whether an engine on other machines (not ``local``) refused to start the worker, and would refuse again."""
    return bool(worker.meta.get(SPAWN_FAILED)) and worker.provider != DEFAULT_ENGINE
