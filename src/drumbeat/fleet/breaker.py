"""Circuit breaker (stops starts after too many failed workers) and backoff (waits after provider errors). Pure.

closed ─(enough of the recently started workers failed)─▶ open ─(rest)─▶ half-open: one trial worker ─▶ closed, or open again
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from drumbeat.core.worker import LIVE, Worker, WorkerStatus
from drumbeat.fleet.model import BackoffState, BreakerState, FleetPolicy, FleetView, SpawnCause, SpawnResult

UNLIMITED = 1_000_000_000  #: stands for no limit on the number of workers
HOPELESS = frozenset({SpawnCause.BAD_REQUEST, SpawnCause.AUTH, SpawnCause.NO_MONEY})  #: causes that a quick retry cannot fix
_REMEMBERED = timedelta(minutes=20)  #: how far back refusals are counted if the last beat left no state


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnAllowance:
    """The most workers that can be started now, and the reason for this limit."""

    most: int
    reason: str


def fault(worker: Worker) -> SpawnCause | None:
    """Return BOOT_CRASH if a worker failed before it was ready, else TRANSIENT; None if it did not fail or never started."""
    if worker.meta.get("spawn_failed") or worker.status not in (WorkerStatus.ERROR, WorkerStatus.LOST):
        return None
    return SpawnCause.BOOT_CRASH if worker.ready_at is None else SpawnCause.TRANSIENT


def failure_share(workers: Sequence[Worker], since: datetime) -> tuple[int, int]:
    """Return two counts of workers since ``since``: failed ones, and all that ended or became ready; without refused starts."""
    ended = [each for each in workers if each.ended_at and each.ended_at > since and not each.meta.get("spawn_failed")]
    ready = len([each for each in workers if each.ready_at and each.ready_at > since and each.status in LIVE])
    return sum(1 for each in ended if fault(each)), len(ended) + ready


def next_breaker(view: FleetView) -> BreakerState:
    """Return the circuit breaker's new state. A closed breaker opens if too many workers failed in the last ``failure_window``,
    or, if the breaker's old state is lost, in the last ``failure_window + breaker_rest``."""
    if view.state is None:
        return _judge(view, BreakerState(), view.policy.failure_window + view.policy.breaker_rest)
    before = view.state.breaker
    if before.opened_at is None:
        return _judge(view, before, view.policy.failure_window)
    return before if before.trial is None else _after_trial(view, before)


def _last_fault(workers: Sequence[Worker]) -> str | None:
    """Describe the worker that failed last and its error; None if no worker failed."""
    failed = [each for each in workers if each.ended_at is not None and fault(each)]
    last = max(failed, key=lambda each: (each.ended_at, each.worker_id), default=None)
    return None if last is None else f"{last.worker_id} {last.status}: {_how(last)}"


def _how(worker: Worker) -> str:
    if worker.error:
        return worker.error
    return "no heartbeat" if worker.exit_code is None else f"exit code {worker.exit_code}"


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


def breaker_allowance(view: FleetView, breaker: BreakerState) -> SpawnAllowance:
    """Return how many workers the breaker allows: any number if closed, none if open, one on trial after a rest or retry."""
    if breaker.opened_at is None:
        return SpawnAllowance(most=UNLIMITED, reason="the breaker is closed")
    why = describe_open_breaker(breaker)
    if breaker.trial is not None:
        return SpawnAllowance(most=0, reason=f"{why}; waiting for the trial worker {breaker.trial}")
    rests_until = breaker.opened_at + view.policy.breaker_rest
    if view.now < rests_until and not _was_asked_since(view, breaker.opened_at):
        when = f"at {rests_until:%H:%M:%S}, or now with: drumbeat fleet retry {view.pool_id}"
        return SpawnAllowance(most=0, reason=f"{why}; one trial worker is started {when}")
    return SpawnAllowance(most=1, reason=f"{why}; one trial worker is started")


def describe_open_breaker(breaker: BreakerState) -> str:
    """Describe when the breaker opened, how many workers had failed, and how the last one failed."""
    counted = f"{breaker.faults} of {breaker.starts} workers failed" if breaker.starts else "too many workers failed"
    last = f", last {breaker.error}" if breaker.error else ""
    return f"the breaker opened at {breaker.opened_at:%Y-%m-%d %H:%M:%S}: {counted}{last}"


def _was_asked_since(view: FleetView, moment: datetime | None) -> bool:
    """Whether a user has asked since ``moment`` (None: at any time) to try the provider again."""
    return view.retry_at is not None and (moment is None or view.retry_at >= moment)


def next_backoff(view: FleetView) -> BackoffState:
    """Update the backoff with the last beat's spawn results; reset it after a user's retry or a change of settings."""
    backoff, asked_with = view.state.backoff if view.state else _from_rows(view), view.last.asked_with if view.last else ""
    for call in view.last.spawns if view.last else ():
        backoff = _after_call(view.policy, backoff, call, asked_with)
    return BackoffState() if _backoff_ends_early(view, backoff) else backoff


def _backoff_ends_early(view: FleetView, backoff: BackoffState) -> bool:
    """Whether the backoff ends early: a user asked for a retry, or the provider's key or settings have changed."""
    changed = backoff.asked_with and view.provider.asked_with and backoff.asked_with != view.provider.asked_with
    return bool(backoff.faults and (changed or _was_asked_since(view, backoff.last_at)))


def _after_call(policy: FleetPolicy, before: BackoffState, call: SpawnResult, asked_with: str = "") -> BackoffState:
    if call.cause is None:
        return BackoffState()
    faults = before.faults + 1
    wait = max(delay(policy, faults, call.cause), call.retry_after or timedelta())
    return BackoffState(
        faults=faults, cause=call.cause, last_at=call.at, until=call.at + wait, error=call.error, asked_with=asked_with
    )


def delay(policy: FleetPolicy, faults: int, cause: SpawnCause) -> timedelta:
    """Return how long to wait before the provider is asked again: 0 after one failure, then a time that doubles with each
    further failure. If a retry cannot help (``HOPELESS``), always return the maximum."""
    if cause in HOPELESS:
        return policy.backoff_most
    if faults < 2:
        return timedelta()
    return min(policy.backoff_first * (1 << min(faults - 2, 30)), policy.backoff_most)


def _from_rows(view: FleetView) -> BackoffState:
    """Rebuild the backoff state from the workers' rows: count the starts that the provider refused since its last success."""
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
    """Return why the provider refused to start this worker, as recorded in the worker's row."""
    cause = worker.meta.get("cause")
    return SpawnCause(cause) if cause in set(SpawnCause) else SpawnCause.TRANSIENT


def backoff_allowance(view: FleetView, backoff: BackoffState) -> SpawnAllowance:
    """Return how many workers can be requested now: after a failure, none until the backoff is over, then one per beat."""
    if not backoff.faults or backoff.cause is None:
        return SpawnAllowance(most=UNLIMITED, reason="the provider works")
    why = describe_backoff(backoff)
    if backoff.until and view.now < backoff.until:
        when = f"at {backoff.until:%H:%M:%S}, or now with: drumbeat fleet retry {view.pool_id}"
        return SpawnAllowance(most=0, reason=f"{why}; next try {when}")
    return SpawnAllowance(most=1, reason=f"{why}; trying one worker")


def describe_backoff(backoff: BackoffState) -> str:
    """Describe how often the provider failed in a row, and its last error."""
    often = "once" if backoff.faults == 1 else f"{backoff.faults} times in a row"
    return f"the provider failed {often}, last with {backoff.cause}" + (f": {backoff.error}" if backoff.error else "")
