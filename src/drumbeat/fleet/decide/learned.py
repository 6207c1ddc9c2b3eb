"""What a beat has learnt and leaves to the next: service times, arrivals, idle times, gaps. Pure, and bounded."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import nlargest
from itertools import pairwise
from math import ceil
from operator import attrgetter
from statistics import median

from drumbeat.core.worker import Worker
from drumbeat.fleet.decide.classify import Classified, has_queue
from drumbeat.fleet.decide.health import streak_of
from drumbeat.fleet.decide.keep_alive import follow
from drumbeat.fleet.model import Finished, FleetState, FleetView, ServiceTime

COUNTS = 256  #: beats whose arrivals are kept
FADE = 200.0  #: attempts after which what was known of a service time counts no more than what is new
TYPES = 64  #: kinds of jobs whose service times are kept
_TELLING = 1.0  #: seconds a first job must have been held before that tells how long jobs take
_RECENT = 9  #: started workers the spawn lag is taken from


def remember(view: FleetView, crew: Classified) -> FleetState:
    """The state as far as it is known before anything is decided."""
    before = view.state or FleetState()
    if not has_queue(view):
        return replace(before, missing=_missing(view, before, crew))
    counted_from = before.counted_from or view.now
    at = (view.now - counted_from).total_seconds()
    levels, gaps, uses = follow(before, at, max(needed_now(view, crew), between_beats(view)), len(crew.staying))
    return replace(
        before,
        missing=_missing(view, before, crew),
        services=_services(before.services, view.finished, view.policy.every),
        counted_from=counted_from,
        arrivals=(*before.arrivals[-COUNTS:], (at, sum(each.count for each in view.arrived))),
        idle_since=_idle(view, before.idle_since, crew.idle),
        streaks=_streaks(view, before, crew),
        levels=levels,
        gaps=gaps,
        uses=uses,
        claimable_since=claimable_since(view),
        cursor=view.cursor or before.cursor,
        ready=view.queue.ready if view.queue else before.ready,
    )


def claimable_since(view: FleetView) -> datetime | None:
    """Since when each beat has seen something that could be claimed. What cannot be read changes nothing."""
    known = view.state.claimable_since if view.state else None
    if view.queue is None:
        return known
    return (known or view.now) if view.queue.ready and not view.is_paused else None


def spawn_lag(view: FleetView) -> timedelta:
    """How long workers have taken of late from their row to being ready; the provider's usual time before one has."""
    ready = [each for each in view.workers if each.ready_at is not None]
    newest = nlargest(_RECENT, ready, key=attrgetter("ready_at"))
    took = [(each.ready_at - each.created_at).total_seconds() for each in newest if each.ready_at and each.created_at]
    return timedelta(seconds=median(took)) if took else view.provider.usual_start


