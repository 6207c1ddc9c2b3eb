"""What callers ask of a pool's desk: nothing undoes what another asks at the same time, and odd values are named."""

import math
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from drumbeat import testing
from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import InvalidInput, NotFound, Refused
from drumbeat.core.job import Job
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, PoolRow, pool as pool_row, with_heartbeat
from drumbeat.core.worker import WorkerStatus
from drumbeat.pool.service import FOREVER, Pool
from drumbeat.pool.worker.options import ExecutorKind, Mode, WorkPlan
from drumbeat.store import Store
from drumbeat.store.interface import PoolChange
from pool.seen import POOL, name, seconds
from pool.stage import Stage


class SubText(str):
    """Text of a class of its own, such as Django's SafeString."""


CHANGES: dict[str, Callable[[Stage, Pool], Awaitable[object]]] = {
    "check": lambda stage, _: stage.checker.check(POOL, max_workers=3),
    "create": lambda _, desk: desk.create(exist_ok=True, handlers={"": "work:f"}),
    "create nothing new": lambda _, desk: desk.create(exist_ok=True),
}


WEST, EAST = timezone(timedelta(hours=-12)), timezone(timedelta(hours=12))
ODD: dict[str, tuple[str, Callable[[Pool, Job], Awaitable[object]]]] = {
    "a negative lease": ("lease", lambda desk, _: desk.claim(lease=seconds(-1))),
    "a lease of ages": ("lease", lambda desk, _: desk.claim(lease=1e12)),  # type: ignore[arg-type]
    "no lease at all": ("lease", lambda desk, _: desk.claim(lease=None)),  # type: ignore[arg-type]
    "a lease renewed for ages": ("lease", lambda desk, job: desk.renew(job, 1e12)),  # type: ignore[arg-type]
    "a limit as text": ("limit", lambda desk, _: desk.claim_many("3")),  # type: ignore[arg-type]
    "a limit below nothing": ("limit", lambda desk, _: desk.claim_many(-1)),
    "a limit beyond all": ("limit", lambda desk, _: desk.claim_many(10**12)),
    "one capability": ("capabilities", lambda desk, _: desk.claim(capabilities="gpu")),
    "one type": ("types", lambda desk, _: desk.claim(types="ocr")),
    "a number among types": ("types", lambda desk, _: desk.claim(types=[5])),
    "a worker's number": ("worker_id", lambda desk, _: desk.claim(worker_id=5)),
    "an error that is no text": ("error", lambda desk, job: desk.fail(job, 5)),  # type: ignore[arg-type]
    "a retry in the past": ("retry_in", lambda desk, job: desk.fail(job, "x", retry_in=-1)),
    "a retry never": ("retry_in", lambda desk, job: desk.fail(job, "x", retry_in=math.nan)),
    "progress beyond the end": ("share", lambda desk, job: desk.progress(job, 5)),
    "progress that is no number": ("share", lambda desk, job: desk.progress(job, math.nan)),
    "progress as text": ("share", lambda desk, job: desk.progress(job, "0.5")),  # type: ignore[arg-type]
    "a note that is no text": ("note", lambda desk, job: desk.progress(job, 0.5, 5)),  # type: ignore[arg-type]
    "a pause until a word": ("until", lambda desk, _: desk.pause("tomorrow")),  # type: ignore[arg-type]
    "a pause somewhere": ("until", lambda desk, _: desk.pause(datetime(2030, 1, 1))),  # noqa: DTZ001
    "a pause until too late": ("until", lambda desk, _: desk.pause(datetime(9999, 12, 31, 23, tzinfo=WEST))),
    "a pause until too early": ("until", lambda desk, _: desk.pause(datetime(1, 1, 1, tzinfo=EAST))),
    "a start that is too late": ("run_at", lambda desk, _: desk.reschedule_where({}, datetime(8999, 12, 31, 23, tzinfo=WEST))),
    "a result before it is asked for": ("timeout", lambda desk, job: desk.result(job.job_id, timeout=-1)),
}


