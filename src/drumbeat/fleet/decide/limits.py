"""Limits on the number of workers: schedule, minimum, maximum, money, stabilisation, cooldown, breaker, backoff, pause."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil

from drumbeat.fleet.breaker import UNLIMITED, backoff_allowance, breaker_allowance, next_backoff, next_breaker
from drumbeat.fleet.decide.classify import Classified, has_queue
from drumbeat.fleet.model import FleetPolicy, FleetState, FleetView, Limit, RuleWish, ScalingVerdict, Schedule, WishedSize
from drumbeat.fleet.money import affordable
from drumbeat.fleet.policies import PolicyResult


@dataclass(slots=True)
class _LimitedCount:
    """A number of workers to which limits are applied one after another; each limit that changes it is recorded."""

    workers: int
    limits: list[Limit] = field(default_factory=list)

    def at_least(self, name: str, least: int, reason: str) -> None:
        self._set(name, max(self.workers, least), reason)

    def at_most(self, name: str, most: int, reason: str) -> None:
        self._set(name, min(self.workers, most), reason)

    def _set(self, name: str, after: int, reason: str) -> None:
        if after != self.workers:
            self.limits.append(Limit(name=name, before=self.workers, after=after, reason=reason))
            self.workers = after


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedDecision:
    """How many workers are wanted within all limits, and the state including breaker and backoff."""

    verdict: ScalingVerdict
    state: FleetState
    bound: int  #: most workers that schedule, maximum and money allow; workers above this number are drained sooner
    paid: int  #: most workers that the money ceilings allow; workers above this number are drained at once
    calls: int  #: the most instances to request from the provider in this beat
    room: int  #: how many more instances can run; negative: more run than allowed


def apply_limits(view: FleetView, classified: Classified, opinion: PolicyResult, state: FleetState) -> BoundedDecision:
    """Apply every limit to what the policy wants. Each limit that changes the number is recorded with its reason."""
    state = replace(state, breaker=next_breaker(view), backoff=next_backoff(view), failed_spawns=_failed_spawns(view, state))
    here, wish = len(classified.staying), _LimitedCount(opinion.desired)
    wishes = opinion.wishes
    if has_queue(view):
        wishes = (*wishes, *_slo(view, classified))
        wish.workers = max(each.workers for each in wishes)
        if view.queue is None:
            wish.at_most("unread queue", here, "the queue could not be read: no worker is added")
            wish.at_least("unread queue", here, "the queue could not be read: no worker is drained")
        _bounds(view, wish)
    paid = _money(view, classified, wish)
    bound = min(paid, bounds_at(view.policy, view.now)[1] if has_queue(view) else UNLIMITED)
    state = replace(state, wanted=_window(view, state, wish.workers))
    if has_queue(view):
        _dampen(view, classified, state, wish, bound)
    room = _room(view, classified, wish)
    calls = _spawning(view, classified, state, wish)
    verdict = ScalingVerdict(desired=wish.workers, wishes=wishes, limits=tuple(wish.limits))
    return BoundedDecision(verdict=verdict, state=state, bound=bound, paid=paid, calls=calls, room=room)


def _failed_spawns(view: FleetView, state: FleetState) -> int:
    return state.failed_spawns + sum(call.cause is not None for call in (view.last.spawns if view.last else ()))


def _slo(view: FleetView, classified: Classified) -> Iterator[RuleWish]:
    """Ask for enough workers to run all claimable jobs at the same time, if the oldest has waited longer than ``wait_slo``."""
    queue, slo = view.queue, view.policy.wait_slo
    if slo is None or queue is None:
        return
    since = queue.oldest_claimable if queue.blocked else queue.oldest_ready
    if since is None or view.now - since <= slo:
        return
    waited = (view.now - since).total_seconds()
    workers = len(classified.busy) + ceil(queue.ready / view.policy.concurrency)
    yield RuleWish(
        rule="wait", workers=workers, reason=f"the oldest job has waited {waited:.0f} s, limit {slo.total_seconds():g} s"
    )


def bounds_at(policy: FleetPolicy, now: datetime) -> tuple[int, int, str]:
    """Return the current minimum and maximum of workers, and what sets them: ``policy``, or ``schedule`` if a schedule applies.

    If several schedules apply, the last one that sets a minimum (or a maximum) counts."""
    least, most, whose = policy.min_workers, policy.max_workers, "policy"
    for schedule in policy.schedules:
        if applies(schedule, now):
            least = schedule.min_workers if schedule.min_workers is not None else least
            most = schedule.max_workers if schedule.max_workers is not None else most
            whose = "schedule"
    return min(least, most), most, whose


def applies(schedule: Schedule, now: datetime) -> bool:
    """Whether a moment lies within a schedule's hours and days."""
    local = now + schedule.utc_offset
    minute, day = local.hour * 60 + local.minute, local.weekday()
    if schedule.begin < schedule.end:
        return schedule.begin <= minute < schedule.end and _on_day(schedule, day)
    if schedule.begin == schedule.end:
        return _on_day(schedule, day)
    return (minute >= schedule.begin and _on_day(schedule, day)) or (minute < schedule.end and _on_day(schedule, (day - 1) % 7))


