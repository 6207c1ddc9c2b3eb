"""What a fleet learns from its beats: job durations, arrivals, and when workers are idle or needed. Pure, bounded in size."""

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
from drumbeat.fleet.decide.keep_alive import update_levels
from drumbeat.fleet.model import Finished, FleetState, FleetView, ServiceTime

MAX_COUNTS = 256  #: beats whose arrivals are remembered
MAX_WEIGHT = 200.0  #: maximum weight of earlier attempts in a service time, so that old attempts fade
MAX_TYPES = 64  #: job types whose service times are remembered
_MIN_HELD = 1.0  #: seconds a job must be held before its age is used as an estimate of the service time
_LAG_SAMPLES = 9  #: number of newest workers from which the spawn lag is measured


def update_state(view: FleetView, classified: Classified) -> FleetState:
    """Return the last beat's state updated with this beat's observations, before anything is decided."""
    before = view.state or FleetState()
    if not has_queue(view):
        return replace(before, missing=_missing(view, before, classified))
    counted_from = before.counted_from or view.now
    at = (view.now - counted_from).total_seconds()
    demand = max(needed_now(view, classified), between_beats(view))
    levels, gaps, uses = update_levels(before, at, demand, len(classified.staying))
    return replace(
        before,
        missing=_missing(view, before, classified),
        services=_services(before.services, view.finished, view.policy.every),
        counted_from=counted_from,
        arrivals=(*before.arrivals[-MAX_COUNTS:], (at, sum(each.count for each in view.arrived))),
        idle_since=_idle(view, before.idle_since, classified.idle),
        streaks=_streaks(view, before, classified),
        levels=levels,
        gaps=gaps,
        uses=uses,
        claimable_since=claimable_since(view),
        cursor=view.cursor or before.cursor,
        ready=view.queue.ready if view.queue else before.ready,
    )


def claimable_since(view: FleetView) -> datetime | None:
    """Return the time since which every beat has found claimable jobs, or None. Queue not read: the last beat's value."""
    known = view.state.claimable_since if view.state else None
    if view.queue is None:
        return known
    return (known or view.now) if view.queue.ready and not view.is_paused else None


def spawn_lag(view: FleetView) -> timedelta:
    """Return the median time from the creation of a worker's row until it is ready, or the provider's usual time if unknown."""
    ready = [each for each in view.workers if each.ready_at is not None]
    newest = nlargest(_LAG_SAMPLES, ready, key=attrgetter("ready_at"))
    took = [(each.ready_at - each.created_at).total_seconds() for each in newest if each.ready_at and each.created_at]
    return timedelta(seconds=median(took)) if took else view.provider.usual_start


