"""One look at a pool, its queue and its money, with the policy it is to be judged by. Every read is bounded."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from drumbeat.core.beat import Beat
from drumbeat.core.billing import billed_since
from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidInput, SpawnCause
from drumbeat.core.pool import PoolId, PoolKind
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.fleet.breaker import cause_of
from drumbeat.fleet.model import (
    FleetPolicy,
    FleetState,
    FleetView,
    LastBeat,
    Plan,
    PolicyName,
    Provider,
    SpawnResult,
)
from drumbeat.fleet.model.view import INTERVALS, usual_interval
from drumbeat.fleet.money import Tariff, spend, tariff
from drumbeat.fleet.queue import QueueReader
from drumbeat.runtime.snapshot import last_look, take_snapshot
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

_RECENT = timedelta(hours=1)  #: for so long ended workers stay in sight
_REMEMBERED = timedelta(days=1)  #: for so long those who cost nothing are read
_LAG_FROM = 9  #: workers kept in sight for the spawn lag they tell


async def observe(
    store: Store,
    spawner: Spawner,
    pool_id: PoolId,
    gap: timedelta,
    *,
    every: timedelta = timedelta(),
    clock: Clock | None = None,
    policy: FleetPolicy | None = None,
) -> FleetView:
    """The pool as it is now. Raises InvalidInput for the pool of a benchmark run, whose orchestrator decides for it.

    ``every`` is how often whoever looks does so, where that is known. By ``clock`` the provider has its time to answer.
    ``policy`` stands in for the pool's own.
    """
    pool = await store.pools.get(pool_id)
    if pool.kind is PoolKind.BENCH:
        raise InvalidInput(
            f"expected a fleet or a pool of jobs, got {pool_id}, which is a run; see: drumbeat bench show {pool_id}"
        )
    now = await store.now()
    last = await last_look(store, pool)
    policy, provider, before = policy or FleetPolicy.from_json(pool.policy), _provider(spawner), _intervals(last)
    usual = max(every, usual_interval(before)) or policy.every
    since = forgotten_before(last, tariff(policy, provider), now)
    sight = await take_snapshot(store, spawner, pool, gap, last, usual=usual, unlisted_too=True, gone_since=since, clock=clock)
    view = FleetView(
        pool_id=pool_id,
        now=sight.now,
        looking_since=sight.looking_since,
        paused_until=pool.paused_until,
        thresholds=pool.thresholds,
        policy=policy,
        workers=in_sight(sight.workers, sight.now),
        instances=sight.instances,
        unnoted=sight.unnoted,
        instances_partial=sight.partial,
        unlisted=sight.unlisted,
        provider=provider,
        last_number=_last_number(sight.workers, last),
        spent=spend(sight.workers, sight.now, tariff(policy, provider)),
        last=_last_beat(last, sight.workers),
        state=remembered(last),
        plan=plan_in(pool.policy),
        every=every,
        intervals=_with_this(before, last, sight.now),
        retry_at=await asked_again_at(store, pool_id),
    )
    return view if policy.policy is PolicyName.FIXED else await QueueReader(store, view, last).seen()


def retry_note(pool_id: PoolId) -> str:
    """What the note is called that asks for a provider to be tried again."""
    return f"fleet/{pool_id}/retry"


async def asked_again_at(store: Store, pool_id: PoolId) -> datetime | None:
    """When a person last asked that the provider be tried again."""
    found = await store.notes.find(retry_note(pool_id))
    return None if found is None else found.updated_at


def _provider(spawner: Spawner) -> Provider:
    traits = spawner.traits
    return Provider(
        name=traits.name,
        unique_names=traits.unique_names,
        settle=traits.settle,
        price_per_hour=traits.price_per_hour,
        billing_granule=traits.billing_granule,
        usual_start=traits.usual_start,
        expands_volumes=traits.expands_volumes,
        asked_with=traits.asked_with,
    )


def plan_in(policy: Mapping[str, Any]) -> Plan:
    """What a pool's policy tells its workers to do; what cannot be read is for those workers to complain of."""
    told = {name: policy[name] for name in ("capabilities", "timeout") if policy.get(name)}
    handlers = policy.get("handlers") or {}
    types = () if "" in handlers else tuple(handlers)
    try:
        return msgspec.convert({**told, "types": types}, Plan, strict=False)
    except msgspec.ValidationError as exc:
        log.warning("what the workers are told to do cannot be read, and is passed over: %s", exc)
        return Plan()