async def test_a_heartbeat_that_live_workers_do_not_keep_is_refused() -> None:
    stage = await Stage().open()
    desk = Pool(stage.store, stage.clock, POOL, "me")
    await stage.join(name(0))

    assert (await desk.update(heartbeat=seconds(28))).thresholds.lost_after == seconds(112)
    with pytest.raises(Refused, match=r"would seem silent after 4 s with the new time limits; stop them first$"):
        await desk.create(thresholds=with_heartbeat(PRESETS[PoolKind.JOBS], seconds(2)), exist_ok=True)
    with pytest.raises(Refused, match="1 live workers of papers send a heartbeat every 28 s and would seem silent after 4 s"):
        await desk.update(heartbeat=seconds(2))
    await stage.leave(name(0))
    assert (await desk.update(heartbeat=seconds(2))).thresholds.lost_after == seconds(8)


async def test_a_heartbeat_with_which_cut_off_workers_would_be_lost_before_they_end_is_refused() -> None:
    stage = await Stage().open()
    desk = Pool(stage.store, stage.clock, POOL, "me")
    await stage.join(name(0))

    says = "run for up to 110 s without contact to the store and would count as lost after 80 s with the new time limits"
    with pytest.raises(
        Refused, match=rf"^1 live workers of papers {says}; stop them first, or choose a heartbeat above 27.5 s$"
    ):
        await desk.update(heartbeat=seconds(20))
    with pytest.raises(Refused, match=f"{says}; stop them first$"):
        await desk.create(thresholds=with_heartbeat(PRESETS[PoolKind.JOBS], seconds(20)), exist_ok=True)

    assert (await desk.get()).thresholds == PRESETS[PoolKind.JOBS]
    assert (await desk.update(heartbeat=seconds(27.6))).thresholds.lost_after > seconds(110)
    assert (await desk.update(heartbeat=seconds(300))).thresholds.lost_after == seconds(1200)


async def test_a_job_claimed_by_hand_has_the_results_of_its_parents(any_pool: Pool) -> None:
    parent = await any_pool.push("first")
    await any_pool.push({"args": [None], "kwargs": {}, "outputs": {"0": parent}}, after=[parent])
    job = await any_pool.claim()
    assert job is not None
    await any_pool.complete(job, "its result")

    job = await any_pool.claim()

    assert job is not None
    assert job.payload == {"args": ["its result"], "kwargs": {}}


async def test_a_plan_that_is_given_whole_is_the_plan_from_then_on() -> None:
    stage = await Stage().open(concurrency=4, mode="loop", max_workers=3)
    desk = Pool(stage.store, stage.clock, POOL, "me")

    await desk.create(WorkPlan(mode=Mode.LOOP, prefetch=2), exist_ok=True)

    assert await desk.plan() == WorkPlan(mode=Mode.LOOP, prefetch=2)
    assert (await desk.get()).policy["max_workers"] == 3


