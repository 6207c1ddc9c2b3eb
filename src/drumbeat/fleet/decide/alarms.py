"""What somebody should look at: a provider that gives no list, an open breaker, a sudden queue, a limit that cannot be kept.

What became of the actions is not known yet when a beat is decided: see outcome.py.
"""

from collections.abc import Iterator

from drumbeat.fleet.breaker import why_left_alone, why_open
from drumbeat.fleet.decide.classify import Classified
from drumbeat.fleet.model import BreakerState, FleetState, FleetView, ScalingVerdict
from drumbeat.fleet.model.policy import least_silence

SPIKE = 10  #: a queue that grew to so many times what it was; or from nothing to more than so many jobs


def alarms(view: FleetView, crew: Classified, verdict: ScalingVerdict, state: FleetState) -> list[str]:
    """A sentence for each."""
    is_short = verdict.desired > len(crew.staying) or any(limit.name == "breaker" for limit in verdict.limits)
    return [
        *_unlisted(view),
        *_breaker(view, state.breaker, is_short=is_short),
        *_backoff(view, state),
        *_jump(view),
        *_too_strict(view),
    ]


def _unlisted(view: FleetView) -> Iterator[str]:
    if view.unlisted is not None:
        yield f"the provider gave no list of its instances: {view.unlisted}"


def _breaker(view: FleetView, breaker: BreakerState, *, is_short: bool) -> Iterator[str]:
    """An open breaker, while it rests or has one on trial; afterwards only while workers are missing."""
    if breaker.opened_at is None:
        return
    rests = view.now < breaker.opened_at + view.policy.breaker_rest
    if rests or breaker.trial is not None or is_short:
        yield why_open(breaker)


def _backoff(view: FleetView, state: FleetState) -> Iterator[str]:
    until = state.backoff.until
    if state.backoff.faults and until is not None and view.now < until:
        yield f"{why_left_alone(state.backoff)}; it is asked again at {until:%H:%M:%S}"


def _jump(view: FleetView) -> Iterator[str]:
    before, now = view.state.ready if view.state else None, view.queue.ready if view.queue else 0
    if before is not None and now > SPIKE and now >= SPIKE * before:
        yield f"the queue jumped from {before} to {now} ready jobs since the last beat"


def _too_strict(view: FleetView) -> Iterator[str]:
    told, least, usual = view.policy.heartbeat_timeout, least_silence(view.thresholds), view.thresholds
    if told is not None and told < least:
        yield (
            f"heartbeat_timeout is {told.total_seconds():g} s, but workers of this pool beat every "
            f"{usual.heartbeat_every.total_seconds():g} s and end themselves after {usual.give_up_after.total_seconds():g} s "
            f"of silence: {least.total_seconds():g} s are heeded"
        )
