"""drumbeat pool workflow: the progress of a workflow and its jobs as a tree."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from drumbeat.cli.options import JsonOption, StoreOption, with_control_plane
from drumbeat.cli.render import say, show_json
from drumbeat.client import GraphBox, JobStatus, WorkflowGraph

app = typer.Typer()

_ANY_POOL = "default"  #: workflows are read through a pool, but reach the jobs of all pools


@app.command()
def workflow(
    workflow_id: Annotated[str, typer.Argument(metavar="WORKFLOW", help="Workflow id.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the progress of a workflow, and its jobs as a tree: a job stands below the job it waits for.

    Jobs of the same level, pool and type share a line if there are many. Cancel a workflow with:
    drumbeat pool cancel POOL --workflow WORKFLOW
    """
    found = with_control_plane(store, lambda plane: plane.pool(_ANY_POOL).workflow_graph(workflow_id))
    if as_json:
        show_json(graph_json(found))
        return
    for line in tree_lines(found):
        say(line)


def graph_json(graph: WorkflowGraph) -> dict[str, Any]:
    """Return a workflow as JSON: its progress, its boxes (groups of similar jobs), and which box waits for which (links)."""
    progress = graph.progress
    return {
        "workflow_id": progress.workflow_id,
        "jobs": progress.total,
        "ended": progress.ended,
        "share": progress.share,
        "counts": dict(progress.counts),
        "boxes": [asdict(box) | {"jobs": box.total} for box in graph.boxes],
        "links": graph.links,
        "is_sampled": graph.is_sampled,
    }


def tree_lines(graph: WorkflowGraph) -> Iterator[str]:
    """Yield lines: the workflow's progress, then a tree of its boxes (groups of similar jobs). A box stands below the last of
    the boxes that it waits for, and its line names the others."""
    progress = graph.progress
    shown = f"{progress.ended:,} of {progress.total:,} jobs have ended ({progress.share:.0%})"
    yield f"workflow {progress.workflow_id}: {shown}: {_counts(progress.counts)}"
    parents: dict[int, list[int]] = {}
    for parent, child in graph.links:
        parents.setdefault(child, []).append(parent)
    below: dict[int | None, list[int]] = {}
    for place in range(len(graph.boxes)):
        below.setdefault(max(parents.get(place, ()), default=None), []).append(place)
    stack = [(place, "") for place in reversed(below.get(None, []))]
    while stack:
        place, indent = stack.pop()
        others = sorted(parents.get(place, ()))[:-1]
        also = f" (also after {', '.join(_name(graph.boxes[other]) for other in others[:3])}{'…' * (len(others) > 3)})"
        yield f"{indent}{'└─ ' * bool(parents.get(place))}{_line(graph.boxes[place])}{also if others else ''}"
        deeper = f"{indent}{'   ' * bool(parents.get(place))}"
        stack += [(child, deeper) for child in reversed(below.get(place, []))]
    if graph.is_sampled:
        yield "which job waits for which was read for some jobs only, because there are many"


def _name(box: GraphBox) -> str:
    kind = f"{box.type or 'jobs'} in {box.pool_id}"
    return f"{kind} {box.job_ids[0]}" if box.total == 1 else f"{kind} × {box.total:,}"


def _line(box: GraphBox) -> str:
    failed = f", such as {box.job_ids[0]}" if box.total > 1 and box.counts.get(JobStatus.POISONED) else ""
    return f"{_name(box)}: {next(iter(box.counts)) if box.total == 1 else _counts(box.counts)}{failed}"


def _counts(counts: Mapping[JobStatus, int]) -> str:
    return ", ".join(f"{counts[status]:,} {status}" for status in JobStatus if counts.get(status))
