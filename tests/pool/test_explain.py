"""Why is it not running? Each reason is a row, and on a real pool each can be met."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.core.job import Attempt, AttemptOutcome, IfFailed, Job, JobId, JobStatus, RateLimit
from drumbeat.core.job_step import JobStep, StepKind
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.pool.explain import MOST_PARENTS, ExplainInputs, ReasonCode, explain
from drumbeat.pool.explain_inputs import read_explain_inputs
from pool.working import Shop, seconds

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
HOME = pool("p", PoolKind.JOBS)


def job(**more: Any) -> Job:
    return Job(**{"job_id": JobId("j"), "pool_id": PoolId("p"), "payload": {}, **more})


def worker(name: str, silent: float = 1, **more: Any) -> Worker:
    return Worker(
        **{
            "pool_id": PoolId("p"),
            "worker_id": WorkerId(name),
            "slot": 0,
            "status": WorkerStatus.ACTIVE,
            "heartbeat_at": NOW - timedelta(seconds=silent),
            **more,
        }
    )


def claimed(**more: Any) -> Job:
    return job(status=JobStatus.CLAIMED, lease_owner=WorkerId("w"), lease_epoch=1, claimed_at=NOW, **more)


def facts(its: Job, *workers: Worker, **more: Any) -> ExplainInputs:
    return ExplainInputs(**{"now": NOW, "pool": HOME, "job": its, "workers": workers, **more})


DONE_STEP = JobStep(
    position=1, name="charge", kind=StepKind.STEP, result={"charged": 7}, started_at=NOW, finished_at=NOW + seconds(1.5)
)


def sleep_until(moment: datetime) -> JobStep:
    return JobStep(position=2, name="sleep", kind=StepKind.SLEEP, started_at=NOW, finished_at=moment, until=moment)


def awaited(name: str, until: datetime | None = None, position: int = 2) -> JobStep:
    return JobStep(position=position, name=name, kind=StepKind.EVENT, started_at=NOW, until=until)


FULL = {"group": "site", "group_limit": 2}
RATED = {"group": "site", "group_rate": RateLimit(count=3, per=seconds(60))}
HELD = (JobId("a"), JobId("b"))

CASES = [
    (facts(job(not_before=LATER), worker("w")), ReasonCode.DELAYED, "delayed until 2026-01-01 12:05:00 UTC, 5 min from now"),
    (facts(job(not_before=LATER, failures=2), worker("w")), ReasonCode.DELAYED, "after 2 failures"),
    (
        facts(job(not_before=LATER), worker("w"), steps=(DONE_STEP, sleep_until(LATER))),
        ReasonCode.SLEEPING,
        "it sleeps until 2026-01-01 12:05:00 UTC, 5 min from now",
    ),
    (facts(job(not_before=LATER, failures=1), worker("w"), steps=(sleep_until(NOW),)), ReasonCode.DELAYED, "after 1 failure"),
    (
        facts(job(not_before=LATER), worker("w"), steps=(DONE_STEP, awaited("approval", LATER))),
        ReasonCode.AWAITS_EVENT,
        "it waits for event 'approval' until 2026-01-01 12:05:00 UTC; send it with: drumbeat pool send p j approval JSON",
    ),
    (
        facts(job(not_before=LATER), worker("w"), steps=(awaited("a"), awaited("b", position=3))),
        ReasonCode.AWAITS_EVENT,
        "it waits for event 'a' or 'b'; send it with",
    ),
    (facts(job(), worker("w"), steps=(awaited("approval"),)), ReasonCode.NEXT, "it is next"),
    (facts(job(**FULL), worker("w"), group_held=HELD), ReasonCode.GROUP_FULL, "waits for group 'site': held by a, b, limit 2"),
    (facts(job(**FULL), worker("w"), group_held=HELD[:1]), ReasonCode.NEXT, "it is next"),
    (facts(job(**RATED), worker("w"), group_recent=3), ReasonCode.RATE_LIMITED, "3 claims in 60.0 s, limit 3"),
    (facts(job(), pool=replace(HOME, paused_until=LATER)), ReasonCode.PAUSED, "pool p is paused until 2026-01-01 12:05:00 UTC"),
    (facts(job(), worker("w"), pool=replace(HOME, paused_until=NOW)), ReasonCode.NEXT, "0 of 1 worker is busy"),
    (facts(job()), ReasonCode.NO_WORKERS, "pool p has no live worker, and nothing starts any: drumbeat pool work p"),
    (facts(job(), triggered=True), ReasonCode.NO_WORKERS, "pool p has no live worker"),
    (facts(job(capability="gpu"), worker("w")), ReasonCode.NO_CAPABILITY, "none of 1 live worker has capability 'gpu'"),
    (facts(job(capability="gpu"), worker("w", capabilities=("gpu",))), ReasonCode.NEXT, "it is next"),
    (facts(job(type="b"), worker("w"), types=("a",)), ReasonCode.NO_HANDLER, "no handler for type 'b'; it has: a"),
    (
        facts(job(type="b"), worker("w", meta={"types": ["a", "c"]})),
        ReasonCode.NO_HANDLER,
        "no live worker has a handler for type 'b'; they have: a, c; a task that was renamed needs its old name",
    ),
    (facts(job(type="b"), worker("w", meta={"types": ["a"]}), worker("v")), ReasonCode.NEXT, "0 of 1 worker is busy"),
    (
        facts(job(), worker("w", active=1), ahead=7),
        ReasonCode.BEHIND_OTHERS,
        "7 jobs are before it, and 1 of 1 worker is busy",
    ),
    (facts(job(), worker("w"), ahead=9000, ahead_is_more=True), ReasonCode.BEHIND_OTHERS, "more than 9000 jobs"),
    (
        facts(claimed(), worker("w", silent=3)),
        ReasonCode.RUNNING,
        "claimed by w since 2026-01-01 12:00:00 UTC; its last heartbeat was 3.0 s",
    ),
    (facts(claimed(progress=0.25, progress_note="page 3"), worker("w")), ReasonCode.RUNNING, "25% done (page 3)"),
    (facts(claimed(cancel_requested=True), worker("w")), ReasonCode.RUNNING, "cancellation requested"),
    (
        facts(claimed(lease_until=LATER), worker("w", silent=90)),
        ReasonCode.STRANDED,
        "is silent: its last heartbeat was 90.0 s ago",
    ),
    (facts(claimed(lease_until=NOW)), ReasonCode.STRANDED, "its lease has run out"),
    (
        facts(job(status=JobStatus.POISONED, failures=3, last_error="boom\nline 2")),
        ReasonCode.POISONED,
        "it failed 3 times (limit 3); last error: boom;",
    ),
    (
        facts(job(status=JobStatus.POISONED, crashes=1, suspicions=2)),
        ReasonCode.POISONED,
        "3 workers died while they held it, the last time with no other job beside it (limit 3)",
    ),
    (
        facts(job(status=JobStatus.POISONED, failures=1)),
        ReasonCode.POISONED,
        "its failure was fatal: another attempt would fail too",
    ),
    (facts(job(status=JobStatus.CANCELLED)), ReasonCode.CANCELLED, "it was cancelled"),
    (facts(job(status=JobStatus.DONE, finished_at=NOW)), ReasonCode.DONE, "it was done at 2026-01-01 12:00:00 UTC"),
]


@pytest.mark.parametrize(("seen", "why", "says"), CASES)
def test_the_reason_is_told(seen: ExplainInputs, why: ReasonCode, says: str) -> None:
    found = explain(seen)

    assert found.why is why
    assert says in str(found)


def test_every_reason_there_is_is_told_at_once() -> None:
    both = facts(job(not_before=LATER, **FULL), group_held=HELD, pool=replace(HOME, paused_until=LATER))

    assert [reason.why for reason in explain(both).reasons] == [
        ReasonCode.PAUSED,
        ReasonCode.DELAYED,
        ReasonCode.GROUP_FULL,
        ReasonCode.NO_WORKERS,
    ]


def test_steps_are_told() -> None:
    received = replace(awaited("approval", position=3), result="yes", finished_at=LATER)
    failed = replace(DONE_STEP, position=4, name="pack", result=None, error="ValueError: too big")
    sent = JobStep(position=-1, name="approval", kind=StepKind.SENT, result="yes", started_at=NOW, finished_at=NOW)

    found = explain(facts(job(), steps=(sent, DONE_STEP, sleep_until(LATER), received, failed, awaited("x", position=5))))

    assert found.steps == (
        "event 'approval' was sent at 2026-01-01 12:00:00 UTC: \"yes\"",
        'step 1 charge: finished at 2026-01-01 12:00:01 UTC in 1.500 s, result {"charged": 7}',
        "step 2 sleep: since 2026-01-01 12:00:00 UTC until 2026-01-01 12:05:00 UTC",
        "step 3 event 'approval': finished at 2026-01-01 12:05:00 UTC in 300.000 s, result \"yes\"",
        "step 4 pack: finished at 2026-01-01 12:00:01 UTC in 1.500 s, failed: ValueError: too big",
        "step 5 waits for event 'x' since 2026-01-01 12:00:00 UTC",
    )


def test_attempts_are_told() -> None:
    tried = Attempt(
        job_id=JobId("j"),
        n=1,
        worker_id=WorkerId("w"),
        worker_pool=PoolId("p"),
        started_at=NOW,
        outcome=AttemptOutcome.FAILED,
        error="boom\nx",
    )

    assert explain(facts(job(), attempts=(tried,))).history == ("attempt 1 by w at 2026-01-01 12:00:00 UTC: failed: boom",)


@pytest.fixture
async def shop() -> Shop:
    return await Shop().opened()


async def test_facts_are_read_from_a_pool(shop: Shop) -> None:
    delayed = await shop.desk.push(3, delay=60)
    running = await shop.desk.push(1)
    taken = await shop.desk.claim(lease=seconds(30))
    waits = await shop.desk.push(2)

    before = [(await shop.desk.explain(each)).why for each in (delayed, running, waits)]
    await shop.passes(31)
    stranded = await shop.desk.explain(running)

    assert taken is not None
    assert before == [ReasonCode.DELAYED, ReasonCode.RUNNING, ReasonCode.NO_WORKERS]
    assert (stranded.why, stranded.history[0].split(" at ")[0]) == (ReasonCode.STRANDED, "attempt 1 by somebody")


async def test_jobs_before_it_are_counted_by_priority_and_age(shop: Shop) -> None:
    await shop.desk.push(0, delay=60)
    old = await shop.desk.push(1)
    await shop.desk.push(2, priority=5)
    young = await shop.desk.push(3)

    counts = [(await read_explain_inputs(shop.store, shop.home, await shop.job(each))).ahead for each in (old, young)]

    assert counts == [1, 2]


async def test_a_full_group_names_who_holds_it(shop: Shop) -> None:
    holder = await shop.desk.push(1, group="site", group_limit=1)
    waits = await shop.desk.push(2, group="site", group_limit=1)
    await shop.desk.claim()

    found = await shop.desk.explain(waits)

    assert found.why is ReasonCode.GROUP_FULL
    assert f"held by {holder}" in str(found)


async def test_a_rate_is_seen(shop: Shop) -> None:
    rate = {"group": "site", "group_rate": {"count": 1, "per": 60}}
    await shop.desk.push(1, **rate)
    waits = await shop.desk.push(2, **rate)
    taken = await shop.desk.claim()
    assert taken is not None
    await shop.desk.complete(taken)

    assert (await shop.desk.explain(waits)).why is ReasonCode.RATE_LIMITED


def test_a_job_with_many_parents_names_some_of_those_that_were_read() -> None:
    done = [job(job_id=JobId(f"d{n}"), status=JobStatus.DONE) for n in range(MOST_PARENTS)]
    pending = [job(job_id=JobId(f"p{n}")) for n in range(7)]
    waiting = job(status=JobStatus.WAITING, waits_for=1500, if_failed=IfFailed.BLOCK)

    all_read = str(explain(facts(replace(waiting, waits_for=7), parents=(*done[:3], *pending))))
    some_read = str(explain(facts(waiting, parents=(*done[1:], pending[0]))))
    none_open = str(explain(facts(waiting, parents=tuple(done))))

    assert "it waits for 7 of 10 jobs: p0 (pending), p1 (pending), " in all_read
    assert all_read.endswith("p4 (pending) and 2 more")
    assert some_read.endswith("it waits for 1500 of at least 1000 jobs: p0 (pending) and 1499 more")
    assert none_open.endswith("it waits for 1500 of at least 1000 jobs")


def test_a_job_that_must_run_alone_says_what_it_waits_for() -> None:
    told = explain(facts(job(suspicions=2), worker("a", active=1), ahead=3))

    assert (told.why, "2 workers died while they held it" in str(told)) == (ReasonCode.ALONE, True)
