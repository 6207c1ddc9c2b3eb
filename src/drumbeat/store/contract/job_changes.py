"""Tests of changing pending jobs: their priority and their earliest start."""

from datetime import datetime, timedelta, timezone

from drumbeat.core.job import JobId
from drumbeat.core.pool import PoolRow
from drumbeat.store.contract.given import MINUTE, Elapse, new_pool
from drumbeat.store.contract.given_jobs import claimed, claiming, pushed
from drumbeat.store.interface import Store


class JobChangesContract:
    """Tests of ``jobs.change_pending``."""

    async def test_pending_jobs_get_another_priority(self, store: Store, pool: PoolRow) -> None:
        first, second, third = await pushed(store, pool, 1, 2, 3)
        running = await claimed(store, pool)

        changed = await store.jobs.change_pending(pool.pool_id, [first, third, JobId("unknown")], priority=5)

        assert [*changed] == [third]
        assert [(await store.jobs.get(each)).priority for each in (running.job_id, second, third)] == [0, 0, 5]
        assert [(await claimed(store, pool)).job_id for _ in range(2)] == [third, second]

    async def test_pending_jobs_get_another_start(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        now, [sooner] = await store.now(), await pushed(store, pool, 1, delay=30 * MINUTE)
        [later] = await pushed(store, pool, 2)

        assert [*await store.jobs.change_pending(pool.pool_id, [sooner], run_at=now)] == [sooner]
        assert [*await store.jobs.change_pending(pool.pool_id, [later], run_at=now + 10 * MINUTE, priority=-1)] == [later]

        counts = await store.jobs.counts(pool.pool_id)
        assert (counts.ready, counts.delayed) == (1, 1)
        assert (await store.jobs.get(later)).not_before == now + 10 * MINUTE
        assert (await claimed(store, pool)).job_id == sooner
        assert [*await store.queue.claim(claiming(pool))] == []
        await elapse(11 * MINUTE)
        assert (await claimed(store, pool)).job_id == later

    async def test_a_start_that_is_too_late_for_a_datetime_in_utc_is_read_and_can_be_changed(
        self, store: Store, pool: PoolRow
    ) -> None:
        now, [job_id] = await store.now(), await pushed(store, pool, 1)
        too_late = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12)))

        await store.jobs.change_pending(pool.pool_id, [job_id], run_at=too_late)

        [listed] = await store.jobs.list(pool.pool_id)
        assert listed.not_before is not None
        assert listed.not_before.year == 9999
        await store.jobs.change_pending(pool.pool_id, [job_id], run_at=now)
        assert (await claimed(store, pool)).job_id == job_id

    async def test_jobs_that_ended_and_those_of_other_pools_are_not_changed(self, store: Store, pool: PoolRow) -> None:
        other = await store.pools.create(new_pool())
        [elsewhere], [cancelled] = await pushed(store, other, 1), await pushed(store, pool, 1)
        await store.jobs.cancel([cancelled])

        assert [*await store.jobs.change_pending(pool.pool_id, [elsewhere, cancelled], priority=5)] == []
        assert (await store.jobs.get(elsewhere)).priority == 0
