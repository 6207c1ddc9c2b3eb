"""The ``pool`` hook, from YAML and by hand."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from flatmachines import FlatMachine

from drumbeat.adapters.flatmachines import (
    DrumbeatRegistrationBackend,
    DrumbeatWorkBackend,
    PoolHooks,
    PoolWorkerRegistration,
    open_session,
    registry_of,
)
from drumbeat.adapters.flatmachines.spawning import QueueCounts
from drumbeat.adapters.flatmachines.work import LEASE
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import JobId, JobStatus
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, pool
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.store.memory import MemoryStore

ONE_CLAIM = """
spec: flatmachine
spec_version: "4.2.1"
data:
  name: one_claim
  context: {pool_id: papers, worker_id: w1, result: 7}
  states:
    claim:
      type: initial
      action: claim_job
      hooks: {name: pool, args: {dsn: "%s"}}
      transitions: [{to: complete}]
    complete:
      action: complete_job
      hooks: {name: pool, args: {dsn: "%s"}}
      transitions: [{to: done}]
    done: {type: final, output: {job: context.job}}
"""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


async def act(store: MemoryStore, *actions: str, **context: Any) -> dict[str, Any]:
    """What is in the context after some actions, one after the other."""
    found = context
    async with open_session(store) as session:
        for action in actions:
            found = await PoolHooks(session).on_action("state", action, found)
    return found


async def test_yaml_chooses_the_store_by_the_hooks_arguments(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.sqlite"
    async with DrumbeatWorkBackend(url) as work:
        item_id = await work.pool("papers").push({"n": 1})
        async with open_session("memory:") as session:
            machine = FlatMachine(config_dict=yaml.safe_load(ONE_CLAIM % (url, url)), hooks_registry=registry_of(session))
            assert await machine.execute() == {"job": {"n": 1}}
        job = await (await work.place.store()).jobs.get(JobId(item_id))
        assert (job.status, job.result) == (JobStatus.DONE, 7)


async def test_an_action_merges_into_the_context(store: MemoryStore) -> None:
    await DrumbeatWorkBackend(store).pool("papers").push({"n": 1})
    found = await act(store, "get_pool_state", pool_id="papers", mine=5)
    assert found == {"pool_id": "papers", "mine": 5, "queue_depth": 1, "active_workers": 0, "busy_workers": 0}


async def test_an_action_that_is_not_ours_is_left_to_others(store: MemoryStore) -> None:
    assert await act(store, "analyze", mine=5) == {"mine": 5}


@pytest.mark.parametrize(
    ("action", "key"),
    [
        ("claim_job", "worker_id"),
        ("complete_job", "job_id"),
        ("fail_job", "job_id"),
        ("register_worker", "worker_id"),
        ("deregister_worker", "worker_id"),
        ("heartbeat", "worker_id"),
        ("reap_worker", "worker"),
    ],
)
async def test_what_an_action_needs_is_named(store: MemoryStore, action: str, key: str) -> None:
    with pytest.raises(ValueError, match=f"{key} is required for {action}"):
        await act(store, action)


async def test_a_workers_life_by_explicit_actions(store: MemoryStore) -> None:
    item_id = await DrumbeatWorkBackend(store).pool("papers").push({"n": 1})
    actions = ("register_worker", "heartbeat", "claim_job", "complete_job", "deregister_worker")
    found = await act(store, *actions, pool_id="papers", worker_id="w1", result="read")

    assert (found["status"], found["job"], found["job_id"], found["attempts"]) == ("active", {"n": 1}, item_id, 1)
    assert (await store.jobs.get(JobId(item_id))).result == "read"
    assert (await store.workers.get(PoolId("papers"), WorkerId("w1"))).status is WorkerStatus.TERMINATED


@pytest.mark.parametrize(
    ("key", "kept"), [("error", "broken"), ("last_error", "broken"), (None, "failed without an error message")]
)
async def test_the_text_of_an_error_is_kept_wherever_the_runtime_put_it(store: MemoryStore, key: str | None, kept: str) -> None:
    item_id = await DrumbeatWorkBackend(store).pool("papers").push({"n": 1})
    await act(store, "claim_job", "fail_job", pool_id="papers", worker_id="w1", **({key: "broken"} if key else {}))
    assert (await store.jobs.get(JobId(item_id))).last_error == kept


@pytest.mark.parametrize(
    ("what", "pending", "capacity", "busy", "cap", "wanted"),
    [
        ("more jobs than workers may be: the cap (C50)", 10, 0, 0, 3, 3),
        ("no jobs: nobody (C50)", 0, 0, 0, 10, 0),
        ("at the cap: nobody (C50)", 50, 10, 10, 10, 0),
        ("busy workers take no waiting job (C51)", 2, 3, 3, 6, 2),
        ("free workers do", 2, 3, 1, 6, 0),
        ("some do", 4, 3, 1, 6, 2),
        ("above the cap: nobody", 5, 4, 4, 3, 0),
        ("cap of nobody", 5, 0, 0, 0, 0),
    ],
)
async def test_as_many_workers_as_nobody_is_free_for(
    store: MemoryStore, what: str, pending: int, capacity: int, busy: int, cap: int, wanted: int
) -> None:
    assert QueueCounts(pending=pending, capacity=capacity, busy=busy).missing_workers(cap) == wanted, what
    context = {"queue_depth": str(pending), "active_workers": capacity, "busy_workers": busy, "max_workers": f"{cap}"}
    found = await act(store, "calculate_spawn", **context)
    assert (found["workers_to_spawn"], found["spawn_list"]) == (wanted, list(range(wanted)))
    assert found["workers_needed"] == capacity + wanted


async def test_a_number_that_is_none_is_refused_with_its_name(store: MemoryStore) -> None:
    with pytest.raises(InvalidInput, match=r"max_workers.*'many'"):
        await act(store, "calculate_spawn", max_workers="many")


async def test_workers_of_other_pools_do_not_count(store: MemoryStore) -> None:
    await DrumbeatRegistrationBackend(store).register(PoolWorkerRegistration(worker_id="w1", pool_id="images"))
    assert (await act(store, "get_pool_state", pool_id="images"))["active_workers"] == 1
    assert (await act(store, "get_pool_state", pool_id="papers"))["active_workers"] == 0


async def test_a_busy_worker_is_one_that_holds_a_job(store: MemoryStore) -> None:
    work, registry = DrumbeatWorkBackend(store), DrumbeatRegistrationBackend(store)
    for n in range(3):
        await work.pool("papers").push(n)
        await registry.register(PoolWorkerRegistration(worker_id=f"w{n}", pool_id="papers"))
    await work.pool("papers").claim("w1")
    await work.pool("papers").claim("passer-by")
    found = await act(store, "get_pool_state", pool_id="papers")
    assert (found["queue_depth"], found["active_workers"], found["busy_workers"]) == (1, 3, 1)


async def test_stale_workers_are_reaped_in_one_action(store: MemoryStore, clock: ManualClock) -> None:
    work, registry = DrumbeatWorkBackend(store), DrumbeatRegistrationBackend(store)
    for name in ("dead", "other"):
        await registry.register(PoolWorkerRegistration(worker_id=name, pool_id="papers"))
    await work.pool("papers").push(1)
    await work.pool("papers").claim("dead")
    await clock.advance(timedelta(seconds=61))
    await registry.heartbeat("other")

    found = await act(store, "list_stale_workers", "reap_stale_workers", pool_id="papers")

    assert (found["reaped_workers"], found["reaped_count"], found["total_jobs_released"]) == (["dead"], 1, 1)
    assert await work.pool("papers").size() == 1


async def test_a_worker_that_was_heard_of_since_is_left_alone(store: MemoryStore, clock: ManualClock) -> None:
    registry = DrumbeatRegistrationBackend(store)
    await registry.register(PoolWorkerRegistration(worker_id="slow", pool_id="papers"))
    await clock.advance(timedelta(seconds=61))
    found = await act(store, "list_stale_workers", pool_id="papers")
    await registry.heartbeat("slow")

    found = await act(store, "reap_worker", pool_id="papers", worker=found["stale_workers"][0])

    assert (found["reaped_worker_id"], found["jobs_released"]) == (None, 0)
    assert (await store.workers.get(PoolId("papers"), WorkerId("slow"))).status is WorkerStatus.ACTIVE


async def test_a_worker_can_be_reaped_by_name(store: MemoryStore) -> None:
    await DrumbeatRegistrationBackend(store).register(PoolWorkerRegistration(worker_id="w1", pool_id="papers"))
    found = await act(store, "reap_worker", pool_id="papers", worker="w1")
    assert found["reaped_worker_id"] == "w1"
    assert (await store.workers.get(PoolId("papers"), WorkerId("w1"))).status is WorkerStatus.LOST


async def test_a_claim_without_a_row_is_swept_once_its_lease_has_run_out(store: MemoryStore, clock: ManualClock) -> None:
    work = DrumbeatWorkBackend(store)
    await work.pool("papers").push(1)
    await work.pool("papers").claim("passer-by")
    assert (await act(store, "list_stale_workers", pool_id="papers"))["stale_count"] == 0
    await clock.advance(timedelta(hours=1, seconds=1))

    found = await act(store, "list_stale_workers", "reap_stale_workers", pool_id="papers")

    assert found["reaped_workers"] == ["passer-by"]
    assert await work.pool("papers").size() == 1


async def claims_without_rows(store: MemoryStore, clock: ManualClock, *workers: str) -> list[str]:
    """Items that workers without a row have claimed, and whose leases have run out."""
    pool = DrumbeatWorkBackend(store).pool("papers")
    ids = [await pool.push(worker) for worker in workers]
    for worker in workers:
        await pool.claim(worker)
    await clock.advance(timedelta(hours=1, seconds=1))
    return ids


async def statuses(store: MemoryStore, *item_ids: str) -> list[JobStatus]:
    return [(await store.jobs.get(JobId(item_id))).status for item_id in item_ids]


async def test_of_the_workers_without_a_row_each_is_counted_its_own_jobs(store: MemoryStore, clock: ManualClock) -> None:
    ids = await claims_without_rows(store, clock, "one", "other")

    stale = (await act(store, "list_stale_workers", pool_id="papers"))["stale_workers"]
    await store.queue.expire()
    await clock.advance(timedelta(hours=1, seconds=1))
    reaped = [await act(store, "reap_worker", pool_id="papers", worker=each) for each in stale]

    assert [(each["reaped_worker_id"], each["jobs_released"]) for each in reaped] == [("one", 1), ("other", 1)]
    assert await statuses(store, *ids) == [JobStatus.PENDING, JobStatus.PENDING]


async def test_a_worker_without_a_row_that_has_renewed_its_lease_is_left_alone(store: MemoryStore, clock: ManualClock) -> None:
    work = DrumbeatWorkBackend(store)
    item_id = await work.pool("papers").push(1)
    await work.pool("papers").claim("slow")
    await clock.advance(timedelta(hours=1, seconds=1))
    stale = (await act(store, "list_stale_workers", pool_id="papers"))["stale_workers"]
    await work.renew("slow")

    found = await act(store, "reap_worker", pool_id="papers", worker=stale[0])

    assert (found["reaped_worker_id"], found["jobs_released"]) == (None, 0)
    assert await statuses(store, item_id) == [JobStatus.CLAIMED]


async def test_a_worker_without_a_row_keeps_the_jobs_whose_leases_are_valid(store: MemoryStore, clock: ManualClock) -> None:
    pool = DrumbeatWorkBackend(store).pool("papers")
    [old] = await claims_without_rows(store, clock, "busy")
    new = await pool.push("new")
    await pool.claim("busy")

    first = await act(store, "list_stale_workers", "reap_stale_workers", pool_id="papers")
    extended = await statuses(store, old, new)
    await clock.advance(timedelta(minutes=59))
    held = await store.jobs.get(JobId(new))
    assert held.holder is not None
    await store.queue.renew(held.holder, [held.token], LEASE)
    await clock.advance(timedelta(minutes=2))
    second = await act(store, "list_stale_workers", "reap_stale_workers", pool_id="papers")

    assert (first["reaped_count"], extended) == (0, [JobStatus.CLAIMED, JobStatus.CLAIMED])
    assert (second["reaped_workers"], second["total_jobs_released"]) == (["busy"], 1)
    assert await statuses(store, old, new) == [JobStatus.PENDING, JobStatus.CLAIMED]


async def test_a_worker_that_registered_since_it_was_found_is_left_alone(store: MemoryStore, clock: ManualClock) -> None:
    [item_id] = await claims_without_rows(store, clock, "late")
    stale = (await act(store, "list_stale_workers", pool_id="papers"))["stale_workers"]
    await DrumbeatRegistrationBackend(store).register(PoolWorkerRegistration(worker_id="late", pool_id="papers"))

    found = await act(store, "reap_worker", pool_id="papers", worker=stale[0])

    assert (found["reaped_worker_id"], await statuses(store, item_id)) == (None, [JobStatus.CLAIMED])
    assert (await store.workers.get(PoolId("papers"), WorkerId("late"))).status is WorkerStatus.ACTIVE


async def test_a_worker_without_a_row_that_is_named_loses_all_its_jobs_and_no_other(
    store: MemoryStore, clock: ManualClock
) -> None:
    [other] = await claims_without_rows(store, clock, "other")
    await store.queue.expire()
    await clock.advance(timedelta(hours=1, seconds=1))
    pool = DrumbeatWorkBackend(store).pool("papers")
    named = await pool.push(1)
    await pool.claim("named")

    found = await act(store, "reap_worker", pool_id="papers", worker="named")

    assert (found["reaped_worker_id"], found["jobs_released"]) == ("named", 1)
    assert await statuses(store, named, other) == [JobStatus.PENDING, JobStatus.CLAIMED]


@pytest.mark.parametrize(("seconds", "stale"), [(10, 60), (30, 60), (300, 600)])
async def test_a_pool_bears_with_workers_that_beat_slowly(store: MemoryStore, seconds: int, stale: int) -> None:
    await DrumbeatWorkBackend(store).pool("papers").push(1)
    async with open_session(store) as session:
        await PoolHooks(session, plan={"heartbeat_interval": seconds}).on_machine_start({"pool_id": "papers", "worker_id": "w"})
    assert (await store.pools.get(PoolId("papers"))).thresholds.stale_after == timedelta(seconds=stale)


async def test_a_pool_that_bears_slow_workers_gives_no_other_worker_less_time(store: MemoryStore) -> None:
    await store.pools.create(pool("papers", PoolKind.JOBS, PRESETS[PoolKind.FLEET]))
    async with open_session(store) as session:
        await PoolHooks(session, plan={"heartbeat_interval": 40}).on_machine_start({"pool_id": "papers", "worker_id": "w"})

    thresholds = (await store.pools.get(PoolId("papers"))).thresholds

    assert (thresholds.stale_after, thresholds.lost_after) == (timedelta(seconds=80), timedelta(seconds=300))


async def test_an_error_nobody_recovers_from_fails_the_job_and_its_worker(store: MemoryStore) -> None:
    item_id = await DrumbeatWorkBackend(store).pool("papers").push(1)
    context: dict[str, Any] = {"pool_id": "papers", "worker_id": "w1"}
    async with open_session(store) as session:
        hooks = PoolHooks(session)
        for action in ("register_worker", "claim_job"):
            context = await hooks.on_action("state", action, context)
        assert await hooks.on_error("state", RuntimeError("broken"), context) is None

    job = await store.jobs.get(JobId(item_id))
    assert (job.status, job.last_error) == (JobStatus.PENDING, "RuntimeError: broken")
    row = await store.workers.get(PoolId("papers"), WorkerId("w1"))
    assert (row.status, row.error) == (WorkerStatus.ERROR, "RuntimeError: broken")
