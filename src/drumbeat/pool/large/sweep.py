"""Deletes large values that no job needs any more: the job was deleted or never pushed, or its result has expired."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from drumbeat.core.errors import LargeUnavailable, NotFound
from drumbeat.core.job import Job
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.pool.envelope import open_envelope
from drumbeat.pool.large.place import ValueKey, parse_key, pool_prefix
from drumbeat.pool.large.values import LargeValues
from drumbeat.pool.result_ttl import is_expired
from drumbeat.store.flow_rules import NEED_PARENTS
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

ORPHAN_AGE = timedelta(days=1)  #: a value must be this old to be deleted, because its job may be pushed only later
EVERY = timedelta(hours=1)  #: pause between two automatic sweeps
WITHIN = timedelta(seconds=1)  #: longest duration of an automatic sweep; a later one continues
MIN_AGE = timedelta(minutes=10)  #: the least age for a sweep by hand that deletes: the time between a write and its push
LEASE = "large/sweep"
PLACE_IN_SWEEP = "large/sweep"  #: name of the note with the last key that was checked
_MOST_CHILDREN = 1000  #: children of a job that are read, to see whether one of them still needs its result


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What a sweep has done."""

    checked: int = 0
    deleted: int = 0
    last: str = ""  #: the last key that was checked; empty: all values were checked


async def sweep(
    values: LargeValues, older_than: timedelta = ORPHAN_AGE, *, within: timedelta | None = None, dry_run: bool = False
) -> SweepResult:
    """Delete values that no job needs and that are older than ``older_than``. With ``dry_run``, only count them.

    With ``within``, stop after this time; the next sweep with ``within`` goes on from there.
    Raises LargeUnavailable, StoreError.
    """
    note = None if within is None else await values.store.notes.find(PLACE_IN_SWEEP)
    found = await _sweep(values, older_than, "" if note is None else str(note.value.get("last", "")), within, dry_run=dry_run)
    if within is not None and (note is not None or found.last):
        await values.store.notes.put(PLACE_IN_SWEEP, {"last": found.last})
    return found


async def _sweep(
    values: LargeValues, older_than: timedelta, after: str, within: timedelta | None, *, dry_run: bool
) -> SweepResult:
    began: timedelta | None = None
    now, done = values.clock.now(), SweepResult()
    stored = await values.store.now()
    pools = {row.pool_id: row for row in await values.store.pools.list()}
    async for value in values.place.list(f"{await values.store_id()}/", after):
        began = values.clock.elapsed() if began is None else began  # listing may take long, and each sweep must get further
        key = parse_key(value.key)
        if key is not None and now - value.modified >= older_than:
            unneeded = not await _is_needed(values, key, pools, stored)
            if unneeded and not dry_run:
                await values.place.delete(value.key)
            done = replace(done, deleted=done.deleted + unneeded)
        done = replace(done, checked=done.checked + 1)
        if within is not None and values.clock.elapsed() - began >= within:
            return replace(done, last=value.key)
    return done


async def _is_needed(values: LargeValues, key: ValueKey, pools: Mapping[PoolId, PoolRow], now: datetime) -> bool:
    job = await _find_job(values, key)
    if job is None:
        return False
    pool = pools.get(job.pool_id)
    if key.is_result and pool is not None and is_expired(pool, job, now) and not await _is_awaited(values.store, job):
        return False
    return str(key) in _references(job)


async def _find_job(values: LargeValues, key: ValueKey) -> Job | None:
    try:
        return await values.store.jobs.get(key.job_id)
    except NotFound:
        return None


async def _is_awaited(store: Store, job: Job) -> bool:
    """Whether a child may still read this job's result: an unfinished one, or a poisoned one once it is requeued. Also True if
    there are too many children to check."""
    children = await store.jobs.children(job.job_id, _MOST_CHILDREN) if job.has_children else ()
    return len(children) == _MOST_CHILDREN or any(child.status in NEED_PARENTS for child in children)


def _references(job: Job) -> set[str]:
    found = (open_envelope(job.payload).large, open_envelope(job.result).large)
    return {reference.key for reference in found if reference is not None}


async def list_pool_values(values: LargeValues, pool_id: PoolId) -> Sequence[ValueKey]:
    """List the large values that can be deleted with a pool. Leaves out a new value without a job: its job may be pushed next,
    which creates the pool again."""
    found: list[ValueKey] = []
    now = values.clock.now()
    try:
        async for value in values.place.list(pool_prefix(await values.store_id(), pool_id), ""):
            key = parse_key(value.key)
            if key is not None and (now - value.modified >= MIN_AGE or await _find_job(values, key) is not None):
                found.append(key)
    except LargeUnavailable as exc:
        log.warning("failed to list the large values of pool %s: %s; a later sweep deletes them", pool_id, exc)
    return found


async def delete_pool_values(values: LargeValues, keys: Sequence[ValueKey]) -> int:
    """Delete these large values of a deleted pool, except those that a job refers to again. Returns how many were deleted."""
    count = 0
    try:
        for key in keys:
            job = await _find_job(values, key)
            if job is None or str(key) not in _references(job):
                await values.place.delete(str(key))
                count += 1
    except LargeUnavailable as exc:
        log.warning("failed to delete large values of a deleted pool: %s; a later sweep deletes them", exc)
    return count
