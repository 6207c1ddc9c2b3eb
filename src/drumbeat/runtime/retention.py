"""Automatic retention: a process deletes some old rows after a beat, at most once in a few minutes."""

import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from functools import partial

from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidSettings, StoreError
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.core.retention import USUAL, Prunable, Pruned, Retention, read_retention, retention_of, write_retention
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

EVERY = timedelta(minutes=5)  #: pause after a round that has deleted all old rows
WITHIN = timedelta(seconds=1)  #: longest duration of a round; the next beat continues where it stopped
NOTE = "retention"  #: name of the note in the store with the retention for processes that have no setting
LEASES = "leases"  #: how a round counts the one-time leases that it deleted
_LEAST_AGE_OF_LEASES = timedelta(days=1)  #: the epochs of a deleted lease start again, so no process may still know an old one
LEASE = "retention/round"  #: name of the lease; only its holder deletes rows, until it expires
IDLE_STEPS = 25  #: after this many steps that found no old row, the search in this kind of rows stops
_PAUSE = 3  #: pause after a step, as a multiple of its duration
_SHORTEST_PAUSE, _LONGEST_PAUSE = timedelta(milliseconds=5), timedelta(milliseconds=200)


class Housekeeping:
    """Deletes old rows of job pools and fleets. Benchmark runs are kept until a user deletes them or prunes the store."""

    def __init__(self, store: Store, setting: Retention | None, clock: Clock, owner: str) -> None:
        """``setting``: how long rows of pools without their own retention are kept; None: the setting in the store."""
        self._store = store
        self._setting = setting
        self._clock = clock
        self._owner = owner

    async def tidy(self) -> Counter[str]:
        """Delete some old rows, unless another process is doing so. Returns how many, by kind. Store errors are only logged."""
        deleted: Counter[str] = Counter()
        try:
            lease = await self._store.leases.acquire(LEASE, self._owner, EVERY)
            if lease is not None and not await self._round(deleted):
                await self._store.leases.release(lease)
        except InvalidSettings as exc:
            log.warning("no old rows are deleted: %s; set DRUMBEAT_RETENTION to replace the store's retention", exc)
        except StoreError as exc:
            log.warning("failed to delete old rows: %s; retrying after a later beat", exc)
        if deleted:
            log.info("deleted old rows: %s", ", ".join(f"{rows} {what}" for what, rows in deleted.items() if rows))
        return deleted

    async def _round(self, deleted: Counter[str]) -> bool:
        """Delete old rows, then give back their disk space, for up to ``WITHIN``. Returns False if work is left, so that the
        next round comes soon; but True if the time ran out before any row was deleted, so that it comes later."""
        deadline = self._clock.elapsed() + WITHIN
        default = await self._default()
        pools = [*await self._store.pools.list()]
        random.shuffle(pools)
        for what, step in self._steps(pools, default):
            if not await self._prune(what, step, deleted, deadline):
                return not deleted.total()
        return await self._give_space_back(deadline)

    def _steps(self, pools: list[PoolRow], default: Retention) -> Iterator[tuple[str, Callable[[], Awaitable[Pruned]]]]:
        """Yield each kind of old row with the small step that deletes some of them: one-time leases, then the rows of pools."""
        upkeep = self._store.upkeep
        if default.workers is not None:
            yield LEASES, partial(upkeep.prune_leases, max(default.workers, _LEAST_AGE_OF_LEASES))
        for pool_id, what, age in _ages_by_pool(pools, default):
            yield what, partial(upkeep.prune_some, pool_id, what, age)

    async def _prune(
        self, what: str, prune_some: Callable[[], Awaitable[Pruned]], deleted: Counter[str], deadline: timedelta
    ) -> bool:
        """Delete old rows of one kind in small steps. Returns False when the time of this round is over."""
        idle = 0
        while True:
            began = self._clock.elapsed()
            step = await prune_some()
            deleted[what] += step.rows
            idle = 0 if step.rows else idle + 1
            if not step.more or idle == IDLE_STEPS:
                return self._clock.elapsed() < deadline
            if not await self._pause(began, deadline):
                return False

    async def _default(self) -> Retention:
        """Return the default retention: this process's setting, which is also stored; else the stored setting; else USUAL."""
        note = await self._store.notes.find(NOTE)
        if self._setting is None:
            return USUAL if note is None else read_retention(str(note.value.get(NOTE)))
        value = {NOTE: write_retention(self._setting)}
        if note is None or note.value != value:
            await self._store.notes.put(NOTE, value)
        return self._setting

    async def _give_space_back(self, deadline: timedelta) -> bool:
        while True:
            began = self._clock.elapsed()
            if not await self._store.upkeep.give_back():
                return True
            if not await self._pause(began, deadline):
                return False

    async def _pause(self, began: timedelta, deadline: timedelta) -> bool:
        """Pause, so that other processes can write to the store: three times as long as the step that began at ``began``,
        within limits. Returns False, without a pause, when the time of this round is over."""
        now = self._clock.elapsed()
        if now >= deadline:
            return False
        await self._clock.sleep(min(max((now - began) * _PAUSE, _SHORTEST_PAUSE), _LONGEST_PAUSE))
        return True


def _ages_by_pool(pools: list[PoolRow], default: Retention) -> Iterator[tuple[PoolId, Prunable, timedelta]]:
    for pool in pools:
        if pool.kind is PoolKind.BENCH:
            continue
        try:
            retention = retention_of(pool, default)
        except InvalidSettings as exc:
            log.warning("pool %s: no old rows are deleted: %s", pool.pool_id, exc)
            continue
        yield from ((pool.pool_id, what, age) for what, age in retention.ages())
