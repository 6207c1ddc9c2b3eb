"""The options of a job: read as they were meant, or refused by name."""

from datetime import UTC, datetime
from typing import Any

import pytest

from drumbeat.core.errors import InvalidInput
from drumbeat.pool.job_options import new_job


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


@pytest.mark.parametrize("written", ["2026-01-01T12:00", "2026-01-01T12:00Z", "2026-01-01T13:00+01:00"])
def test_a_time_without_a_zone_is_utc(written: str) -> None:
    assert new_job(1, run_at=written).run_at == datetime(2026, 1, 1, 12, tzinfo=UTC)
