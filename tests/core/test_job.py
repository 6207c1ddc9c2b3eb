"""Jobs told once are a sequence of jobs like any other."""

from drumbeat.core.job import AlikeJobs, NewJob

LIKE = NewJob(payload=None, priority=3, type="t")
JOBS = AlikeJobs(["a", "b", "c"], LIKE)


def test_alike_jobs_differ_in_their_payloads_only() -> None:
    assert [*JOBS] == [NewJob(payload=payload, priority=3, type="t") for payload in "abc"]


def test_alike_jobs_are_counted_and_taken_by_their_place() -> None:
    assert len(JOBS) == 3
    assert JOBS[-1].payload == "c"
    assert [job.payload for job in JOBS[1:]] == ["b", "c"]
    assert not AlikeJobs([], LIKE)
