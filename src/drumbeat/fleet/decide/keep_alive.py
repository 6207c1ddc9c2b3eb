"""Learn from past demand how long to keep each worker that the pool does not need now. Pure.

Levels are counted from 0: level n stands for worker n + 1, and is needed while the pool has work for more than n workers. A use
is a time in which a level is needed, a gap the time between two uses. Neighbouring levels form a band and share their data."""

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
    """Return, for each n, whether more than n workers are needed and the time since which this is so. Also return the past gaps
    and the mean length of uses.

    A use is a time in which more than n workers were needed, a gap the time between two uses. ``here`` workers exist now."""
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
    """Return, for each worker from number ``needed`` + 1 to number ``here``, how long the pool has not needed that many workers
    and how long to keep that worker. ``here`` workers exist now."""
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

        Until enough gaps between uses are known, keep it until keeping it has cost as much as losing it
        would (the ski rental rule)."""
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
        new worker is ready; the longer the worker is needed, the more jobs wait. The result is at least a restart's cost."""
        reach = self._times.reach
        service = min(self._times.service or reach, reach)
        used = min(self._uses.get(BANDS[level], service), reach)
        wait = reach if level == 0 else min(reach, max(used, service) / level)
        jobs = max(1.0, used / max(self._times.service or reach, 0.001))
        return max(WAIT_COST * wait * jobs + self._times.lag * wait / reach, reach)


def best_keep_time(restart: float, gaps: Sequence[float], loss_cost: float) -> float:
    """Return how many seconds to keep a worker that is not needed: the time that would have cost least in these past gaps.

    In a gap the worker is not needed; ``loss_cost`` is the cost, in seconds, if it is gone when the gap ends. The result is
    ``loss_cost`` or one of a few multiples of ``restart``. A multiple is chosen only if, after another gap of the worst length,
    its total cost is at most twice that of ideal choices, which know the length of each gap in advance. ``loss_cost`` always
    meets this condition."""
    best = sum([min(gap, loss_cost) for gap in gaps])
    choices = (loss_cost, *(choice * restart for choice in KEEP_CHOICES))
    costs = {keep: cost_of_keeping(keep, gaps, loss_cost) for keep in choices}
    safe = [keep for keep, cost in costs.items() if cost + keep + loss_cost <= 2 * (best + min(keep, loss_cost))]
    return min(safe, key=lambda keep: (costs[keep], keep), default=loss_cost)


def cost_of_keeping(keep: float, gaps: Sequence[float], loss_cost: float) -> float:
    """Return the worker-seconds it costs to keep a worker for ``keep`` seconds of each gap (a time in which it is not needed).

    A gap up to ``keep`` costs its length; a longer one costs ``keep`` + ``loss_cost``, as the worker is gone at its end."""
    return sum([gap if gap <= keep else keep + loss_cost for gap in gaps])
