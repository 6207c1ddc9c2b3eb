"""Redis keeps the promises it makes, and says which it does not make."""

import asyncio
import inspect
import math
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import ANY

import pytest

from drumbeat.core.beat import NewBeat
from drumbeat.core.errors import (
    InvalidInput,
    InvalidSettings,
    MissingExtra,
    NotFound,
    Refused,
    StoreCorrupt,
    StoreNotReady,
    StoreTooNew,
    StoreUnavailable,
)
from drumbeat.core.event import NewEvent, start, stop
from drumbeat.core.job import AttemptOutcome, JobCounts, JobId, JobOutcome, JobStatus, NewJob
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, pool
from drumbeat.core.retention import Prunable
from drumbeat.core.run import RunId
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.store import Store, interface, open_store
from drumbeat.store.contract import Elapse, JobsContract, QueueContract
from drumbeat.store.contract.answers import AnswersContract
from drumbeat.store.contract.beats import BeatsContract
from drumbeat.store.contract.events import EventsContract
from drumbeat.store.contract.given import (
    DAY,
    MINUTE,
    W1,
    W2,
    event_types,
    heartbeat,
    joined,
    lost,
    new_pool,
    sample,
    taken,
)
from drumbeat.store.contract.given_flows import linked
from drumbeat.store.contract.given_jobs import EVERY, claimed, claiming, holder, pushed, verdict
from drumbeat.store.contract.job_steps import JobStepsContract
from drumbeat.store.contract.leases import LeasesContract
from drumbeat.store.contract.logs import LogsContract
from drumbeat.store.contract.membership import MembershipContract
from drumbeat.store.contract.notes import NotesContract
from drumbeat.store.contract.pools import PoolsContract
from drumbeat.store.contract.samples import SamplesContract
from drumbeat.store.contract.upkeep import UpkeepContract, fill, left
from drumbeat.store.contract.workers import WorkersContract
from drumbeat.store.contract.workflows import WorkflowContract
from drumbeat.store.interface import ClaimRequest
from drumbeat.store.job_ids import number_of
from drumbeat.store.redis import jobs as jobs_of_redis, upkeep as upkeep_of_redis
from drumbeat.store.redis.database import RedisDatabase, _driver
from drumbeat.store.redis.record import KEPT
from drumbeat.store.redis.scripts import load_scripts
from drumbeat.store.redis.store import RedisStore
from drumbeat.store.redis.upkeep import LATEST
from drumbeat.store.redis.wire import PipelinedConnection, RedisReplyError
from servers.places import memory_folder
from servers.redis import DURABLE, RedisServer, Unavailable

SHIFTED_CLOCK = """
local function now()
  local time = call('TIME')
  return time[1] * 1000000 + time[2] + (call('GET', prefix .. 'passed') or 0)
end
"""


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    try:
        with RedisServer(folder=memory_folder()) as server:
            yield server
    except Unavailable as exc:
        pytest.skip(f"Redis is not available: {exc}")


@pytest.fixture
def private_redis(redis: RedisServer) -> Iterator[RedisServer]:
    """A server of the test's own, which loses nothing when it is killed."""
    with RedisServer(settings=DURABLE) as server:
        yield server


@pytest.fixture
def url(redis: RedisServer) -> str:
    """A prefix that only this test knows."""
    return redis.new_database()


@pytest.fixture(scope="module")
async def store(redis: RedisServer) -> AsyncIterator[RedisStore]:
    """A store whose clock is the server's and what was let pass."""
    store = open_store(redis.new_database(), create=True)
    assert isinstance(store, RedisStore)
    store.database.scripts = load_scripts(SHIFTED_CLOCK)
    async with store:
        yield store


