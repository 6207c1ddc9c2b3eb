"""Alarms of a beat: the provider failed, the breaker is open, the queue grew suddenly, a timeout is too short.

Alarms about failed actions are added after the actions were tried: see outcome.py.
"""

from collections.abc import Iterator

from drumbeat.fleet.breaker import describe_backoff, describe_open_breaker
from drumbeat.fleet.decide.classify import Classified
from drumbeat.fleet.model import BreakerState, FleetState, FleetView, ScalingVerdict
from drumbeat.fleet.model.policy import least_silence

SPIKE = 10  #: alarm if the ready jobs grow by this factor between two beats, or from 0 to more than this many


def alarms(view: FleetView, classified: Classified, verdict: ScalingVerdict, state: FleetState) -> list[str]:
    """Return one sentence for each alarm of this beat."""
    is_short = verdict.desired > len(classified.staying) or any(limit.name == "breaker" for limit in verdict.limits)
    return [
        *_unlisted(view),
        *_breaker(view, state.breaker, is_short=is_short),
        *_backoff(view, state),
        *_queue_spike(view),
        *_timeout_too_short(view),
    ]


def _unlisted(view: FleetView) -> Iterator[str]:
    if view.unlisted is not None:
        yield f"the provider failed to list its instances: {view.unlisted}"


def _breaker(view: FleetView, breaker: BreakerState, *, is_short: bool) -> Iterator[str]:
    """Report the circuit breaker for the time ``breaker_rest`` after it opened. If it is open longer, report it only while its
    trial worker is starting or the fleet has too few workers (``is_short``)."""
    if breaker.opened_at is None:
        return
    rests = view.now < breaker.opened_at + view.policy.breaker_rest
    if rests or breaker.trial is not None or is_short:
        yield describe_open_breaker(breaker)


def _backoff(view: FleetView, state: FleetState) -> Iterator[str]:
    until = state.backoff.until
    if state.backoff.faults and until is not None and view.now < until:
        yield f"{describe_backoff(state.backoff)}; next try at {until:%H:%M:%S}"


def _queue_spike(view: FleetView) -> Iterator[str]:
    before, now = view.state.ready if view.state else None, view.queue.ready if view.queue else 0
    if before is not None and now > SPIKE and now >= SPIKE * before:
        yield f"the queue grew from {before} to {now} ready jobs since the last beat"


def _timeout_too_short(view: FleetView) -> Iterator[str]:
    timeout, least, usual = view.policy.heartbeat_timeout, least_silence(view.thresholds), view.thresholds
    if timeout is not None and timeout < least:
        yield (
            f"heartbeat_timeout of {timeout.total_seconds():g} s is too short: workers of this pool send a heartbeat every "
            f"{usual.heartbeat_every.total_seconds():g} s and stop after {usual.give_up_after.total_seconds():g} s "
            f"without contact; using {least.total_seconds():g} s instead"
        )
