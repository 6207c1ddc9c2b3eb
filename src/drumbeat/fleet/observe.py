"""Observe a pool: its workers, instances, queue and spending, together with its policy. Every read is bounded."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from drumbeat.core.beat import Beat
from drumbeat.core.billing import billed_since
from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidInput, SpawnCause
from drumbeat.core.not_loaded import RETRY_AFTER, types_not_loaded
from drumbeat.core.paused_types import paused_types
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.core.recovery import PoolSnapshot
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
    SettledSpending,
    SpawnResult,
    Tariff,
)
from drumbeat.fleet.model.view import INTERVALS, usual_interval
from drumbeat.fleet.money import settle, spend_since, tariff
from drumbeat.fleet.queue import QueueReader
from drumbeat.runtime.snapshot import last_observation, take_snapshot
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

_RECENT = timedelta(hours=1)  #: how long ended workers stay in the view
_LAG_FROM = 9  #: number of ready workers kept in the view to measure the spawn lag


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
    """Read the pool's current state. Raises InvalidInput for the pool of a benchmark run, which has its own orchestrator.

    ``gap``: time since this controller last reached the store. ``every``: the time between the controller's beats, if known.
    ``clock`` measures the provider's timeout. ``policy`` replaces the pool's policy.
    """
    pool = await store.pools.get(pool_id)
    if pool.kind is PoolKind.BENCH:
        raise InvalidInput(
            f"expected a fleet or a pool of jobs, got the benchmark run {pool_id}; see: drumbeat bench show {pool_id}"
        )
    now = await store.now()
    last = await last_observation(store, pool)
    policy, provider, before = policy or FleetPolicy.from_json(pool.policy), provider_of(spawner), _intervals(last)
    usual = max(every, usual_interval(before)) or policy.every
    rates = tariff(policy, provider)
    settled = last_settled(last, rates, now)
    since = oldest_end_to_read(last, settled, now)
    snapshot = await take_snapshot(
        store, spawner, pool, gap, last, usual=usual, unlisted_too=True, gone_since=since, clock=clock
    )
    settled = settle(settled, snapshot.workers, snapshot.now, rates)
    view = FleetView(
        pool_id=pool_id,
        now=snapshot.now,
        looking_since=snapshot.looking_since,
        paused_until=pool.paused_until,
        thresholds=pool.thresholds,
        policy=policy,
        workers=relevant_workers([*snapshot.workers, *_ready_before(last, snapshot.workers)], snapshot.now),
        instances=snapshot.instances,
        unnoted=snapshot.unnoted,
        instances_partial=snapshot.partial,
        unlisted=snapshot.unlisted,
        provider=provider,
        last_number=_last_number(snapshot.workers, last),
        spent=spend_since(settled, snapshot.workers),
        settled=settled,
        last=_last_beat(last, snapshot.workers),
        state=last_state(last),
        plan=plan_in(pool.policy, pool_id, _not_loaded(pool, snapshot)),
        every=every,
        intervals=_with_latest(before, last, snapshot.now),
        retry_at=await last_retry(store, pool_id),
    )
    return view if policy.policy is PolicyName.FIXED else await QueueReader(store, view, last, paused_types(pool.policy)).read()


def retry_note(pool_id: PoolId) -> str:
    """Return the name of the store's note that records a user's request to try the provider again."""
    return f"fleet/{pool_id}/retry"


async def last_retry(store: Store, pool_id: PoolId) -> datetime | None:
    """Return when a user last asked to try the provider again; None: never."""
    found = await store.notes.find(retry_note(pool_id))
    return None if found is None else found.updated_at


def provider_of(spawner: Spawner) -> Provider:
    """Return what a decision needs to know of the provider: its price, its billing unit and how it behaves."""
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


def plan_in(policy: Mapping[str, Any], pool_id: PoolId, not_loaded: Collection[str] = ()) -> Plan:
    """Read which jobs a pool's workers take (work plan), without the types whose handler they cannot load (``not_loaded``).
    An invalid plan counts as empty here: the workers report the error."""
    values = {name: policy[name] for name in ("capabilities", "timeout") if policy.get(name)}
    handlers = policy.get("handlers") or {}
    types = () if "" in handlers else tuple(kind for kind in handlers if kind not in not_loaded) or tuple(handlers)
    try:
        return msgspec.convert({**values, "types": types}, Plan, strict=False)
    except msgspec.ValidationError as exc:
        log.warning("pool %s: ignoring its work plan (handlers, capabilities, timeout), which is not valid: %s", pool_id, exc)
        return Plan()


def _not_loaded(pool: PoolRow, snapshot: PoolSnapshot) -> Collection[str]:
    """Return the job types whose handler the pool's workers cannot load: no worker is started for them."""
    changed = pool.policy.get("mended_at")
    changed_at = datetime.fromisoformat(changed) if changed else None
    return types_not_loaded(snapshot.workers, changed_at, snapshot.now - RETRY_AFTER)


