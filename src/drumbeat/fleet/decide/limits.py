"""What bounds a policy's wish: schedules, minimum, maximum, window, steps, cooldowns, breaker, provider, money, pause."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil

from drumbeat.fleet.breaker import MANY, backoff_leave, breaker_leave, next_backoff, next_breaker
from drumbeat.fleet.decide.classify import Classified, has_queue
from drumbeat.fleet.model import FleetPolicy, FleetState, FleetView, Limit, ScalingVerdict, Schedule, Wish, WishedSize
from drumbeat.fleet.money import affordable
from drumbeat.fleet.policies import Opinion


@dataclass(slots=True)
class _Wish:
    """A number of workers on its way through the limits."""

    workers: int
    limits: list[Limit] = field(default_factory=list)

    def at_least(self, name: str, least: int, reason: str) -> None:
        self._to(name, max(self.workers, least), reason)

    def at_most(self, name: str, most: int, reason: str) -> None:
        self._to(name, min(self.workers, most), reason)

    def _to(self, name: str, after: int, reason: str) -> None:
        if after != self.workers:
            self.limits.append(Limit(name=name, before=self.workers, after=after, reason=reason))
            self.workers = after


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedDecision:
    """How many there shall be, within all limits, and the state with what the limits have learnt."""

    verdict: ScalingVerdict
    state: FleetState
    bound: int  #: what schedule, maximum and money allow: whoever is above leaves sooner
    paid: int  #: what money allows: whoever is above leaves at once
    calls: int  #: creations the provider may be asked for in this beat
    room: int  #: how many more may run, beside all who may run now; below zero: there are more than may be


def guard(view: FleetView, crew: Classified, opinion: Opinion, state: FleetState) -> BoundedDecision:
    """The policy's wish, bounded. Every limit that changes it is named."""
    state = replace(state, breaker=next_breaker(view), backoff=next_backoff(view), failed_spawns=_failed_spawns(view, state))
    here, wish = len(crew.staying), _Wish(opinion.desired)
    wishes = opinion.wishes
    if has_queue(view):
        wishes = (*wishes, *_slo(view, crew))
        wish.workers = max(each.workers for each in wishes)
        if view.queue is None:
            wish.at_most("unread queue", here, "the queue could not be read: nobody is added for it")
            wish.at_least("unread queue", here, "the queue could not be read: nobody is sent away")
        _bounds(view, wish)
    paid = _money(view, crew, wish)
    bound = min(paid, bounds_at(view.policy, view.now)[1] if has_queue(view) else MANY)
    state = replace(state, wanted=_window(view, state, wish.workers))
    if has_queue(view):
        _calm(view, crew, state, wish, bound)
    room = _room(view, crew, wish)
    calls = _spawning(view, crew, state, wish)
    verdict = ScalingVerdict(desired=wish.workers, wishes=wishes, limits=tuple(wish.limits))
    return BoundedDecision(verdict=verdict, state=state, bound=bound, paid=paid, calls=calls, room=room)


def _failed_spawns(view: FleetView, state: FleetState) -> int:
    return state.failed_spawns + sum(call.cause is not None for call in (view.last.spawns if view.last else ()))


def _slo(view: FleetView, crew: Classified) -> Iterator[Wish]:
    """The oldest job has waited too long: every ready job shall have a worker."""
    queue, slo = view.queue, view.policy.wait_slo
    if slo is None or queue is None or queue.oldest_ready is None or view.now - queue.oldest_ready <= slo:
        return
    waited = (view.now - queue.oldest_ready).total_seconds()
    workers = len(crew.busy) + ceil(queue.ready / view.policy.concurrency)
    yield Wish(
        rule="wait", workers=workers, reason=f"the oldest job has waited {waited:.0f} s, {slo.total_seconds():g} s at most"
    )


def bounds_at(policy: FleetPolicy, now: datetime) -> tuple[int, int, str]:
    """Minimum and maximum at this hour, and whose they are. Of several schedules the last that says something counts."""
    least, most, whose = policy.min_workers, policy.max_workers, "policy"
    for schedule in policy.schedules:
        if applies(schedule, now):
            least = schedule.min_workers if schedule.min_workers is not None else least
            most = schedule.max_workers if schedule.max_workers is not None else most
            whose = "schedule"
    return min(least, most), most, whose


def applies(schedule: Schedule, now: datetime) -> bool:
    """Whether a moment is within a schedule."""
    local = now + schedule.utc_offset
    minute, day = local.hour * 60 + local.minute, local.weekday()
    if schedule.begin < schedule.end:
        return schedule.begin <= minute < schedule.end and _on(schedule, day)
    if schedule.begin == schedule.end:
        return _on(schedule, day)
    return (minute >= schedule.begin and _on(schedule, day)) or (minute < schedule.end and _on(schedule, (day - 1) % 7))


