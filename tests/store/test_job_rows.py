"""Rows of jobs become values field by field, and a claimer's cursor rises only over what it has claimed."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.core.job import Backoff, IfFailed, Job, JobId, JobStatus, RateLimit
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.store.sql.claim_cursor import LEAST, MOST, START, ClaimCursor, advanced
from drumbeat.store.sql.job_rows import COLUMNS, job_of
from drumbeat.store.sql.queries import migration_texts

AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
US = (AT - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

ROW: dict[str, Any] = {
    "seq": 7,
    "pool_id": "p",
    "given_id": None,
    "type": "t",
    "payload": '{"n":1}',
    "status": "claimed",
    "delayed": 0,
    "priority": 5,
    "attempts": 3,
    "failures": 2,
    "crashes": 1,
    "max_attempts": 9,
    "max_crashes": 8,
    "backoff": '{"first":2.5,"factor":3.0,"most":60.0,"jitter":0.5}',
    "timeout_us": 1_500_000,
    "unique_key": "k",
    "group_key": "g",
    "group_limit": 4,
    "rate_count": 6,
    "rate_us": 1_000_000,
    "capability": "gpu",
    "lease_owner": "w",
    "lease_epoch": 11,
    "lease_until": US,
    "not_before": US + 1,
    "cancel_requested": 1,
    "progress": 0.5,
    "progress_note": "half",
    "result": "[1]",
    "last_error": "e",
    "created_at": US + 2,
    "claimed_at": US + 3,
    "finished_at": US + 4,
    "lease_pool": "home",
    "lease_instance": "i1",
    "begun_at": US + 5,
    "suspicions": 12,
    "alone": 1,
    "in_company": 0,
    "lease_us": 60_000_000,
    "lease_extended": 1,
    "workflow_id": "flow",
    "waits_for": 2,
    "after_any": 1,
    "if_failed": "skip",
    "has_children": 1,
    "has_steps": 1,
    "events_sent": 3,
}


def later(microseconds: int) -> datetime:
    return AT + timedelta(microseconds=microseconds)


def test_every_column_finds_its_field() -> None:
    expected = Job(
        job_id=JobId("j000000000007"),
        pool_id=PoolId("p"),
        payload={"n": 1},
        type="t",
        status=JobStatus.CLAIMED,
        priority=5,
        attempts=3,
        failures=2,
        crashes=1,
        suspicions=12,
        max_attempts=9,
        max_crashes=8,
        backoff=Backoff(first=timedelta(seconds=2.5), factor=3.0, most=timedelta(minutes=1), jitter=0.5),
        timeout=timedelta(seconds=1.5),
        unique_key="k",
        group="g",
        group_limit=4,
        group_rate=RateLimit(count=6, per=timedelta(seconds=1)),
        capability="gpu",
        lease_owner=WorkerId("w"),
        lease_pool=PoolId("home"),
        lease_instance="i1",
        lease_epoch=11,
        lease_until=AT,
        lease_extended=True,
        not_before=later(1),
        cancel_requested=True,
        progress=0.5,
        progress_note="half",
        result=[1],
        last_error="e",
        created_at=later(2),
        claimed_at=later(3),
        begun_at=later(5),
        finished_at=later(4),
        workflow_id="flow",
        waits_for=2,
        after_any=True,
        if_failed=IfFailed.SKIP,
        has_children=True,
        has_steps=True,
        events_sent=3,
    )

    assert job_of((*ROW.values(), "more", "columns")) == expected


def test_columns_are_in_the_order_of_their_table() -> None:
    made = re.search(r"CREATE TABLE drumbeat\.jobs \((.*?)\n\)", migration_texts()[4], re.DOTALL)

    assert made is not None
    later = "\n".join(text for version, text in sorted(migration_texts().items()) if version > 4)
    added = re.findall(r"ALTER TABLE drumbeat\.jobs ADD COLUMN (\w+)", later)
    assert [*re.findall(r"^    (\w+) ", made.group(1), re.MULTILINE), *added] == list(ROW)
    assert len(ROW) == COLUMNS


def taken(*rows: tuple[int, int]) -> list[dict[str, int]]:
    return [{"priority": priority, "seq": number} for priority, number in rows]


@pytest.mark.parametrize(
    ("cursor", "claimed", "priority", "number"),
    [
        (START, [(0, 3), (0, 5)], 0, 6),
        (START, [(9, 80), (0, 3), (0, 4)], 0, 5),
        (ClaimCursor(priority=0, number=6, until=9.0), [(0, 8), (0, 7)], 0, 9),
        (ClaimCursor(priority=0, number=6, until=9.0), [(4, 90)], 0, 6),
    ],
    ids=["from the ground", "the lowest priority counts", "further on", "a higher priority says nothing of the lower"],
)
def test_a_floor_rises_over_what_was_claimed(
    cursor: ClaimCursor, claimed: list[tuple[int, int]], priority: int, number: int
) -> None:
    now = advanced(cursor, taken(*claimed), began=1.0, now=1.01)

    assert (now.priority, now.number) == (priority, number)


@pytest.mark.parametrize(("took", "holds"), [(0.001, LEAST), (0.1, 2.0), (5.0, MOST)])
def test_the_whole_is_looked_at_again_in_time_for_what_a_look_costs(took: float, holds: float) -> None:
    cursor = advanced(START, taken((0, 1)), began=100.0, now=100.0 + took)

    assert cursor.holds(100.0 + took + holds - 0.01)
    assert not cursor.holds(100.0 + took + holds + 0.01)


def test_a_floor_does_not_last_longer_by_being_used() -> None:
    cursor = advanced(START, taken((0, 1)), began=1.0, now=1.0)

    assert advanced(cursor, taken((0, 2)), began=1.4, now=1.4).until == cursor.until


def test_jobs_whose_rows_are_mostly_the_same_share_nothing_that_changes() -> None:
    row = tuple(ROW.values())
    one, other = job_of(row), job_of((8, *row[1:]))

    assert (one.job_id, other.job_id) == ("j000000000007", "j000000000008")
    assert vars(one) is not vars(other)
    assert replace(other, job_id=one.job_id) == one
