"""FleetService: shows a fleet's status, decisions and cost, and carries out user commands (drain, kill, exempt, retry)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from drumbeat.core.beat import Beat
from drumbeat.core.billing import billed_since
from drumbeat.core.errors import InvalidInput, NotFound, StaleWrite
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.worker import CAPACITY_EXEMPT, KILLING, Worker, WorkerId, WorkerStatus
from drumbeat.fleet.explain import BeatExplanation, explain
from drumbeat.fleet.model import FleetPolicy, Provider, Spending
from drumbeat.fleet.money import burn, settle, spend_since, tariff
from drumbeat.fleet.observe import last_settled, observe, provider_of, retry_note
from drumbeat.fleet.policy_store import check_scaled
from drumbeat.fleet.recorded import is_fleet_beat, recorded, view_of
from drumbeat.fleet.replay import EncodeAction, Replay, replay
from drumbeat.fleet.settings import with_settings
from drumbeat.runtime.recovery import check_provider
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import MOST_SEARCHED, Store, WorkerChange

_PAGE = 50  #: number of beats read at once: a large fleet's beats need much memory
_MAX_CHECKS = 20  #: maximum number of beats that only checked the pool and are skipped one by one
_MICROSECOND = timedelta(microseconds=1)
_BY_HAND = "by hand"
_TRIES = 5  #: attempts to close a row that heartbeats keep changing


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """A fleet's pool, its live workers and its last beat."""

    pool: PoolRow
    now: datetime
    workers: tuple[Worker, ...]  #: the live workers
    last: Beat | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCost:
    """What a fleet has cost, what it costs now, and its money ceilings."""

    price_per_hour: float
    burn_per_hour: float
    spent: Spending
    max_per_hour: float | None
    max_per_day: float | None
    max_per_month: float | None


