"""What a run of the fleet may spend, drawn from its seed, and whether by the provider's own meter it kept to that.

What a controller can be held to: a beat that saw everything at t leaves money for all who are kept, started or already asked to
leave, until t + COVERED (three beats and the time to drain). From this follow two promises, and no more:

1. **What is bought is paid for.** Whenever a pod is made, by a beat that began at t, the meter so far and all pods that are
   there until t + COVERED are within every ceiling, and what runs at once is within that of the hour. The dead buy nothing, so
   this holds however long nobody decides afterwards.
2. **Who cannot be kept is let go in time.** The next beat asks whoever does not fit to leave, and the one after the time to
   drain ends it. So as long as beats that see everything and do what they decided are no more than LATE apart, no hour, day or
   month is above its ceiling by more than a granule. Nobody but a controller ends pods: for each second beyond LATE in which
   none was able to, what is there goes on costing. Exactly that is allowed for, as the meter counted it, and only since the
   last beat from which the ceiling could still be kept. A drain begins when it is asked for, which in a slow beat is later
   than what that beat saw: as much as the slowest took since then is allowed for too.

The decision knows the time by the store's clock. Where that jumps, each pod may be taken for younger than it is by as much as
the clock went back in its life, and what is spent within LEAP of midnight, or will be, for another day's.

Money is counted by rows, and a provider that makes two pods of one creation makes one that has none: nobody decided on it, and
nobody knows of it before a list shows it. It is ended as a stray, and what it cost is allowed for. Of a pod that was asked for
nothing is: whoever asks for a second one is found out by its name.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil
from random import Random

from drumbeat.core.clock import Clock
from drumbeat.core.pool import PoolId
from simulate.fleet_weather import LEAP
from simulate.virtual_time import EPOCH
from spawn.runpod.machines import SimPod
from spawn.runpod.simulator import RunPodSimulator

PRICE = 0.5  #: per hour, the most a pod may cost
EVERY = timedelta(seconds=30)
DRAIN = timedelta(seconds=180)
LATE = EVERY * 3  #: what the decision itself allows for
COVERED = LATE + DRAIN
USUAL_START = timedelta(seconds=120)
HOUR = timedelta(hours=1)
CHEAPEST = 0.2  #: of the pods there are
_LEAP = timedelta(seconds=LEAP)
_DAWNS = (
    timedelta(),
    timedelta(minutes=40),
    timedelta(days=30, hours=23, minutes=35),
)  #: also just before a day and a month end


@dataclass(frozen=True, slots=True, kw_only=True)
class Purse:
    """What may be spent, how it is billed, and when in the month all begins."""

    ceilings: Mapping[str, float] = field(default_factory=dict)  #: per hour, day, month
    granule: timedelta = timedelta(minutes=1)
    begins: datetime = EPOCH
    work: float = 0.0  #: seconds of work that would cost twice as much; 0: whatever there is

    @property
    def a_granule(self) -> float:
        return PRICE * (self.granule / HOUR)


def purse(chance: Random) -> Purse:
    """A fifth have no ceiling, two fifths one that may not matter, two fifths one that binds."""
    kind, pick = chance.randrange(5), chance.choice
    granule = pick([timedelta(seconds=1), timedelta(minutes=1), timedelta(minutes=1), timedelta(minutes=5)])
    begins = EPOCH + pick(_DAWNS)
    if kind == 0:
        return Purse(granule=granule, begins=begins)
    if kind < 3:
        loose = {"hour": pick([None, 0.6, 1.2]), "day": pick([None, 0.1, 0.2]), "month": pick([None, None, 0.3])}
        return Purse(ceilings={name: most for name, most in loose.items() if most}, granule=granule, begins=begins)
    a_new_one = PRICE * (ceil((COVERED + USUAL_START) / granule) * granule / HOUR)
    name, most = pick(["hour", "day", "month"]), a_new_one * chance.uniform(1.05, 4)
    ceilings = {name: PRICE * chance.uniform(1.05, 2.5) if name == "hour" else most}
    return Purse(ceilings=ceilings, granule=granule, begins=begins, work=2 * most / CHEAPEST * 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A beat that saw everything, and did what it decided about who leaves."""

    began: datetime
    ended: datetime


