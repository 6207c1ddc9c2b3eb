"""Whether a worker may be started at all: faults of workers open a breaker, faults of the provider make it be left alone. Pure.

closed ─(enough of the recent starts ended by their own fault)─▶ open ─(rest)─▶ half-open: one trial ─▶ closed, or open again
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from drumbeat.core.worker import LIVE, Worker, WorkerStatus
from drumbeat.fleet.model import BackoffState, BreakerState, FleetPolicy, FleetView, SpawnCause, SpawnResult

MANY = 1_000_000_000  #: no limit
HOPELESS = frozenset({SpawnCause.BAD_REQUEST, SpawnCause.AUTH, SpawnCause.NO_MONEY})  #: trying again soon changes nothing
_REMEMBERED = timedelta(minutes=20)  #: how far back refusals are counted when nothing is remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """How many workers may be started now, and why no more."""

    most: int
    reason: str


def fault(worker: Worker) -> SpawnCause | None:
    """What was wrong with an ended worker itself: a crash before it was ready, an error, silence. None: nothing."""
    if worker.meta.get("spawn_failed") or worker.status not in (WorkerStatus.ERROR, WorkerStatus.LOST):
        return None
    return SpawnCause.BOOT_CRASH if worker.ready_at is None else SpawnCause.TRANSIENT


def failure_share(workers: Sequence[Worker], since: datetime) -> tuple[int, int]:
    """Worker faults since then, and how many starts they are of: those that ended, and those that got ready."""
    ended = [each for each in workers if each.ended_at and each.ended_at > since and not each.meta.get("spawn_failed")]
    ready = len([each for each in workers if each.ready_at and each.ready_at > since and each.status in LIVE])
    return sum(1 for each in ended if fault(each)), len(ended) + ready


def next_breaker(view: FleetView) -> BreakerState:
    """The breaker after what has happened since the last beat. With nothing remembered it looks further back."""
    if view.state is None:
        return _judge(view, BreakerState(), view.policy.failure_window + view.policy.breaker_rest)
    before = view.state.breaker
    if before.opened_at is None:
        return _judge(view, before, view.policy.failure_window)
    return before if before.trial is None else _after_trial(view, before)


def _last_fault(workers: Sequence[Worker]) -> str | None:
    """Who failed last by its own fault, and how."""
    failed = [each for each in workers if each.ended_at is not None and fault(each)]
    last = max(failed, key=lambda each: (each.ended_at, each.worker_id), default=None)
    return None if last is None else f"{last.worker_id} {last.status}: {_how(last)}"


def _how(worker: Worker) -> str:
    if worker.error:
        return worker.error
    return "it went silent" if worker.exit_code is None else f"exit code {worker.exit_code}"


def _judge(view: FleetView, before: BreakerState, window: timedelta) -> BreakerState:
    faults, starts = failure_share(view.workers, view.now - window)
    opens = starts >= max(view.policy.failure_min, 1) and faults >= view.policy.failure_rate * starts and faults > 0
    if not opens:
        return before
    return BreakerState(opened_at=view.now, faults=faults, starts=starts, error=_last_fault(view.workers))


def _after_trial(view: FleetView, before: BreakerState) -> BreakerState:
    trial = next((each for each in view.workers if each.worker_id == before.trial), None)
    if trial is None or trial.meta.get("spawn_failed"):
        return replace(before, trial=None)
    if trial.ready_at is not None:
        return BreakerState()
    if trial.is_live:
        return before
    return BreakerState(opened_at=view.now, faults=before.faults + 1, starts=before.starts + 1, error=_last_fault([trial]))


def breaker_leave(view: FleetView, breaker: BreakerState) -> Leave:
    """What the breaker lets through."""
    if breaker.opened_at is None:
        return Leave(most=MANY, reason="the breaker is closed")
    said = why_open(breaker)
    if breaker.trial is not None:
        return Leave(most=0, reason=f"{said}; {breaker.trial} is on trial")
    rests_until = breaker.opened_at + view.policy.breaker_rest
    if view.now < rests_until and not _was_asked_since(view, breaker.opened_at):
        return Leave(
            most=0, reason=f"{said}; one is tried at {rests_until:%H:%M:%S}, or with: drumbeat fleet retry {view.pool_id}"
        )
    return Leave(most=1, reason=f"{said}; one worker is let through on trial")


def why_open(breaker: BreakerState) -> str:
    """Since when no worker is started, how many had failed and how the last did."""
    counted = f"{breaker.faults} of {breaker.starts} workers failed" if breaker.starts else "too many workers failed"
    return f"the breaker opened at {breaker.opened_at:%Y-%m-%d %H:%M:%S}: {counted}" + (
        f", last {breaker.error}" if breaker.error else ""
    )


def _was_asked_since(view: FleetView, moment: datetime | None) -> bool:
    """Whether a person has asked since then that it be tried again."""
    return view.retry_at is not None and (moment is None or view.retry_at >= moment)


def next_backoff(view: FleetView) -> BackoffState:
    """Provider faults in a row, after what the last beat's calls came to; none once it may be asked as if there were none."""
    backoff, asked_with = view.state.backoff if view.state else _from_rows(view), view.last.asked_with if view.last else ""
    for call in view.last.spawns if view.last else ():
        backoff = _after_call(view.policy, backoff, call, asked_with)
    return BackoffState() if _is_forgiven(view, backoff) else backoff


