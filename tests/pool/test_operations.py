"""Operations on all jobs that match a filter: what is selected, what is changed, and what is left as it is."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.core.clock import ManualClock, SystemClock
from drumbeat.core.errors import InvalidInput, NotFound
from drumbeat.core.job import Job, JobId, JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.pool import bulk
from drumbeat.pool.error_text import error_group_id, normalised_error
from drumbeat.pool.job_filter import JobFilter, as_filter
from drumbeat.pool.service import Pool
from drumbeat.pool.worker.options import WorkPlan
from drumbeat.store import Store

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)


def job(**fields: Any) -> Job:
    return Job(**{"job_id": JobId("j"), "pool_id": PoolId("p"), "payload": None, "created_at": NOW - HOUR, **fields})


FAILED = job(status=JobStatus.POISONED, finished_at=NOW - HOUR / 2, last_error="KeyError: 'user 17'\n  File app.py")


@pytest.mark.parametrize(
    ("selected", "row", "expected"),
    [
        (JobFilter(statuses=(JobStatus.PENDING,)), job(), True),
        (JobFilter(statuses=(JobStatus.CLAIMED,)), job(), False),
        (JobFilter(job_type="a"), job(type="a"), True),
        (JobFilter(job_type=""), job(type="a"), False),
        (JobFilter(group="g"), job(group="g"), True),
        (JobFilter(group="g"), job(), False),
        (JobFilter(priority=0), job(), True),
        (JobFilter(priority=0), job(priority=5), False),
        (JobFilter(older_than=HOUR / 2), job(), True),
        (JobFilter(older_than=HOUR), job(), False),
        (JobFilter(newer_than=HOUR), job(), True),
        (JobFilter(newer_than=HOUR / 2), job(), False),
        (JobFilter(newer_than=HOUR / 2), FAILED, True),  # an ended job counts from its end
        (JobFilter(older_than=HOUR / 2), FAILED, False),
        (JobFilter(error="keyerror"), FAILED, True),
        (JobFilter(error="ValueError"), FAILED, False),
        (JobFilter(error="KeyError"), job(), False),
        (JobFilter(error_group=error_group_id("KeyError: 'user 18'")), FAILED, True),
        (JobFilter(error_group=error_group_id("KeyError: 'name'")), FAILED, False),
        (JobFilter(error_group=error_group_id(None)), job(), False),
        (JobFilter(job_type="a", priority=1), job(type="a", priority=2), False),
    ],
)
def test_a_job_must_match_every_field_of_a_filter(selected: JobFilter, row: Job, expected: bool) -> None:
    assert selected.matches(row, NOW) is expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"statuses": ["gone"]}, "statuses: expected a list of waiting, pending, claimed"),
        ({"statuses": "done"}, "statuses: expected a list"),
        ({"older_than": "soon"}, "older_than: expected a timedelta or seconds"),
        ({"priority": "high"}, "priority: expected a whole number, got 'high'"),
        ({"error": 5}, "error: expected text, got 5"),
        ({"type": "a"}, "expected a JobFilter, or an object with fields among statuses, job_type"),
    ],
)
def test_a_wrong_field_of_a_filter_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        as_filter(fields)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("KeyError: 17", "KeyError: 4,211"),
        ("no user 8f14e45f-ceea-467f-a9c6-2b0a0b2f7f8e", "no user 1679091c-5a88-4faf-afb5-e6087eb1b2dc"),
        ("<Socket at 0x7f3a10>", "<Socket at 0x55d1e0>"),
        ("connect to 10.0.0.5:5432 refused", "connect to 10.1.0.77:6432 refused"),
        ("connect to fe80:0:0:1:2:3:4:5 refused", "connect to fe80:0:0:1:2:3:4:6 refused"),
        ("404 for https://a.example/x?id=1", "404 for https://b.example/y"),
        ("no mailbox jo@a.example", "no mailbox ann.b+c@d.example"),
        ("commit deadbeef01", "commit 0123456789abcdef"),
        ("expired at 2026-01-02T03:04:05Z", "expired at 2025-11-30 13:04:05.678+01:00"),
        ("ValueError: bad\n  File a.py, line 3", "ValueError: bad\n  File b.py, line 9"),
    ],
)
def test_errors_that_differ_in_numbers_ids_or_addresses_are_one_group(first: str, second: str) -> None:
    assert normalised_error(first) == normalised_error(second)
    assert error_group_id(first) == error_group_id(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [("KeyError: 'name'", "KeyError: 'email'"), ("ValueError: x", "TypeError: x"), (None, "ValueError"), ("cafe", "face")],
)
def test_other_errors_are_other_groups(first: str | None, second: str) -> None:
    assert error_group_id(first) != error_group_id(second)


async def failed(pool: Pool, *errors: str, **options: Any) -> list[JobId]:
    """Push a job for each error, and let it fail with this error for good."""
    ids = [await pool.push({}, max_attempts=1, **options) for _ in errors]
    for error in errors:
        claimed = await pool.claim()
        assert claimed is not None
        await pool.fail(claimed, error)
    return ids


async def statuses(pool: Pool, ids: Sequence[JobId]) -> list[str]:
    return [(await pool.job(each)).status.value for each in ids]


async def test_jobs_that_match_are_cancelled_and_no_others(any_pool: Pool) -> None:
    mails = [await any_pool.push({"n": n}, type="mail") for n in range(3)]
    others = [await any_pool.push({}, type="sms"), await any_pool.push({}, type="mail", priority=1)]

    done = await any_pool.cancel_where(JobFilter(job_type="mail", priority=0))

    assert (done.matched, done.changed, done.requested, done.skipped) == (3, 3, 0, 0)
    assert [each.job_id for each in done.examples] == mails
    assert await statuses(any_pool, mails) == ["cancelled"] * 3
    assert await statuses(any_pool, others) == ["pending"] * 2


async def test_a_dry_run_counts_and_changes_nothing(any_pool: Pool) -> None:
    ids = [await any_pool.push({}, type="mail") for _ in range(3)]

    done = await any_pool.cancel_where({"job_type": "mail"}, dry_run=True)

    assert (done.dry_run, done.matched, done.changed, done.skipped) == (True, 3, 0, 0)
    assert await statuses(any_pool, ids) == ["pending"] * 3


async def test_the_worker_of_a_running_job_is_asked_to_stop_it(any_pool: Pool) -> None:
    await any_pool.push({}, type="mail")
    claimed = await any_pool.claim()
    assert claimed is not None

    done = await any_pool.cancel_where({"job_type": "mail"})

    assert (done.matched, done.changed, done.requested, done.skipped) == (1, 0, 1, 0)
    assert (await any_pool.job(claimed.job_id)).status is JobStatus.CLAIMED
    assert await any_pool.renew(claimed)


async def test_poisoned_jobs_are_requeued_by_their_error(any_pool: Pool) -> None:
    lost = await failed(any_pool, "timeout after 3 s", "timeout after 17 s")
    wrong = await failed(any_pool, "ValueError: bad")

    done = await any_pool.requeue_where({"error": "TIMEOUT"}, limit=1)
    assert (done.changed, done.limited) == (1, True)
    assert await statuses(any_pool, lost) == ["pending", "poisoned"]

    await any_pool.requeue_where({"error_group": error_group_id("timeout after 99 s")})
    assert await statuses(any_pool, [*lost, *wrong]) == ["pending", "pending", "poisoned"]


async def test_cancelled_jobs_are_requeued_only_if_they_are_named(any_pool: Pool) -> None:
    job_id = await any_pool.push({}, type="mail")
    await any_pool.cancel(job_id)

    assert (await any_pool.requeue_where({"job_type": "mail"})).matched == 0
    assert (await any_pool.requeue_where({"job_type": "mail", "statuses": ["cancelled"]})).changed == 1
    assert await statuses(any_pool, [job_id]) == ["pending"]


async def test_a_job_with_the_unique_key_of_another_is_left_and_reported(any_pool: Pool) -> None:
    job_id = await any_pool.push({}, unique_key="k")
    await any_pool.cancel(job_id)
    await any_pool.push({}, unique_key="k")

    done = await any_pool.requeue_where({"statuses": ["cancelled"]})

    assert (done.matched, done.changed, done.skipped, done.skipped_ids) == (1, 0, 1, (job_id,))


async def test_pending_jobs_are_rescheduled_and_prioritised_by_filter(any_store: Store, any_pool: Pool) -> None:
    first, second, third = [await any_pool.push({}, type=kind) for kind in ("mail", "sms", "mail")]
    now = await any_store.now()

    dry = await any_pool.reschedule_where({"job_type": "mail"}, now + HOUR, dry_run=True)
    assert (dry.matched, dry.changed, await any_pool.size()) == (2, 0, 3)
    done = await any_pool.reschedule_where({"job_type": "mail"}, now + HOUR, limit=1)
    assert (done.changed, (await any_pool.job(first)).not_before) == (1, now + HOUR)

    assert (await any_pool.prioritise_where({"job_type": "mail"}, 9)).changed == 2
    assert [(await any_pool.job(each)).priority for each in (first, second, third)] == [9, 0, 9]
    claimed = await any_pool.claim()
    assert claimed is not None
    assert claimed.job_id == third
    assert (await any_pool.reschedule_where({"statuses": ["pending"]}, now)).changed == 2
    assert await any_pool.size() == 2


def listening(store: Store, name: str = "mail") -> tuple[Pool, list[PoolId]]:
    """A pool, and the names of the pools that it says have work."""
    heard: list[PoolId] = []

    async def note(pool_id: PoolId) -> None:
        heard.append(pool_id)

    return Pool(store, SystemClock(), name, "me", note), heard


async def test_a_requeued_subtree_is_told_to_each_of_its_pools(any_store: Store, any_pool: Pool) -> None:
    others = [Pool(any_store, SystemClock(), name, "me") for name in ("sms", "post", "fax")]
    first = await any_pool.push("first")
    sms, post = [await other.push("child", after=[first]) for other in others[:2]]
    again = await any_pool.push("again", after=[sms])
    await others[2].push("not below it")
    await any_pool.cancel_subtree(first)
    pool, heard = listening(any_store)

    assert [*await pool.requeue_subtree(first)] == [first, sms, post, again]
    assert heard == ["mail", "sms", "post"]

    assert not await pool.requeue_subtree(first)
    assert heard == ["mail", "sms", "post"], "nothing that could not run before can run now"


async def test_a_subtree_below_a_job_that_is_done_is_told_to_its_own_pools_only(any_store: Store, any_pool: Pool) -> None:
    first = await any_pool.push("first")
    child = await Pool(any_store, SystemClock(), "sms", "me").push("child", after=[first])
    claimed = await any_pool.claim()
    assert claimed is not None
    await any_pool.complete(claimed)
    await Pool(any_store, SystemClock(), "sms", "me").cancel(child)
    pool, heard = listening(any_store)

    assert [*await pool.requeue_subtree(first)] == [child]
    assert heard == ["sms"]


CHANGES: list[tuple[dict[str, Any], bool]] = [
    ({"handlers": {"mail": "json:dumps"}}, True),
    ({"remove_handlers": ["sms"]}, True),
    ({"engine": "elsewhere"}, True),
    ({"max_workers": 3}, True),
    ({"concurrency": 3}, False),
    ({"result_ttl": HOUR}, False),
    ({}, False),
]


@pytest.mark.parametrize(("changes", "told"), CHANGES)
@pytest.mark.parametrize("push", [{}, {"delay": HOUR}, {"after": True}, None], ids=["ready", "delayed", "waiting", "no job"])
async def test_settings_that_let_workers_start_are_told_like_a_push_if_jobs_wait(
    any_store: Store, any_pool: Pool, changes: dict[str, Any], told: bool, push: dict[str, Any] | None
) -> None:
    pool, heard = listening(any_store)
    await any_pool.create(WorkPlan(handlers={"sms": "json:dumps"}))
    if push is not None:
        parent = await Pool(any_store, SystemClock(), "other", "me").push("parent")
        await any_pool.push("job", **({"after": [parent]} if "after" in push else push))

    await pool.update(**changes)

    assert heard == (["mail"] if told and push is not None else [])


async def test_a_pool_created_again_with_another_plan_is_told_like_a_push_if_jobs_wait(
    any_store: Store, any_pool: Pool
) -> None:
    pool, heard = listening(any_store)
    await any_pool.create()
    await pool.create(WorkPlan(handlers={"": "json:dumps"}), exist_ok=True)
    assert heard == []
    await any_pool.push("job")

    await pool.create(exist_ok=True)
    assert heard == []
    await pool.create(WorkPlan(handlers={"": "json:dumps"}), exist_ok=True)
    await pool.create(exist_ok=True, max_workers=3)

    assert heard == ["mail", "mail"]


async def test_jobs_that_can_run_again_are_told_like_pushed_ones(any_store: Store, any_pool: Pool) -> None:
    (pool, heard), now = listening(any_store), await any_store.now()
    one, _, three, four = await failed(any_pool, *["ValueError"] * 4)
    await any_pool.push({}, delay=HOUR)

    assert [*await pool.requeue(one)] == [one]
    assert (await pool.requeue_where({"error": "ValueError"}, limit=1)).changed == 1
    assert [*await pool.requeue_subtree(three)] == [three]
    assert [*await pool.requeue()] == [four]
    assert (await pool.reschedule_where({"statuses": ["pending"]}, now)).changed == 5
    await pool.pause()
    await pool.resume()
    await pool.resume(types=["t"])
    assert heard == ["mail"] * 7

    await pool.requeue(one)
    await pool.requeue()
    await pool.requeue_where({"error": "ValueError"})
    await pool.reschedule_where({"statuses": ["pending"]}, now, dry_run=True)
    await pool.prioritise_where({"statuses": ["pending"]}, 5)
    assert heard == ["mail"] * 7, "nothing that could not run before can run now"


async def test_a_job_that_was_claimed_meanwhile_is_not_rescheduled(any_pool: Pool) -> None:
    await any_pool.push({}, type="mail")
    claimed = await any_pool.claim()
    assert claimed is not None

    done = await any_pool._change_page([claimed], priority=5)

    assert [*done.changed] == []
    assert (await any_pool.job(claimed.job_id)).priority == 0


async def test_more_jobs_than_one_page_are_changed(any_pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 3)
    ids = await any_pool.push_many([{}] * 10, type="mail")
    seen: list[int] = []

    done = await any_pool.cancel_where({"job_type": "mail"}, limit=8, on_progress=seen.append)

    assert (done.matched, done.changed, done.limited, seen) == (8, 8, True, [3, 6, 8])
    assert await statuses(any_pool, ids) == ["cancelled"] * 8 + ["pending"] * 2


async def test_poisoned_jobs_are_grouped_by_error(any_pool: Pool) -> None:
    first, second = await failed(any_pool, "timeout after 3 s", "timeout after 17 s", type="fetch")
    await failed(any_pool, "ValueError: bad", type="parse")

    found = await any_pool.errors()

    assert found.jobs == 3
    assert [(each.error, each.jobs, each.types) for each in found.groups] == [
        ("timeout after <n> s", 2, ("fetch",)),
        ("ValueError: bad", 1, ("parse",)),
    ]
    [timeouts, _] = found.groups
    ended = [(await any_pool.job(each)).finished_at for each in (first, second)]
    assert (timeouts.first_seen, timeouts.last_seen, timeouts.example) == (ended[0], ended[1], second)
    assert [each.error for each in (await any_pool.errors({"job_type": "parse"})).groups] == ["ValueError: bad"]


async def test_too_many_different_errors_are_counted_but_not_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drumbeat.pool.error_groups.MOST_GROUPS", 2)
    pool = Pool(store, SystemClock(), "mail", "me")
    await failed(pool, "a", "b", "c", "a")

    found = await pool.errors()

    assert ([each.error for each in found.groups], found.jobs, found.ungrouped) == (["a", "b"], 4, 1)


async def test_jobs_pushed_meanwhile_are_left(store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 1)
    pool = Pool(store, clock, "mail", "me")
    first = await pool.push({}, type="mail")
    found: list[JobId] = []

    async for page in bulk.matching_pages(store, pool.pool_id, JobFilter(job_type="mail"), (JobStatus.PENDING,)):
        found += [each.job_id for each in page]
        await clock.advance(HOUR)
        await pool.push({}, type="mail")

    assert found == [first]


@pytest.mark.parametrize(
    ("selected", "message"),
    [
        ({}, "expected a filter with at least one field, got none"),
        ({"statuses": ["done"]}, "statuses: expected only waiting, pending, claimed, got done; other jobs cannot be cancelled"),
    ],
)
async def test_a_filter_that_selects_too_much_is_refused(store: Store, selected: dict[str, Any], message: str) -> None:
    pool = Pool(store, SystemClock(), "mail", "me")
    await pool.push({})

    with pytest.raises(InvalidInput, match=message):
        await pool.cancel_where(selected)
    assert await pool.size() == 1


async def test_an_operation_on_an_unknown_pool_is_refused(store: Store) -> None:
    with pytest.raises(NotFound, match="no pool 'nope'"):
        await Pool(store, SystemClock(), "nope", "me").cancel_where({"job_type": "x"})


async def test_all_poisoned_jobs_are_requeued_some_at_a_time(
    any_store: Store, any_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 2)
    ids = await failed(any_pool, *["no"] * 5)
    await any_pool.cancel(cancelled := await any_pool.push({}))
    requeue, calls = type(any_store.jobs).requeue, list[Sequence[JobId]]()

    def recording(jobs: Any, pool_id: PoolId, job_ids: Sequence[JobId]) -> Any:
        calls.append(job_ids)
        return requeue(jobs, pool_id, job_ids)

    monkeypatch.setattr(type(any_store.jobs), "requeue", recording)

    assert [*await any_pool.requeue()] == ids
    assert [*await any_pool.requeue()] == []

    assert calls == [ids[:2], ids[2:4], ids[4:]]
    assert await statuses(any_pool, [*ids, cancelled]) == ["pending"] * 5 + ["cancelled"]


async def test_reading_goes_on_after_a_job_was_deleted(
    any_store: Store, any_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 2)
    ids = [*await any_pool.push_many([{}] * 5)]
    for _ in ids:
        claimed = await any_pool.claim()
        assert claimed is not None
        await any_pool.fail(claimed, "no", fatal=True)
    pages: list[list[JobId]] = []

    async for page in bulk.matching_pages(any_store, any_pool.pool_id, JobFilter(error="no"), (JobStatus.POISONED,)):
        pages.append([each.job_id for each in page])
        if len(pages) == 1:
            await any_pool.requeue(ids[1])
            claimed = await any_pool.claim()
            assert claimed is not None
            await any_pool.complete(claimed)
            await any_store.jobs.prune(timedelta(), [JobStatus.DONE])

    assert [each for page in pages for each in page] == ids
