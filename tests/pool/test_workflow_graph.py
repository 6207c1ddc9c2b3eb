"""Graphs of workflows: levels, boxes and links; a workflow of ten thousand jobs stays small and is read with few queries."""

from collections.abc import AsyncIterator, Sequence

import pytest

from drumbeat.core.errors import NotFound
from drumbeat.core.job import IfFailed, Job, JobId, JobStatus, NewJob
from drumbeat.core.pool import PoolId
from drumbeat.pool.flows import chain
from drumbeat.pool.job_options import new_job
from drumbeat.pool.workflow_graph import MOST_EXACT, WorkflowGraph, build_graph, sampled
from drumbeat.testing import TestPool, pool


@pytest.fixture
async def papers() -> AsyncIterator[TestPool]:
    async with pool("papers") as made:
        yield made


def job(name: str, kind: str = "t", *, linked: bool = False, status: JobStatus = JobStatus.PENDING) -> Job:
    policy = IfFailed.BLOCK if linked else None
    return Job(job_id=JobId(name), pool_id=PoolId("p"), payload=None, type=kind, if_failed=policy, status=status)


def shape(graph: WorkflowGraph) -> list[tuple[int, str, int]]:
    return [(box.level, box.type, box.total) for box in graph.boxes]


async def test_each_job_of_a_small_workflow_is_a_box(papers: TestPool) -> None:
    stages: Sequence[NewJob | Sequence[NewJob]] = [
        new_job(1, type="fetch"), [new_job(2, type="parse"), new_job(3, type="parse")], new_job(4, type="sum"),
    ]  # fmt: skip
    ids = await papers.push_jobs(chain(*stages, workflow_id="w"))

    graph = await papers.workflow_graph("w")

    assert shape(graph) == [(0, "fetch", 1), (1, "parse", 1), (1, "parse", 1), (2, "sum", 1)]
    assert graph.links == ((0, 1), (0, 2), (1, 3), (2, 3))
    assert [box.job_ids for box in graph.boxes] == [(each,) for each in ids]
    assert (graph.progress.counts, graph.is_sampled) == ({"pending": 1, "waiting": 3}, False)
    with pytest.raises(NotFound, match="there is no workflow 'nothing'"):
        await papers.workflow_graph("nothing")


async def test_many_jobs_of_one_level_and_type_are_one_box_that_names_a_poisoned_one(papers: TestPool) -> None:
    await papers.push_jobs(chain([new_job(n, type="fetch") for n in range(50)], new_job(0, type="sum"), workflow_id="w"))

    def fail_one(payload: int) -> int:
        return 1 // payload

    await papers.run_until_empty({"fetch": fail_one})
    graph = await papers.workflow_graph("w")

    assert shape(graph) == [(0, "fetch", 50), (1, "sum", 1)]
    assert graph.boxes[0].counts == {"done": 49, "poisoned": 1}
    assert (await papers.job(graph.boxes[0].job_ids[0])).status is JobStatus.POISONED
    assert graph.links == ((0, 1),)


async def test_links_are_read_once_and_states_each_time(papers: TestPool, monkeypatch: pytest.MonkeyPatch) -> None:
    await papers.push_jobs(chain(new_job(1), new_job(2), new_job(3), workflow_id="w"))
    await papers.workflow_graph("w")

    async def refuse(job_id: JobId) -> Sequence[Job]:
        raise AssertionError(f"the links of {job_id} are known")

    monkeypatch.setattr(papers.store.jobs, "parents", refuse)
    await papers.run_until_empty(lambda payload: payload)

    assert (await papers.workflow_graph("w")).progress.share == 1.0


def big_workflow(many: int) -> tuple[list[Job], dict[JobId, list[JobId]]]:
    """A first job, a hundred after it, many after each of these, and a last one after all."""
    jobs, links = [job("first", "start")], dict[JobId, list[JobId]]()

    def add(name: str, kind: str, parents: list[JobId]) -> JobId:
        jobs.append(job(name, kind, linked=True, status=JobStatus.WAITING))
        links[JobId(name)] = parents
        return JobId(name)

    middle = [add(f"m{n}", "split", [JobId("first")]) for n in range(100)]
    leaves = [add(f"{parent}-{n}", "work", [parent]) for parent in middle for n in range(many)]
    add("last", "sum", leaves)
    return jobs, links


def test_a_workflow_of_ten_thousand_jobs_is_four_boxes_from_few_links() -> None:
    jobs, links = big_workflow(98)

    some = sampled(jobs)
    graph = build_graph("w", jobs, {each.job_id: links[each.job_id] for each in some})

    assert len(jobs) == 9902
    assert len(some) <= MOST_EXACT
    assert shape(graph) == [(0, "start", 1), (1, "split", 100), (2, "work", 9800), (3, "sum", 1)]
    assert graph.links == ((0, 1), (1, 2), (2, 3))
    assert graph.is_sampled


def test_levels_do_not_depend_on_the_order_of_pushing() -> None:
    jobs, links = big_workflow(1)

    graph = build_graph("w", jobs[::-1], links)

    assert shape(graph) == [(0, "start", 1), (1, "split", 100), (2, "work", 100), (3, "sum", 1)]
    assert not graph.is_sampled


def test_parents_outside_the_workflow_are_no_part_of_its_graph() -> None:
    jobs = [job("a", linked=True), job("b", linked=True)]

    graph = build_graph("w", jobs, {JobId("a"): [JobId("elsewhere")], JobId("b"): []})

    assert (shape(graph), graph.links) == ([(0, "t", 1), (0, "t", 1)], ())
