"""FlatMachines' work protocol on our queues."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flatmachines import WorkBackend, WorkPool
from flatmachines.distributed_hooks import DistributedWorkerHooks

from drumbeat.adapters.flatmachines import DrumbeatRegistrationBackend, DrumbeatWorkBackend, DrumbeatWorkPool
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput, InvalidSettings
from drumbeat.core.job import AttemptOutcome, JobId, JobStatus, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Holder, WorkerId, WorkerStatus
from drumbeat.store.interface import JoinRequest
from drumbeat.store.memory import MemoryStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def papers(store: MemoryStore) -> DrumbeatWorkPool:
    return DrumbeatWorkBackend(store).pool("papers")


def test_it_is_what_the_package_takes_for_a_work_backend(store: MemoryStore, papers: DrumbeatWorkPool) -> None:
    assert isinstance(DrumbeatWorkBackend(store), WorkBackend)
    assert isinstance(papers, WorkPool)


async def test_a_pool_is_made_when_it_is_first_used(store: MemoryStore, papers: DrumbeatWorkPool) -> None:
    assert await papers.size() == 0
    assert (await store.pools.get(PoolId("papers"))).kind is PoolKind.JOBS


async def test_a_pool_of_another_kind_is_refused(store: MemoryStore, papers: DrumbeatWorkPool) -> None:
    await store.pools.create(pool("papers", PoolKind.FLEET))
    with pytest.raises(InvalidSettings, match="a fleet pool"):
        await papers.push(1)


async def test_a_claimed_item_is_what_was_pushed(papers: DrumbeatWorkPool) -> None:
    item_id = await papers.push({"n": 1}, {"max_retries": 5})

    item = await papers.claim("w1")

    assert item is not None
    assert (item.id, item.data, item.claimed_by, item.attempts) == (item_id, {"n": 1}, "w1", 1)
    assert (item.max_retries, item.status) == (5, "claimed")
    assert item.to_dict()["id"] == item_id
    assert await papers.size() == 0
    assert await papers.claim("w2") is None


async def test_a_completed_item_keeps_its_result(store: MemoryStore, papers: DrumbeatWorkPool) -> None:
    item_id = await papers.push("text")
    await papers.claim("w1")

    await papers.complete(item_id, {"words": 3})

    job = await store.jobs.get(JobId(item_id))
    assert (job.status, job.result) == (JobStatus.DONE, {"words": 3})


async def test_a_failed_item_keeps_its_error_and_is_poisoned_at_its_limit(store: MemoryStore, papers: DrumbeatWorkPool) -> None:
    item_id = await papers.push("text", {"max_retries": 2})
    for n, status in ((1, JobStatus.PENDING), (2, JobStatus.POISONED)):
        assert await papers.claim("w1") is not None
        await papers.fail(item_id, f"error {n}")
        job = await store.jobs.get(JobId(item_id))
        assert (job.status, job.last_error) == (status, f"error {n}")

    assert [each.error for each in await store.jobs.attempts(JobId(item_id))] == ["error 1", "error 2"]
    assert await papers.claim("w1") is None


async def test_a_job_that_crashes_its_workers_is_poisoned(store: MemoryStore, papers: DrumbeatWorkPool) -> None:
    item_id = await papers.push("deadly", {"max_retries": 2})
    for n in (1, 2):
        assert await papers.claim(f"w{n}") is not None
        assert await papers.release_by_worker(f"w{n}") == 1

    assert (await store.jobs.get(JobId(item_id))).status is JobStatus.POISONED
    assert await papers.claim("w3") is None


async def test_a_late_result_of_a_reaped_worker_is_refused_within_one_process(
    store: MemoryStore, papers: DrumbeatWorkPool
) -> None:
    await papers.push("text")
    late = await papers.claim("w1")
    await papers.release_by_worker("w1")
    again = await papers.claim("w2")
    assert late is not None
    assert again is not None
    assert late.id == again.id

    with pytest.raises(KeyError, match="taken from w1"):
        await papers.complete(late.id, "late")

    await papers.complete(again.id, "right")
    assert (await store.jobs.get(JobId(again.id))).result == "right"


async def test_a_late_result_of_a_reaped_worker_is_refused_from_another_process(store: MemoryStore) -> None:
    mine, other = DrumbeatWorkBackend(store).pool("papers"), DrumbeatWorkBackend(store).pool("papers")
    item_id = await mine.push("text")
    await mine.claim("w1")
    await other.release_by_worker("w1")
    await other.claim("w2")

    with pytest.raises(KeyError, match="refused"):
        await mine.fail(str(item_id), "late")

    await other.complete(str(item_id), "right")
    assert (await store.jobs.get(JobId(item_id))).result == "right"


async def test_results_of_parents_are_filled_in(store: MemoryStore, papers: DrumbeatWorkPool, clock: ManualClock) -> None:
    first = await papers.push("text")
    waiting = NewJob(payload={"args": [None, 2], "kwargs": {}, "outputs": {"0": first, "all": [first]}}, after=(JobId(first),))
    await store.queue.push(PoolId("papers"), [waiting])
    done = await papers.claim("w1")
    assert done is not None
    await papers.complete(done.id, {"words": 3})

    item = await papers.claim("w1")

    assert item is not None
    assert item.data == {"args": [{"words": 3}, 2], "kwargs": {"all": [{"words": 3}]}}


async def test_an_item_that_needs_the_result_of_another_job_than_a_parent_is_poisoned(
    store: MemoryStore, papers: DrumbeatWorkPool
) -> None:
    first = await papers.push("text")
    needs = {"args": [None], "kwargs": {}, "outputs": {"0": "another"}}
    [waiting] = await store.queue.push(PoolId("papers"), [NewJob(payload=needs, after=(JobId(first),))])
    done = await papers.claim("w1")
    assert done is not None
    await papers.complete(done.id)

    assert await papers.claim("w1") is None

    job = await store.jobs.get(waiting)
    assert (job.status, "outputs: expected the id of a job" in str(job.last_error)) == (JobStatus.POISONED, True)


@pytest.mark.parametrize("verb", ["complete", "fail"])
async def test_what_is_not_held_is_refused(papers: DrumbeatWorkPool, verb: str) -> None:
    item_id = await papers.push("text")
    with pytest.raises(KeyError, match="has no claim on item"):
        await getattr(papers, verb)(item_id)


async def test_a_job_is_completed_once(papers: DrumbeatWorkPool) -> None:
    item_id = await papers.push("text")
    await papers.claim("w1")
    await papers.complete(item_id)
    with pytest.raises(KeyError):
        await papers.complete(item_id)


async def test_a_job_given_back_costs_no_attempt(papers: DrumbeatWorkPool) -> None:
    item_id = await papers.push("text", {"max_retries": 1})
    await papers.claim("w1")
    await papers.release(item_id)

    item = await papers.claim("w2")

    assert item is not None
    assert item.attempts == 1


@pytest.mark.parametrize("limit", [0, -1, "3", True, None])
async def test_a_senseless_limit_is_refused(papers: DrumbeatWorkPool, limit: object) -> None:
    with pytest.raises(InvalidInput, match="max_retries"):
        await papers.push("text", {"max_retries": limit})


async def test_no_two_workers_of_a_process_get_the_same_item(papers: DrumbeatWorkPool) -> None:
    ids = {await papers.push(n) for n in range(20)}
    claims = await asyncio.gather(*(papers.claim(f"w{n}") for n in range(40)))
    assert sorted(item.id for item in claims if item) == sorted(ids)


async def test_a_renewed_claim_outlasts_its_lease(store: MemoryStore, clock: ManualClock) -> None:
    work = DrumbeatWorkBackend(store, lease=timedelta(seconds=60))
    item_id = await work.pool("papers").push("text")
    await work.pool("papers").claim("w1")
    await clock.advance(timedelta(seconds=50))
    await work.renew("w1")
    await clock.advance(timedelta(seconds=50))

    assert not await store.queue.expire()
    await work.pool("papers").complete(item_id)


async def test_a_claim_that_was_taken_is_forgotten_at_its_renewal(store: MemoryStore) -> None:
    work = DrumbeatWorkBackend(store)
    await work.pool("papers").push("text")
    await work.pool("papers").claim("w1")
    assert len([*work.claims.of_worker("w1")]) == 1
    await store.queue.release(Holder(pool_id=PoolId("papers"), worker_id=WorkerId("w1")), "reaped")

    await work.renew("w1")

    assert [*work.claims.of_worker("w1")] == []


@pytest.mark.parametrize(("end", "crashes"), [(WorkerStatus.LOST, 1), (WorkerStatus.TERMINATED, 0)])
async def test_an_item_is_charged_only_if_it_may_have_ended_its_worker(
    store: MemoryStore, end: WorkerStatus, crashes: int
) -> None:
    work = DrumbeatWorkBackend(store)
    item_id = await work.pool("papers").push("text")
    papers, w1 = PoolId("papers"), WorkerId("w1")
    row = await store.membership.join(JoinRequest(pool_id=papers, worker_id=w1, slot=0, instance="i", host="h", pid=1))
    work.register(row.holder)
    await work.pool("papers").claim("w1")
    await store.workers.move(row, end, "the test says so")

    assert await work.pool("papers").release_by_worker("w1") == 1

    assert (await store.jobs.get(JobId(item_id))).crashes == crashes


async def test_everything_a_worker_holds_can_be_settled_at_once(store: MemoryStore) -> None:
    work = DrumbeatWorkBackend(store)
    ids = [await work.pool(name).push("text") for name in ("papers", "images")]
    for name in ("papers", "images"):
        await work.pool(name).claim("w1")

    assert await work.settle_all("w1", AttemptOutcome.FAILED, "the machine broke") == 2

    assert [(await store.jobs.get(JobId(each))).last_error for each in ids] == ["the machine broke"] * 2


async def test_the_packages_own_hooks_work_on_our_backends(store: MemoryStore) -> None:
    hooks = DistributedWorkerHooks(
        registration=DrumbeatRegistrationBackend(store, pool_id="papers"), work=DrumbeatWorkBackend(store)
    )
    item_id = await DrumbeatWorkBackend(store).pool("papers").push({"n": 1})
    context: dict[str, Any] = {"pool_id": "papers", "worker_id": "w1", "result": {"ok": True}}
    for action in ("register_worker", "get_pool_state", "claim_job", "complete_job", "heartbeat", "deregister_worker"):
        context = await hooks.on_action("state", action, context)

    assert (context["queue_depth"], context["active_workers"], context["job"]) == (1, 1, {"n": 1})
    assert (await store.jobs.get(JobId(item_id))).result == {"ok": True}


async def test_a_backend_opens_the_store_at_a_url_and_makes_its_folder(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/data/workers.sqlite"
    async with DrumbeatWorkBackend(url) as work:
        item_id = await work.pool("papers").push({"n": 1})
    async with DrumbeatWorkBackend(url) as work:
        item = await work.pool("papers").claim("w1")
        assert item is not None
        assert item.id == item_id


async def test_an_item_whose_large_payload_is_lost_is_poisoned_and_the_next_one_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUMBEAT_LARGE", f"file://{tmp_path}/large")
    async with DrumbeatWorkBackend(f"sqlite:///{tmp_path}/jobs.db") as work:
        lost, kept = [await work.pool("papers").push(each) for each in ("x" * 100_000, "small")]
        for file in tmp_path.glob("large/**/*.json"):
            file.unlink()

        item = await work.pool("papers").claim("w1")

        assert item is not None
        assert item.id == kept
        job = await (await work.place.store()).jobs.get(JobId(lost))
        assert (job.status, "it was deleted" in str(job.last_error)) == (JobStatus.POISONED, True), job.last_error


async def test_an_item_or_result_that_is_not_json_is_refused(papers: DrumbeatWorkPool) -> None:
    with pytest.raises(InvalidInput, match="expected item to be JSON"):
        await papers.push(object())
    item_id = await papers.push("text")
    await papers.claim("w1")

    with pytest.raises(InvalidInput, match="expected result to be JSON"):
        await papers.complete(item_id, object())

    await papers.fail(item_id, "no result")
