"""Input and output of a scaling policy. All times are in seconds."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from drumbeat.fleet.model import FleetPolicy, QueueView, RuleWish


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLevel:
    """How long the pool has needed fewer than n workers, and how long to keep the n-th worker nevertheless."""

    idle: float  #: seconds since n workers were last needed
    keep: float  #: seconds for which keeping the worker is cheaper than restarting it


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInput:
    """What a policy knows about a pool. Draining workers are not counted."""

    now: datetime
    policy: FleetPolicy
    queue: QueueView
    busy: int = 0  #: workers that hold a job
    idle: int = 0  #: workers that could take a job now
    starting: int = 0
    free: int = 0  #: job slots that are free now; a worker has ``concurrency`` slots
    free_in: tuple[float, ...] = ()  #: seconds until each of the other job slots is free
    lag: float = 1.0  #: spawn lag: seconds from asking for a worker until it is ready
    service: float | None = None  #: seconds a job takes; None: unknown
    variance: float = 0.0  #: variance of ``service``, in seconds squared
    rate: float = 0.0  #: jobs per second that arrived recently
    steady_rate: float = 0.0  #: jobs per second that arrive steadily: the lowest of the recent rates
    coming: int = 0  #: delayed jobs that come due within the spawn lag
    needed: int = 0  #: workers that are in use now
    levels: tuple[WorkerLevel, ...] = ()  #: one entry for each worker beyond those needed now, in rising order

    @property
    def capacity(self) -> int:
        return self.busy + self.idle + self.starting

    @property
    def restart(self) -> float:
        """Paid seconds that stopping and restarting a worker wastes: its start, and one idle beat before it is stopped."""
        return self.lag + self.policy.every.total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """How many workers a policy wants before limits are applied, and what each of its rules wants."""

    desired: int
    wishes: tuple[RuleWish, ...]


Policy = Callable[[PolicyInput], PolicyResult]


def highest(*wishes: RuleWish) -> PolicyResult:
    """Return the largest number of workers that any of the rules wants, together with what each rule wants."""
    return PolicyResult(desired=max(wish.workers for wish in wishes), wishes=wishes)