@pytest.fixture
def elapse(store: RedisStore) -> Elapse:
    async def pass_time(passed: timedelta) -> None:
        await store.database.command(b"INCRBY", store.database.key("passed"), passed // timedelta(microseconds=1))

    return pass_time


class TestRedisStore(
    PoolsContract,
    WorkersContract,
    MembershipContract,
    EventsContract,
    LeasesContract,
    BeatsContract,
    SamplesContract,
    LogsContract,
    AnswersContract,
    NotesContract,
    UpkeepContract,
):
    """Every promise of what Redis keeps. Where a promise is told of a run, it is told here of a pool that is no run's."""

    async def test_all_that_belongs_to_a_pool_goes_with_it(self, store: Store) -> None:
        pool = await store.pools.create(new_pool())
        await fill(store, pool.pool_id)
        await pushed(store, pool, 1, 2, type="t", group="g", group_limit=1)
        await claimed(store, pool, W2)

        await store.pools.delete(pool.pool_id)

        assert await store.pools.find(pool.pool_id) is None
        assert await left(store, pool.pool_id) == dict.fromkeys(("samples", "logs", "beats", "workers", "events"), 0)
        assert await store.beats.last(pool.pool_id) is None
        assert [*await store.jobs.list(pool.pool_id)] == []

    async def test_a_heartbeat_brings_the_runs_status_and_phase(self, store: Store) -> None:
        worker = await joined(store, await store.pools.create(new_pool(PoolKind.BENCH)))

        orders = await store.membership.beat(heartbeat(worker))

        assert (orders.run_status, orders.run_phase) == (None, None)

    async def test_a_check_counts_every_tables_rows(self, store: Store) -> None:
        before = (await store.upkeep.check()).rows
        pool = await store.pools.create(new_pool())
        await fill(store, pool.pool_id)
        await taken(store, pool.pool_id)
        await pushed(store, pool, 1, 2, 3)

        after = (await store.upkeep.check()).rows

        counted = {table: after[table] - before[table] for table in before}
        assert counted == {
            "pools": 1,
            "leases": 1,
            "workers": 1,
            "events": 4,
            "beats": 2,
            "samples": 1,
            "logs": 1,
            "jobs": 3,
        }

    async def test_pruning_takes_what_is_old_and_counts_it(self, store: Store, elapse: Elapse) -> None:
        await elapse(DAY)
        await store.upkeep.prune(MINUTE)
        pool = await store.pools.create(new_pool())
        await fill(store, pool.pool_id)
        await elapse(DAY)

        gone = await store.upkeep.prune(timedelta(hours=1))

        assert gone == {"samples": 1, "logs": 1, "beats": 1, "workers": 1, "events": 4, "leases": 0}
        assert await left(store, pool.pool_id) == {"samples": 0, "logs": 0, "beats": 1, "workers": 0, "events": 0}

    async def test_pruning_leaves_what_is_young(self, store: Store, elapse: Elapse) -> None:
        pool = await store.pools.create(new_pool())
        await fill(store, pool.pool_id)
        before = await left(store, pool.pool_id)
        await elapse(30 * MINUTE)

        await store.upkeep.prune(timedelta(hours=1))

        assert await left(store, pool.pool_id) == before

    async def test_pruning_keeps_the_events_of_what_has_not_ended(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await store.events.append(pool.pool_id, [start(1)])
        await elapse(DAY)

        await store.upkeep.prune(MINUTE)

        assert await event_types(store, pool.pool_id) == [(1, "START")]

    async def test_pruned_events_numbers_are_not_used_again(self, store: Store, elapse: Elapse) -> None:
        pool = await store.pools.create(new_pool())
        await store.events.append(pool.pool_id, [start(1), start(2)])
        await elapse(DAY)
        await store.upkeep.prune(MINUTE)

        await store.events.append(pool.pool_id, [start(3)])

        assert [number for number, _ in await event_types(store, pool.pool_id)] == [1, 2, 3]


class TestRedisQueue(QueueContract, JobsContract):
    """Every promise about jobs."""


class TestRedisWorkflows(WorkflowContract):
    """Every promise about jobs that wait for other jobs."""


class TestRedisJobSteps(JobStepsContract):
    """Every promise about the steps of jobs."""


async def test_lanes_of_equal_priority_are_claimed_in_the_order_of_pushing(store: Store) -> None:
    pool = await store.pools.create(new_pool(PoolKind.JOBS))
    for n in range(12):
        await pushed(store, pool, n, type=f"t{n % 3}", group=f"g{n % 2}", priority=n % 4 // 2)

    first = await store.queue.claim(claiming(pool, limit=5))
    rest = await store.queue.claim(claiming(pool, limit=20))

    assert [job.payload for job in (*first, *rest)] == [2, 3, 6, 7, 10, 11, 0, 1, 4, 5, 8, 9]


async def test_many_parents_and_children_are_read_in_pages(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_of_redis, "_PAGE", 2)
    pool = await store.pools.create(new_pool(PoolKind.JOBS))
    parents = [*await pushed(store, pool, *range(5))]
    children = [await linked(store, pool, *parents) for _ in range(4)]

    for limit in (None, 0, 1, 2, 3, 5, 9):
        assert [job.job_id for job in await store.jobs.parents(children[0], limit)] == parents[:limit]
    for limit in (0, 1, 2, 3, 4, 9):
        assert [job.job_id for job in await store.jobs.children(parents[0], limit)] == children[:limit]


async def test_pruning_looks_at_a_parent_that_stays_once(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep_of_redis, "_PAGE", 2)
    pool = await store.pools.create(new_pool(PoolKind.JOBS))
    parents = await pushed(store, pool, *range(5))
    await linked(store, pool, *parents)
    plain = await pushed(store, pool, *range(5))
    await store.queue.settle(holder(pool), [verdict(job) for job in await store.queue.claim(claiming(pool, limit=10))])
    ended = timedelta(microseconds=-1)

    steps = [await store.upkeep.prune_some(pool.pool_id, Prunable.DONE, ended)]
    while steps[-1].more:
        steps.append(await store.upkeep.prune_some(pool.pool_id, Prunable.DONE, ended))

    assert (sum(step.rows for step in steps), len(steps)) == (len(plain), 6)
    assert [job.job_id for job in await store.jobs.list(pool.pool_id, statuses=[JobStatus.DONE])] == [*parents]
    [child] = await store.queue.claim(claiming(pool))
    await store.queue.settle(holder(pool), [verdict(child)])
    await store.jobs.prune(ended)
    assert await store.jobs.list(pool.pool_id) == []


async def test_what_was_claimed_leaves_no_trace_in_the_queue(store: RedisStore) -> None:
    pool = await store.pools.create(new_pool(PoolKind.JOBS))
    for n in range(6):
        await pushed(store, pool, n, type=f"t{n % 2}", group="g", group_limit=9)
    jobs = await store.queue.claim(claiming(pool, limit=9))
    await store.queue.settle(holder(pool), [verdict(job) for job in jobs])
    await store.jobs.prune(timedelta(microseconds=-1))

    tag = f"{{{pool.pool_id}}}".encode()
    keys = [key for key in await store.database.command(b"KEYS", b"*") if tag in key]

    assert sorted(key.rpartition(b":")[2] for key in keys) == [b"news", b"pool"]


async def spoilt(store: RedisStore, job_id: JobId, field: str, value: str) -> None:
    """Somebody wrote nonsense into a job's row."""
    await store.database.command(b"HSET", store.database.key(f"job:{number_of(job_id):015d}"), field.encode(), value.encode())


@pytest.mark.parametrize(
    ("field", "value"), [("progress", "nan"), ("attempts", '"many"'), ("doc", '{"type":5}'), ("doc", "\n,,")]
)
async def test_a_row_that_cannot_be_read_keeps_nobody_from_the_others(
    store: RedisStore, elapse: Elapse, caplog: pytest.LogCaptureFixture, field: str, value: str
) -> None:
    pool = await store.pools.create(new_pool())
    [good, bad, other] = await pushed(store, pool, "good", "bad", "other", max_crashes=1)
    assert len(await store.queue.claim(claiming(pool, limit=3))) == 3
    await spoilt(store, bad, field, value)

    assert [job.job_id for job in await store.jobs.list(pool.pool_id, limit=2)] == [good, other]
    await elapse(2 * MINUTE)
    await store.queue.expire(EVERY)
    await elapse(2 * MINUTE)
    assert {good, other} <= {job.job_id for job in await store.queue.expire(EVERY)}
    assert await store.jobs.counts(pool.pool_id) == JobCounts(ready=3, oldest_ready=ANY)
    assert "cannot be read" in caplog.text
    assert str(number_of(bad)) in caplog.text
    with pytest.raises(StoreCorrupt, match="cannot be read"):
        await store.jobs.get(bad)


@pytest.mark.parametrize("when", ["-99999999999999999999", "99999999999999999999"])
async def test_a_time_that_no_calendar_has_is_told_as_the_nearest(store: RedisStore, when: str) -> None:
    pool = await store.pools.create(new_pool())
    [job_id] = await pushed(store, pool, 1)
    await spoilt(store, job_id, "not_before", when)

    [job] = await store.jobs.list(pool.pool_id)

    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert job.not_before == (first if when.startswith("-") else last)


async def test_a_claim_gives_those_that_can_be_read(store: RedisStore, elapse: Elapse) -> None:
    pool = await store.pools.create(new_pool())
    [_, bad, _] = await pushed(store, pool, "good", "bad", "other", max_crashes=1)
    await spoilt(store, bad, "doc", "nothing")

    assert [job.payload for job in await store.queue.claim(claiming(pool, limit=3))] == ["good", "other"]
    assert (await store.jobs.counts(pool.pool_id)).claimed == 3


@pytest.mark.parametrize("share", [math.nan, math.inf])
async def test_progress_that_is_no_number_is_not_kept(store: RedisStore, share: float) -> None:
    pool = await store.pools.create(new_pool())
    await pushed(store, pool, 1)
    job = await claimed(store, pool)

    with pytest.raises(InvalidInput, match="share"):
        await store.jobs.progress(holder(pool), job.token, share)


async def test_however_many_come_due_at_once_all_are_claimed(store: Store, elapse: Elapse) -> None:
    pool = await store.pools.create(new_pool(PoolKind.JOBS))
    await pushed(store, pool, *range(2500), delay=MINUTE)
    await elapse(2 * MINUTE)

    seen = []
    while jobs := await store.queue.claim(claiming(pool, limit=500)):
        seen += [job.payload for job in jobs]

    assert seen == [*range(2500)]


async def test_of_samples_the_newest_stay(store: Store) -> None:
    pool = await store.pools.create(new_pool())
    worker = await joined(store, pool)
    for first in range(0, KEPT + 100, 1010):
        await store.samples.append(pool.pool_id, W1, "i1", [sample(n) for n in range(first, first + 1010)])

    kept = await store.samples.list(pool.pool_id, limit=2 * KEPT)

    assert worker.instance == "i1"
    assert [one.n for one in kept] == [*range(100, KEPT + 100)]


async def keys_of(store: RedisStore) -> set[str]:
    """The names of all keys, without those that stay."""
    prefix = store.database.key("")
    found = await store.database.command(b"KEYS", prefix + b"*")
    return {name.removeprefix(prefix).decode() for name in found} - {"version", "passed", "pool_count", "job_count"}


@pytest.fixture
async def clean(url: str) -> AsyncIterator[RedisStore]:
    """A store with nothing in it."""
    async with open_store(url, create=True) as store:
        assert isinstance(store, RedisStore)
        yield store


async def fill_pool(store: RedisStore) -> PoolRow:
    """A pool with 25 jobs of every state, in several lanes, and an ended worker."""
    made = await store.pools.create(pool("p", PoolKind.JOBS))
    await fill(store, made.pool_id)
    ids = [(await pushed(store, made, n, type=f"t{n % 4}", group=f"g{n % 3}", unique_key=f"k{n}"))[0] for n in range(20)]
    await store.queue.push(made.pool_id, [NewJob(payload=1, job_id=JobId(f"own-{n}"), after=(ids[-1],)) for n in range(5)])
    await store.queue.settle(holder(made, W2), [verdict(await claimed(store, made, W2))])
    await claimed(store, made, W2)
    await store.jobs.cancel(ids[5:8])
    return made


def stop_after(store: RedisStore, monkeypatch: pytest.MonkeyPatch, pages: int) -> list[str]:
    """Let the store go away after so many pages of a deletion. Returns the names of the scripts that run, as they do."""
    run, ran = store.database.run, list[str]()

    async def some(name: str, *words: Any) -> Any:
        if ran.count("pool_delete_page") == pages and name == "pool_delete_page":
            raise StoreUnavailable("gone for lunch")
        ran.append(name)
        return await run(name, *words)

    monkeypatch.setattr(store.database, "run", some)
    return ran


@pytest.mark.parametrize("again", ["delete", "create", "prune"])
@pytest.mark.parametrize("pages", [0, 1, 4, 6])
async def test_a_pools_deletion_goes_on_after_it_ended_early(
    clean: RedisStore, monkeypatch: pytest.MonkeyPatch, pages: int, again: str
) -> None:
    monkeypatch.setattr(upkeep_of_redis, "_PAGE", 7)
    made = await fill_pool(clean)
    other = await clean.pools.create(pool("other", PoolKind.JOBS))
    with monkeypatch.context() as away:
        stop_after(clean, away, pages)
        with pytest.raises(StoreUnavailable, match="gone for lunch"):
            await clean.pools.delete(made.pool_id)

    assert [row.pool_id for row in await clean.pools.list()] == ["other"]
    assert await clean.pools.find(made.pool_id) is None
    assert (await clean.jobs.list(made.pool_id), await clean.workers.list(made.pool_id)) == ([], [])
    assert (await clean.jobs.counts(made.pool_id)).claimed == 0
    for refused in (pushed(clean, made, 1), clean.queue.claim(claiming(made)), joined(clean, made)):
        with pytest.raises(NotFound):
            await refused
    with pytest.raises(NotFound, match="no job 'own-4'"):
        await clean.queue.push(other.pool_id, [NewJob(payload=1, after=(JobId("own-4"),))])
    if again == "create":
        assert (await clean.pools.create(made)).pool_id == made.pool_id
        assert [*await clean.jobs.list(made.pool_id)] == []
        await pushed(clean, made, "new")
        assert [job.payload for job in await clean.queue.claim(claiming(made, limit=9))] == ["new"]
        await clean.pools.delete(made.pool_id)
    elif again == "prune":
        await clean.upkeep.prune(DAY)
    else:
        await clean.pools.delete(made.pool_id)
    await clean.pools.delete(other.pool_id)
    assert await keys_of(clean) == set()


async def test_an_id_of_a_pool_whose_deletion_ended_early_is_free_for_another_pool(
    clean: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = await fill_pool(clean), await clean.pools.create(pool("other", PoolKind.JOBS))
    with monkeypatch.context() as away:
        stop_after(clean, away, 0)
        with pytest.raises(StoreUnavailable):
            await clean.pools.delete(made.pool_id)

    job = NewJob(payload="new", job_id=JobId("own-4"))
    assert [await clean.queue.push(other.pool_id, [job]) for _ in range(2)] == [["own-4"]] * 2
    await clean.pools.delete(made.pool_id)

    assert [*await clean.queue.push(other.pool_id, [job])] == ["own-4"]
    assert (await clean.jobs.get(JobId("own-4"))).payload == "new"
    assert [each.payload for each in await clean.jobs.list(other.pool_id)] == ["new"]


async def test_no_script_deletes_more_of_a_pool_than_one_page(clean: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep_of_redis, "_PAGE", 7)
    made = await fill_pool(clean)
    ran = stop_after(clean, monkeypatch, 100)

    await clean.pools.delete(made.pool_id)

    assert ran.count("pool_delete_page") >= 6
    assert await keys_of(clean) == set()


async def test_an_outcome_that_comes_during_the_deletion_of_its_pool_leaves_nothing(
    clean: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await clean.pools.create(pool("p", PoolKind.JOBS))
    for n in range(4):
        await pushed(clean, made, n, group="g")
    jobs = await clean.queue.claim(claiming(made, limit=4))
    with monkeypatch.context() as away:
        stop_after(clean, away, 0)
        with pytest.raises(StoreUnavailable):
            await clean.pools.delete(made.pool_id)
    outcomes = [AttemptOutcome.DONE, AttemptOutcome.FAILED, AttemptOutcome.RELEASED]
    await clean.queue.settle(holder(made), [verdict(job, how) for job, how in zip(jobs, outcomes, strict=False)])
    await clean.queue.release(holder(made), "lost")

    await clean.pools.delete(made.pool_id)

    assert await keys_of(clean) == set()


@pytest.mark.parametrize("how", ["push", "requeue"])
async def test_a_pool_is_not_deleted_if_a_job_elsewhere_comes_to_need_it_during_the_check(
    clean: RedisStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    made, other = [await clean.pools.create(pool(name, PoolKind.JOBS)) for name in ("p", "other")]
    [parent] = await pushed(clean, made, 1)
    child = NewJob(payload=1, job_id=JobId("child"), after=(parent,))
    if how == "requeue":
        await clean.queue.push(other.pool_id, [child])
        await clean.jobs.cancel([JobId("child")])
    run = clean.database.run

    async def link_after_the_check(name: str, *words: Any) -> Any:
        answer = await run(name, *words)
        if name == "job_child_elsewhere":
            monkeypatch.undo()
            if how == "push":
                await clean.queue.push(other.pool_id, [child])
            else:
                await clean.jobs.requeue(other.pool_id, [JobId("child")])
        return answer

    monkeypatch.setattr(clean.database, "run", link_after_the_check)
    with pytest.raises(Refused, match="job 'child' of pool 'other' has not ended and needs a job of this pool"):
        await clean.pools.delete(made.pool_id)

    assert [job.payload for job in await clean.jobs.list(made.pool_id)] == [1]


async def test_a_pool_whose_jobs_become_parents_during_each_check_is_not_checked_for_ever(
    clean: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = [await clean.pools.create(pool(name, PoolKind.JOBS)) for name in ("p", "other")]
    [parent] = await pushed(clean, made, 1)
    run = clean.database.run

    async def link_after_each_check(name: str, *words: Any) -> Any:
        answer = await run(name, *words)
        if name == "job_child_elsewhere":
            ids = await clean.queue.push(other.pool_id, [NewJob(payload=1, after=(parent,))])
            await clean.jobs.cancel(ids)
        return answer

    with monkeypatch.context() as busy:
        busy.setattr(clean.database, "run", link_after_each_check)
        async with asyncio.timeout(30):
            with pytest.raises(Refused, match="jobs that need its jobs are being pushed to other pools; stop these pushes"):
                await clean.pools.delete(made.pool_id)

    await clean.pools.delete(made.pool_id)
    assert await clean.pools.find(made.pool_id) is None


async def test_of_many_beats_those_with_actions_are_found_and_no_others_are_sent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = await store.pools.create(new_pool())
    for n in range(450):
        actions = [{"type": "Spawn"}] if n % 200 == 0 else []
        await store.beats.append(pool.pool_id, NewBeat(owner="a", epoch=1, view={"n": n}, actions=actions))
    answers: list[Any] = []
    database: Any = vars(store.beats)["_database"]
    run = database.run

    async def counted(*words: Any) -> Any:
        answers.append(await run(*words))
        return answers[-1]

    monkeypatch.setattr(database, "run", counted)
    assert [beat.n for beat in await store.beats.with_actions(pool.pool_id)] == [1, 201, 401]
    assert [len(answer[0]) for answer in answers] == [1, 0, 1, 0, 1], "one page of beats per script, so that it is short"
    answers.clear()
    assert [beat.n for beat in await store.beats.with_actions(pool.pool_id, limit=2, among=400)] == [201, 401]
    assert [len(answer[0]) for answer in answers] == [1, 0, 1]
    answers.clear()
    assert [beat.n for beat in await store.beats.with_actions(pool.pool_id, among=250)] == [201, 401]
    assert [len(answer[0]) for answer in answers] == [1, 0, 1]


async def test_pools_of_awkward_names_do_not_meet(store: Store) -> None:
    names = ["x", "x}:worker:", "{x}", "x%7D", "", "ünïcode 🥁", "a:b"]
    for name in names:
        await store.pools.create(pool(f"odd-{name}", PoolKind.JOBS))
    for n, name in enumerate(names):
        made = await store.pools.get(PoolId(f"odd-{name}"))
        await joined(store, made, WorkerId("}:worker:q"), slot=n)
        await store.queue.push(made.pool_id, [NewJob(payload=name)])

    for n, name in enumerate(names):
        made = await store.pools.get(PoolId(f"odd-{name}"))
        assert [worker.slot for worker in await store.workers.list(made.pool_id)] == [n]
        assert await store.queue.wait(made.pool_id, timedelta())
        assert (await claimed(store, made)).payload == name


async def test_a_delayed_job_ends_a_wait_when_it_comes_due(url: str) -> None:
    async with open_store(url, create=True) as store:
        made = await store.pools.create(pool("p", PoolKind.JOBS))
        await pushed(store, made, 1, delay=timedelta(milliseconds=200))
        assert await store.queue.claim(claiming(made)) == []

        assert await store.queue.wait(made.pool_id, timedelta(seconds=20))

        assert await eventually_claimed(store, made) == [1]


async def eventually_claimed(store: Store, made: PoolRow) -> list[Any]:
    for _ in range(1200):
        if jobs := await store.queue.claim(claiming(made)):
            return [job.payload for job in jobs]
        await store.queue.wait(made.pool_id, timedelta(milliseconds=50))
    return []


async def test_who_waits_in_another_process_hears_of_a_push(url: str) -> None:
    async with open_store(url, create=True) as one, open_store(url) as other:
        made = await one.pools.create(pool("p", PoolKind.JOBS))
        await other.queue.claim(claiming(made))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(other.queue.wait(made.pool_id, timedelta(seconds=20)))
            await asyncio.sleep(0.05)
            await pushed(one, made, 1)

        assert waiting.result()


async def test_an_idle_wait_is_one_statement(url: str) -> None:
    async with open_store(url, create=True) as store:
        assert isinstance(store, RedisStore)
        made = await store.pools.create(pool("p", PoolKind.JOBS))
        await store.queue.claim(claiming(made))
        before = await reads(store)

        for _ in range(3):
            assert not await store.queue.wait(made.pool_id, timedelta(milliseconds=50))

        assert await reads(store) - before == 3


async def reads(store: RedisStore) -> int:
    """How often the server was asked for news."""
    return await calls_of(store, "xread")


async def calls_of(store: RedisStore, command: str) -> int:
    """How often the server ran a command, also in scripts."""
    text = (await store.database.command(b"INFO", b"commandstats")).decode()
    begins = f"cmdstat_{command}:"
    calls = [line.partition("calls=")[2].partition(",")[0] for line in text.splitlines() if line.startswith(begins)]
    return int(calls[0]) if calls else 0


async def test_two_prefixes_in_one_redis_do_not_see_each_other(redis: RedisServer) -> None:
    async with open_store(redis.new_database(), create=True) as one, open_store(redis.new_database(), create=True) as two:
        await one.pools.create(pool("p", PoolKind.FLEET))

        assert [each.pool_id for each in await one.pools.list()] == ["p"]
        assert await two.pools.list() == []


async def test_a_server_that_forgot_its_scripts_is_told_again(url: str) -> None:
    async with open_store(url, create=True) as store:
        assert isinstance(store, RedisStore)
        await store.pools.create(pool("p", PoolKind.FLEET))
        await store.database.command(b"SCRIPT", b"FLUSH")

        assert [found.pool_id for found in await store.pools.list()] == ["p"]


async def test_a_store_carries_on_after_its_server_came_back(private_redis: RedisServer) -> None:
    async with open_store(f"{private_redis.url()}?command_timeout=2", create=True) as store:
        await store.pools.create(pool("p", PoolKind.FLEET))
        private_redis.stop()
        with pytest.raises(StoreUnavailable):
            await store.events.append(PoolId("p"), [NewEvent(type="X")])
        private_redis.start()

        appended = await store.events.append(PoolId("p"), [NewEvent(type="X")])

        assert [event.sequence_id for event in appended] == [1]


async def test_a_wait_uses_no_connection_that_the_server_closed_meanwhile(private_redis: RedisServer) -> None:
    """Connections for waiting are kept while they are idle; a command on a closed one would never be answered."""
    async with open_store(f"{private_redis.url()}?command_timeout=60", create=True) as store:
        made = await store.pools.create(new_pool())
        await asyncio.gather(*(store.queue.wait(made.pool_id, timedelta(milliseconds=50)) for _ in range(3)))
        private_redis.stop()
        private_redis.start()
        await asyncio.sleep(0.1)  # the connections learn that the server has closed them

        async with asyncio.timeout(30):
            await store.pools.get(made.pool_id)
            assert not await store.queue.wait(made.pool_id, timedelta(milliseconds=50))
            await pushed(store, made, 1)
            assert await store.queue.wait(made.pool_id, timedelta(seconds=20))


async def test_a_server_that_does_not_answer_is_unavailable(private_redis: RedisServer) -> None:
    async with open_store(f"{private_redis.url()}?command_timeout=0.5&connect_timeout=0.5", create=True) as store:
        made = await store.pools.create(pool("p", PoolKind.JOBS))
        await store.queue.claim(claiming(made))
        with private_redis.paused():
            with pytest.raises(StoreUnavailable):
                await store.now()
            with pytest.raises(StoreUnavailable):
                await store.queue.wait(made.pool_id, timedelta(milliseconds=100))


async def test_whoever_is_cancelled_leaves_the_store_in_order(url: str) -> None:
    async with open_store(url, create=True) as store:
        made = await store.pools.create(pool("p", PoolKind.JOBS))
        await store.queue.claim(claiming(made))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await store.queue.wait(made.pool_id, timedelta(seconds=20))
        async with asyncio.TaskGroup() as group:
            given_up = group.create_task(store.pools.list())
            heard = group.create_task(store.pools.list())
            await asyncio.sleep(0)
            given_up.cancel()
        assert given_up.cancelled()
        assert heard.result() == [made]

        await pushed(store, made, 1)

        assert (await claimed(store, made)).payload == 1


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_nothing_is_lost_when_a_durable_server_restarts_in_the_middle_of_the_work(
    private_redis: RedisServer, end: str
) -> None:
    done: set[int] = set()
    known: set[int] = set()
    async with open_store(f"{private_redis.url()}?command_timeout=2", create=True) as store:
        made = await store.pools.create(pool("p", PoolKind.JOBS))
        async with asyncio.TaskGroup() as group:
            group.create_task(push_until_cut(store, made, known))
            group.create_task(work_until_cut(store, made, done))
            while len(done) < 30:
                await asyncio.sleep(0.01)
            getattr(private_redis, end)()
    private_redis.start()

    async with open_store(private_redis.url()) as store:
        jobs = {job.payload: job.status for job in await store.jobs.list(PoolId("p"), limit=10**6)}

        assert known <= jobs.keys()
        assert {jobs[payload] for payload in done} == {JobStatus.DONE}
        await store.queue.release(Holder(pool_id=PoolId("p"), worker_id=WorkerId("w")), "the server was restarted")
        rest = {payload for payload, status in jobs.items() if status is not JobStatus.DONE}
        again = await store.queue.claim(
            ClaimRequest(pool_id=PoolId("p"), holder=Holder(pool_id=PoolId("p"), worker_id=W1), lease=MINUTE, limit=10**5)
        )
        assert {job.payload for job in again} == rest


async def push_until_cut(store: Store, made: PoolRow, known: set[int]) -> None:
    """Push; ``known`` are those whose push was answered."""
    for n in range(10**6):
        try:
            await store.queue.push(made.pool_id, [NewJob(payload=n)])
        except StoreUnavailable:
            return
        known.add(n)


async def work_until_cut(store: Store, made: PoolRow, done: set[int]) -> None:
    """Claim and settle; ``done`` are those whose settlement was answered."""
    asking = claiming(made, WorkerId("w"), limit=3)
    while True:
        try:
            jobs = await store.queue.claim(asking)
            await store.queue.settle(asking.holder, [JobOutcome(token=job.token, outcome=AttemptOutcome.DONE) for job in jobs])
        except StoreUnavailable:
            return
        done.update(job.payload for job in jobs)


BENCH: list[type] = [interface.Runs, interface.Results, interface.Steps, interface.Executions, interface.Templates]


@pytest.mark.parametrize("part", BENCH)
async def test_benchmarks_are_refused_with_a_word_on_where_to_keep_them(url: str, part: type) -> None:
    async with open_store(url, create=True) as store:
        words = [name for name, _ in inspect.getmembers(part, inspect.isfunction) if not name.startswith("_")]
        for word in words:
            with pytest.raises(Refused, match="use a SQLite or PostgreSQL store"):
                await getattr(getattr(store, part.__name__.lower()), word)(RunId("r"))

    assert len(words) >= 2


async def test_a_password_comes_from_the_url_or_the_environment(monkeypatch: pytest.MonkeyPatch, redis: RedisServer) -> None:
    with RedisServer(password="it's: a/secret@") as server:
        async with open_store(server.url(), create=True) as store:
            await store.now()
        monkeypatch.setenv("DRUMBEAT_STORE_PASSWORD", "it's: a/secret@")
        async with open_store(server.url(with_password=False)) as store:
            await store.now()
        for wrong in ("hunter2", ""):
            monkeypatch.setenv("DRUMBEAT_STORE_PASSWORD", wrong)
            with pytest.raises(InvalidSettings, match="refused the user or password") as caught:
                async with open_store(server.url(with_password=False)):
                    pass
            assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ("redis://:secret@127.0.0.1:1/0", StoreUnavailable, "127.0.0.1:1"),
        ("redis://:secret@h/nought", InvalidSettings, "database number after the host"),
        ("redis://:secret@h/0?prefix=a%20b", InvalidSettings, "prefix"),
        ("redis://:secret@h/0?command_timeout=none", InvalidSettings, "command_timeout"),
        ("redis://:secret@h/0?sslmode=no", InvalidSettings, "unknown option"),
        ("rediss://:secret@h:port/0", InvalidSettings, "no valid host"),
    ],
)
async def test_a_wrong_address_is_said_without_its_password(wrong: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        async with open_store(wrong):
            pass
    assert "secret" not in str(caught.value)


async def test_an_empty_redis_needs_init_first(url: str) -> None:
    with pytest.raises(StoreNotReady, match="drumbeat store init"):
        async with open_store(url):
            pass


async def test_of_many_that_migrate_at_once_one_does(url: str) -> None:
    async with open_store(url, check_version=False) as store:
        applied = await asyncio.gather(*(store.upkeep.migrate() for _ in range(8)))

    assert sorted(map(list, applied)) == [[]] * 7 + [[*range(1, LATEST + 1)]]


async def test_a_store_of_the_first_layout_finds_its_ended_workers_and_unfinished_jobs(url: str) -> None:
    async with open_store(url, create=True) as store:
        assert isinstance(store, RedisStore)
        pool = await store.pools.create(new_pool(PoolKind.JOBS))
        gone, silent = WorkerId("p-worker-7"), WorkerId("p-worker-8")
        for name in (gone, silent):
            await lost(store, pool, name)
        await store.workers.mark_reaped(pool.pool_id, gone)
        await pushed(store, pool, 1, 2, 3)
        await claimed(store, pool)
        await store.queue.settle(holder(pool), [verdict(await claimed(store, pool))])
        database, home = store.database, f"{{{pool.pool_id}}}:"
        for kept in ("unfinished", "ended", "unreaped", "reaped"):
            await database.command(b"DEL", database.key(home + kept))
        await database.command(b"HDEL", database.key(home + "pool"), b"last_numbered")
        await database.command(b"SET", database.key("version"), 1)

    with pytest.raises(StoreNotReady, match="found keys of version 1; run: drumbeat store migrate"):
        async with open_store(url, create=True):
            pass
    async with open_store(url, check_version=False) as store:
        assert isinstance(store, RedisStore)
        assert [*await store.upkeep.migrate()] == [2, 3, 4]
        members = await store.database.command(b"ZRANGE", database.key(home + "unfinished"), 0, -1)
        assert len(members) == 2
        assert [row.worker_id for row in await store.workers.list_ended(pool.pool_id, 9)] == [silent, gone]
        assert [row.worker_id for row in await store.workers.list_unreaped(pool.pool_id)] == [silent]
        assert (await store.pools.get(pool.pool_id)).last_worker == 8


async def test_a_store_of_the_third_layout_finds_the_instructions_of_new_workers(url: str) -> None:
    async with open_store(url, create=True) as store:
        assert isinstance(store, RedisStore)
        made, other = await store.pools.create(new_pool(PoolKind.JOBS)), await store.pools.create(new_pool(PoolKind.JOBS))
        await store.events.append(made.pool_id, [start(1), *(stop("idle", worker_id=W2) for _ in range(600)), stop("enough")])
        await store.events.append(other.pool_id, [start(2)])
        database = store.database
        for each in (made, other):
            await database.command(b"DEL", database.key(f"{{{each.pool_id}}}:instructions"))
        await database.command(b"SET", database.key("version"), 3)

    async with open_store(url, check_version=False) as store:
        assert [*await store.upkeep.migrate()] == [4]
        found = [(await store.membership.beat(heartbeat(await joined(store, each)))).events for each in (made, other)]

    assert [[event.sequence_id for event in events] for events in found] == [[1, 602], [1]]


async def test_pruned_instructions_are_listed_no_more(url: str) -> None:
    async with open_store(url, create=True) as store:
        assert isinstance(store, RedisStore)
        made = await store.pools.create(new_pool(PoolKind.JOBS))
        await store.events.append(made.pool_id, [start(1), stop("idle", worker_id=W1), stop("idle", worker_id=W2)])

        gone = await store.upkeep.prune_some(made.pool_id, Prunable.EVENTS, timedelta(microseconds=-1))

        listed = await store.database.command(b"ZCARD", store.database.key(f"{{{made.pool_id}}}:instructions"))
        assert (gone.rows, listed) == (2, 1)


async def test_the_first_heartbeat_of_a_worker_does_not_read_the_events_of_all_earlier_workers(url: str) -> None:
    async with open_store(url, create=True) as store:
        assert isinstance(store, RedisStore)
        made = await store.pools.create(new_pool(PoolKind.JOBS))
        await store.events.append(made.pool_id, [start(1)])
        first = await joined(store, made, W1)
        before = await calls_of(store, "xrange")
        await store.membership.beat(heartbeat(first))
        few = await calls_of(store, "xrange") - before
        for _ in range(10):
            await store.events.append(made.pool_id, [stop("idle", worker_id=W2) for _ in range(500)])
        last = await joined(store, made, WorkerId("last"))
        before = await calls_of(store, "xrange")

        reply = await store.membership.beat(heartbeat(last))

        assert [event.type for event in reply.events] == ["START"]
        assert await calls_of(store, "xrange") - before == few > 0


async def test_a_store_from_a_newer_version_is_refused(url: str) -> None:
    async with open_store(url, create=True) as store:
        assert isinstance(store, RedisStore)
        await store.database.command(b"SET", store.database.key("version"), 99)

    with pytest.raises(StoreTooNew, match="upgrade Drumbeat"):
        async with open_store(url, create=True):
            pass


async def test_a_store_that_was_closed_says_so(url: str) -> None:
    store = open_store(url, create=True)
    async with store:
        await store.now()

    with pytest.raises(StoreUnavailable, match="closed; open it before use"):
        await store.now()


async def test_a_server_that_throws_rows_away_is_a_problem(private_redis: RedisServer) -> None:
    async with open_store(private_redis.url(), create=True) as store:
        assert isinstance(store, RedisStore)
        await store.database.command(b"CONFIG", b"SET", b"maxmemory", 10**9)
        await store.database.command(b"CONFIG", b"SET", b"maxmemory-policy", b"allkeys-lru")

        report = await store.upkeep.check()

    assert "noeviction" in report.problems[0]
    assert "appendonly" in report.server


async def test_text_that_is_no_unicode_is_bad_input_and_leaves_no_gap(url: str) -> None:
    async with open_store(url, create=True) as store:
        await store.pools.create(pool("p", PoolKind.FLEET))
        for event in (NewEvent(type="X", payload={"text": "\ud800"}), NewEvent(type="\ud800")):
            with pytest.raises(InvalidInput):
                await store.events.append(PoolId("p"), [event])

        assert (await store.events.append(PoolId("p"), [NewEvent(type="X")]))[0].sequence_id == 1


async def test_without_the_driver_its_extra_is_named(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    _driver.cache_clear()
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    try:
        with pytest.raises(MissingExtra, match=r"drumbeat\[redis\]"):
            async with open_store(url):
                pass
    finally:
        _driver.cache_clear()


class Silent(asyncio.Transport):
    """A transport that sends nothing anywhere."""

    aborted = False

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent = bytes(data)

    def is_closing(self) -> bool:
        return self.aborted

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


REPLIES = b"+OK\r\n:-7\r\n$5\r\na\r\nb\0\r\n$-1\r\n*3\r\n$0\r\n\r\n*-1\r\n*1\r\n:1\r\n*0\r\n"


@pytest.mark.parametrize("size", range(1, len(REPLIES) + 1))
async def test_replies_are_read_whole_in_whatever_pieces_they_come(size: int) -> None:
    wire = PipelinedConnection(Silent())
    answers = [wire.ask([b"PING"], 5.0) for _ in range(6)]

    for at in range(0, len(REPLIES), size):
        wire.data_received(REPLIES[at : at + size])

    assert [await answer for answer in answers] == [b"OK", -7, b"a\r\nb\0", None, [b"", None, [1]], []]


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(b"$40000000\r\n" + bytes(40_000_000) + b"\r\n", id="one long text"),
        pytest.param(b"*200000\r\n" + b"$3\r\nabc\r\n" * 200_000, id="a long array"),
        pytest.param(b"*2000\r\n" + b"*100\r\n" * 2000 + b":1\r\n" * 200, id="arrays in arrays, cut off"),
    ],
)
async def test_a_long_reply_is_read_once_not_again_with_each_piece(reply: bytes) -> None:
    wire = PipelinedConnection(Silent())
    answer = wire.ask([b"PING"], 600.0)
    began = time.process_time()

    for at in range(0, len(reply), 4096):
        wire.data_received(reply[at : at + 4096])

    assert time.process_time() - began < 2  # it takes 0.1 s; about 20 s if each piece is joined to all the earlier ones
    if reply.startswith(b"$"):
        assert len(await answer) == 40_000_000
    elif not answer.done():
        assert reply.endswith(b":1\r\n")
    else:
        assert await answer == [b"abc"] * 200_000
    wire.close()


async def test_words_go_out_as_they_are() -> None:
    transport = Silent()

    PipelinedConnection(transport).ask([b"SET", "ü", 12, 0.25, b"\r\n"], 5.0)

    assert transport.sent == b"*5\r\n$3\r\nSET\r\n$2\r\n\xc3\xbc\r\n$2\r\n12\r\n$4\r\n0.25\r\n$2\r\n\r\n\r\n"


async def test_the_reply_of_one_who_gave_up_is_nobody_elses() -> None:
    wire = PipelinedConnection(Silent())
    gave_up, stayed, refused = (wire.ask([b"PING"], 5.0) for _ in range(3))
    gave_up.cancel()

    wire.data_received(b"+first\r\n+second\r\n-ERR no\r\n")

    assert await stayed == b"second"
    with pytest.raises(RedisReplyError, match="ERR no"):
        await refused


@pytest.mark.parametrize("first", [60.0, 0.01])
async def test_a_reply_that_does_not_come_in_time_closes_the_wire(first: float) -> None:
    transport = Silent()
    wire = PipelinedConnection(transport)
    waiting = [wire.ask([b"PING"], first), wire.ask([b"PING"], 0.01)]
    wire.data_received(b"+PONG\r\n")
    late = wire.ask([b"PING"], 60.0)

    async with asyncio.timeout(30):
        assert await waiting[0] == b"PONG"
        with pytest.raises(TimeoutError):
            await waiting[1]
        with pytest.raises(ConnectionError):
            await late
    assert transport.aborted


async def test_a_closed_wire_says_so_at_once() -> None:
    wire = PipelinedConnection(Silent())
    wire.close()

    with pytest.raises(ConnectionError, match="was closed"):
        await wire.ask([b"PING"], 600.0)


async def test_a_reply_in_time_leaves_the_wire_open() -> None:
    transport = Silent()
    wire = PipelinedConnection(transport)
    wire.ask([b"PING"], 0.01)
    wire.data_received(b"+PONG\r\n")
    answered = wire.ask([b"PING"], 20.0)

    await asyncio.sleep(0.05)
    wire.data_received(b"+PONG\r\n")

    assert await answered == b"PONG"
    assert not transport.aborted


def test_a_redis_store_says_what_it_is_and_hides_its_user() -> None:
    database = RedisDatabase("rediss://u:secret@h:6380/2", prefix="mine")

    assert (database.traits.name, database.traits.networked) == ("redis", True)
    assert database.location == "rediss://h:6380/2 (prefix mine)"
