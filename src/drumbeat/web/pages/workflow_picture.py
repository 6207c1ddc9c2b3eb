"""Draws the graph of a workflow as SVG: a column for each level, a box for each set of jobs, lines from parents to children."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby

from drumbeat.client import GraphBox, WorkflowGraph
from drumbeat.core.job import JobStatus
from drumbeat.core.plain import printable
from drumbeat.web.pages.plain_words import JOB_STATUSES

MOST_BOXES = 300  #: more boxes are not drawn; the table lists all of them
_WIDTH, _HEIGHT, _ACROSS, _BETWEEN, _MARGIN = 200, 64, 60, 14, 12
_LONGEST = 26  #: characters of a name that fit into a box
_COLOURS: Mapping[JobStatus, str] = {
    JobStatus.WAITING: "#8c959f",
    JobStatus.PENDING: "#1f5fa6",
    JobStatus.CLAIMED: "#c2700a",
    JobStatus.DONE: "#1b7a3d",
    JobStatus.POISONED: "#b3261e",
    JobStatus.CANCELLED: "#4b5560",
}
_STYLE = "text{font:13px system-ui,sans-serif;fill:#1f2328}.small{font-size:12px;fill:#4b5560}path{fill:none;stroke:#8c959f}"

Place = tuple[int, int]  #: the left upper corner of a box


def data_url(graph: WorkflowGraph) -> str:
    """Return the picture of a graph as the source of an image."""
    return f"data:image/svg+xml;base64,{b64encode(drawn(graph).encode()).decode()}"


def drawn(graph: WorkflowGraph) -> str:
    """Return the picture of a graph as SVG."""
    boxes = graph.boxes[:MOST_BOXES]
    places = _places(boxes)
    width = max((left for left, _ in places), default=0) + _WIDTH + _MARGIN
    height = max((top for _, top in places), default=0) + _HEIGHT + _MARGIN
    lines = "".join(_line(places[parent], places[child]) for parent, child in graph.links if child < len(boxes))
    drawn_boxes = "".join(part for box, place in zip(boxes, places, strict=True) for part in _box(box, *place))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f'<style>{_STYLE}</style><rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>{lines}{drawn_boxes}</svg>'
    )


def _places(boxes: Sequence[GraphBox]) -> list[Place]:
    """Return the place of each box. The boxes of a level form a column; all columns are centred beside the longest."""
    columns = [[*column] for _, column in groupby(boxes, key=lambda box: box.level)]
    tallest = max(map(len, columns), default=0)
    return [
        (
            _MARGIN + column * (_WIDTH + _ACROSS),
            _MARGIN + (tallest - len(members)) * (_HEIGHT + _BETWEEN) // 2 + row * (_HEIGHT + _BETWEEN),
        )
        for column, members in enumerate(columns)
        for row in range(len(members))
    ]


def _line(parent: Place, child: Place) -> str:
    x1, y1, x2, y2 = parent[0] + _WIDTH, parent[1] + _HEIGHT // 2, child[0], child[1] + _HEIGHT // 2
    middle = (x1 + x2) // 2
    return f'<path d="M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"/>'


def _box(box: GraphBox, left: int, top: int) -> Iterator[str]:
    name = printable(box.type or (box.job_ids[0] if box.total == 1 else "jobs"))  # XML allows no control characters
    states = ", ".join(f"{count:,} {JOB_STATUSES[status]}" for status, count in _counted(box))
    state = next((JOB_STATUSES[status] for status in box.counts), "") if box.total == 1 else states
    many = f"{box.total:,} jobs · " if box.total > 1 else ""
    border = _COLOURS[JobStatus.POISONED] if box.counts.get(JobStatus.POISONED) else "#8c959f"
    yield f"<g><title>{escape(f'{name} in {box.pool_id}: {states}')}</title>"
    yield f'<rect x="{left}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="#f6f8fa" stroke="{border}"/>'
    yield f'<text x="{left + 8}" y="{top + 18}" font-weight="600">{_short(name)}</text>'
    yield f'<text x="{left + 8}" y="{top + 35}" class="small">{_short(f"{many}{box.pool_id}")}</text>'
    yield f'<text x="{left + 8}" y="{top + 51}" class="small">{_short(state)}</text>'
    start = float(left)
    for status, count in _counted(box):
        wide = _WIDTH * count / box.total
        yield f'<rect x="{start:.1f}" y="{top + _HEIGHT - 6}" width="{wide:.1f}" height="6" fill="{_COLOURS[status]}"/>'
        start += wide
    yield "</g>"


def _counted(box: GraphBox) -> list[tuple[JobStatus, int]]:
    """Return the states of its jobs, the finished ones first."""
    order = [JobStatus.DONE, JobStatus.POISONED, JobStatus.CANCELLED, JobStatus.CLAIMED, JobStatus.PENDING, JobStatus.WAITING]
    return [(status, box.counts[status]) for status in order if box.counts.get(status)]


def _short(text: str) -> str:
    return escape(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")
