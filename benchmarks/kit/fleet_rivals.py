"""Rules of other autoscalers, as controllers of the fleet's simulation.

Where a rule leaves a detail open, it is decided in the rule's favour: the rules see running jobs as well as queued ones, and
drain only idle workers.
"""

from collections import deque
from math import ceil

from drumbeat.fleet.simulate import SimulatedOrders, SimulatedWorker, World

STABILISATION = 300.0
COOLDOWN = 300.0


class _Rival:
    """The part that all rules share: starts or drains workers until there are as many as ``wish`` returns."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._made = 0

    def wish(self, world: World) -> int:
        raise AssertionError("subclasses implement wish")

    def __call__(self, world: World) -> SimulatedOrders:
        staying = [each for each in world.machines.values() if not each.leaving]
        wanted = min(self.wish(world), self.most)
        if wanted >= len(staying):
            return SimulatedOrders(spawn=[self._next() for _ in range(wanted - len(staying))])
        return SimulatedOrders(drain=[each.name for each in _spare(staying)[: len(staying) - wanted]])

    def _next(self) -> tuple[str, int]:
        self._made += 1
        return f"rival-{self._made}", self._made


def _spare(staying: list[SimulatedWorker]) -> list[SimulatedWorker]:
    """Return the idle workers, the newest first."""
    return sorted((each for each in staying if not each.jobs), key=lambda each: -each.created)


def _current(world: World) -> int:
    return sum(1 for each in world.machines.values() if not each.leaving)


class HpaLike(_Rival):
    """The rule of Kubernetes HPA for jobs per worker, evaluated every 15 s with 10 % tolerance.

    It scales up to at most twice the workers (or to 4), and down only to the highest number wished in the last 300 s.
    """

    every = 15.0

    def __init__(self, most: int, target: float = 1.0, least: int = 1) -> None:
        super().__init__(most)
        self.target, self.least = target, least
        self._window: deque[tuple[float, int]] = deque()

    def wish(self, world: World) -> int:
        here, load = _current(world), len(world.queue) + world.claimed
        exact = load / self.target
        wanted = here if here and abs(1 - exact / here) <= 0.1 else ceil(exact)
        wanted = max(min(wanted, max(2 * here, 4)), self.least)
        self._window.append((world.now, wanted))
        while self._window[0][0] < world.now - STABILISATION:
            self._window.popleft()
        return wanted if wanted >= here else min(here, max(each for _, each in self._window))


class KedaLike(HpaLike):
    """The rule of KEDA: no workers after 300 s without jobs; else HPA with five jobs per worker (KEDA's default)."""

    def __init__(self, most: int) -> None:
        super().__init__(most, target=5.0)
        self._active = float("-inf")

    def wish(self, world: World) -> int:
        if world.queue or world.claimed:
            self._active = world.now
        return super().wish(world) if world.now - self._active <= COOLDOWN else 0


class DaskLike(_Rival):
    """The rule of Dask Adaptive, evaluated every second: one worker for 5 s of expected work, at most one for each job.

    It scales down when three evaluations in a row suggest it.
    """

    every = 1.0
    target = 5.0

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._mean, self._lower = 0.5, 0

    def wish(self, world: World) -> int:
        for _, took, _ in world.finished:
            self._mean += 0.1 * (took - self._mean)
        jobs, here = len(world.queue) + world.claimed, _current(world)
        wanted = min(ceil(jobs * self._mean / self.target), jobs)
        self._lower = self._lower + 1 if wanted < here else 0
        return here if wanted < here and self._lower < 3 else wanted