def relevant_workers(workers: Sequence[Worker], now: datetime) -> tuple[Worker, ...]:
    """Select the workers to decide on: those that might still run, those that ended recently, and the last few that became
    ready, which show how long a start takes (spawn lag)."""
    ready = sorted((each for each in workers if each.ready_at), key=lambda each: each.ready_at or now)[-_LAG_FROM:]
    latest = {each.worker_id for each in ready}
    return tuple(
        each
        for each in workers
        if each.reaped_at is None or each.worker_id in latest or now - (each.ended_at or now) <= _RECENT
    )


def oldest_end_to_read(last: Beat | None, settled: SettledSpending | None, now: datetime) -> datetime | None:
    """Return the time from which on reaped workers must be read; None: read all. Workers that were reaped earlier are in the
    settled spending, or cost nothing this month."""
    if "last_number" not in ((last.view or {}) if last else {}):
        return None
    return settled.until if settled else billed_since(now)


def last_settled(last: Beat | None, rates: Tariff, now: datetime) -> SettledSpending | None:
    """Read the settled spending that the last beat stored. None if it cannot be used, so that all rows of this month must be
    read: an earlier version of Drumbeat stored the beat, the prices have changed, or the store's clock went back."""
    try:
        found = msgspec.convert((last.view or {}).get("settled") if last else None, SettledSpending | None)
    except msgspec.ValidationError as exc:
        log.warning("pool %s: failed to read its settled costs: %s; adding them up again", last and last.pool_id, exc)
        return None
    return found if found and found.rates == rates and found.at <= now else None


def _ready_before(last: Beat | None, workers: Sequence[Worker]) -> list[Worker]:
    """Return the last few workers that became ready, among the workers in the last beat's view that were not read again. If
    the view cannot be read, the spawn lag is measured without them."""
    known = {each.worker_id for each in workers}
    rows = ((last.view or {}) if last else {}).get("workers", ())
    try:
        left = [row for row in rows if row.get("ready_at") and row.get("reaped_at") and row["worker_id"] not in known]
        latest = sorted(left, key=lambda row: datetime.fromisoformat(row["ready_at"]))[-_LAG_FROM:]
        return msgspec.convert(latest, list[Worker])
    except (KeyError, ValueError) as exc:  # msgspec's ValidationError is a ValueError
        log.warning(
            "pool %s: failed to read the workers of the last beat: %s; continuing without them", last and last.pool_id, exc
        )
        return []


def _last_number(workers: Sequence[Worker], last: Beat | None) -> int:
    """Return the highest N in the names ``worker-N`` so far: of these workers, and of earlier workers,
    which the last beat recorded."""
    numbers = (each.worker_id.removeprefix("worker-") for each in workers)
    known = int((last.view or {}).get("last_number", -1)) if last else -1
    return max(known, *(int(number) for number in numbers if number.isdecimal()), -1)


def last_state(last: Beat | None) -> FleetState | None:
    """Read the state that the last beat stored. None if it cannot be read; the fleet is then more cautious."""
    if last is None or "state" not in last.summary:
        return None
    try:
        return msgspec.convert(last.summary["state"], FleetState)
    except msgspec.ValidationError as exc:
        log.warning("pool %s: failed to read the autoscaler's stored state: %s; continuing without it", last.pool_id, exc)
        return None


def _last_beat(last: Beat | None, workers: Sequence[Worker]) -> LastBeat | None:
    if last is None or last.view is None:
        return None
    at = datetime.fromisoformat(last.view["now"])
    rows = {each.worker_id: each for each in workers}
    asked_with = str((last.view.get("provider") or {}).get("asked_with") or "")
    return LastBeat(at=at, spawns=tuple(_results(last.actions, rows, last.at)), asked_with=asked_with)


def _intervals(last: Beat | None) -> tuple[timedelta, ...]:
    """Read the lengths of the latest intervals between beats from the last beat's record; empty if it has none."""
    try:
        return msgspec.convert((last.view or {}).get("intervals", ()) if last else (), tuple[timedelta, ...])
    except msgspec.ValidationError as exc:
        log.warning(
            "pool %s: failed to read its last beat intervals: %s; using the configured interval", last and last.pool_id, exc
        )
        return ()


def _with_latest(before: tuple[timedelta, ...], last: Beat | None, now: datetime) -> tuple[timedelta, ...]:
    if last is None or last.view is None:
        return before
    passed = max(now - datetime.fromisoformat(last.view["now"]), timedelta())
    return (*before, passed)[-INTERVALS:]


def _results(actions: Sequence[Mapping[str, Any]], rows: Mapping[WorkerId, Worker], at: datetime) -> Iterator[SpawnResult]:
    """Yield the provider's answer to each spawn of the last beat, except spawns that were not tried."""
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
    seconds = row.meta.get("retry_after_seconds")
    return timedelta(seconds=float(seconds)) if isinstance(seconds, int | float) else None
