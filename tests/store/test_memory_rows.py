"""A changed copy of a job in memory has the new values, and all others of the job."""

from dataclasses import replace
from datetime import UTC, datetime

from drumbeat.core.job import Job, JobId, JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.store.memory.ready import changed_job

AT = datetime(2026, 1, 2, tzinfo=UTC)


def test_a_changed_job_is_the_job_with_other_values_and_leaves_it_as_it_is() -> None:
    job = Job(job_id=JobId("a"), pool_id=PoolId("p"), payload={"n": 1}, created_at=AT, priority=3, workflow_id="w")

    changed = changed_job(job, status=JobStatus.CLAIMED, claimed_at=AT, attempts=2)

    assert changed == replace(job, status=JobStatus.CLAIMED, claimed_at=AT, attempts=2)
    assert (job.status, job.claimed_at, job.attempts) == (JobStatus.PENDING, None, 0)
