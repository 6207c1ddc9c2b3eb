"""Workflows on a memory store: chains, groups, parents' results, and whole subtrees."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from drumbeat.client import JobContext
from drumbeat.core.errors import InvalidInput, JobEnded, NotFound
from drumbeat.core.job import IfFailed, Job, JobId, JobStatus, NewJob
from drumbeat.core.pool import PoolId
from drumbeat.pool.flows import (
    cancel_subtree,
    cancel_workflow,
    chain,
    descendants,
    group,
    requeue_subtree,
    workflow_progress,
)
from drumbeat.pool.job_options import new_job
from drumbeat.pool.worker.context import JobFailure
from drumbeat.testing import TestPool, pool


@pytest.fixture
async def papers() -> AsyncIterator[TestPool]:
    async with pool("papers") as made:
        yield made


def job(name: str, **options: Any) -> NewJob:
    return NewJob(payload=name, job_id=JobId(name), **options)


async def add(payload: Any, context: JobContext) -> Any:
    """Return the payload and what the parents returned."""
    return [payload, *(parent.result for parent in await context.parents())]


def names(jobs: Sequence[Job]) -> list[str]:
    return [str(each.job_id) for each in jobs]


async def test_a_chain_runs_in_order_and_hands_results_on(papers: TestPool) -> None:
    ids = await papers.push_jobs(chain(new_job("a"), new_job("b"), new_job("c")))

    ran = await papers.run_until_empty(add)

    assert [each.job.job_id for each in ran] == [*ids]
    assert await papers.result(ids[-1]) == ["c", ["b", ["a"]]]


async def test_a_callback_runs_once_after_its_group(papers: TestPool) -> None:
    jobs = group(*(new_job(n) for n in range(5)), callback=new_job("sum", priority=9), workflow_id="flow")
    ids = await papers.push_jobs(jobs)
    before = await workflow_progress(papers.store, "flow")

    ran = await papers.run_until_empty(add)

    assert [each.job.payload for each in ran] == [0, 1, 2, 3, 4, "sum"]
    assert await papers.result(ids[-1]) == ["sum", [0], [1], [2], [3], [4]]
    assert (before.total, before.ended, before.share) == (6, 0, 0.0)
    assert (await workflow_progress(papers.store, "flow")).share == 1.0


async def test_a_stage_of_a_chain_may_be_a_list(papers: TestPool) -> None:
    await papers.push_jobs(chain(new_job("a"), [new_job("b"), new_job("c")], new_job("d")))

    ran = await papers.run_until_empty(add)

    assert [each.job.payload for each in ran] == ["a", "b", "c", "d"]


def test_an_empty_stage_is_refused() -> None:
    with pytest.raises(InvalidInput, match="got none in stage 2; leave the stage out"):
        chain(job("a"), [], job("b"))


def test_an_empty_workflow_id_is_refused() -> None:
    for make in (chain, group):
        with pytest.raises(InvalidInput, match="expected workflow_id to be text that is not empty"):
            make(job("a"), workflow_id="")


async def test_options_are_checked() -> None:
    assert new_job(1, after=["a"], after_any=True, if_failed="skip", workflow_id="w") == NewJob(
        payload=1, after=(JobId("a"),), after_any=True, if_failed=IfFailed.SKIP, workflow_id="w"
    )
    with pytest.raises(InvalidInput, match="expected after to be a list of job ids, got 'a'"):
        new_job(1, after="a")
    with pytest.raises(InvalidInput, match="expected if_failed to be one of block, skip, run, got 'stop'"):
        new_job(1, if_failed="stop")
    with pytest.raises(InvalidInput, match="expected after_any to be true or false, got 1"):
        new_job(1, after_any=1)


async def test_a_missing_parent_is_refused_by_a_pool(papers: TestPool) -> None:
    with pytest.raises(NotFound, match="there is no job 'nobody' to wait for"):
        await papers.push(1, after=["nobody"])


async def test_explain_says_what_a_job_waits_for(papers: TestPool) -> None:
    await papers.push_jobs([job("a"), job("b"), job("c"), job("d", after=(JobId("a"), JobId("b"), JobId("c")))])

    async def fail_b(payload: Any) -> None:
        if payload == "b":
            raise JobFailure("no luck", fatal=True)

    assert (await papers.explain("d")).why == "waiting"
    await papers.run_until_empty(fail_b)

    assert str(await papers.explain("d")) == "d is waiting: it waits for 1 of 3 jobs: b (poisoned); requeue b to go on"


async def test_explain_says_why_a_job_was_skipped(papers: TestPool) -> None:
    await papers.push_jobs([job("a"), job("b", after=(JobId("a"),), if_failed=IfFailed.SKIP)])

    await papers.cancel("a")

    assert "skipped, because job a was cancelled" in str(await papers.explain("b"))
    with pytest.raises(JobEnded, match="skipped, because job a was cancelled"):
        await papers.result("b")


async def test_a_whole_workflow_is_cancelled(papers: TestPool) -> None:
    run_anyway = job("c", after=(JobId("b"),), if_failed=IfFailed.RUN, workflow_id="flow")
    await papers.push_jobs([*chain(job("a"), job("b"), workflow_id="flow"), run_anyway, job("other")])

    cancelled = await cancel_workflow(papers.store, "flow")

    assert sorted(names(cancelled)) == ["a", "b", "c"]
    assert (await workflow_progress(papers.store, "flow")).counts == {JobStatus.CANCELLED: 3}
    assert [each.job.job_id for each in await papers.run_until_empty(add)] == ["other"]


async def test_a_subtree_is_cancelled_and_requeued_in_order(papers: TestPool) -> None:
    a, b, c = (JobId(name) for name in "abc")
    jobs = [job("a"), job("b", after=(a,)), job("c", after=(a, b)), job("d", after=(c, b)), job("other")]
    await papers.push_jobs(jobs)
    assert names(await descendants(papers.store, a)) == ["a", "b", "c", "d"]

    assert sorted(names(await cancel_subtree(papers.store, a))) == ["a", "b", "c", "d"]
    assert names(await requeue_subtree(papers.store, a)) == ["a", "b", "c", "d"]

    ran = await papers.run_until_empty(add)
    assert [each.job.job_id for each in ran if each.job.job_id != "other"] == ["a", "b", "c", "d"]


async def test_jobs_can_be_added_to_a_running_workflow(papers: TestPool) -> None:
    async def add_one(payload: Any, context: JobContext) -> Any:
        if payload == "first":
            await papers.push("more", after=[context.job_id], workflow_id="flow")
        return payload

    await papers.push("first", workflow_id="flow")

    ran = await papers.run_until_empty(add_one)

    assert [each.job.payload for each in ran] == ["first", "more"]
    assert (await workflow_progress(papers.store, "flow")).total == 2


async def test_a_handler_in_a_thread_reads_its_parents() -> None:
    found = Job(job_id=JobId("p"), pool_id=PoolId("p"), payload=1, result=7)
    context = JobContext(Job(job_id=JobId("c"), pool_id=PoolId("p"), payload=1, if_failed=IfFailed.BLOCK))

    async def read(job_id: JobId) -> Sequence[Job]:
        assert job_id == "c"
        return [found]

    context.read_parents_by(read, asyncio.get_running_loop())

    assert await asyncio.to_thread(context.parents_blocking) == [found]
    assert await asyncio.to_thread(asyncio.run, context.parents()) == [found]


async def test_a_handler_without_a_store_is_told_that_it_cannot_read_parents() -> None:
    plain = JobContext(Job(job_id=JobId("c"), pool_id=PoolId("p"), payload=1))
    child = JobContext(Job(job_id=JobId("c"), pool_id=PoolId("p"), payload=1, if_failed=IfFailed.BLOCK))

    assert (await plain.parents(), plain.parents_blocking()) == ((), ())
    with pytest.raises(InvalidInput, match="its worker has no access to the store"):
        await child.parents()