def needed_now(view: FleetView, crew: Classified) -> int:
    """Workers that are of use: the busy ones, those the ready jobs would fill, those that worked between two beats."""
    ready = view.queue.ready if view.queue else 0
    here, busy = len(crew.staying), len(crew.busy)
    service = mean_service(view.state.services if view.state else (), {})
    each = 1 + int(view.policy.every.total_seconds() / service) if service else 1
    waiting = min(-(-ready // (each * view.policy.concurrency)), here - busy)
    return max(busy + waiting, min(between_beats(view), here))


def between_beats(view: FleetView) -> int:
    """How many workers the jobs that came since the last beat have kept, though no beat may have seen them at it."""
    came, every = sum(each.count for each in view.arrived), view.policy.every.total_seconds()
    took = mean_service(view.state.services if view.state else (), {}) or 0.0
    offered = came * took / every / view.policy.concurrency if took < every else 0.0
    return min(came, max(ceil(offered), 1))


def mean_service(services: Sequence[ServiceTime], types: Mapping[str, int]) -> float | None:
    """Seconds a job takes: by the types that are ready, or else by all that were seen. None: none was seen."""
    weights = _weights(services, types)
    return sum(each.mean.total_seconds() * weight for each, weight in weights) if weights else None


def service_time(view: FleetView, services: Sequence[ServiceTime]) -> float | None:
    """Seconds a job takes: as seen, or else as the policy expects, but no less than a job is held by now. None: unknown."""
    seen = mean_service(services, view.queue.types if view.queue else {})
    if seen is not None:
        return seen
    hint = view.policy.expected_service
    longest = max([(view.now - each.claimed_at).total_seconds() for each in view.held], default=0.0)
    known = max(longest, hint.total_seconds() if hint else 0.0)
    return known if hint or longest >= _TELLING else None


def restart(view: FleetView) -> timedelta:
    """What a restart is worth: a worker is paid for while it starts, and for one beat after it was told to leave."""
    return spawn_lag(view) + view.policy.every


def service_variance(services: Sequence[ServiceTime], types: Mapping[str, int]) -> float:
    """How much the seconds vary that jobs take, of one type and from type to type."""
    weights, mean = _weights(services, types), mean_service(services, types) or 0.0
    squares = sum((each.variance + each.mean.total_seconds() ** 2) * weight for each, weight in weights)
    return max(squares - mean**2, 0.0)


def _weights(services: Sequence[ServiceTime], types: Mapping[str, int]) -> list[tuple[ServiceTime, float]]:
    """Each type's share of the jobs."""
    counts = [float(types.get(each.type, 0)) for each in services]
    if not any(counts):
        counts = [each.count for each in services]
    total = sum(counts)
    return [(each, count / total) for each, count in zip(services, counts, strict=True)] if total else []


def rate_of_late(state: FleetState, window: float) -> float:
    """Jobs a second that came within the window, as far as it was counted. Before a minute was, nothing is expected."""
    at = state.arrivals[-1][0] if state.arrivals else 0.0
    if at < 60:
        return 0.0
    return sum(count for when, count in state.arrivals if when > at - window) / min(window, at)


def sure_rate(state: FleetState, window: float) -> float:
    """Jobs a second that came without a break: the least of any beat in the window. What has lasted so long may go on.

    As long as a window was not seen, it is the mean of what was: a new fleet has nothing else to go by.
    """
    at = state.arrivals[-1][0] if state.arrivals else 0.0
    if at < window:
        return rate_of_late(state, window)
    pairs = [pair for pair in pairwise(state.arrivals) if pair[1][0] > at - window]
    return min([count / max(when - before, 1.0) for (before, _), (when, count) in pairs], default=0.0)


def _missing(view: FleetView, before: FleetState, crew: Classified) -> Mapping[str, datetime]:
    if view.instances_partial:
        return before.missing
    return {str(name): before.missing.get(name, view.now) for name in sorted(crew.missing)}


def _services(before: Sequence[ServiceTime], finished: Sequence[Finished], every: timedelta) -> tuple[ServiceTime, ...]:
    known, seen = {each.type: each for each in before}, defaultdict[str, list[float]](list)
    for each in finished:
        if each.ok:
            seen[each.type].append(each.took.total_seconds())
    known |= {kind: _learnt(known.get(kind), kind, took, every.total_seconds()) for kind, took in seen.items()}
    latest = sorted(known.values(), key=lambda each: (-each.count, each.type))
    return tuple(sorted(latest[:TYPES], key=lambda each: each.type))


def _learnt(known: ServiceTime | None, kind: str, took: Sequence[float], every: float) -> ServiceTime:
    """What is known with the attempts of one beat more. All of them count alike: the short ones merely ended first.

    Attempts are seen when a beat finds them running, so attempts shorter than the time between beats are under-sampled: each
    is weighted by the inverse of its duration.
    """
    weights = [max(every / max(each, 0.001), 1.0) for each in took]
    weight = sum(weights)
    mean = sum(each * one for each, one in zip(took, weights, strict=True)) / weight
    variance = sum((each - mean) ** 2 * one for each, one in zip(took, weights, strict=True)) / weight
    longest = timedelta(seconds=max(took))
    if known is None:
        return ServiceTime(type=kind, count=weight, mean=timedelta(seconds=mean), longest=longest, variance=variance)
    share, before = weight / (known.count + weight), known.mean.total_seconds()
    most = FADE * max(every / max(before, 0.001), 1.0)
    return ServiceTime(
        type=kind,
        count=min(known.count + weight, most),
        mean=timedelta(seconds=before + (mean - before) * share),
        longest=max(known.longest * 0.999, longest),
        variance=(1 - share) * (known.variance + share * (mean - before) ** 2) + share * variance,
    )


def _idle(view: FleetView, before: Mapping[str, datetime], idle: Sequence[Worker]) -> Mapping[str, datetime]:
    """Since when workers hold nothing. One that was seen to finish something since the last beat was not idle till then."""
    worked = {each.worker_id for each in view.finished}
    if not before and not worked:
        return dict.fromkeys([str(each.worker_id) for each in idle], view.now)
    return {
        str(each.worker_id): view.now if each.worker_id in worked else before.get(each.worker_id, view.now) for each in idle
    }


def _streaks(view: FleetView, before: FleetState, crew: Classified) -> Mapping[str, tuple[datetime, ...]]:
    if not before.streaks and all(each.ok for each in view.finished):
        return {}
    streaks = {
        str(each.worker_id): streak_of(before.streaks.get(each.worker_id, ()), view, each.worker_id) for each in crew.living
    }
    return {name: streak for name, streak in streaks.items() if streak}
