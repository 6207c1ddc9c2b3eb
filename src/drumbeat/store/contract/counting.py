"""Tests of counting and listing jobs and workers after many of them have ended."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from drumbeat.core.job import ENDED, AttemptOutcome, Job, JobCounts, JobId, JobStatus, JobsWithTemplate, NewJob, RateLimit
from drumbeat.core.pool import PoolRow
from drumbeat.core.retention import Prunable
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.store.contract.given import DAY, MINUTE, W1, W2, W3, Elapse, Given, active, added, joined, lost, moved, new_pool
from drumbeat.store.contract.given_jobs import claimed, claiming, failed, holder, pushed, verdict
from drumbeat.store.interface import Store

STEPS = 60


@dataclass
class RandomMoves:
    """Changes jobs of several pools at random: pushes, claims, finishes, cancels, requeues or releases them."""

    store: Store
    pools: list[PoolRow]
    dice: random.Random
    held: dict[str, list[Job]] = field(default_factory=dict)

    async def step(self) -> None:
        action = self.dice.choice([self.push, self.claim, self.settle, self.settle, self.cancel, self.requeue, self.release])
        await action(self.dice.choice(self.pools))

    async def push(self, pool: PoolRow) -> None:
        jobs = [NewJob(payload=n, max_attempts=self.dice.randint(1, 2), max_crashes=1) for n in range(self.dice.randint(1, 6))]
        await self.store.queue.push(
            pool.pool_id, [*jobs, NewJob(payload="named", job_id=JobId(f"{pool.pool_id}{self.dice.random()}"))]
        )

    async def claim(self, pool: PoolRow) -> None:
        self.held.setdefault(pool.pool_id, []).extend(
            await self.store.queue.claim(claiming(pool, limit=self.dice.randint(1, 5)))
        )

    async def settle(self, pool: PoolRow) -> None:
        verdicts = [verdict(job, self.dice.choice([*AttemptOutcome])) for job in self.held.pop(pool.pool_id, [])]
        more = claiming(pool, limit=2) if self.dice.random() < 0.5 else None
        done = await self.store.queue.settle(holder(pool), [*verdicts, *verdicts[:1]], more)
        self.held.setdefault(pool.pool_id, []).extend(done.claimed)

    async def cancel(self, pool: PoolRow) -> None:
        jobs = await self.store.jobs.list(pool.pool_id)
        await self.store.jobs.cancel([job.job_id for job in self.dice.sample(jobs, min(3, len(jobs)))])

    async def requeue(self, pool: PoolRow) -> None:
        jobs = await self.store.jobs.list(pool.pool_id)
        chosen = self.dice.sample(jobs, min(3, len(jobs))) if self.dice.random() < 0.7 else jobs
        await self.store.jobs.requeue(pool.pool_id, [job.job_id for job in chosen])

    async def release(self, pool: PoolRow) -> None:
        await self.store.queue.release(holder(pool), "lost")


class CountsContract(Given):
    async def test_ended_jobs_are_counted_right_after_random_moves(self, store: Store, elapse: Elapse) -> None:
        pools = [await store.pools.create(new_pool()) for _ in range(2)]
        chance = RandomMoves(store, pools, random.Random(4))  # noqa: S311 - nothing is secret

        for n in range(1, STEPS + 1):
            await chance.step()
            if n % 20 == 0:
                await self.expect_counted(store, pools)
        await elapse(2 * DAY)
        await store.jobs.prune(DAY, [*JobStatus])
        await self.expect_counted(store, pools)
        await store.pools.delete(pools[0].pool_id)
        again = await store.pools.create(pools[0])
        await self.expect_counted(store, [again])

    async def test_counts_are_right_when_jobs_end_while_the_store_is_migrated_again(self, store: Store) -> None:
        pools = [await store.pools.create(new_pool()) for _ in range(4)]

        async def work(pool: PoolRow) -> None:
            for _ in range(10):
                await pushed(store, pool, 1, 2)
                jobs = await store.queue.claim(claiming(pool, limit=2))
                await store.queue.settle(holder(pool), [verdict(job) for job in jobs])

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work(pool)) for pool in pools]
            while not all(task.done() for task in tasks):
                await store.upkeep.migrate()
                await asyncio.sleep(0)

        await self.expect_counted(store, pools)
        assert {(await store.jobs.counts(pool.pool_id)).done for pool in pools} == {20}

    async def expect_counted(self, store: Store, pools: list[PoolRow]) -> None:
        for pool in pools:
            listed = Counter(job.status for job in await store.jobs.list(pool.pool_id, limit=10_000))
            counts = await store.jobs.counts(pool.pool_id, most=1)
            assert {status: getattr(counts, status) for status in ENDED} == {status: listed[status] for status in ENDED}

    async def test_what_has_ended_is_counted_beyond_where_other_counts_stop(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, *range(8), max_attempts=1)
        jobs = await store.queue.claim(claiming(pool, limit=6))
        outcomes = [AttemptOutcome.DONE, AttemptOutcome.FAILED, AttemptOutcome.CANCELLED] * 2
        await store.queue.settle(holder(pool), [verdict(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)])

        counts = await store.jobs.counts(pool.pool_id, most=1)

        assert (counts.ready, counts.done, counts.poisoned, counts.cancelled) == (1, 2, 2, 2)

    async def test_jobs_of_several_states_are_listed_in_the_order_of_their_pushing(self, store: Store, pool: PoolRow) -> None:
        ids = [
            *await pushed(store, pool, "done", "poisoned", "claimed", max_attempts=1, priority=9),
            *await pushed(store, pool, "low", priority=-1),
            *await pushed(store, pool, "later", delay=MINUTE, priority=3),
            *await pushed(store, pool, "high", priority=5),
            *await pushed(store, pool, "low again", priority=-1),
        ]
        await claimed(store, pool)
        await store.queue.settle(holder(pool), [verdict(job) for job in await store.jobs.list(pool.pool_id, limit=1)])
        await failed(store, pool)
        await claimed(store, pool)

        async def listed(*statuses: JobStatus, after: int | None = None, limit: int = 100) -> list[int]:
            last = None if after is None else ids[after]
            found = await store.jobs.list(pool.pool_id, statuses=statuses, after=last, limit=limit)
            return [ids.index(job.job_id) for job in found]

        assert await listed() == [*range(7)]
        assert await listed(JobStatus.PENDING) == [3, 4, 5, 6]
        assert await listed(JobStatus.PENDING, after=3, limit=2) == [4, 5]
        assert await listed(JobStatus.CLAIMED, JobStatus.PENDING, JobStatus.POISONED) == [1, 2, 3, 4, 5, 6]
        assert await listed(JobStatus.DONE, JobStatus.CLAIMED, limit=2) == [0, 2]
        assert await listed(JobStatus.CANCELLED) == []

    async def test_a_job_knows_how_many_are_claimed_before_it(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, "due", delay=MINUTE)
        await pushed(store, pool, 1, 2, capability="gpu")
        [mine] = await pushed(store, pool, "mine")
        await pushed(store, pool, 3, "behind")
        await pushed(store, pool, 4, 5, 6, priority=1, type="other")
        await pushed(store, pool, "lower", priority=-1)
        await pushed(store, pool, "later", delay=10 * MINUTE, priority=5)
        job = await store.jobs.get(mine)

        assert (await store.jobs.ahead(job), await store.jobs.ahead(job, most=2)) == (5, 2)
        await elapse(MINUTE)
        assert await store.jobs.ahead(job) == 6

    async def test_claims_of_a_group_are_counted_within_its_rates_time(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        rate = RateLimit(count=9, per=10 * MINUTE)
        await pushed(store, pool, 1, 2, 3, group="g", group_rate=rate)
        await claimed(store, pool)
        await elapse(5 * MINUTE)
        await claimed(store, pool)

        assert await store.jobs.recent_claims(pool.pool_id, "g", rate.per) == 2
        assert await store.jobs.recent_claims(pool.pool_id, "g", MINUTE) == 1
        assert await store.jobs.recent_claims(pool.pool_id, "another", rate.per) == 0

    async def test_many_old_jobs_are_pruned_in_steps(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await store.queue.push(pool.pool_id, JobsWithTemplate([*range(600)], NewJob(payload=None)))
        jobs = await store.queue.claim(claiming(pool, limit=600))
        await store.queue.settle(holder(pool), [verdict(job) for job in jobs])
        await elapse(2 * DAY)
        steps = [await store.upkeep.prune_some(pool.pool_id, Prunable.DONE, DAY)]
        while steps[-1].more:
            steps.append(await store.upkeep.prune_some(pool.pool_id, Prunable.DONE, DAY))

        assert sum(step.rows for step in steps) == 600
        assert (await store.jobs.counts(pool.pool_id), await store.jobs.list(pool.pool_id)) == (JobCounts(done_so_far=600), [])
        assert (await store.upkeep.prune_some(pool.pool_id, Prunable.DONE, DAY)).rows == 0
        assert (await store.upkeep.prune_some(new_pool().pool_id, Prunable.POISONED, DAY)).rows == 0

    async def test_a_job_that_waited_long_is_kept_from_its_end_on(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, "waited")
        await pushed(store, pool, "gone", priority=1)
        await store.queue.settle(holder(pool), [verdict(await claimed(store, pool))])
        await elapse(2 * DAY)
        await store.queue.settle(holder(pool), [verdict(await claimed(store, pool))])

        await store.jobs.prune(DAY)

        assert [job.payload for job in await store.jobs.list(pool.pool_id)] == ["waited"]
        assert (await store.jobs.counts(pool.pool_id)).done == 1


class EndedWorkersContract(Given):
    async def test_unreaped_workers_and_named_workers_are_read(self, store: Store, pool: PoolRow) -> None:
        names = [WorkerId(f"w{n}") for n in range(5)]
        await added(store, pool, *names)
        for name in names[1:4]:
            await lost(store, pool, name)
        for name in names[2:4]:
            await store.workers.mark_reaped(pool.pool_id, name)

        async def read(*named: WorkerId) -> list[WorkerId]:
            return [row.worker_id for row in await store.workers.list_unreaped(pool.pool_id, named=named)]

        assert sorted(await read()) == [names[0], names[1], names[4]]
        assert sorted(await read(names[3], names[0], WorkerId("nobody"))) == [names[0], names[1], names[3], names[4]]
        assert [row.worker_id for row in await store.workers.list(pool.pool_id, live=True)] == [names[0], names[4]]
        assert [*await store.workers.list_unreaped(new_pool().pool_id)] == []

    async def test_the_workers_that_ended_last_are_read_newest_first(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        for name in (W1, W2, W3):
            await lost(store, pool, name)
            await elapse(MINUTE)
        await store.workers.mark_reaped(pool.pool_id, W3)
        await active(store, pool, WorkerId("w4"))

        newest = await store.workers.list_ended(pool.pool_id, 2)

        assert [row.worker_id for row in newest] == [W3, W2]
        assert newest[0] == await store.workers.get(pool.pool_id, W3)
        assert len(await store.workers.list_ended(pool.pool_id, 9)) == 3

    async def test_a_pool_knows_the_highest_number_its_workers_were_named_by(self, store: Store, elapse: Elapse) -> None:
        pool = await store.pools.create(new_pool())
        assert pool.last_worker == -1
        await added(store, pool, WorkerId("p-worker-9"), WorkerId("p-worker-10"), WorkerId("by-hand-99"), WorkerId("worker-x1"))
        await moved(store, await joined(store, pool, WorkerId("worker-12")), WorkerStatus.TERMINATED)
        await elapse(DAY)
        await store.upkeep.prune(MINUTE)

        await joined(store, pool, WorkerId("worker-3"))

        assert "worker-12" not in [row.worker_id for row in await store.workers.list(pool.pool_id)]
        assert (await store.pools.get(pool.pool_id)).last_worker == 12
