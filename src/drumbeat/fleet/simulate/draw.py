"""Draw a simulation: block characters for a terminal, SVG for a page."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil

from drumbeat.fleet.simulate.values import SimulatedSeries, SimulationResult

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH, _HEIGHT, _MARGIN = 960, 200, 40
_COLOURS = {"workers": "#4269d0", "busy": "#3ca951", "queued": "#ff725c"}


def as_text(series: SimulatedSeries, width: int = 72) -> list[str]:
    """Draw workers, busy workers and queued jobs over time as one line of blocks each, scaled to its maximum."""
    lines = {"workers": series.workers, "busy": series.busy, "queued": series.queued}
    return [
        f"{name:>8} {_blocks(_squeezed(series.at, values, width))} {max(values, default=0)}" for name, values in lines.items()
    ]


def _squeezed(at: Sequence[float], values: Sequence[int], width: int) -> list[float]:
    """Return the highest value in each of ``width`` equal time spans; a span without values repeats the span before it."""
    if not at:
        return [0.0] * width
    span = max(at[-1] - at[0], 1e-9)
    parts: list[float | None] = [None] * width
    for when, value in zip(at, values, strict=True):
        n = min(int((when - at[0]) / span * width), width - 1)
        parts[n] = max(parts[n] or 0.0, float(value))
    filled: list[float] = []
    for part in parts:
        filled.append(part if part is not None else filled[-1] if filled else 0.0)
    return filled


def _blocks(values: Sequence[float]) -> str:
    top = max(values) or 1.0
    return "".join(_BLOCKS[min(ceil(value * 8 / top), 8)] for value in values)


def as_svg(outcome: SimulationResult) -> str:
    """Draw a simulation as SVG: workers and busy workers in one plot, queued jobs in another."""
    series, most = outcome.series, max(outcome.most_workers, 1)
    panes = [
        _pane(0, "workers (busy below)", series.at, {"workers": series.workers, "busy": series.busy}, most),
        _pane(1, "queued jobs", series.at, {"queued": series.queued}, max([*series.queued, 1])),
    ]
    title = (
        f"{outcome.policy}: {outcome.jobs} jobs, {outcome.worker_hours:.1f} worker-hours, {outcome.cost_ratio:.2f} × oracle, "
        f"p95 wait {outcome.wait_p95_s:.0f} s"
    )
    height = 2 * (_HEIGHT + _MARGIN) + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + 2 * _MARGIN} {height}" '
        f'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{_MARGIN}" y="20" font-weight="bold">{title}</text>{"".join(panes)}</svg>\n'
    )


def _pane(n: int, label: str, at: Sequence[float], lines: dict[str, Sequence[int]], top: int) -> str:
    above = _MARGIN + n * (_HEIGHT + _MARGIN)
    drawn = "".join(_line(at, values, top, above, _COLOURS[name]) for name, values in lines.items())
    return (
        f'<text x="{_MARGIN}" y="{above - 4}" fill="#555">{label}, at most {top}</text>'
        f'<path d="M{_MARGIN} {above + _HEIGHT}h{_WIDTH}" stroke="#999"/>{drawn}'
    )


def _line(at: Sequence[float], values: Sequence[int], top: int, above: int, colour: str) -> str:
    if not at:
        return ""
    span = max(at[-1] - at[0], 1e-9)
    points = [
        (_MARGIN + (when - at[0]) / span * _WIDTH, above + _HEIGHT * (1 - value / top))
        for when, value in zip(at, values, strict=True)
    ]
    corners = [points[0], *(after for before, after in pairwise(points) if before[1] != after[1]), points[-1]]
    steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in corners[1:])
    return f'<path d="M{corners[0][0]:.1f} {corners[0][1]:.1f}{steps}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def as_page(outcome: SimulationResult) -> str:
    """Return an HTML page with the drawing of a simulation."""
    return f'<!doctype html><meta charset="utf-8"><title>{outcome.policy}</title>{as_svg(outcome)}'
