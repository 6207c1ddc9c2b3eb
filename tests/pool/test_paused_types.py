"""Jobs of a paused type stay in the queue, while other jobs go on."""

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import JobStatus
from drumbeat.pool.due_jobs import POLL_EVERY, when_due
from drumbeat.pool.explain import ReasonCode
from drumbeat.pool.model import PoolPolicy
from drumbeat.pool.observe import observe
from drumbeat.pool.service import Pool
from drumbeat.pool.worker.options import Mode
from drumbeat.store import Store
from pool.seen import POOL, seconds
from pool.stage import Stage
from pool.working import Shop


async def test_jobs_of_a_paused_type_are_not_claimed_until_it_is_resumed(any_pool: Pool) -> None:
    await any_pool.push("first", type="mail")
    await any_pool.push("second", type="sms")
    assert [*await any_pool.claim_many(5, types=["neither"])] == []
    await any_pool.pause(types=["mail"])

    assert [each.payload for each in await any_pool.claim_many(5)] == ["second"]
    assert [*await any_pool.claim_many(5, types=["mail"])] == []
    assert (await any_pool.status()).paused_types == ("mail",)

    await any_pool.resume(types=["mail"])
    assert [each.payload for each in await any_pool.claim_many(5)] == ["first"]


async def test_two_pauses_do_not_undo_each_other_nor_that_of_the_pool(any_pool: Pool) -> None:
    await any_pool.create()
    await any_pool.pause()
    await any_pool.pause(types=["a"])
    await any_pool.pause(types=["b", ""])

    row = await any_pool.resume(types=["a"])

    assert PoolPolicy.from_json(row.policy).paused == {"b", ""}
    assert row.paused_until is not None
    assert PoolPolicy.from_json((await any_pool.resume()).policy).paused == {"b", ""}


async def test_a_pause_of_a_type_has_no_end(store: Store) -> None:
    pool = Pool(store, SystemClock(), "mail", "me")
    await pool.create()

    with pytest.raises(InvalidInput, match="until: expected no time when types are given"):
        await pool.pause(await store.now(), types=["a"])


async def test_types_that_are_no_list_do_not_pause_the_whole_pool(store: Store) -> None:
    pool = Pool(store, SystemClock(), "mail", "me")
    await pool.create()

    with pytest.raises(InvalidInput, match="types: expected a list of names"):
        await pool.pause(types="")
    assert not (await pool.status()).is_paused


@pytest.mark.parametrize("functions", [1, 2], ids=["one handler for every type", "a handler for each type"])
async def test_a_worker_leaves_jobs_of_a_paused_type(functions: int) -> None:
    def mail(payload: object) -> None: ...

    def sms(payload: object) -> None: ...

    shop = await Shop().opened()
    await shop.desk.push({}, type="mail")
    await shop.desk.push({}, type="sms")
    await shop.desk.pause(types=["mail"])

    await shop.work(shop.workload(*(mail, sms)[:functions], mode=Mode.DRAIN))

    assert [(each.type, each.status) for each in await shop.desk.list()] == [
        ("mail", JobStatus.PENDING),
        ("sms", JobStatus.DONE),
    ]


async def test_a_worker_that_runs_notices_a_pause_within_a_second() -> None:
    shop = await Shop().opened()
    ran: list[int] = []

    def note(payload: int) -> None:
        ran.append(payload)

    async with shop.working(shop.workload(note)):
        await shop.desk.push(1, type="mail")
        await shop.clock.advance(seconds(2))
        await shop.desk.pause(types=["mail"])
        await shop.clock.advance(seconds(1))
        await shop.desk.push(2, type="mail")
        await shop.clock.advance(seconds(40))

    assert ran == [1]


async def test_no_workers_are_started_for_a_paused_type() -> None:
    stage = await Stage().open(handlers={"": "a:b"})
    pool = Pool(stage.store, stage.clock, POOL, "me")
    await stage.push(3, type="mail")
    await pool.pause(types=["mail"])

    assert dict((await observe(stage.store, stage.spawner, POOL, seconds(0))).demand) == {}
    beat = await stage.checker.check(POOL)
    assert beat.why_not == "no job is ready; paused job types: 'mail'"
    assert not (await when_due(stage.store, POOL)).is_ready

    await stage.push(2, type="sms")
    assert dict((await observe(stage.store, stage.spawner, POOL, seconds(0))).demand) == {"": 2}
    assert (await when_due(stage.store, POOL)).is_ready


@pytest.mark.parametrize("handlers", [{"": "a:b"}, {"mail": "a:b", "sms": "a:b"}], ids=["one handler", "each its own"])
async def test_many_jobs_of_a_paused_type_hide_no_others(handlers: dict[str, str]) -> None:
    stage = await Stage().open(handlers=handlers)
    pool = Pool(stage.store, stage.clock, POOL, "me")
    await stage.push(100_001, type="mail")
    await pool.pause(types=["mail"])
    assert not (await when_due(stage.store, POOL)).is_ready

    await stage.push(1, type="sms")

    assert (await when_due(stage.store, POOL)).is_ready
    assert dict((await observe(stage.store, stage.spawner, POOL, seconds(0))).demand) == {"": 1}
    assert [each.type for each in await pool.claim_many(9)] == ["sms"]


async def test_many_jobs_that_have_a_handler_hide_none_without() -> None:
    stage = await Stage().open(handlers={"mail": "a:b"})
    await stage.push(10_001, type="mail")
    await stage.push(2, type="sms")

    assert dict((await observe(stage.store, stage.spawner, POOL, seconds(0))).unhandled) == {"sms": 2}


async def test_a_pool_is_watched_while_all_its_jobs_are_of_a_paused_type() -> None:
    stage = await Stage().open()
    pool = Pool(stage.store, stage.clock, POOL, "me")
    await pool.pause(types=["mail"])
    assert (await when_due(stage.store, POOL)).wait is None

    await stage.push(1, type="mail")

    due = await when_due(stage.store, POOL)
    assert (due.is_ready, due.next_in) == (False, POLL_EVERY)


async def test_a_job_of_a_paused_type_is_explained() -> None:
    stage = await Stage().open()
    pool = Pool(stage.store, stage.clock, POOL, "me")
    job_id = await pool.push({}, type="mail")
    await pool.pause(types=["mail"])

    found = await pool.explain(job_id)

    assert found.why is ReasonCode.PAUSED
    assert "jobs of type 'mail' are paused; resume them with: drumbeat pool resume papers --type mail" in str(found)
