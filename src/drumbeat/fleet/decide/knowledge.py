"""What a beat has learnt and leaves to the next: service times, arrivals, idle times, gaps. Pure, and bounded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import nlargest
from math import ceil
from statistics import median

from drumbeat.core.worker import Worker
from drumbeat.fleet.decide.crew import Crew, has_queue, is_starting
from drumbeat.fleet.decide.health import streak_of
from drumbeat.fleet.model import Arrivals, Finished, FleetState, FleetView, ServiceTime

MINUTES = 180  #: of arrivals kept
FADE = 50.0  #: attempts after which what was known of a service time counts no more than what is new
TYPES = 64  #: kinds of jobs whose service times are kept
GAPS = 256  #: gaps kept
LEVELS = 512  #: workers whose gaps are learnt from
_RECENT = 9  #: started workers the spawn lag is taken from


def remember(view: FleetView, crew: Crew) -> FleetState:
    """The state as far as it is known before anything is decided."""
    before = view.state or FleetState()
    if not has_queue(view):
        return replace(before, missing=_missing(view, before, crew))
    levels, gaps = _levels(view, before, needed_now(view, crew), len(crew.staying))
    return replace(
        before,
        missing=_missing(view, before, crew),
        services=_services(before.services, view.finished, view.policy.every),
        arrivals=_arrivals(view.now, before.arrivals, view.arrived),
        counted_from=before.counted_from or view.now,
        idle_since=_idle(view, before.idle_since, crew.idle),
        streaks=_streaks(view, before, crew),
        levels=levels,
        gaps=gaps,
        cursor=view.cursor or before.cursor,
    )


def spawn_lag(view: FleetView) -> timedelta:
    """How long workers have taken of late from their row to being ready; the provider's usual time before one has."""
    starts = [
        (each.ready_at, each.created_at) for each in view.workers if each.ready_at is not None and each.created_at is not None
    ]
    took = [(ready - created).total_seconds() for ready, created in nlargest(_RECENT, starts)]
    return timedelta(seconds=median(took)) if took else view.provider.usual_start


def needed_now(view: FleetView, crew: Crew) -> int:
    """Workers that are of use: the busy ones, those the ready jobs would fill, those that worked between two beats."""
    ready = view.queue.ready if view.queue else 0
    here, busy = len(crew.staying), len(crew.busy)
    waiting = min(-(-ready // view.policy.concurrency), here - busy)
    return max(busy + waiting, min(_between_beats(view), here))


def _between_beats(view: FleetView) -> int:
    """How many workers the jobs that came since the last beat have kept, though no beat saw them at it."""
    came = sum(each.count for each in view.arrived)
    took = mean_service(view.state.services if view.state else (), {}) or 0.0
    offered = came * took / view.policy.every.total_seconds() / view.policy.concurrency
    return min(came, max(ceil(offered), 1)) if came else 0


def mean_service(services: Sequence[ServiceTime], types: Mapping[str, int]) -> float | None:
    """Seconds a job takes: by the types that are ready, or else by all that were seen. None: none was seen."""
    weights = {each.type: float(types.get(each.type, 0)) for each in services}
    if not any(weights.values()):
        weights = {each.type: each.count for each in services}
    total = sum(weights.values())
    return sum(each.mean.total_seconds() * weights[each.type] for each in services) / total if total else None


def _missing(view: FleetView, before: FleetState, crew: Crew) -> Mapping[str, datetime]:
    if view.instances_partial:
        return before.missing
    return {str(name): before.missing.get(name, view.now) for name in sorted(crew.missing)}


def _services(before: Sequence[ServiceTime], finished: Sequence[Finished], every: timedelta) -> tuple[ServiceTime, ...]:
    known = {each.type: each for each in before}
    for each in finished:
        if each.ok:
            known[each.type] = _learnt(known.get(each.type), each, every)
    latest = sorted(known.values(), key=lambda each: (-each.count, each.type))
    return tuple(sorted(latest[:TYPES], key=lambda each: each.type))


def _learnt(known: ServiceTime | None, one: Finished, every: timedelta) -> ServiceTime:
    """What is known with one attempt more.

    Attempts are seen when a beat finds them running, so one shorter than the time between beats is seen as seldom as it is
    short, and counts for as many.
    """
    weight = max(every / max(one.took, timedelta(milliseconds=1)), 1.0)
    if known is None:
        return ServiceTime(type=one.type, count=min(weight, FADE), mean=one.took, longest=one.took)
    share = weight / (known.count + weight)
    return ServiceTime(
        type=one.type,
        count=min(known.count + weight, FADE),
        mean=known.mean + (one.took - known.mean) * share,
        longest=max(known.longest * 0.999, one.took),
    )


def _arrivals(now: datetime, before: Iterable[Arrivals], new: Iterable[Arrivals]) -> tuple[Arrivals, ...]:
    counted: dict[datetime, int] = {}
    for each in (*before, *new):
        if now - each.minute <= timedelta(minutes=MINUTES):
            counted[each.minute] = counted.get(each.minute, 0) + each.count
    return tuple(Arrivals(minute=minute, count=count) for minute, count in sorted(counted.items()))


def _idle(view: FleetView, before: Mapping[str, datetime], idle: Sequence[Worker]) -> Mapping[str, datetime]:
    """Since when workers hold nothing. One that was seen to finish something since the last beat was not idle till then."""
    worked = {each.worker_id for each in view.finished}
    return {
        str(each.worker_id): view.now if each.worker_id in worked else before.get(each.worker_id, view.now)
        for each in idle
        if not is_starting(each)
    }


def _streaks(view: FleetView, before: FleetState, crew: Crew) -> Mapping[str, tuple[datetime, ...]]:
    if not before.streaks and all(each.ok for each in view.finished):
        return {}
    streaks = {
        str(each.worker_id): streak_of(before.streaks.get(each.worker_id, ()), view, each.worker_id) for each in crew.living
    }
    return {name: streak for name, streak in streaks.items() if streak}


def _levels(
    view: FleetView, before: FleetState, needed: int, here: int
) -> tuple[tuple[datetime | None, ...], tuple[tuple[int, float], ...]]:
    """Since when each level is not needed, for as many as there are workers, and the gaps that have just ended."""
    needed, here = min(needed, LEVELS), min(here, LEVELS)
    known = (*before.levels[:LEVELS], *(None for _ in range(here - len(before.levels))))
    gaps = [(n, (view.now - since).total_seconds()) for n, since in enumerate(known[:needed]) if since is not None]
    above = tuple(since or view.now for since in known[needed:])
    return (*(None for _ in range(needed)), *above), (*before.gaps, *gaps)[-GAPS:]