class FleetService:
    """Shows and controls the workers of one pool. Only ``plan``, ``spend`` and ``kill`` call the provider."""

    def __init__(self, store: Store, pool_id: PoolId, encode: EncodeAction) -> None:
        self._store = store
        self._pool_id = pool_id
        self._encode = encode

    async def status(self) -> FleetStatus:
        """Return the fleet's pool, its live workers and its last beat. Raises NotFound."""
        pool = await self._store.pools.get(self._pool_id)
        workers = await self._store.workers.list(self._pool_id, live=True)
        last = await self.last_beat()
        return FleetStatus(pool=pool, now=await self._store.now(), workers=tuple(workers), last=last)

    async def policy(self) -> FleetPolicy:
        """Return the pool's policy. Raises NotFound, and InvalidInput for a pool of jobs that is not a fleet."""
        pool = await self._store.pools.get(self._pool_id)
        check_scaled(pool)
        return FleetPolicy.from_json(pool.policy)

    async def plan(self, spawner: Spawner, policy: FleetPolicy | None = None) -> BeatExplanation:
        """Explain what a beat would do now, by the pool's policy or another one. Nothing is started, drained or written."""
        chosen = policy or await self.policy()
        return explain(await observe(self._store, spawner, self._pool_id, timedelta(), policy=chosen))

    async def explain(self, at: datetime | None = None) -> BeatExplanation:
        """Explain the last beat before a moment, or the latest one. Raises NotFound if there is none."""
        beat = await self._beat_at(at)
        view = view_of(beat)
        if view is None:
            raise NotFound(f"beat {beat.n} of {self._pool_id} failed before it observed the pool: {beat.error}")
        return explain(view, beat.actions)

    async def _beat_at(self, at: datetime | None) -> Beat:
        await self._store.pools.get(self._pool_id)
        found = await self.last_beat(at)
        if found is None:
            when = f" before {at:%Y-%m-%d %H:%M:%S}" if at else ""
            raise NotFound(f"no recorded beat of {self._pool_id}{when}; run one with: drumbeat fleet beat {self._pool_id}")
        return found

    async def last_beat(self, at: datetime | None = None) -> Beat | None:
        """Return the autoscaler's last beat up to a moment, even if it failed. Skips beats that only checked the pool."""
        found = await self._store.beats.last(self._pool_id, before=at)
        if found is None or is_fleet_beat(found):
            return found
        both = (await self._last_with_view(at, is_fleet_beat), await self._last_before(found))
        return max((each for each in both if each), key=lambda beat: beat.n, default=None)

    async def _last_before(self, check: Beat) -> Beat | None:
        """Return the autoscaler's last beat before ``check``, a beat that only checked the pool; None if it is too far back."""
        found: Beat | None = check
        for _ in range(_MAX_CHECKS):
            if found is None or is_fleet_beat(found):
                return found
            found = await self._before(found)
        return None

    async def _last_with_view(self, at: datetime | None, fits: Callable[[Beat], bool]) -> Beat | None:
        """Return the last beat up to a moment that recorded what it observed (its view) and for which ``fits`` is true."""
        found = await self._store.beats.last(self._pool_id, before=at, seen=True)
        while found is not None and not fits(found):
            found = await self._before(found, seen=True)
        return found

    async def _before(self, beat: Beat, *, seen: bool = False) -> Beat | None:
        """Return the beat with the next lower number; with ``seen``, the last earlier beat that recorded what it observed."""
        found = next(iter(await self._store.beats.list(self._pool_id, after=max(beat.n - 2, 0), limit=1)), beat)
        if found.n >= beat.n or (seen and found.view is None and found.at < beat.at):
            return await self._store.beats.last(self._pool_id, before=beat.at - _MICROSECOND, seen=seen)
        return found if found.view is not None or not seen else await self._before(found, seen=True)

    async def beats_with_actions(self, limit: int, since: timedelta = timedelta(days=1)) -> Sequence[Beat]:
        """Return the last ``limit`` of the recent beats in which actions were taken, oldest first, without their views. Of a
        fleet that beats very often, only the last beats are searched (``MOST_SEARCHED``). Raises NotFound."""
        await self._store.pools.get(self._pool_id)
        return await self._store.beats.with_actions(
            self._pool_id, since=await self._store.now() - since, limit=min(limit, MOST_SEARCHED)
        )

    async def replay(self, since: timedelta, settings: Mapping[str, Any]) -> Replay:
        """Repeat the decisions of recent beats, with recorded or changed policies. Returns the differences. Raises NotFound."""
        await self._store.pools.get(self._pool_id)
        begin, after, found = await self._store.now() - since, 0, Replay()
        while page := await self._store.beats.list(self._pool_id, since=begin, after=after, limit=_PAGE):
            found += replay(recorded(page), self._encode, _changed(settings))
            after = page[-1].n
        return found

    async def drain(self, workers: Sequence[str], within: timedelta | None = None) -> Sequence[WorkerId]:
        """Ask workers to drain; all if none is named. Returns the workers that were not asked before. Raises NotFound."""
        pool = await self._store.pools.get(self._pool_id)
        here = [each.worker_id for each in await self._store.workers.list(self._pool_id, live=True)]
        named = [WorkerId(name) for name in workers] or here
        unknown = sorted(set(named) - set(here))
        if unknown:
            raise NotFound(f"no live worker {', '.join(unknown)} in pool {self._pool_id}")
        usual = FleetPolicy.from_json(pool.policy).limits(pool.thresholds).drain_within
        return await self._store.workers.ask_to_drain(self._pool_id, named, _BY_HAND, usual if within is None else within)

    async def retry(self) -> datetime:
        """Make the next beat ask the provider again despite its backoff, and start one worker despite an open circuit breaker.

        Returns the time of the request. Raises NotFound, InvalidInput.
        """
        await self.policy()
        return (await self._store.notes.put(retry_note(self._pool_id), {"by": _BY_HAND})).updated_at

    async def exempt(self, worker: str, *, exempt: bool = True) -> Worker:
        """Exempt a live worker from capacity, or end the exemption. Raises NotFound, InvalidInput.

        An exempt worker is watched, but does not count as one of the wanted workers. It is drained only when it is older than
        ``exempt_max_lifetime`` or a money ceiling would be exceeded.
        """
        row = await self._store.workers.get(self._pool_id, WorkerId(worker))
        _expect_live(row)
        await self._store.workers.note_instance(self._pool_id, row.worker_id, row.provider_ref or "", {CAPACITY_EXEMPT: exempt})
        return await self._store.workers.get(self._pool_id, row.worker_id)

    async def kill(self, worker: str, spawner: Spawner) -> Worker:
        """End a worker now: close its row, release its jobs (which costs them no attempt), terminate its instance. If one of
        these failed, another call does the rest; once all are done, it raises InvalidInput, as for every ended worker.

        Raises NotFound, InvalidInput, and SpawnError if it runs at another provider.
        """
        closed = await self._close_row(worker, spawner)
        await self._store.queue.release(closed.holder, "its worker was killed by hand", charge=False)
        await spawner.terminate(self._pool_id, closed.worker_id)
        await self._store.workers.note_instance(self._pool_id, closed.worker_id, closed.provider_ref or "", {KILLING: None})
        return await self._store.workers.get(self._pool_id, closed.worker_id)

    async def _close_row(self, worker: str, spawner: Spawner, tries: int = _TRIES) -> Worker:
        """Mark a worker as terminated in its row, unless an earlier kill did that and was not completed. If a heartbeat changes
        the row meanwhile, try again, up to ``tries``."""
        row = await self._store.workers.get(self._pool_id, WorkerId(worker))
        is_closed = bool(row.meta.get(KILLING)) and row.reaped_at is None
        if not is_closed:
            _expect_live(row)
        check_provider(row, spawner)
        if is_closed:
            return row
        try:
            return await self._store.workers.move(
                row, WorkerStatus.TERMINATED, "killed by hand", WorkerChange(meta={KILLING: True})
            )
        except StaleWrite:
            if tries == 1:
                raise
            return await self._close_row(worker, spawner, tries - 1)

    async def spend(self, spawner: Spawner) -> FleetCost:
        """Return the money spent, the current cost and the ceilings, at the provider's current prices."""
        return await self._spent(provider_of(spawner), await self.last_decision())

    async def last_decision(self) -> Beat | None:
        """Return the fleet's last beat that made a decision; beats that failed before deciding are skipped."""
        return await self._last_with_view(None, lambda beat: is_fleet_beat(beat) and "state" in beat.summary)

    async def spent_by(self, last: Beat | None) -> FleetCost:
        """Return the money spent, the current cost and the ceilings, at the prices recorded in a beat; calls no provider."""
        return await self._spent(_provider_in(last), last)

    async def _spent(self, provider: Provider, last: Beat | None) -> FleetCost:
        policy, now = await self.policy(), await self._store.now()
        rates = tariff(policy, provider)
        settled = last_settled(last, rates, now)
        workers = await self._store.workers.list(self._pool_id, gone_since=settled.until if settled else billed_since(now))
        return FleetCost(
            price_per_hour=rates.price,
            burn_per_hour=burn(workers, rates),
            spent=spend_since(settle(settled, workers, now, rates), workers),
            max_per_hour=policy.max_per_hour,
            max_per_day=policy.max_per_day,
            max_per_month=policy.max_per_month,
        )


def _expect_live(row: Worker) -> None:
    if not row.is_live:
        raise InvalidInput(f"expected a live worker, got {row.worker_id}, which is {row.status}")


def _changed(settings: Mapping[str, Any]) -> Callable[[FleetPolicy], FleetPolicy] | None:
    return (lambda policy: with_settings(policy, settings)) if settings else None


def _provider_in(last: Beat | None) -> Provider:
    """Read the provider recorded in a beat; if that is not possible, return one without a price."""
    try:
        return msgspec.convert(((last.view or {}) if last else {}).get("provider") or {}, Provider)
    except msgspec.ValidationError:
        return Provider()
