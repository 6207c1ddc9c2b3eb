"""A pool: a named set of workers, and the time limits for them, such as how late a heartbeat is allowed to be."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NewType

from drumbeat.core.engine import DEFAULT_ENGINE, ENGINE_IN_POLICY
from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import short_repr, time_span

PoolId = NewType("PoolId", str)


class PoolKind(StrEnum):
    """What a pool is used for."""

    BENCH = "bench"  #: private to one run; its id is the run's
    JOBS = "jobs"  #: a queue and the workers that empty it
    FLEET = "fleet"  #: long-lived workers that an autoscaler starts and stops


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Time limits for heartbeats, starts, drains and missing controllers."""

    heartbeat_every: timedelta
    stale_after: timedelta  #: a worker without a heartbeat for this long is suspect
    lost_after: timedelta  #: a worker without a heartbeat for this long is presumed dead
    give_up_after: timedelta  #: a worker cut off from the store for this long ends itself, before it is marked lost
    start_within: timedelta  #: longest wait for a new worker's first heartbeat, and of a ready worker for the event START
    drain_within: timedelta
    controller_gone_after: timedelta  #: workers leave when no controller has renewed its lease for this long

    def __post_init__(self) -> None:
        if not self.heartbeat_every < self.stale_after < self.lost_after:
            raise ValueError(
                f"expected heartbeat_every < stale_after < lost_after, got {time_span(self.heartbeat_every)}, "
                f"{time_span(self.stale_after)}, {time_span(self.lost_after)}"
            )
        if self.give_up_after >= self.lost_after:
            raise ValueError(
                f"expected give_up_after < lost_after, so that a worker ends itself before it is marked lost; "
                f"got {time_span(self.give_up_after)} and {time_span(self.lost_after)}"
            )


def _thresholds(
    beat: float, stale: float, lost: float, give_up: float, start: float, drain: float, controller_gone: float = 120
) -> Thresholds:
    return Thresholds(
        heartbeat_every=timedelta(seconds=beat),
        stale_after=timedelta(seconds=stale),
        lost_after=timedelta(seconds=lost),
        give_up_after=timedelta(seconds=give_up),
        start_within=timedelta(seconds=start),
        drain_within=timedelta(seconds=drain),
        controller_gone_after=timedelta(seconds=controller_gone),
    )


LONGEST_NAME = 200  #: bytes in UTF-8: engines name folders after pools
_NEVER_IN_NAMES = frozenset("/\\")

#: A pool of jobs has a controller only during a beat, and the next beat may come in an hour or never. Its workers need no
#: controller: they leave by themselves, and their jobs return to the queue when the leases expire.
_NEVER = 1_000_000_000

PRESETS: Mapping[PoolKind, Thresholds] = {
    PoolKind.BENCH: _thresholds(beat=1, stale=30, lost=60, give_up=45, start=120, drain=120),
    PoolKind.JOBS: _thresholds(beat=30, stale=60, lost=120, give_up=110, start=120, drain=600, controller_gone=_NEVER),
    PoolKind.FLEET: _thresholds(beat=20, stale=60, lost=300, give_up=240, start=600, drain=600),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """A stored pool, which is a named set of workers with their time limits: one row of ``pools``."""

    pool_id: PoolId
    kind: PoolKind
    thresholds: Thresholds
    policy: Mapping[str, Any] = field(default_factory=dict)
    paused_until: datetime | None = None
    created_at: datetime | None = None  #: set by the store
    last_worker: int = field(default=-1, compare=False)  #: the highest N of its workers named ``…worker-N``; set by the store

    @property
    def engine(self) -> str:
        """The engine that runs the pool's workers (such as ``local`` or a cluster), or several as ``a,b``."""
        return str(self.policy.get(ENGINE_IN_POLICY) or DEFAULT_ENGINE)

    @property
    def is_scaled(self) -> bool:
        """Whether an autoscaler (fleet policy) starts and stops the pool's workers and adds up their cost."""
        return self.kind is PoolKind.FLEET or (self.kind is PoolKind.JOBS and "policy" in self.policy)


def with_heartbeat(usual: Thresholds, every: timedelta) -> Thresholds:
    """Return ``usual`` with the heartbeat interval ``every``, and its limits for late heartbeats changed by the same factor.

    Raises InvalidInput if ``every`` is not above 0."""
    if every <= timedelta():
        raise InvalidInput(f"expected a heartbeat interval above 0 s, got {every.total_seconds():g} s")
    ratio = every / usual.heartbeat_every
    return replace(
        usual,
        heartbeat_every=every,
        stale_after=usual.stale_after * ratio,
        lost_after=usual.lost_after * ratio,
        give_up_after=usual.give_up_after * ratio,
    )


def is_pool_name(name: str) -> bool:
    """Whether this name is allowed for a new pool."""
    is_valid = name != "" and name.isprintable() and name == name.strip() and name not in (".", "..")
    return is_valid and not _NEVER_IN_NAMES & set(name) and len(name.encode()) <= LONGEST_NAME


def check_pool_name(name: str) -> None:
    """Raise InvalidInput if this name is not allowed for a new pool."""
    if not is_pool_name(name):
        raise InvalidInput(
            f"pool_id: expected printable characters, no / or \\, no space at the start or end, not . or .., and at most "
            f"{LONGEST_NAME} bytes in UTF-8, got {short_repr(name)}{_length_of(name)}"
        )


def _length_of(name: str) -> str:
    size = len(name.encode(errors="surrogatepass"))
    return f" of {size} bytes" if size > LONGEST_NAME else ""


def pool(pool_id: str, kind: PoolKind, thresholds: Thresholds | None = None, **policy: Any) -> PoolRow:
    """Make a pool, by default with the thresholds of its kind. Raises InvalidInput for an invalid name."""
    check_pool_name(pool_id)
    return PoolRow(pool_id=PoolId(pool_id), kind=kind, thresholds=thresholds or PRESETS[kind], policy=policy)