async def test_an_update_of_what_is_no_setting_is_refused() -> None:
    stage = await Stage().open()
    desk = Pool(stage.store, stage.clock, POOL, "me")

    with pytest.raises(InvalidInput, match=r"a pool has no setting 'concurency'; expected one of handlers, mode, "):
        await desk.update(concurency=4)
    with pytest.raises(InvalidInput, match="max_workers: expected a whole number"):
        await desk.update(max_workers=-1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mode": "bogus"}, "expected mode to be one of once, drain, loop, got 'bogus'"),
        ({"executor": 5}, "expected executor to be one of async, threads, processes, got 5"),
        ({"capabilities": "gpu"}, "expected capabilities to be a list of names, got 'gpu'"),
        ({"middleware": [5]}, r"expected middleware to be a list of module:object, got \[5\]"),
        ({"concurrency": 2.5}, "expected concurrency to be a whole number, got 2.5"),
        ({"concurrency": "2"}, "expected concurrency to be a whole number, got '2'"),
        ({"concurrency": None}, "expected concurrency to be a whole number, got None"),
        ({"max_jobs": "5"}, "expected max_jobs to be a whole number, got '5'"),
        ({"prefetch": -5}, "expected prefetch to be 0 or more, got -5"),
        ({"lease": 30}, "expected lease to be a timedelta, got 30"),
        ({"timeout": "30"}, "expected timeout to be a timedelta, got '30'"),
        ({"gather": seconds(-1)}, "expected gather to be 0 or more, got -1 s"),
        ({"handlers": "work:f"}, "expected handlers by type, such as {'': 'module:function'}, got 'work:f'"),
        ({"handlers": {"": 5}}, "expected module:function or .*; got 5"),
        ({"remove_handlers": "mail"}, "remove_handlers: expected a list of names, .*, got 'mail'"),
        ({"heartbeat": 3}, "expected heartbeat to be a timedelta, got 3"),
    ],
)
async def test_an_update_with_a_wrong_value_is_refused_and_changes_nothing(changes: dict[str, Any], says: str) -> None:
    stage = await Stage().open()
    desk = Pool(stage.store, stage.clock, POOL, "me")
    before = await desk.get()

    with pytest.raises(InvalidInput, match=f"^{says}"):
        await desk.update(**changes)

    assert await desk.get() == before


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"max_workers": -1}, "max_workers: expected a whole number from 0 to"),
        ({"resultttl": 5}, "a pool has no setting 'resultttl'; expected one of .* result_ttl$"),
        ({"heartbeat": seconds(3)}, "a pool has no setting 'heartbeat'; .*; to change the heartbeat of a pool, use update"),
        ({"concurrency": 2.5}, "expected concurrency to be a whole number, got 2.5"),
        ({"timeout": 30}, "expected timeout to be a timedelta, got 30"),
        ({"result_ttl": 0}, "expected result_ttl to be above 0"),
    ],
)
async def test_a_pool_is_not_created_with_a_wrong_setting(any_pool: Pool, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{says}"):
        await any_pool.create(**settings)
    with pytest.raises(NotFound):
        await any_pool.get()
    made = await any_pool.create(timeout=seconds(30), retention="jobs=7d")

    with pytest.raises(InvalidInput, match=f"^{says}"):
        await any_pool.create(exist_ok=True, **settings)

    assert await any_pool.get() == made
    assert (await any_pool.plan()).timeout == seconds(30)


async def test_an_update_mends_a_wrong_setting_that_is_stored() -> None:
    stage = await Stage().open()
    desk = Pool(stage.store, stage.clock, POOL, "me")
    await stage.store.pools.change(
        POOL, PoolChange(policy={"mode": "bogus", "prefetch": -5, "handlers": {"": "nowhere", "mail": "work:f"}})
    )
    with pytest.raises(InvalidInput, match="invalid policy of pool papers"):
        await desk.plan()

    await desk.update(mode="loop")
    await desk.update(prefetch=None)
    await desk.update(handlers={"": "work:g"})

    assert await desk.plan() == WorkPlan(mode=Mode.LOOP, handlers={"": "work:g", "mail": "work:f"})


async def test_names_of_an_update_may_come_in_any_kind_of_list() -> None:
    stage = await Stage().open()
    desk = Pool(stage.store, stage.clock, POOL, "me")

    await desk.update(capabilities={"gpu"}, middleware=["work:hooks"], executor="threads")

    assert await desk.plan() == WorkPlan(capabilities=("gpu",), middleware=("work:hooks",), executor=ExecutorKind.THREADS)


@pytest.mark.parametrize("odd", ODD)
async def test_what_cannot_be_used_is_refused_by_its_name_and_changes_nothing(odd: str) -> None:
    stage = await Stage().open()
    desk = Pool(stage.store, stage.clock, POOL, "me")
    await stage.push(2)
    job = await desk.claim()
    assert job is not None
    name, ask = ODD[odd]
    before = await desk.list()

    with pytest.raises(InvalidInput, match=f"^{name}: expected "):
        await ask(desk, job)

    assert (await desk.list(), (await desk.get()).paused_until) == (before, None)


async def test_text_that_no_store_takes_is_kept_as_it_can_be_and_a_limit_that_cannot_be_is_named() -> None:
    async with testing.pool() as papers:
        await papers.push(1, max_attempts=1)
        job = await papers.claim()
        assert job is not None
        await papers.progress(job, 0.5, "half \ud800")
        await papers.fail(job, "no \ud800 way\0")

        assert (await papers.job(job.job_id)).last_error == "no \\ud800 way\\0"
        with pytest.raises(InvalidInput, match="limit: expected a whole number"):
            await papers.list(limit=-1)


async def test_names_may_come_in_any_kind_of_list() -> None:
    stage = await Stage().open()
    desk = Pool(stage.store, stage.clock, POOL, "me")
    await stage.push(1, capability="gpu", type="ocr")

    assert await desk.claim(capabilities={"gpu"}, types=(each for each in ["ocr", "scan"]))


async def test_subclasses_of_plain_types_are_stored_as_the_plain_types(any_pool: Pool) -> None:
    odd: dict[str, Any] = {"title": SubText("x"), "rows": [{"score": np.float64(0.5)}]}
    job_id = await any_pool.push(odd, type=SubText("mail"), group=SubText("g"), unique_key=SubText("u"))
    job = await any_pool.claim(types=[SubText("mail")])
    assert job is not None

    await any_pool.complete(job, np.float64(0.5))

    assert (job.payload, job.type, job.group) == ({"title": "x", "rows": [{"score": 0.5}]}, "mail", "g")
    assert await any_pool.result(job_id) == 0.5


async def test_a_filter_that_is_none_is_no_filter(any_pool: Pool) -> None:
    ids = await any_pool.push_many([1, 2])

    jobs = await any_pool.list(statuses=None, job_type=None, group=None, worker_id=None, holder=None, after=None, limit=None)

    assert [job.job_id for job in jobs] == ids


@pytest.mark.parametrize("limit", [1, 5])
async def test_a_claim_of_any_size_gets_a_job_that_must_run_alone_by_itself(
    any_store: Store, any_pool: Pool, limit: int
) -> None:
    ids = await any_pool.push_many(["suspect", "suspect too"], max_crashes=1)
    for job in await any_pool.claim_many(2):
        assert job.holder is not None
        await any_store.queue.release(job.holder, "killed")
    plain = await any_pool.push("plain", priority=1)

    claims = [[job.job_id for job in await any_pool.claim_many(limit)] for _ in range(4)]

    assert claims == [[plain], [ids[0]], [ids[1]], []]


@pytest.mark.parametrize("kind", [PoolKind.BENCH, PoolKind.FLEET])
async def test_a_push_to_a_pool_without_a_queue_is_refused_and_says_what_the_pool_is(any_store: Store, kind: PoolKind) -> None:
    other = Pool(any_store, SystemClock(), "run-1", "me")
    await any_store.pools.create(pool_row(other.pool_id, kind))
    says = f"expected a pool of jobs, got 'run-1', which is a {kind} pool"

    with pytest.raises(InvalidInput, match=says):
        await other.push(1)
    with pytest.raises(InvalidInput, match=says):
        await other.push_many([1, 2], unique_key="k")

    assert [*await any_store.jobs.list(other.pool_id)] == []


@pytest.mark.parametrize("change", CHANGES)
async def test_a_pause_in_the_midst_of_another_change_stays(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = await Stage().open()
    desk, find = Pool(stage.store, stage.clock, POOL, "me"), stage.store.pools.find

    async def find_and_be_overtaken(pool_id: PoolId) -> PoolRow | None:
        monkeypatch.undo()
        found = await find(pool_id)
        await desk.pause()
        return found

    for look in ("find", "get"):
        monkeypatch.setattr(stage.store.pools, look, find_and_be_overtaken)
    await CHANGES[change](stage, desk)

    assert (await desk.get()).paused_until == FOREVER


async def test_a_handler_that_is_added_in_the_midst_of_another_update_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = await Stage().open()
    desk, other = (Pool(stage.store, stage.clock, POOL, each) for each in ("me", "another"))
    read = desk.get
    rounds = 0

    async def get_then_other_adds() -> PoolRow:
        nonlocal rounds
        row = await read()
        rounds += 1
        if rounds <= 2:
            await other.update(handlers={f"other-{rounds}": "work:f"})
        return row

    monkeypatch.setattr(desk, "get", get_then_other_adds)
    await desk.update(handlers={"mine": "work:f"}, max_workers=4)

    assert sorted((await other.plan()).handlers) == ["mine", "other-1", "other-2"]


@pytest.mark.parametrize(("way", "until"), [("pause", FOREVER), ("resume", None)])
async def test_a_cap_in_the_midst_of_a_pause_or_a_resume_stays(
    way: str, until: datetime | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await Stage().open()
    desk, find = Pool(stage.store, stage.clock, POOL, "me"), stage.store.pools.find

    async def find_and_be_overtaken(pool_id: PoolId) -> PoolRow | None:
        monkeypatch.undo()
        found = await find(pool_id)
        await stage.checker.check(POOL, max_workers=3)
        return found

    monkeypatch.setattr(stage.store.pools, "find", find_and_be_overtaken)
    await getattr(desk, way)()

    kept = await desk.get()
    assert (kept.policy["max_workers"], kept.paused_until) == (3, until)


async def test_a_deleted_pool_is_gone_with_all_its_jobs_and_no_other_pools() -> None:
    stage = await Stage().open()
    pool, other = Pool(stage.store, stage.clock, POOL, "me"), Pool(stage.store, stage.clock, "other", "me")
    await other.push({"n": 1})
    await pool.push({"n": 1})
    claimed = await pool.claim()
    assert claimed is not None
    await pool.complete(claimed, {})

    had = await pool.delete()

    assert (had.done, had.pending) == (1, 0)
    assert await stage.store.pools.find(POOL) is None
    assert [*await stage.store.jobs.list(POOL)] == []
    assert (await other.status()).counts.ready == 1
    with pytest.raises(NotFound):
        await pool.delete()


async def test_a_pool_with_unfinished_jobs_is_deleted_only_with_them() -> None:
    stage = await Stage().open()
    pool = Pool(stage.store, stage.clock, POOL, "me")
    await pool.push({"n": 1})
    await pool.push({"n": 2})
    await pool.claim()

    with pytest.raises(Refused, match="2 unfinished jobs"):
        await pool.delete()
    assert (await pool.status()).counts.ready == 1

    assert (await pool.delete(unfinished=True)).pending == 1
    assert await stage.store.pools.find(POOL) is None


async def test_a_pool_with_a_live_worker_is_not_deleted_and_keeps_its_finished_jobs() -> None:
    stage = await Stage().open()
    pool = Pool(stage.store, stage.clock, POOL, "me")
    job_id = await pool.push({"n": 1})
    claimed = await pool.claim()
    assert claimed is not None
    await pool.complete(claimed, {"found": 7})
    await stage.clock.advance(seconds(60))
    await stage.join(name(0))

    with pytest.raises(Refused, match="1 live workers"):
        await pool.delete(unfinished=True)

    assert (await pool.job(job_id)).result == {"found": 7}


async def test_a_fleet_is_not_deleted_while_a_worker_may_cost_money() -> None:
    stage = await Stage().open(policy="fixed")
    fleet = Pool(stage.store, stage.clock, POOL, "me")
    assert (await fleet.get()).is_scaled
    worker = await stage.join(name(0))
    ended = await stage.store.workers.move(worker, WorkerStatus.TERMINATED, "killed by hand")

    with pytest.raises(Refused, match=f"may still cost money, such as {name(0)}"):
        await fleet.delete()

    await stage.store.workers.mark_reaped(POOL, ended.worker_id)
    await fleet.delete()
    assert await stage.store.pools.find(POOL) is None
