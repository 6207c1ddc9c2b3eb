"""How often an n-th worker is needed, for how long and after what gaps; and so for how long it is worth having. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

from drumbeat.fleet.model import FleetState
from drumbeat.fleet.policies import WorkerLevel

LEVELS = 512  #: workers that are learnt about one by one
GAPS = 256  #: gaps kept
SEEN = 40  #: the latest of a band that count
ENOUGH = 6  #: gaps from which it is learnt how long keeping pays
RECENT = 0.2  #: how much one use counts for the mean of a band's uses
FORGOTTEN = 6 * 3600.0  #: seconds after which a level that nobody has or needs is no longer followed
WAITING = 1.0  #: worker-seconds that a second of a job's waiting is worth
CHOICES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  #: how long to keep a worker, in restarts' worth

Levels = tuple[tuple[bool, float], ...]
Spans = tuple[tuple[int, float], ...]


def _band(level: int) -> int:
    return level if level < 4 else 4 + int(3 * log2(level / 4))


BANDS = tuple(_band(level) for level in range(LEVELS))  #: levels learnt about together: the first alone, then more and more


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualTimes:
    """How long things take here, in seconds."""

    lag: float
    every: float
    service: float | None

    @property
    def reach(self) -> float:
        """From a job's coming to the readiness of a worker asked for it, at the longest; also what a restart is worth."""
        return self.lag + self.every


def follow(before: FleetState, at: float, demand: int, here: int) -> tuple[Levels, Spans, Spans]:
    """Which levels are needed now and since when, with the gaps and the uses that have just ended."""
    uses, gaps, levels = dict(before.uses), list(before.gaps), list[tuple[bool, float]]()
    count = max(min(max(here, demand), LEVELS), len(before.levels))
    for n in range(count):
        was = before.levels[n] if n < len(before.levels) else None
        if was is not None and was[0] == (n < demand):
            levels.append(was)
            continue
        levels.append((n < demand, at))
        if was is not None and was[0]:
            uses[BANDS[n]] = _mixed(uses.get(BANDS[n]), at - was[1])
        elif was is not None:
            gaps.append((BANDS[n], at - was[1]))
    while len(levels) > here and not levels[-1][0] and at - levels[-1][1] > FORGOTTEN:
        levels.pop()
    return tuple(levels), tuple(gaps[-GAPS:]), tuple(sorted(uses.items()))


def _mixed(mean: float | None, one: float) -> float:
    return one if mean is None else mean + (one - mean) * RECENT


def worth(state: FleetState, at: float, needed: int, here: int, pace: UsualTimes) -> tuple[WorkerLevel, ...]:
    """The levels of workers that are here beyond those needed: for how long each was not, and for how long having it pays."""
    keeping = _Keeping(pace, state)
    return tuple(
        WorkerLevel(idle=0.0 if is_needed else at - since, keep=keeping.keep(n, 0.0 if is_needed else at - since))
        for n, (is_needed, since) in enumerate(state.levels[needed:here], needed)
    )


class _Keeping:
    """What letting go costs, against what keeping does."""

    def __init__(self, pace: UsualTimes, state: FleetState) -> None:
        self._pace = pace
        self._uses: Mapping[int, float] = dict(state.uses)
        self._gaps: dict[int, list[float]] = defaultdict(list)
        for band, seconds in state.gaps:
            self._gaps[band].append(seconds)
        self._known: dict[tuple[int, float], float] = {}

    def keep(self, level: int, idle: float) -> float:
        """For how long to have a worker that is not needed: a restart's worth at least.

        Before enough gaps are known it is kept until that has cost as much as losing it would (ski rental).
        """
        again, gaps = self.again(level), self._gaps[BANDS[level]][-SEEN:]
        aged = idle if idle > self._pace.lag else 0.0
        if len(gaps) + (aged > 0) < ENOUGH:
            return again
        key = BANDS[level], aged
        if key not in self._known:
            self._known[key] = least(self._pace.reach, [*gaps, aged] if aged else gaps, again)
        return self._known[key]

    def again(self, level: int) -> float:
        """What not having it costs when it is needed, in worker-seconds: jobs that wait, perhaps a start; a restart at least.

        The first worker's job waits for a start. Without a further one jobs wait until one of the others is free, the longer
        and the more of them, the longer so many are needed; a start helps after its time. The less they wait, the less likely
        it is that anybody is started for them.
        """
        reach = self._pace.reach
        service = min(self._pace.service or reach, reach)
        used = min(self._uses.get(BANDS[level], service), reach)
        wait = reach if level == 0 else min(reach, max(used, service) / level)
        jobs = max(1.0, used / max(self._pace.service or reach, 0.001))
        return max(WAITING * wait * jobs + self._pace.lag * wait / reach, reach)


def least(restart: float, gaps: Sequence[float], again: float) -> float:
    """For how long to keep a worker, by what would have cost least in these gaps.

    Only times count that would have cost no more than twice the best in hindsight, in these gaps and in any gap that comes
    next. The cost of losing the worker is always such a time.
    """
    best = sum([min(gap, again) for gap in gaps])
    costs = {keep: cost_of_keeping(keep, gaps, again) for keep in (again, *(choice * restart for choice in CHOICES))}
    safe = [keep for keep, cost in costs.items() if cost + keep + again <= 2 * (best + min(keep, again))]
    return min(safe, key=lambda keep: (costs[keep], keep), default=again)


def cost_of_keeping(keep: float, gaps: Sequence[float], again: float) -> float:
    """Worker-seconds: the gap if the worker is kept throughout, else the time it was kept and what losing it costs."""
    return sum([gap if gap <= keep else keep + again for gap in gaps])
