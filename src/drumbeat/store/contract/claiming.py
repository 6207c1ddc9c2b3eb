"""Tests of claiming jobs: in which order, and by which workers."""

import asyncio
from typing import Any

import pytest

from drumbeat.core.job import JobStatus, RateLimit
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.store.contract.given import (
    MINUTE,
    W1,
    W2,
    Elapse,
    Given,
    active,
    added,
    joining,
    lost,
    moved,
    new_pool,
)
from drumbeat.store.contract.given_jobs import claimed, claiming, failed, holder, pushed, pushed_alike, verdict
from drumbeat.store.interface import PoolChange, Store


class ClaimContract(Given):
    """Tests of claims: the order in which jobs are claimed, and which worker can claim which job."""

    async def test_nothing_is_claimed_from_an_empty_pool(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, await store.pools.create(new_pool()), "another pool's")

        assert await store.queue.claim(claiming(pool)) == []

    async def test_jobs_are_claimed_in_the_order_of_priority_then_of_pushing(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, "c", "d")
        await pushed(store, pool, "a", "b", priority=5)
        await pushed(store, pool, "e", priority=-1)

        first = await store.queue.claim(claiming(pool, limit=3))
        rest = await store.queue.claim(claiming(pool, limit=10))

        assert [job.payload for job in (*first, *rest)] == ["a", "b", "c", "d", "e"]

    async def test_alike_jobs_are_claimed_in_the_order_of_priority_then_of_pushing(self, store: Store, pool: PoolRow) -> None:
        await pushed_alike(store, pool, "c", "d")
        await pushed_alike(store, pool, "a", priority=5)
        await pushed(store, pool, "b", priority=5)
        await pushed_alike(store, pool, "e", type="another")
        await pushed_alike(store, pool, "f")

        first = await store.queue.claim(claiming(pool, limit=3))
        rest = await store.queue.claim(claiming(pool, limit=10))

        assert [job.payload for job in (*first, *rest)] == ["a", "b", "c", "d", "e", "f"]

    async def test_no_two_workers_hold_the_same_job(self, store: Store, pool: PoolRow) -> None:
        ids = await pushed(store, pool, *range(20))

        claims = await asyncio.gather(*(store.queue.claim(claiming(pool, WorkerId(f"w{n}"))) for n in range(40)))

        assert sorted(job.job_id for claim in claims for job in claim) == sorted(ids)

    async def test_a_delayed_job_is_claimed_when_its_time_has_come_and_not_before(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        await pushed(store, pool, "later", delay=10 * MINUTE, priority=9)
        await pushed(store, pool, "at", run_at=await store.now() + 10 * MINUTE)
        await pushed(store, pool, "now", run_at=await store.now() - MINUTE)

        await elapse(9 * MINUTE)
        early = await store.queue.claim(claiming(pool, limit=9))
        await elapse(2 * MINUTE)
        late = await store.queue.claim(claiming(pool, limit=9))

        assert [job.payload for job in early] == ["now"]
        assert [job.payload for job in late] == ["later", "at"]

    @pytest.mark.parametrize("limits", [{}, {"group": "g", "group_limit": 9}], ids=["plain", "of a group"])
    async def test_a_due_job_does_not_make_other_delayed_jobs_due(
        self, store: Store, pool: PoolRow, elapse: Elapse, limits: dict[str, Any]
    ) -> None:
        await pushed(store, pool, "later", delay=10 * MINUTE, priority=9, **limits)
        await pushed(store, pool, "soon", delay=2 * MINUTE, **limits)
        await elapse(3 * MINUTE)

        found = [await store.queue.claim(claiming(pool, limit=9)) for _ in range(2)]

        assert [[job.payload for job in jobs] for jobs in found] == [["soon"], []]

    async def test_a_job_that_needs_a_capability_waits_for_a_worker_that_has_it(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, "special", capability="gpu", priority=1)
        await pushed(store, pool, "plain")

        assert (await claimed(store, pool, limit=5)).payload == "plain"
        assert await store.queue.claim(claiming(pool, limit=5, capabilities=("cpu",))) == []
        assert (await claimed(store, pool, capabilities=("cpu", "gpu"))).payload == "special"

    async def test_a_claim_may_ask_for_some_types_only(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, "a", type="x")
        await pushed(store, pool, "b", type="y")
        await pushed(store, pool, "c", type="z")

        jobs = await store.queue.claim(claiming(pool, limit=5, types=("y", "z")))

        assert [job.payload for job in jobs] == ["b", "c"]

    async def test_a_group_is_never_held_by_more_than_its_limit(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, 2, 3, 4, group="g", group_limit=2)
        await pushed(store, pool, "other", group="h", group_limit=1)
        await pushed(store, pool, "free")

        first = await store.queue.claim(claiming(pool, limit=9))
        assert [job.payload for job in first] == [1, 2, "other", "free"]
        assert await store.queue.claim(claiming(pool, limit=9)) == []

        settled = await store.queue.settle(holder(pool), [verdict(first[0])], claiming(pool, limit=9))
        assert [job.payload for job in settled.claimed] == [3]

    async def test_a_full_group_does_not_hide_those_behind_it(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, *range(300), group="g", group_limit=1)
        await pushed(store, pool, "behind")
        await claimed(store, pool)

        assert (await claimed(store, pool)).payload == "behind"

    async def test_a_long_group_that_fills_with_this_claim_does_not_hide_those_behind_it(
        self, store: Store, pool: PoolRow
    ) -> None:
        await pushed(store, pool, *range(500), group="g", group_limit=1)
        await pushed(store, pool, *range(500), group="h", group_rate=RateLimit(count=2, per=10 * MINUTE))
        await pushed(store, pool, *range(1000, 1020))

        first = await store.queue.claim(claiming(pool, limit=10))
        then = await store.queue.claim(claiming(pool, limit=10))

        assert [(job.group, job.payload) for job in first] == [
            ("g", 0),
            ("h", 0),
            ("h", 1),
            *((None, n) for n in range(1000, 1007)),
        ]
        assert [job.payload for job in then] == [*range(1007, 1017)]

    async def test_settling_claims_beyond_a_long_group_too(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, *range(300), group="g", group_limit=1)
        await pushed(store, pool, *range(1000, 1010))
        mine = await claimed(store, pool)

        settled = await store.queue.settle(holder(pool), [verdict(mine)], claiming(pool, limit=5))

        assert [job.payload for job in settled.claimed] == [1, 1000, 1001, 1002, 1003]

    async def test_a_group_limit_holds_for_concurrent_claims(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, *range(30), group="g", group_limit=3)

        claims = await asyncio.gather(*(store.queue.claim(claiming(pool, WorkerId(f"w{n}"), limit=2)) for n in range(12)))

        assert sum(len(claim) for claim in claims) == 3

    async def test_a_group_is_claimed_no_faster_than_its_rate(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, 1, 2, 3, 4, 5, group="g", group_rate=RateLimit(count=2, per=10 * MINUTE))

        first = await store.queue.claim(claiming(pool, limit=9))
        await store.queue.settle(holder(pool), [verdict(job) for job in first])
        at_once = await store.queue.claim(claiming(pool, limit=9))
        await elapse(11 * MINUTE)
        later = await store.queue.claim(claiming(pool, limit=9))

        assert [[job.payload for job in jobs] for jobs in (first, at_once, later)] == [[1, 2], [], [3, 4]]

    async def test_a_rate_counts_claims_of_one_job_each_time(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, group="g", group_rate=RateLimit(count=2, per=10 * MINUTE), max_attempts=9)
        for _ in range(2):
            await failed(store, pool)

        assert await store.queue.claim(claiming(pool)) == []

    async def test_nothing_is_claimed_from_a_paused_pool(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, 1)
        await store.pools.change(pool.pool_id, PoolChange(paused_until=await store.now() + 10 * MINUTE))
        assert await store.queue.claim(claiming(pool)) == []
        await elapse(11 * MINUTE)

        assert (await claimed(store, pool)).payload == 1

    async def test_a_draining_or_ended_worker_is_given_nothing(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        await moved(store, await active(store, pool), WorkerStatus.DRAINING)
        await lost(store, pool, W2)

        assert await store.queue.claim(claiming(pool, W1)) == []
        assert await store.queue.claim(claiming(pool, W2)) == []
        assert await store.queue.claim(claiming(pool, WorkerId("without a row")))

    async def test_a_worker_asked_to_drain_claims_nothing(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, "held", "left")
        await pushed(store, pool, "in a group", group="g", group_limit=1)
        await active(store, pool)
        await active(store, pool, W2)
        held = await claimed(store, pool, W1)

        await store.workers.ask_to_drain(pool.pool_id, [W1], "scale down", MINUTE)
        settled = await store.queue.settle(holder(pool), [verdict(held)], claiming(pool, W1, limit=5))

        assert (settled.stale, settled.claimed) == ((), ())
        assert await store.queue.claim(claiming(pool, W1, limit=5)) == []
        assert [job.payload for job in await store.queue.claim(claiming(pool, W2, limit=5))] == ["left", "in a group"]

    @pytest.mark.parametrize(
        "options", [{}, {"group": "g", "group_limit": 9}, {"delay": 2 * MINUTE}], ids=["plain", "of a group", "just due"]
    )
    @pytest.mark.parametrize("why", ["drains", "was asked to drain", "is lost", "its pool is paused"])
    async def test_neither_settling_nor_claiming_gives_jobs_to_a_worker_that_may_not_claim(
        self, store: Store, pool: PoolRow, elapse: Elapse, why: str, options: dict[str, Any]
    ) -> None:
        await pushed(store, pool, "held")
        await pushed(store, pool, "left", **options)
        worker = await active(store, pool)
        held = await claimed(store, pool, worker.holder)
        match why:
            case "drains":
                await moved(store, worker, WorkerStatus.DRAINING)
            case "was asked to drain":
                await store.workers.ask_to_drain(pool.pool_id, [W1], "scale down", MINUTE)
            case "is lost":
                await store.workers.move(worker, WorkerStatus.LOST, "silent")
            case _:
                await store.pools.change(pool.pool_id, PoolChange(paused_until=await store.now() + 10 * MINUTE))
        await elapse(3 * MINUTE)

        settled = await store.queue.settle(worker.holder, [verdict(held)], claiming(pool, worker.holder, limit=5))

        assert (settled.stale, settled.claimed) == ((), ())
        assert [*await store.queue.claim(claiming(pool, worker.holder, limit=5))] == []
        assert (await store.jobs.get(held.job_id)).status is JobStatus.DONE

    @pytest.mark.parametrize("again", ["only spawned", "joined"])
    @pytest.mark.parametrize("options", [{}, {"group": "g", "group_limit": 9}], ids=["plain", "of a group"])
    async def test_the_process_of_an_earlier_worker_with_the_same_id_claims_nothing(
        self, store: Store, pool: PoolRow, again: str, options: dict[str, Any]
    ) -> None:
        """The pool was deleted and created again while the worker was silent; now its id belongs to another worker."""
        old = await lost(store, pool)
        await store.pools.delete(pool.pool_id)
        pool = await store.pools.create(pool)
        await pushed(store, pool, "left", **options)
        if again == "joined":
            await store.membership.join(joining(pool.pool_id, W1, "i2"))
        else:
            await added(store, pool)
        new = holder(pool, W1, "i2" if again == "joined" else "")

        settled = await store.queue.settle(old.holder, [], claiming(pool, old.holder, limit=5))

        assert (settled.stale, settled.claimed) == ((), ())
        assert [*await store.queue.claim(claiming(pool, old.holder, limit=5))] == []
        assert [job.payload for job in await store.queue.claim(claiming(pool, new, limit=5))] == ["left"]

    async def test_an_active_worker_is_given_jobs(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        await active(store, pool)

        assert await claimed(store, pool, W1)
