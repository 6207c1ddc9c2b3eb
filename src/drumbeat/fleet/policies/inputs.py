"""What a policy weighs: the queue, the workers' free time, and how long everything takes, in seconds."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from drumbeat.fleet.model import FleetPolicy, QueueView, Wish


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLevel:
    """How long the pool has not needed its n-th worker, and how long that one is worth having."""

    idle: float  #: seconds since so many were last needed
    keep: float  #: seconds for which having it is cheaper than not


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInput:
    """One pool as a policy sees it. Only workers that stay are counted."""

    now: datetime
    policy: FleetPolicy
    queue: QueueView
    busy: int = 0  #: workers that hold a job
    idle: int = 0  #: workers that could take one now
    starting: int = 0
    free: int = 0  #: places for a job that are free now
    free_in: tuple[float, ...] = ()  #: for each other place: seconds until it is free
    lag: float = 1.0  #: from asking for a worker to its being ready
    service: float | None = None  #: seconds a job takes; None: unknown
    variance: float = 0.0  #: of those seconds
    rate: float = 0.0  #: jobs a second that came of late
    sure: float = 0.0  #: jobs a second that came without a break
    coming: int = 0  #: jobs that are known to come due within the lag
    needed: int = 0  #: ready workers that are of use now
    levels: tuple[WorkerLevel, ...] = ()  #: of workers beyond those needed now, in rising order

    @property
    def capacity(self) -> int:
        return self.busy + self.idle + self.starting

    @property
    def restart(self) -> float:
        """What a restart is worth, in seconds: a worker is paid for while it starts, and one beat longer than it is wanted."""
        return self.lag + self.policy.every.total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """How many workers a policy wants, by its own rules only."""

    desired: int
    wishes: tuple[Wish, ...]


Policy = Callable[[PolicyInput], Opinion]


def highest(*wishes: Wish) -> Opinion:
    """What the most demanding rule wants."""
    return Opinion(desired=max(wish.workers for wish in wishes), wishes=wishes)