def _on(schedule: Schedule, day: int) -> bool:
    return not schedule.days or day in schedule.days


def _bounds(view: FleetView, wish: _Wish) -> None:
    least, most, whose = bounds_at(view.policy, view.now)
    wish.at_least(f"{whose} min_workers", least, f"at least {least} are kept")
    wish.at_most(f"{whose} max_workers", most, f"at most {most} are allowed")


def _money(view: FleetView, crew: Classified, wish: _Wish) -> int:
    """The ceilings, with what those who stay will still cost reserved; how many of them may stay."""
    allowed, name = affordable(view, crew.staying)
    wish.at_most(f"money per {name}", allowed, f"more would pass the ceiling per {name}")
    return allowed


def _window(view: FleetView, state: FleetState, workers: int) -> tuple[WishedSize, ...]:
    since = view.now - view.policy.calm("stabilisation")
    kept = tuple(each for each in state.wanted if each.at >= since)
    return (*kept, WishedSize(at=view.now, workers=workers)) if has_queue(view) else ()


def _calm(view: FleetView, crew: Classified, state: FleetState, wish: _Wish, bound: int) -> None:
    """What keeps the number from swinging. What may not be at all (``bound``) is not kept for calm's sake."""
    here, policy = len(crew.staying), view.policy
    ceiling = min(bound, here)
    highest = max((each.workers for each in state.wanted), default=0)
    wish.at_least("stabilisation", min(highest, ceiling), f"{highest} were wanted within the window")
    if wish.workers > here:
        _hold_up(view, state, wish, here)
        if policy.step_up is not None:
            wish.at_most("step_up", here + policy.step_up, f"{policy.step_up} more in one beat at most")
    elif wish.workers < here:
        _hold_down(view, crew, state, wish, ceiling)
        if policy.step_down is not None:
            wish.at_least("step_down", min(here - policy.step_down, ceiling), f"{policy.step_down} fewer in one beat at most")


def _hold_up(view: FleetView, state: FleetState, wish: _Wish, here: int) -> None:
    """No scaling up too soon after the last; but the minimum is always made up for."""
    least = max(bounds_at(view.policy, view.now)[0], here)
    if _within(view.now, state.up_at, view.policy.cooldown_up):
        wish.at_most("cooldown_up", least, f"the last scaling up was at {state.up_at:%H:%M:%S}")
    if here and _within(view.now, state.down_at, view.policy.calm("turn_after")):
        wish.at_most("turn_after", least, f"the last scaling down was at {state.down_at:%H:%M:%S}")


def _hold_down(view: FleetView, crew: Classified, state: FleetState, wish: _Wish, ceiling: int) -> None:
    if not crew.sure:
        wish.at_least("unsure", ceiling, "not everything could be read, or a list has shrunk: nobody is sent away yet")
    if _within(view.now, state.down_at, view.policy.calm("cooldown_down")):
        wish.at_least("cooldown_down", ceiling, f"the last scaling down was at {state.down_at:%H:%M:%S}")
    if _within(view.now, state.up_at, view.policy.calm("turn_after")):
        wish.at_least("turn_after", ceiling, f"the last scaling up was at {state.up_at:%H:%M:%S}")


def _within(now: datetime, moment: datetime | None, span: timedelta) -> bool:
    return moment is not None and now - moment < span


def _room(view: FleetView, crew: Classified, wish: _Wish) -> int:
    """Whoever leaves, or may not be gone yet, counts for the maximum: nobody takes its place before."""
    here, (_, most, whose) = len(crew.staying), bounds_at(view.policy, view.now)
    if not has_queue(view):
        most, whose = max(view.policy.max_workers, view.policy.workers), "policy"
    room = most - here - crew.outgoing
    if wish.workers > here:
        told = f"{crew.outgoing} others leave or may still run, {most} may run at once"
        wish.at_most(f"{whose} max_workers", here + max(room, 0), told)
    return room


def _spawning(view: FleetView, crew: Classified, state: FleetState, wish: _Wish) -> int:
    """What holds back new workers only: a pause, the breaker, a provider that fails. Answers with how many may be asked for."""
    here = len(crew.staying)
    breaker, provider = breaker_leave(view, state.breaker), backoff_leave(view, state.backoff)
    if view.is_paused:
        wish.at_most(
            "pause", max(here, 0) if wish.workers > here else wish.workers, f"paused until {view.paused_until:%H:%M:%S}"
        )
        return 0
    if wish.workers > here:
        wish.at_most("breaker", here + breaker.most, breaker.reason)
        wish.at_most("provider", here + provider.most, provider.reason)
    return min(breaker.most, provider.most)