def _is_forgiven(view: FleetView, backoff: BackoffState) -> bool:
    """Whether a person asked for it, or the key or the settings are others than those that were refused."""
    mended = backoff.asked_with and view.provider.asked_with and backoff.asked_with != view.provider.asked_with
    return bool(backoff.faults and (mended or _was_asked_since(view, backoff.last_at)))


def _after_call(policy: FleetPolicy, before: BackoffState, call: SpawnResult, asked_with: str = "") -> BackoffState:
    if call.cause is None:
        return BackoffState()
    faults = before.faults + 1
    wait = max(delay(policy, faults, call.cause), call.retry_after or timedelta())
    return BackoffState(
        faults=faults, cause=call.cause, last_at=call.at, until=call.at + wait, error=call.error, asked_with=asked_with
    )


def delay(policy: FleetPolicy, faults: int, cause: SpawnCause) -> timedelta:
    """How long the provider is left alone. One fault is forgiven; what cannot get better by waiting waits longest."""
    if cause in HOPELESS:
        return policy.backoff_most
    if faults < 2:
        return timedelta()
    return min(policy.backoff_first * (1 << min(faults - 2, 30)), policy.backoff_most)


def _from_rows(view: FleetView) -> BackoffState:
    """What the rows tell when nothing is remembered: refusals since the last worker that came to be."""
    came = max((each.created_at for each in view.workers if each.started_at and each.created_at), default=None)
    refused = sorted(
        (each for each in view.workers if each.meta.get("spawn_failed") and each.ended_at),
        key=lambda each: (each.ended_at or view.now, each.worker_id),
    )
    backoff = BackoffState()
    for each in refused:
        at = each.ended_at or view.now
        if at > view.now - _REMEMBERED and (came is None or at > came):
            call = SpawnResult(worker_id=each.worker_id, at=at, cause=cause_of(each), error=each.error)
            backoff = _after_call(view.policy, backoff, call)
    return backoff


def cause_of(worker: Worker) -> SpawnCause:
    """Why the provider refused this one, as its row says."""
    told = worker.meta.get("cause")
    return SpawnCause(told) if told in set(SpawnCause) else SpawnCause.TRANSIENT


def backoff_leave(view: FleetView, backoff: BackoffState) -> Leave:
    """What the provider may be asked for now: after a fault one worker at a time, and not before its time."""
    if not backoff.faults or backoff.cause is None:
        return Leave(most=MANY, reason="the provider does what it is asked")
    said = why_left_alone(backoff)
    if backoff.until and view.now < backoff.until:
        until = f"{backoff.until:%H:%M:%S}"
        return Leave(most=0, reason=f"{said}; it is asked again at {until}, or with: drumbeat fleet retry {view.pool_id}")
    return Leave(most=1, reason=f"{said}; it is asked for one")


def why_left_alone(backoff: BackoffState) -> str:
    """How often the provider failed in a row, and what it said last."""
    often = "once" if backoff.faults == 1 else f"{backoff.faults} times in a row"
    return f"the provider failed {often}, last with {backoff.cause}" + (f": {backoff.error}" if backoff.error else "")