def needed_now(view: FleetView, classified: Classified) -> int:
    """Count the workers needed now: the busy workers and enough for the ready jobs or, if that is more, as many as
    were busy since the last beat. Never more than the workers that exist."""
    ready = view.queue.ready if view.queue else 0
    here, busy = len(classified.staying), len(classified.busy)
    service = mean_service(view.state.services if view.state else (), {})
    each = 1 + int(view.policy.every.total_seconds() / service) if service else 1
    waiting = min(-(-ready // (each * view.policy.concurrency)), here - busy)
    return max(busy + waiting, min(between_beats(view), here))


def between_beats(view: FleetView) -> int:
    """Estimate how many workers were busy with the jobs since the last beat, including jobs too short for a beat to notice."""
    came, every = sum(each.count for each in view.arrived), view.policy.every.total_seconds()
    took = mean_service(view.state.services if view.state else (), {}) or 0.0
    offered = came * took / every / view.policy.concurrency if took < every else 0.0
    return min(came, max(ceil(offered), 1))


def mean_service(services: Sequence[ServiceTime], types: Mapping[str, int]) -> float | None:
    """Return the mean seconds per job, weighted by the ready jobs of each type (if none: by all attempts); None if unknown."""
    weights = _weights(services, types)
    return sum(each.mean.total_seconds() * weight for each, weight in weights) if weights else None


def service_time(view: FleetView, services: Sequence[ServiceTime]) -> float | None:
    """Return the seconds a job takes: the measured mean. If no job was measured, return ``expected_service`` or the longest
    time that a job has been held so far, whichever is longer. None if ``expected_service`` is not set and no job has been
    held for ``_MIN_HELD``."""
    measured = mean_service(services, view.queue.types if view.queue else {})
    if measured is not None:
        return measured
    hint = view.policy.expected_service
    longest = max([(view.now - each.claimed_at).total_seconds() for each in view.held], default=0.0)
    known = max(longest, hint.total_seconds() if hint else 0.0)
    return known if hint or longest >= _MIN_HELD else None


def restart(view: FleetView) -> timedelta:
    """Return the paid time that a restart wastes: the start of the new worker, and one beat in which the old one is idle."""
    return spawn_lag(view) + view.policy.every


def service_variance(services: Sequence[ServiceTime], types: Mapping[str, int]) -> float:
    """Variance of the time that jobs take, in seconds squared: the spread within job types plus the spread between them."""
    weights, mean = _weights(services, types), mean_service(services, types) or 0.0
    squares = sum((each.variance + each.mean.total_seconds() ** 2) * weight for each, weight in weights)
    return max(squares - mean**2, 0.0)


def _weights(services: Sequence[ServiceTime], types: Mapping[str, int]) -> list[tuple[ServiceTime, float]]:
    """Return each job type's share: of the ready jobs, or of all known attempts if no known type is ready."""
    counts = [float(types.get(each.type, 0)) for each in services]
    if not any(counts):
        counts = [each.count for each in services]
    total = sum(counts)
    return [(each, count / total) for each, count in zip(services, counts, strict=True)] if total else []


def recent_rate(state: FleetState, window: float) -> float:
    """Return the jobs per second that arrived in the last ``window`` seconds; 0 until arrivals were counted for a minute."""
    at = state.arrivals[-1][0] if state.arrivals else 0.0
    if at < 60:
        return 0.0
    return sum(count for when, count in state.arrivals if when > at - window) / min(window, at)


def steady_rate(state: FleetState, window: float) -> float:
    """Return the jobs per second that arrive steadily: the lowest rate between two beats in the last ``window`` seconds.

    A new fleet, which has not counted for a full window yet, uses the mean rate instead.
    """
    at = state.arrivals[-1][0] if state.arrivals else 0.0
    if at < window:
        return recent_rate(state, window)
    pairs = [pair for pair in pairwise(state.arrivals) if pair[1][0] > at - window]
    return min([count / max(when - before, 1.0) for (before, _), (when, count) in pairs], default=0.0)


def _missing(view: FleetView, before: FleetState, classified: Classified) -> Mapping[str, datetime]:
    if view.instances_partial:
        return before.missing
    return {str(name): before.missing.get(name, view.now) for name in sorted(classified.missing)}


def _services(before: Sequence[ServiceTime], finished: Sequence[Finished], every: timedelta) -> tuple[ServiceTime, ...]:
    known, durations = {each.type: each for each in before}, defaultdict[str, list[float]](list)
    for each in finished:
        if each.ok:
            durations[each.type].append(each.took.total_seconds())
    known |= {kind: _updated(known.get(kind), kind, took, every.total_seconds()) for kind, took in durations.items()}
    latest = sorted(known.values(), key=lambda each: (-each.count, each.type))
    return tuple(sorted(latest[:MAX_TYPES], key=lambda each: each.type))


def _updated(known: ServiceTime | None, kind: str, took: Sequence[float], every: float) -> ServiceTime:
    """Update one job type's service time with the attempts that ended since the last beat.

    Only attempts that were running during a beat are known, so many short ones are missed. To make up for that, an attempt
    shorter than the time between beats counts more, in inverse proportion to its duration.
    """
    weights = [max(every / max(each, 0.001), 1.0) for each in took]
    weight = sum(weights)
    mean = sum(each * one for each, one in zip(took, weights, strict=True)) / weight
    variance = sum((each - mean) ** 2 * one for each, one in zip(took, weights, strict=True)) / weight
    longest = timedelta(seconds=max(took))
    if known is None:
        return ServiceTime(type=kind, count=weight, mean=timedelta(seconds=mean), longest=longest, variance=variance)
    share, before = weight / (known.count + weight), known.mean.total_seconds()
    most = MAX_WEIGHT * max(every / max(before, 0.001), 1.0)
    return ServiceTime(
        type=kind,
        count=min(known.count + weight, most),
        mean=timedelta(seconds=before + (mean - before) * share),
        longest=max(known.longest * 0.999, longest),
        variance=(1 - share) * (known.variance + share * (mean - before) ** 2) + share * variance,
    )


def _idle(view: FleetView, before: Mapping[str, datetime], idle: Sequence[Worker]) -> Mapping[str, datetime]:
    """Return the time since which each idle worker has held no job: now if it finished a job since the last beat."""
    worked = {each.worker_id for each in view.finished}
    if not before and not worked:
        return dict.fromkeys([str(each.worker_id) for each in idle], view.now)
    return {
        str(each.worker_id): view.now if each.worker_id in worked else before.get(each.worker_id, view.now) for each in idle
    }


def _streaks(view: FleetView, before: FleetState, classified: Classified) -> Mapping[str, tuple[datetime, ...]]:
    if not before.streaks and all(each.ok for each in view.finished):
        return {}
    streaks = {
        str(each.worker_id): streak_of(before.streaks.get(each.worker_id, ()), view, each.worker_id)
        for each in classified.living
    }
    return {name: streak for name, streak in streaks.items() if streak}
