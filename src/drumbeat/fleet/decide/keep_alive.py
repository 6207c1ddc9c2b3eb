"""Learn how often the pool needs its n-th worker, for how long and after what gaps, to decide how long to keep it. Pure.

Levels count from 0: level n is needed while the pool has work for more than n workers.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

from drumbeat.fleet.model import FleetState
from drumbeat.fleet.policies import WorkerLevel

LEVELS = 512  #: levels that are tracked, at most
GAPS = 256  #: gaps remembered, at most
RECENT_GAPS = 40  #: gaps of a band that are used, the latest ones
MIN_GAPS = 6  #: gaps needed before the keep time is learnt from them
USE_WEIGHT = 0.2  #: weight of the newest use in a band's moving mean
FORGOTTEN = 6 * 3600.0  #: seconds after which an unused level without a worker is no longer tracked
WAIT_COST = 1.0  #: cost of one second of a job's waiting, in worker-seconds
KEEP_CHOICES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  #: keep times to choose from, as multiples of the cost of a restart

Levels = tuple[tuple[bool, float], ...]
Spans = tuple[tuple[int, float], ...]


def _band(level: int) -> int:
    return level if level < 4 else 4 + int(3 * log2(level / 4))


BANDS = tuple(_band(level) for level in range(LEVELS))  #: each level's band: levels of one band share what is learnt


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualTimes:
    """How long a start, a beat and a job take in this pool, in seconds."""

    lag: float
    every: float
    service: float | None

    @property
    def reach(self) -> float:
        """The longest time from a job's arrival until a worker started for it is ready; also the cost of a restart."""
        return self.lag + self.every


def update_levels(before: FleetState, at: float, demand: int, here: int) -> tuple[Levels, Spans, Spans]:
    """The levels after this beat (needed or not, and since when), and gaps and uses including those that just ended."""
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
    """For each surplus worker's level: how long it has not been needed, and how long to keep it."""
    keep_times = _KeepTimes(times, state)
    return tuple(
        WorkerLevel(idle=0.0 if is_needed else at - since, keep=keep_times.keep(n, 0.0 if is_needed else at - since))
        for n, (is_needed, since) in enumerate(state.levels[needed:here], needed)
    )


class _KeepTimes:
    """How long to keep a surplus worker: weighs the cost of keeping it against the cost of losing it."""

    def __init__(self, times: UsualTimes, state: FleetState) -> None:
        self._times = times
        self._uses: Mapping[int, float] = dict(state.uses)
        self._gaps: dict[int, list[float]] = defaultdict(list)
        for band, seconds in state.gaps:
            self._gaps[band].append(seconds)
        self._known: dict[tuple[int, float], float] = {}

    def keep(self, level: int, idle: float) -> float:
        """How long to keep a worker that is not needed: at least as long as a restart costs.

        Before enough gaps are known, it is kept until that has cost as much as losing it would (the ski rental rule).
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
        """The cost of missing this worker when it is needed again, in worker-seconds: jobs wait, and perhaps a start.

        Without any worker, a job waits for a start. Without a further worker, jobs wait until another worker is free; a longer
        use makes more jobs wait, and longer, but at most until a new worker is ready. The shorter the wait, the less likely a
        start. The result is at least the cost of a restart.
        """
        reach = self._times.reach
        service = min(self._times.service or reach, reach)
        used = min(self._uses.get(BANDS[level], service), reach)
        wait = reach if level == 0 else min(reach, max(used, service) / level)
        jobs = max(1.0, used / max(self._times.service or reach, 0.001))
        return max(WAIT_COST * wait * jobs + self._times.lag * wait / reach, reach)


def best_keep_time(restart: float, gaps: Sequence[float], loss_cost: float) -> float:
    """The keep time that would have cost least in these gaps.

    A keep time is considered only if it costs at most twice the optimum in hindsight, over these gaps and any next gap.
    ``loss_cost`` always meets this.
    """
    best = sum([min(gap, loss_cost) for gap in gaps])
    choices = (loss_cost, *(choice * restart for choice in KEEP_CHOICES))
    costs = {keep: cost_of_keeping(keep, gaps, loss_cost) for keep in choices}
    safe = [keep for keep, cost in costs.items() if cost + keep + loss_cost <= 2 * (best + min(keep, loss_cost))]
    return min(safe, key=lambda keep: (costs[keep], keep), default=loss_cost)


def cost_of_keeping(keep: float, gaps: Sequence[float], loss_cost: float) -> float:
    """Cost in worker-seconds: the gap if the worker is kept throughout, else the time it is kept plus the cost of losing it."""
    return sum([gap if gap <= keep else keep + loss_cost for gap in gaps])