def in_sight(workers: Sequence[Worker], now: datetime) -> tuple[Worker, ...]:
    """Who must be decided about, who ended of late, and a few who tell how long a start takes."""
    ready = sorted((each for each in workers if each.ready_at), key=lambda each: each.ready_at or now)[-_LAG_FROM:]
    telling = {each.worker_id for each in ready}
    return tuple(
        each
        for each in workers
        if each.reaped_at is None or each.worker_id in telling or now - (each.ended_at or now) <= _RECENT
    )


def forgotten_before(last: Beat | None, at: Tariff, now: datetime) -> datetime | None:
    """Whoever was gone before then is not read again: it costs nothing any more, and the last beat knows the last name."""
    seen = (last.view or {}) if last else {}
    if "last_number" not in seen:
        return None
    costs = at.price or (seen.get("spent") or {}).get("month")
    return billed_since(now) if costs else now - _REMEMBERED


def _last_number(workers: Sequence[Worker], last: Beat | None) -> int:
    """The highest number of all, also of those who are not read any more."""
    numbers = (each.worker_id.removeprefix("worker-") for each in workers)
    known = int((last.view or {}).get("last_number", -1)) if last else -1
    return max(known, *(int(number) for number in numbers if number.isdecimal()), -1)


def remembered(last: Beat | None) -> FleetState | None:
    """What the last beat left. What cannot be read is not remembered: the fleet is the more cautious for it."""
    if last is None or "state" not in last.summary:
        return None
    try:
        return msgspec.convert(last.summary["state"], FleetState)
    except msgspec.ValidationError as exc:
        log.warning("what the last beat left cannot be read, and is forgotten: %s", exc)
        return None


def _last_beat(last: Beat | None, workers: Sequence[Worker]) -> LastBeat | None:
    if last is None or last.view is None:
        return None
    at = datetime.fromisoformat(last.view["now"])
    rows = {each.worker_id: each for each in workers}
    asked_with = str((last.view.get("provider") or {}).get("asked_with") or "")
    return LastBeat(at=at, spawns=tuple(_results(last.actions, rows, last.at)), asked_with=asked_with)


def _intervals(last: Beat | None) -> tuple[timedelta, ...]:
    """How far apart beats were, by what the last one tells; one of an older version, or of another kind, tells nothing."""
    try:
        return msgspec.convert((last.view or {}).get("intervals", ()) if last else (), tuple[timedelta, ...])
    except msgspec.ValidationError as exc:
        log.warning("how far apart beats were cannot be read, and is forgotten: %s", exc)
        return ()


def _with_this(before: tuple[timedelta, ...], last: Beat | None, now: datetime) -> tuple[timedelta, ...]:
    if last is None or last.view is None:
        return before
    passed = max(now - datetime.fromisoformat(last.view["now"]), timedelta())
    return (*before, passed)[-INTERVALS:]


def _results(actions: Sequence[Mapping[str, Any]], rows: Mapping[WorkerId, Worker], at: datetime) -> Iterator[SpawnResult]:
    """What the provider said to each creation it was asked for; what was not tried was not asked."""
    for action in actions:
        error = action.get("error")
        if action["type"] != "Spawn" or (error and error.startswith("not ")):
            continue
        name = WorkerId(action["worker_id"])
        row = rows.get(name)
        if error and row is not None and row.meta.get("spawn_failed"):
            yield SpawnResult(
                worker_id=name,
                at=row.ended_at or at,
                cause=cause_of(row),
                retry_after=_retry_after(row),
                error=row.error or error,
            )
        else:
            yield SpawnResult(worker_id=name, at=at, cause=SpawnCause.AMBIGUOUS if error else None, error=error)


def _retry_after(row: Worker) -> timedelta | None:
    told = row.meta.get("retry_after_seconds")
    return timedelta(seconds=float(told)) if isinstance(told, int | float) else None