def _on_day(schedule: Schedule, day: int) -> bool:
    return not schedule.days or day in schedule.days


def _bounds(view: FleetView, wish: _LimitedCount) -> None:
    least, most, whose = bounds_at(view.policy, view.now)
    wish.at_least(f"{whose} min_workers", least, f"at least {least} workers are kept")
    wish.at_most(f"{whose} max_workers", most, f"at most {most} workers are allowed")


def _money(view: FleetView, classified: Classified, wish: _LimitedCount) -> int:
    """Apply the money ceilings, after reserving the future cost of staying workers. Returns how many workers they allow."""
    allowed, name = affordable(view, classified.staying)
    wish.at_most(f"money per {name}", allowed, f"more workers would exceed the money ceiling per {name}")
    return allowed


def _window(view: FleetView, state: FleetState, workers: int) -> tuple[WishedSize, ...]:
    since = view.now - view.policy.damping("stabilisation")
    recent = tuple(each for each in state.wanted if each.at >= since)
    return (*recent, WishedSize(at=view.now, workers=workers)) if has_queue(view) else ()


def _dampen(view: FleetView, classified: Classified, state: FleetState, wish: _LimitedCount, bound: int) -> None:
    """Prevent frequent scaling up and down, by stabilisation, cooldowns and step limits. Keeps at most ``bound`` workers."""
    here, policy = len(classified.staying), view.policy
    ceiling = min(bound, here)
    highest = max((each.workers for each in state.wanted), default=0)
    wish.at_least("stabilisation", min(highest, ceiling), f"{highest} workers were wanted within the stabilisation window")
    if wish.workers > here:
        _hold_up(view, state, wish, here)
        if policy.step_up is not None:
            wish.at_most("step_up", here + policy.step_up, f"at most {policy.step_up} workers are added in one beat")
    elif wish.workers < here:
        _hold_down(view, classified, state, wish, ceiling)
        if policy.step_down is not None:
            reason = f"at most {policy.step_down} workers are drained in one beat"
            wish.at_least("step_down", min(here - policy.step_down, ceiling), reason)


def _hold_up(view: FleetView, state: FleetState, wish: _LimitedCount, here: int) -> None:
    """Prevent scaling up too soon after the last scaling. Scaling up to the minimum is always allowed."""
    least = max(bounds_at(view.policy, view.now)[0], here)
    if _within(view.now, state.up_at, view.policy.cooldown_up):
        wish.at_most("cooldown_up", least, f"the fleet last scaled up at {state.up_at:%H:%M:%S} UTC")
    if here and _within(view.now, state.down_at, view.policy.damping("turn_after")):
        wish.at_most("turn_after", least, f"the fleet last scaled down at {state.down_at:%H:%M:%S} UTC")


def _hold_down(view: FleetView, classified: Classified, state: FleetState, wish: _LimitedCount, ceiling: int) -> None:
    if not classified.may_drain:
        reason = "not everything could be read, or the provider's list has shrunk: no worker is drained yet"
        wish.at_least("unsure", ceiling, reason)
    if _within(view.now, state.down_at, view.policy.damping("cooldown_down")):
        wish.at_least("cooldown_down", ceiling, f"the fleet last scaled down at {state.down_at:%H:%M:%S} UTC")
    if _within(view.now, state.up_at, view.policy.damping("turn_after")):
        wish.at_least("turn_after", ceiling, f"the fleet last scaled up at {state.up_at:%H:%M:%S} UTC")


def _within(now: datetime, moment: datetime | None, span: timedelta) -> bool:
    return moment is not None and now - moment < span


def _room(view: FleetView, classified: Classified, wish: _LimitedCount) -> int:
    """Return how many more instances can run; negative if too many run. Instances that leave or might still run count too."""
    here, (_, most, whose) = len(classified.staying), bounds_at(view.policy, view.now)
    if not has_queue(view):
        most, whose = max(view.policy.max_workers, view.policy.workers), "policy"
    room = most - here - classified.outgoing
    if wish.workers > here:
        reason = f"{classified.outgoing} more instances are leaving or might still run; the limit is {most} at once"
        wish.at_most(f"{whose} max_workers", here + max(room, 0), reason)
    return room


def _spawning(view: FleetView, classified: Classified, state: FleetState, wish: _LimitedCount) -> int:
    """Apply limits on new workers: a pause, the breaker, a failing provider. Returns how many workers can be requested."""
    here = len(classified.staying)
    breaker, provider = breaker_allowance(view, state.breaker), backoff_allowance(view, state.backoff)
    if view.is_paused:
        wish.at_most(
            "pause", max(here, 0) if wish.workers > here else wish.workers, f"paused until {view.paused_until:%H:%M:%S} UTC"
        )
        return 0
    if wish.workers > here:
        wish.at_most("breaker", here + breaker.most, breaker.reason)
        wish.at_most("provider", here + provider.most, provider.reason)
    return min(breaker.most, provider.most)
