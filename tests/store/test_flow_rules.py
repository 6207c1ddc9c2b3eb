"""The rules of jobs that wait for other jobs, as a table."""

import pytest

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import IfFailed, JobId, JobStatus, JobsWithTemplate, NewJob
from drumbeat.store.flow_rules import (
    READY,
    SKIPPED,
    FlowState,
    ParentCounts,
    has_links,
    parents_first,
    state_after,
    state_when_requeued,
)


def waits(left: int) -> FlowState:
    return FlowState(JobStatus.WAITING, left)


@pytest.mark.parametrize(
    ("unfinished", "done", "failed", "after_any", "if_failed", "expected"),
    [
        (2, 1, 0, False, IfFailed.BLOCK, waits(2)),
        (0, 3, 0, False, IfFailed.BLOCK, READY),
        (0, 2, 1, False, IfFailed.BLOCK, waits(1)),
        (1, 1, 1, False, IfFailed.BLOCK, waits(2)),
        (1, 1, 1, False, IfFailed.SKIP, SKIPPED),
        (1, 1, 1, False, IfFailed.RUN, waits(1)),
        (0, 0, 3, False, IfFailed.RUN, READY),
        (2, 0, 0, True, IfFailed.BLOCK, waits(1)),
        (2, 1, 0, True, IfFailed.BLOCK, READY),
        (0, 0, 2, True, IfFailed.BLOCK, waits(1)),
        (1, 0, 1, True, IfFailed.SKIP, waits(1)),
        (0, 1, 1, True, IfFailed.SKIP, READY),
        (0, 0, 2, True, IfFailed.SKIP, SKIPPED),
        (1, 0, 1, True, IfFailed.RUN, READY),
        (0, 0, 0, False, IfFailed.BLOCK, READY),
        (0, 0, 0, True, IfFailed.SKIP, READY),
    ],
)
def test_the_state_of_a_job_follows_from_its_parents(
    unfinished: int, done: int, failed: int, after_any: bool, if_failed: IfFailed, expected: FlowState
) -> None:
    parents = ParentCounts(unfinished=unfinished, done=done, failed=failed)

    assert state_after(parents, after_any=after_any, if_failed=if_failed) == expected


def test_a_requeued_job_waits_for_a_failed_parent_instead_of_being_skipped_again() -> None:
    assert state_when_requeued(ParentCounts(failed=1), after_any=False, if_failed=IfFailed.SKIP) == waits(1)


def job(name: str, *after: str) -> NewJob:
    return NewJob(payload=None, job_id=JobId(name), after=tuple(map(JobId, after)))


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([job("a"), job("b"), job("c")], "abc"),
        ([job("c", "b"), job("b", "a"), job("a")], "abc"),
        ([job("d", "b", "c"), job("c", "a"), job("b", "a"), job("a"), job("e")], "abcde"),
        ([job("b", "elsewhere"), job("a")], "ba"),
    ],
)
def test_parents_come_first_and_the_others_stay_in_order(jobs: list[NewJob], expected: str) -> None:
    assert "".join(str(jobs[place].job_id) for place in parents_first(jobs)) == expected


def test_a_circle_is_named_in_the_order_in_which_the_jobs_wait() -> None:
    with pytest.raises(InvalidInput, match=r"circle, got (a → b → c → a|b → c → a → b|c → a → b → c) "):
        parents_first([job("b", "a"), job("c", "b"), job("a", "c")])


def test_a_long_chain_is_put_in_order() -> None:
    jobs = [job(str(n), str(n + 1)) for n in range(5000)]

    assert parents_first(jobs) == [*range(4999, -1, -1)]


def test_plain_jobs_have_no_links() -> None:
    assert not has_links([job("a")])
    assert has_links([job("a"), job("b", "a")])
    assert has_links(JobsWithTemplate([1, 2], job("b", "a")))
