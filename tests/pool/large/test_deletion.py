"""Deleting a pool deletes its large values, and none of a new pool with the same name."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.job import JobId, NewJob
from drumbeat.core.pool import PoolId
from drumbeat.pool.large.place import ValueKey
from drumbeat.pool.large.values import LargeValues
from drumbeat.store.memory.pools import MemoryPools
from drumbeat.testing import TestPool

BIG = {"text": "x" * 5000}


def files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.json"))


async def test_a_job_pushed_right_after_the_deletion_keeps_its_value(
    pool: TestPool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process pushes once the pool's row is gone, which creates the pool again."""
    await pool.push(BIG)
    delete, pushed = MemoryPools.delete, []

    async def delete_and_push(pools: MemoryPools, pool_id: PoolId, *, unfinished: bool = True) -> None:
        await delete(pools, pool_id, unfinished=unfinished)
        await pool.create()
        pushed.append(await pool.push(BIG))

    with monkeypatch.context() as patched:
        patched.setattr(MemoryPools, "delete", delete_and_push)
        await pool.delete(unfinished=True)

    assert (await pool.job(pushed[0])).payload == BIG
    assert len(files(place)) == 1


async def test_a_job_pushed_again_under_its_own_id_keeps_its_value(pool: TestPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A push whose reply was lost is sent again, with the same value, after the pool was deleted."""
    first = await pool.store.jobs.get(await pool.push(BIG, job_id="a"))
    delete = MemoryPools.delete

    async def delete_and_push(pools: MemoryPools, pool_id: PoolId, *, unfinished: bool = True) -> None:
        await delete(pools, pool_id, unfinished=unfinished)
        await pool.create()
        await pool.store.queue.push(pool_id, [NewJob(payload=first.payload, job_id=first.job_id)])

    with monkeypatch.context() as patched:
        patched.setattr(MemoryPools, "delete", delete_and_push)
        await pool.delete(unfinished=True)

    assert (await pool.job(first.job_id)).payload == BIG


@pytest.mark.parametrize(("minutes", "left"), [(5, 1), (15, 0)])
async def test_a_value_whose_job_is_not_pushed_yet_is_kept_for_some_minutes(
    pool: TestPool, values: LargeValues, clock: ManualClock, place: Path, minutes: int, left: int
) -> None:
    await pool.push(BIG)
    key = ValueKey(store_id=await values.store_id(), pool_id=PoolId("papers"), job_id=JobId("later"), name="payload-0")
    await values.place.write(str(key), b"{}")
    then = (clock.now() - timedelta(minutes=minutes)).timestamp()
    for path in files(place):
        os.utime(path, (then, then))

    await pool.delete(unfinished=True)

    assert len(files(place)) == left
