"""Learn how often the pool needs its n-th worker, for how long and after what gaps, to decide how long to keep it. Pure.

Level n is needed while the pool has work for more than n workers. A use is a time in which a level is needed, a gap is the time
between two uses. Neighbouring levels form a band and share what is learnt.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

from drumbeat.fleet.model import FleetState
from drumbeat.fleet.policies import WorkerLevel

LEVELS = 512  #: maximum number of levels that are tracked
GAPS = 256  #: maximum number of gaps that are remembered
RECENT_GAPS = 40  #: how many of a band's latest gaps are used
MIN_GAPS = 6  #: number of gaps needed before the keep time is learnt from them
USE_WEIGHT = 0.2  #: weight of the newest use in a band's moving mean
FORGOTTEN = 6 * 3600.0  #: a level that has no worker and is not needed for this many seconds is no longer tracked
WAIT_COST = 1.0  #: cost of one second that a job waits, in worker-seconds
KEEP_CHOICES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  #: keep times to choose from, as multiples of the cost of a restart

Levels = tuple[tuple[bool, float], ...]
Spans = tuple[tuple[int, float], ...]


def _band(level: int) -> int:
    return level if level < 4 else 4 + int(3 * log2(level / 4))


BANDS = tuple(_band(level) for level in range(LEVELS))  #: the band of each level


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualTimes:
    """How long a start, a beat and a job take in this pool, in seconds."""

    lag: float
    every: float
    service: float | None

    @property
    def reach(self) -> float:
        """The longest wait for a new worker, in seconds: one beat until it is requested, and the time it takes to start."""
        return self.lag + self.every


def update_levels(before: FleetState, at: float, demand: int, here: int) -> tuple[Levels, Spans, Spans]:
    """For each n, return since when n workers have been needed or not, and how long such times lasted (uses and gaps)."""
    uses, gaps, levels = dict(before.uses), list(before.gaps), list[tuple[bool, float]]()
    count = max(min(max(here, demand), LEVELS), len(before.levels))
    for n in range(count):
        was = before.levels[n] if n < len(before.levels) else None
        if was is not None and was[0] == (n < demand):
            levels.append(was)
            continue
        levels.append((n < demand, at))
        if was is not None and was[0]:
            uses[BANDS[n]] = _moving_mean(uses.get(BANDS[n]), at - was[1])
        elif was is not None:
            gaps.append((BANDS[n], at - was[1]))
    while len(levels) > here and not levels[-1][0] and at - levels[-1][1] > FORGOTTEN:
        levels.pop()
    return tuple(levels), tuple(gaps[-GAPS:]), tuple(sorted(uses.items()))


def _moving_mean(mean: float | None, one: float) -> float:
    return one if mean is None else mean + (one - mean) * USE_WEIGHT


def worker_levels(state: FleetState, at: float, needed: int, here: int, times: UsualTimes) -> tuple[WorkerLevel, ...]:
    """Return for each surplus worker how long the pool has not needed so many workers, and how long to keep this one."""
    keep_times = _KeepTimes(times, state)
    return tuple(
        WorkerLevel(idle=0.0 if is_needed else at - since, keep=keep_times.keep(n, 0.0 if is_needed else at - since))
        for n, (is_needed, since) in enumerate(state.levels[needed:here], needed)
    )


class _KeepTimes:
    """Computes how long to keep a surplus worker, by weighing the cost of keeping it against the cost of losing it."""

    def __init__(self, times: UsualTimes, state: FleetState) -> None:
        self._times = times
        self._uses: Mapping[int, float] = dict(state.uses)
        self._gaps: dict[int, list[float]] = defaultdict(list)
        for band, seconds in state.gaps:
            self._gaps[band].append(seconds)
        self._known: dict[tuple[int, float], float] = {}

    def keep(self, level: int, idle: float) -> float:
        """Return how many seconds to keep a worker that is not needed: at least as long as a restart takes.

        Until enough gaps between uses are known, keep it until that has cost as much as losing it would (ski rental rule).
        """
        loss_cost, gaps = self.loss_cost(level), self._gaps[BANDS[level]][-RECENT_GAPS:]
        aged = idle if idle > self._times.lag else 0.0
        if len(gaps) + (aged > 0) < MIN_GAPS:
            return loss_cost
        key = BANDS[level], aged
        if key not in self._known:
            self._known[key] = best_keep_time(self._times.reach, [*gaps, aged] if aged else gaps, loss_cost)
        return self._known[key]

    def loss_cost(self, level: int) -> float:
        """Estimate the cost in worker-seconds if this worker is gone when it is needed: jobs wait, or another is started.

        If no worker is left, a job waits for a start. Otherwise jobs wait until another worker is free, but at most until a
        new worker is ready; the longer the worker is needed, the more jobs wait. The result is at least the cost of a restart.
        """
        reach = self._times.reach
        service = min(self._times.service or reach, reach)
        used = min(self._uses.get(BANDS[level], service), reach)
        wait = reach if level == 0 else min(reach, max(used, service) / level)
        jobs = max(1.0, used / max(self._times.service or reach, 0.001))
        return max(WAIT_COST * wait * jobs + self._times.lag * wait / reach, reach)


def best_keep_time(restart: float, gaps: Sequence[float], loss_cost: float) -> float:
    """Return how many seconds to keep a worker that is not needed: the time that would have cost least in these past gaps.

    A time is ruled out if, after the worst possible next gap, it would have cost more than twice the best choice in hindsight.
    Keeping for ``loss_cost`` seconds is never ruled out.
    """
    best = sum([min(gap, loss_cost) for gap in gaps])
    choices = (loss_cost, *(choice * restart for choice in KEEP_CHOICES))
    costs = {keep: cost_of_keeping(keep, gaps, loss_cost) for keep in choices}
    safe = [keep for keep, cost in costs.items() if cost + keep + loss_cost <= 2 * (best + min(keep, loss_cost))]
    return min(safe, key=lambda keep: (costs[keep], keep), default=loss_cost)


def cost_of_keeping(keep: float, gaps: Sequence[float], loss_cost: float) -> float:
    """Sum the cost of gaps in worker-seconds: a gap up to ``keep`` costs its length, a longer one ``keep`` + ``loss_cost``."""
    return sum([gap if gap <= keep else keep + loss_cost for gap in gaps])
