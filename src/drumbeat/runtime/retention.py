"""Retention without a command: after a beat a process deletes some of what is over and old, at most every few minutes."""

import logging
import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidSettings, StoreError
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.core.retention import USUAL, Prunable, Retention, read_retention, retention_of, write_retention
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

EVERY = timedelta(minutes=5)  #: so long nobody looks again after a round that left nothing to delete
WITHIN = timedelta(seconds=1)  #: how long a round takes at the most; what is left is for the next beat
NOTE = "retention"  #: where the store keeps what is usual in it, for processes in which nothing is set
LEASE = "retention/round"  #: whoever takes it makes the round, and nobody else does until it runs out
IDLE_STEPS = 25  #: after so many in a row that found nothing old, the rest of its kind is left to a later round
_PAUSE = 3  #: times what a step took
_SHORTEST_PAUSE, _LONGEST_PAUSE = timedelta(milliseconds=5), timedelta(milliseconds=200)


class Housekeeping:
    """One process's share in keeping a store small. Pools of jobs and fleets only: what a run measured stays until somebody
    deletes the run or prunes the store by hand."""

    def __init__(self, store: Store, said: Retention | None, clock: Clock, owner: str) -> None:
        """``said`` is this process's setting, for pools that say nothing else; None: it has none and goes by the store's."""
        self._store = store
        self._said = said
        self._clock = clock
        self._owner = owner

    async def tidy(self) -> Counter[Prunable]:
        """Delete some of what is too old, unless another process does or did a moment ago. Counts it. Never raises."""
        gone: Counter[Prunable] = Counter()
        try:
            turn = await self._store.leases.acquire(LEASE, self._owner, EVERY)
            if turn is not None and not await self._round(gone):
                await self._store.leases.release(turn)
        except InvalidSettings as exc:
            log.warning("nothing is deleted: %s; set DRUMBEAT_RETENTION to replace the store's retention", exc)
        except StoreError as exc:
            log.warning("could not delete what is old: %s; trying again after a later beat", exc)
        if gone:
            log.info("deleted what is old: %s", ", ".join(f"{rows} {what}" for what, rows in gone.items() if rows))
        return gone

    async def _round(self, gone: Counter[Prunable]) -> bool:
        """Whether the next round can wait: nothing is left to delete or to give back, or nothing old was found in time."""
        deadline = self._clock.elapsed() + WITHIN
        usual = await self._usual()
        pools = [*await self._store.pools.list()]
        random.shuffle(pools)
        for pool_id, what, age in _wanted(pools, usual):
            if not await self._prune(pool_id, what, age, gone, deadline):
                return not gone.total()
        return await self._give_back(deadline)

    async def _prune(
        self, pool_id: PoolId, what: Prunable, age: timedelta, gone: Counter[Prunable], deadline: timedelta
    ) -> bool:
        """Delete what is old of one kind; False: the time of this round is over."""
        idle = 0
        while True:
            began = self._clock.elapsed()
            step = await self._store.upkeep.prune_some(pool_id, what, age)
            gone[what] += step.rows
            idle = 0 if step.rows else idle + 1
            if not step.more or idle == IDLE_STEPS:
                return self._clock.elapsed() < deadline
            if not await self._pause(began, deadline):
                return False

    async def _usual(self) -> Retention:
        """What is set in this process, kept for others that use the store, or what such a process kept. Raises
        InvalidSettings."""
        note = await self._store.notes.find(NOTE)
        if self._said is None:
            return USUAL if note is None else read_retention(str(note.value.get(NOTE)))
        said = {NOTE: write_retention(self._said)}
        if note is None or note.value != said:
            await self._store.notes.put(NOTE, said)
        return self._said

    async def _give_back(self, deadline: timedelta) -> bool:
        while True:
            began = self._clock.elapsed()
            if not await self._store.upkeep.give_back():
                return True
            if not await self._pause(began, deadline):
                return False

    async def _pause(self, began: timedelta, deadline: timedelta) -> bool:
        """Leave the store to others for longer than the last step took; False: the time of this round is over."""
        now = self._clock.elapsed()
        if now >= deadline:
            return False
        await self._clock.sleep(min(max((now - began) * _PAUSE, _SHORTEST_PAUSE), _LONGEST_PAUSE))
        return True


def _wanted(pools: list[PoolRow], usual: Retention) -> Iterator[tuple[PoolId, Prunable, timedelta]]:
    for pool in pools:
        if pool.kind is PoolKind.BENCH:
            continue
        try:
            kept = retention_of(pool, usual)
        except InvalidSettings as exc:
            log.warning("nothing of pool %s is deleted: %s", pool.pool_id, exc)
            continue
        yield from ((pool.pool_id, what, age) for what, age in kept.ages())
