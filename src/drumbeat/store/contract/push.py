"""Tests of pushing jobs: the stored fields, invalid jobs, and repeated pushes of the same job."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.errors import AlreadyExists, InvalidInput, NotFound
from drumbeat.core.job import Backoff, JobId, JobStatus, JobsWithTemplate, NewJob, RateLimit
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.store.contract.given import (
    AWKWARD,
    MINUTE,
    SECOND,
    W1,
    Given,
    new_pool,
    unique,
)
from drumbeat.store.contract.given_jobs import claimed, claiming, holder, pushed, pushed_alike, verdict, without_identity
from drumbeat.store.interface import Store


class PushContract(Given):
    """Tests of pushing jobs to a pool's queue."""

    async def test_a_pushed_job_is_claimed_with_its_payload(self, store: Store, pool: PoolRow) -> None:
        [job_id] = await pushed(store, pool, dict(AWKWARD), type="summary")
        before = await store.now()

        job = await claimed(store, pool)

        assert (job.job_id, job.pool_id, job.payload, job.type) == (job_id, pool.pool_id, AWKWARD, "summary")
        assert (job.status, job.attempts, job.lease_owner, job.lease_epoch) == (JobStatus.CLAIMED, 1, W1, 1)
        assert job.lease_until is not None
        assert before + MINUTE <= job.lease_until <= await store.now() + MINUTE
        assert await store.jobs.get(job_id) == job

    @pytest.mark.parametrize("payload", [None, 0, "", "text", [], [1, None], {}, 1.5, True])
    async def test_any_json_is_a_payload(self, store: Store, pool: PoolRow, payload: Any) -> None:
        await pushed(store, pool, payload)

        assert (await claimed(store, pool)).payload == payload

    async def test_what_a_job_was_given_comes_with_its_claim(self, store: Store, pool: PoolRow) -> None:
        given: dict[str, Any] = {
            "type": "t",
            "priority": -7,
            "max_attempts": 9,
            "max_crashes": 8,
            "backoff": Backoff(first=3 * SECOND, factor=1.5, most=MINUTE, jitter=0.25),
            "timeout": timedelta(milliseconds=1500),
            "unique_key": "only",
            "group": "g",
            "group_limit": 2,
            "group_rate": RateLimit(count=5, per=MINUTE),
            "capability": "gpu",
        }
        await store.queue.push(pool.pool_id, [NewJob(payload={}, **given)])

        job = await claimed(store, pool, capabilities=("gpu",))

        assert {name: getattr(job, name) for name in given} == given

    async def test_a_payload_that_cannot_be_json_is_refused_with_all_pushed_beside_it(
        self, store: Store, pool: PoolRow
    ) -> None:
        with pytest.raises(InvalidInput, match="payload"):
            await store.queue.push(pool.pool_id, [NewJob(payload=1), NewJob(payload=object())])

        assert await store.queue.claim(claiming(pool)) == []

    async def test_an_unknown_pool_is_named_in_the_error(self, store: Store) -> None:
        nowhere = new_pool()

        with pytest.raises(NotFound, match=nowhere.pool_id):
            await store.queue.push(nowhere.pool_id, [NewJob(payload=1)])
        with pytest.raises(NotFound, match=nowhere.pool_id):
            await store.queue.claim(claiming(nowhere))
        with pytest.raises(NotFound, match=nowhere.pool_id):
            await store.queue.settle(holder(nowhere), [], claiming(nowhere))
        with pytest.raises(NotFound, match=nowhere.pool_id):
            await store.queue.wait(PoolId(nowhere.pool_id), timedelta())

    @pytest.mark.parametrize("kind", [PoolKind.BENCH, PoolKind.FLEET])
    async def test_a_push_to_a_pool_that_has_no_queue_is_refused(self, store: Store, kind: PoolKind) -> None:
        other = await store.pools.create(new_pool(kind))
        pushes: Mapping[str, Sequence[NewJob]] = {
            "one job": [NewJob(payload=1)],
            "alike jobs": JobsWithTemplate([1, 2], NewJob(payload=None)),
            "jobs of two types": [NewJob(payload=1, type="a"), NewJob(payload=2, type="b", priority=1)],
            "a job with options": [NewJob(payload=1, job_id=JobId(unique("job")), unique_key="k", delay=SECOND)],
        }

        for jobs in pushes.values():
            with pytest.raises(NotFound, match=f"no pool of jobs '{other.pool_id}'"):
                await store.queue.push(other.pool_id, jobs)

        assert [*await store.jobs.list(other.pool_id)] == []

    async def test_an_empty_push_is_nothing(self, store: Store, pool: PoolRow) -> None:
        assert [*await store.queue.push(pool.pool_id, [])] == []

    async def test_many_are_pushed_and_named_in_order(self, store: Store, pool: PoolRow) -> None:
        ids = await pushed(store, pool, *range(450))

        assert len(set(ids)) == 450
        assert [(await store.jobs.get(ids[n])).payload for n in (0, 222, 449)] == [0, 222, 449]
        assert [job.payload for job in await store.queue.claim(claiming(pool, limit=450))] == [*range(450)]

    async def test_ids_the_store_gives_sort_as_the_jobs_were_pushed(self, store: Store, pool: PoolRow) -> None:
        ids = [*await pushed(store, pool, *range(12)), *await pushed(store, pool, *range(3))]

        assert sorted(ids) == ids

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"type": "letters", "priority": -3},
            {"capability": "gpu", "group": "g", "group_limit": 2, "group_rate": RateLimit(count=9, per=MINUTE)},
            {"timeout": MINUTE, "backoff": Backoff(first=MINUTE), "max_attempts": 1, "max_crashes": 7},
            {"delay": MINUTE},
        ],
    )
    async def test_alike_jobs_are_stored_like_jobs_pushed_one_by_one(
        self, store: Store, pool: PoolRow, options: dict[str, Any]
    ) -> None:
        payloads = [1, {"text": "a long one " * 30}, None, "short"]

        alike = await pushed_alike(store, pool, *payloads, **options)
        one_by_one = await pushed(store, pool, *payloads, **options)

        assert alike + one_by_one == sorted({*alike, *one_by_one})
        stored = [without_identity(await store.jobs.get(job_id)) for job_id in alike]
        assert stored == [without_identity(await store.jobs.get(job_id)) for job_id in one_by_one]
        assert [job.payload for job in stored] == payloads

    async def test_alike_jobs_of_one_key_are_one_job(self, store: Store, pool: PoolRow) -> None:
        assert len({*await pushed_alike(store, pool, 1, 2, 3, unique_key="k")}) == 1

    async def test_alike_jobs_are_pushed_all_or_none(self, store: Store, pool: PoolRow) -> None:
        with pytest.raises(InvalidInput, match="payload"):
            await pushed_alike(store, pool, 1, object())
        with pytest.raises(NotFound):
            await pushed_alike(store, new_pool(), 1, 2)

        assert await pushed_alike(store, pool) == []
        assert await store.queue.claim(claiming(pool)) == []

    async def test_a_job_pushed_twice_under_its_own_id_is_there_once(self, store: Store, pool: PoolRow) -> None:
        name = JobId(unique("job"))

        ids = await store.queue.push(pool.pool_id, [NewJob(payload=n, job_id=name) for n in (1, 2)])
        again = await pushed(store, pool, 3, job_id=name)

        assert [*ids, *again] == [name, name, name]
        assert [job.payload for job in await store.queue.claim(claiming(pool, limit=9))] == [1]

    async def test_of_jobs_with_one_id_the_first_is_there_whatever_their_keys(self, store: Store, pool: PoolRow) -> None:
        one, two, three = (JobId(unique("job")) for _ in range(3))
        options: list[dict[str, Any]] = [
            {"job_id": one, "unique_key": "z"},
            {"job_id": one, "unique_key": "a"},
            {"job_id": two, "unique_key": "a"},
            {"job_id": three},
            {"job_id": three, "unique_key": "b"},
        ]

        ids = await store.queue.push(pool.pool_id, [NewJob(payload=n, **more) for n, more in enumerate(options)])

        assert [*ids] == [one, one, two, three, three]
        assert [(job.payload, job.unique_key) for job in await store.jobs.list(pool.pool_id)] == [(0, "z"), (2, "a"), (3, None)]

    async def test_a_job_of_its_own_id_is_not_done_again(self, store: Store, pool: PoolRow) -> None:
        name = JobId(unique("job"))
        await pushed(store, pool, 1, job_id=name)
        await store.queue.settle(holder(pool), [verdict(await claimed(store, pool))])

        assert await pushed(store, pool, 2, job_id=name) == [name]
        assert await store.queue.claim(claiming(pool)) == []

    async def test_an_id_of_another_pools_job_is_refused(self, store: Store, pool: PoolRow) -> None:
        name = JobId(unique("job"))
        await pushed(store, await store.pools.create(new_pool()), 1, job_id=name)

        with pytest.raises(AlreadyExists, match=name):
            await store.queue.push(pool.pool_id, [NewJob(payload=0), NewJob(payload=2, job_id=name)])

        assert await store.queue.claim(claiming(pool)) == []

    @pytest.mark.parametrize("name", ["j000000000001", "j123456789012345678"])
    async def test_an_id_that_looks_like_the_stores_own_is_refused(self, store: Store, pool: PoolRow, name: str) -> None:
        with pytest.raises(InvalidInput, match="id"):
            await pushed(store, pool, 1, job_id=JobId(name))

    @pytest.mark.parametrize("option", ["job_id", "unique_key", "group", "workflow_id"])
    async def test_an_empty_key_is_refused(self, store: Store, pool: PoolRow, option: str) -> None:
        for push in (pushed, pushed_alike):
            with pytest.raises(InvalidInput, match=f"expected {option} to be text that is not empty, got ''"):
                await push(store, pool, 1, 2, **{option: ""})

        assert [*await store.jobs.list(pool.pool_id)] == []

    async def test_a_unique_key_is_one_job_while_it_is_unfinished(self, store: Store, pool: PoolRow) -> None:
        ids = await pushed(store, pool, 1, 2, unique_key="k")
        job = await claimed(store, pool)
        while_claimed = await pushed(store, pool, 3, unique_key="k")
        await store.queue.settle(holder(pool), [verdict(job)])

        afterwards = await pushed(store, pool, 4, unique_key="k")

        assert [*ids, *while_claimed] == [job.job_id] * 3
        assert afterwards != [job.job_id]
        assert await pushed(store, pool, 5, unique_key="k") == afterwards
        assert (await claimed(store, pool)).payload == 4

    async def test_unique_keys_are_per_pool(self, store: Store, pool: PoolRow) -> None:
        other = await store.pools.create(new_pool())

        [one] = await pushed(store, pool, 1, unique_key="k")
        [two] = await pushed(store, other, 1, unique_key="k")

        assert one != two
        assert [job.job_id for job in await store.jobs.list(other.pool_id)] == [two]

    async def test_keyed_and_plain_jobs_are_named_in_the_order_they_were_given(self, store: Store, pool: PoolRow) -> None:
        name = JobId(unique("job"))
        [held] = await pushed(store, pool, "held", unique_key="k")

        ids = await store.queue.push(
            pool.pool_id,
            [
                NewJob(payload="plain 1"),
                NewJob(payload="again", unique_key="k"),
                NewJob(payload="named", job_id=name),
                NewJob(payload="plain 2"),
                NewJob(payload="other", unique_key="o"),
            ],
        )

        assert (ids[1], ids[2]) == (held, name)
        assert [(await store.jobs.get(job_id)).payload for job_id in ids] == ["plain 1", "held", "named", "plain 2", "other"]

    async def test_of_eight_pushes_of_one_key_at_once_one_is_kept(self, store: Store, pool: PoolRow) -> None:
        ids = await asyncio.gather(*(pushed(store, pool, n, unique_key="k") for n in range(8)))

        assert len({job_id for [job_id] in ids}) == 1
        assert len(await store.queue.claim(claiming(pool, limit=9))) == 1
