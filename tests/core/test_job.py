"""Jobs told once are a sequence of jobs like any other; a job that failed waits, but never for ever."""

from datetime import timedelta

import pytest

from drumbeat.core.job import LONGEST_WAIT, Backoff, Job, JobId, JobStatus, JobsWithTemplate, NewJob, format_count, retry_delay
from drumbeat.core.pool import PoolId

LIKE = NewJob(payload=None, priority=3, type="t")
JOBS = JobsWithTemplate(["a", "b", "c"], LIKE)


def test_alike_jobs_differ_in_their_payloads_only() -> None:
    assert [*JOBS] == [NewJob(payload=payload, priority=3, type="t") for payload in "abc"]


def test_alike_jobs_are_counted_and_taken_by_their_place() -> None:
    assert len(JOBS) == 3
    assert JOBS[-1].payload == "c"
    assert [job.payload for job in JOBS[1:]] == ["b", "c"]
    assert not JobsWithTemplate([], LIKE)


@pytest.mark.parametrize(
    ("backoff", "failures", "wait"),
    [
        (Backoff(), 1, timedelta(seconds=1)),
        (Backoff(), 4, timedelta(seconds=8)),
        (Backoff(), 48, timedelta(minutes=10)),
        (Backoff(), 10_000, timedelta(minutes=10)),
        (Backoff(factor=1e300), 3, timedelta(minutes=10)),
        (Backoff(factor=float("inf")), 2, timedelta(minutes=10)),
        (Backoff(factor=float("nan")), 2, timedelta(minutes=10)),
        (Backoff(factor=-2.0), 2, timedelta()),
        (Backoff(first=timedelta()), 10_000, timedelta()),
        (Backoff(first=timedelta(), factor=float("inf")), 2, timedelta()),
        (Backoff(most=timedelta()), 48, timedelta()),
        (Backoff(first=timedelta.max, most=timedelta.max), 2, LONGEST_WAIT),
        (Backoff(jitter=float("nan")), 1, timedelta(seconds=1)),
    ],
)
def test_the_wait_grows_to_its_limit_however_many_failures_there_were(backoff: Backoff, failures: int, wait: timedelta) -> None:
    assert retry_delay(backoff, failures, 0.5) == wait


def test_chance_makes_the_wait_longer_or_shorter_by_the_jitters_share() -> None:
    waits = [retry_delay(Backoff(first=timedelta(seconds=100)), 1, chance) for chance in (0, 0.5, 1)]

    assert waits == [timedelta(seconds=each) for each in (90, 100, 110)]


@pytest.mark.parametrize(
    ("counts", "told"),
    [([0], "0"), ([9_999], "9,999"), ([10_000], "10,000+"), ([6_000, 7_000], "13,000"), ([10_000, 5], "10,005+")],
)
def test_a_count_that_stopped_says_so(counts: list[int], told: str) -> None:
    assert format_count(*counts) == told


@pytest.mark.parametrize("status", JobStatus)
def test_a_job_that_is_done_has_no_error_any_more(status: JobStatus) -> None:
    job = Job(job_id=JobId("j1"), pool_id=PoolId("p"), payload=1, status=status, last_error="first try")

    assert job.current_error == (None if status is JobStatus.DONE else "first try")