@dataclass(slots=True, kw_only=True)
class Meter:
    """The provider's own, and what is to be said of it."""

    purse: Purse
    simulator: RunPodSimulator
    clock: Clock
    pool_id: PoolId  #: whose pods are metered
    decided: list[Decided] = field(default_factory=list)
    leaps: list[tuple[datetime, timedelta]] = field(default_factory=list)  #: of the store's clock, and how far back
    asked_in: datetime = EPOCH  #: when the beat began from which the creation comes that is being done
    unpaid: list[str] = field(default_factory=list)  #: what was bought and could not be paid for

    @property
    def pods(self) -> Sequence[SimPod]:
        """All that were ever made for this fleet."""
        mine = f"drumbeat.{self.pool_id}."
        return [pod for pod in self.simulator.pods if pod.name.startswith(mine)]

    def alive(self) -> Sequence[SimPod]:
        """Those that are billed now, whatever lists say."""
        return [pod for pod in self.pods if pod.is_billed()]

    def spent(self, begin: datetime, end: datetime) -> float:
        """What the pods have cost in this time: a begun granule is paid when it begins."""
        return sum(self._billed(pod, end) - self._billed(pod, begin) for pod in self.pods)

    def _billed(self, pod: SimPod, moment: datetime) -> float:
        if pod.created_at >= moment:
            return 0.0
        lived = min(ended(pod) or moment, moment) - pod.created_at
        return pod.price * (ceil(lived / self.purse.granule) * self.purse.granule / HOUR)

    def bought(self) -> None:
        """A pod was just made: whether all that are there now can be paid for until they could be gone."""
        now = self.clock.now()
        there = {pod.name: pod for pod in self.pods if ended(pod) is None}
        span = self.asked_in + COVERED - now
        for name, most in self.purse.ceilings.items():
            begin, end = period(name, now)
            if self.leaps and min(now - begin, end - now) < _LEAP:
                continue
            known = end - _LEAP if self.leaps else end
            due = sum(self._to_come(pod, now, min(span, known - now)) for pod in there.values())
            over = self.spent(begin, now) + due - most - self.purse.a_granule - self._beyond(begin, end)
            at_once = sum(pod.price for pod in there.values())
            if over > 0 or (name == "hour" and at_once > most):
                self.unpaid.append(f"{name} at {now:%H:%M:%S}: {over:+.4f}, {at_once:.2f} an hour for {len(there)} pods")

    def is_at_ease(self, rows: int) -> bool:
        """Whether there is money for twice what is there, or by so many live rows may be: no ceiling sends anybody away."""
        now, at_once = self.clock.now(), PRICE * max(sum(ended(pod) is None for pod in self.pods), rows)
        due = 2 * at_once * ((COVERED + USUAL_START + self.purse.granule) / HOUR)
        spent = {name: self.spent(period(name, now)[0], now) for name in self.purse.ceilings}
        return all(max(spent[name] + due, 2 * at_once) <= most for name, most in self.purse.ceilings.items())

    def _to_come(self, pod: SimPod, now: datetime, span: timedelta) -> float:
        return self._billed(pod, now + span) - self._billed(pod, now) if span > timedelta() else 0.0

    def used(self) -> Iterator[float]:
        """What share of its ceiling was spent in each hour, day and month."""
        for most, begin, end in self._periods():
            yield self.spent(begin, end) / most

    def passed(self) -> Iterator[tuple[float, float]]:
        """By how much each hour, day and month is above its ceiling (below zero: it is not), and what is to be allowed for."""
        for most, begin, end in self._periods():
            over = self.spent(begin, end) - most
            yield over, self._unled(begin, end, most) + self._beyond(begin, end) if over > 0 else 0.0

    def _periods(self) -> Iterator[tuple[float, datetime, datetime]]:
        """Each ceiling with each of its periods, as far as it has come."""
        for name, most in self.purse.ceilings.items():
            begin, end = period(name, self.purse.begins)
            while begin < self.clock.now():
                yield most, begin, min(end, self.clock.now())
                begin, end = period(name, end)

    def _unled(self, begin: datetime, end: datetime, most: float) -> float:
        """What pods cost while nobody was able to end them, since the ceiling could last be kept."""
        allowed, slowest, now = 0.0, 0.0, self.clock.now()
        beats = [*sorted(self.decided, key=lambda beat: beat.began), Decided(began=now, ended=now)]
        for earlier, later in pairwise(beats):
            if begin <= earlier.began < end and self._could_keep(earlier.began, begin, end, most):
                allowed = slowest = 0.0
            slowest = max(slowest, self._cost(max(earlier.began, begin), min(earlier.ended, end)))
            allowed += self._cost(max(earlier.began + LATE, begin), min(later.ended, end))
        return allowed + slowest

    def _could_keep(self, moment: datetime, begin: datetime, end: datetime, most: float) -> bool:
        there = [pod for pod in self.pods if pod.created_at <= moment and (ended(pod) or end) > moment]
        span = min(COVERED + self.purse.granule, end - moment)
        return self.spent(begin, moment) + sum(pod.price for pod in there) * (span / HOUR) <= most

    def _cost(self, begin: datetime, end: datetime) -> float:
        """Of these seconds, each pod's rounded up to the granule."""
        total = 0.0
        for pod in self.pods if begin < end else ():
            lived = min(ended(pod) or end, end) - max(pod.created_at, begin)
            if lived > timedelta():
                total += pod.price * (ceil(lived / self.purse.granule) * self.purse.granule / HOUR)
        return total

    def _beyond(self, begin: datetime, end: datetime) -> float:
        """What no decision could know of."""
        return self._misjudged(begin, end) + self._unasked(begin, min(end, self.clock.now()))

    def _unasked(self, begin: datetime, end: datetime) -> float:
        """What the second pods of one creation have cost."""
        asked = {(pod.name, pod.created_at): pod for pod in reversed(self.pods)}
        extra = [pod for pod in self.pods if asked[pod.name, pod.created_at] is not pod]
        return sum(self._billed(pod, end) - self._billed(pod, begin) for pod in extra)

    def _misjudged(self, begin: datetime, end: datetime) -> float:
        """What is not known to a decision whose clock jumps."""
        if not self.leaps:
            return 0.0
        now = self.clock.now()
        younger = sum(pod.price * (self._went_back(pod) / HOUR) for pod in self.pods)
        return younger + self._cost(begin, min(begin + _LEAP, now)) + self._cost(end - _LEAP, min(end, now))

    def _went_back(self, pod: SimPod) -> timedelta:
        gone = ended(pod) or self.clock.now()
        return sum((by for at, by in self.leaps if pod.created_at <= at <= gone and by > timedelta()), timedelta())


def ended(pod: SimPod) -> datetime | None:
    """When it was last billed."""
    ends = [moment for moment in (pod.stopped_at, pod.deleted_at) if moment is not None]
    return min(ends, default=None)


def period(name: str, moment: datetime) -> tuple[datetime, datetime]:
    """The hour, day or month of a moment: its begin and its end."""
    hour = moment.replace(minute=0, second=0, microsecond=0)
    if name == "hour":
        return hour, hour + HOUR
    day = hour.replace(hour=0)
    if name == "day":
        return day, day + timedelta(days=1)
    month = day.replace(day=1)
    return month, (month + timedelta(days=32)).replace(day=1)
