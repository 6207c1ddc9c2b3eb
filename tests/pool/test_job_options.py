"""The options of a job: read as they were meant, or refused by name."""

from datetime import UTC, datetime
from typing import Any

import pytest

from drumbeat.core.errors import InvalidInput
from drumbeat.pool.job_options import job_from_line, new_job, new_jobs, one_job


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_attempts", 0),
        ("max_crashes", 0),
        ("group_limit", 0),
        ("group_rate", {"count": 0, "per": 60}),
        ("group_rate", {"count": 1, "per": 0}),
        ("delay", -1),
        ("timeout", 0),
        ("priority", 1.5),
        ("backoff", {"factor": 0.5}),
        ("run_at", "9999-01-01"),
        ("unique_key", "a\0b"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=option):
        new_job(1, **{option: value})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"group_limit": 2},
            "group_limit limits the jobs of a group: expected the option group too, got none; add it, or leave",
        ),
        (
            {"group": None, "group_rate": {"count": 1, "per": 60}},
            "group_rate limits the jobs of a group: expected the option group too",
        ),
        (
            {"after_any": True},
            "after_any says how to wait for other jobs: expected the option after too, got none; add it, or leave",
        ),
        ({"if_failed": "run"}, "if_failed says how to wait for other jobs: expected the option after too"),
    ],
)
def test_an_option_that_needs_another_one_is_refused_without_it(options: dict[str, Any], says: str) -> None:
    for make in (new_job, one_job, lambda payload, **given: new_jobs([payload], **given)):
        with pytest.raises(InvalidInput, match=f"^{says}"):
            make(1, **options)
    with pytest.raises(InvalidInput, match=f"^{says}"):
        job_from_line({"payload": 1, **options})


def test_options_that_ask_for_nothing_need_no_other_option() -> None:
    assert new_job(1, group=None, group_limit=None, group_rate=None, after_any=False) == new_job(1)
    assert new_job(1, after=[], after_any=True, if_failed="run").after_any


def test_a_listed_job_is_read_without_the_parents_it_had() -> None:
    job = job_from_line(
        {"payload": 1, "status": "done", "after_any": True, "if_failed": "run", "group_limit": 2, "priority": 3}
    )

    assert job == new_job(1, priority=3)


@pytest.mark.parametrize("option", ["type", "job_id", "unique_key", "group", "capability", "workflow_id"])
def test_a_text_of_more_than_1024_bytes_is_refused_by_name(option: str) -> None:
    longest: dict[str, Any] = {option: "x" * 1024}
    too_long: dict[str, Any] = {option: "x" * 1025}
    too_many_bytes: dict[str, Any] = {option: "ü" * 513}

    assert getattr(new_job(1, **longest), option) == "x" * 1024
    with pytest.raises(InvalidInput, match=f"expected {option} to be text of at most 1024 bytes .*, got 'xxx"):
        new_job(1, **too_long)
    with pytest.raises(InvalidInput, match=f"expected {option} to be text of at most 1024 bytes"):
        new_job(1, **too_many_bytes)


@pytest.mark.parametrize("option", ["job_id", "unique_key", "group", "workflow_id"])
def test_an_empty_key_is_refused_by_name(option: str) -> None:
    empty: dict[str, Any] = {option: ""}

    for make in (new_job, one_job, lambda payload, **given: new_jobs([payload], **given)):
        with pytest.raises(
            InvalidInput, match=f"^expected {option} to be text that is not empty .leave the option out .*got ''"
        ):
            make(1, **empty)
    with pytest.raises(InvalidInput, match=f"^expected {option} to be text that is not empty"):
        job_from_line({"payload": 1, **empty})


def test_an_empty_capability_is_none() -> None:
    assert new_job(1, capability="") == new_job(1, capability=None) == new_job(1)


@pytest.mark.parametrize("written", ["2026-01-01T12:00", "2026-01-01T12:00Z", "2026-01-01T13:00+01:00"])
def test_a_time_without_a_zone_is_utc(written: str) -> None:
    assert new_job(1, run_at=written).run_at == datetime(2026, 1, 1, 12, tzinfo=UTC)
