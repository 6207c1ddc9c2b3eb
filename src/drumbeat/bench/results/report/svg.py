"""Charts as SVG: lines, areas, bars and points over axes with units, with values as tooltips."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from drumbeat.bench.results.report import words
from drumbeat.bench.results.report.escape import markup
from drumbeat.bench.results.report.scale import Scale, even_ticks, log_ticks, time_ticks, upwards
from drumbeat.core.downsample import Point as Point, downsample

WIDTH, HEIGHT = 520, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 24, 38
_POINTS = 600  #: a line is drawn with at most this many points
_HOVERS = 120


class SeriesShape(StrEnum):
    """The shape in which a series is drawn."""

    LINE = "line"
    AREA = "area"
    BARS = "bars"
    POINTS = "points"


class Axis(StrEnum):
    """What the horizontal axis of a chart shows: time, or values on a linear or a logarithmic scale."""

    TIME = "time"  #: seconds since the run's start
    EVEN = "even"  #: linear, from zero
    LOG = "log"  #: logarithmic


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSeries:
    """One line, area or set of bars in a chart. ``colour`` is the number of a colour in the style sheet, from 1."""

    name: str
    points: Sequence[Point]
    colour: int
    shape: SeriesShape = SeriesShape.LINE
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A line across the chart: vertical at ``x``, or horizontal at ``y``."""

    label: str
    x: float | None = None
    y: float | None = None
    colour: int = 5
    drawn: str = ""  #: text beside a vertical line; ``label`` is the tooltip
    below: bool = False  #: text under a horizontal line, not above it


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A named part of the time axis, drawn as a background, for example a phase."""

    label: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The data and labels of a chart, to be drawn by ``figure``."""

    title: str
    unit: str  #: of the vertical axis
    series: Sequence[ChartSeries]
    across: str = "time since start (min:s)"
    axis: Axis = Axis.TIME
    log: bool = False
    whole: bool = False  #: ticks are whole numbers only
    marks: Sequence[Mark] = ()
    bands: Sequence[Band] = ()

    @property
    def is_empty(self) -> bool:
        return not any(y is not None for series in self.series for _, y in series.points)


def figure(chart: Chart) -> str:
    """Draw a chart with its title and legend as HTML; empty if it has no values."""
    if chart.is_empty:
        return ""
    legend = "".join(f'<li class="c{each.colour}"><i></i>{markup(each.name)}</li>' for each in chart.series)
    caption = f"<figcaption>{markup(chart.title)}</figcaption>"
    return f'<figure>{caption}<ul class="legend">{legend}</ul>{svg(chart)}</figure>'


def svg(chart: Chart) -> str:
    across, ticks = _across(chart)
    up, up_ticks = upwards(_heights(chart), HEIGHT - _BOTTOM, _TOP, log=chart.log, whole=chart.whole)
    parts = [
        *(_band(band, across) for band in chart.bands),
        *(_level_line(tick, up, chart.unit) for tick in up_ticks),
        *(_tick(tick, across, chart.axis) for tick in ticks),
        _titles(chart),
        *(part for series in chart.series for part in _shape(series, across, up)),
        *(_mark(mark, across, up, row) for row, mark in enumerate(chart.marks)),
        *_hovers(chart, across),
    ]
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{markup(chart.title)}">'
    return head + "".join(parts) + "</svg>"


def _heights(chart: Chart) -> list[float]:
    drawn = [y for series in chart.series for _, y in series.points if y is not None]
    return drawn + [mark.y for mark in chart.marks if mark.y is not None]


def _across(chart: Chart) -> tuple[Scale, list[float]]:
    xs = [x for series in chart.series for x, _ in series.points] + [mark.x for mark in chart.marks if mark.x is not None]
    low, high = min(xs), max(xs)
    begin, end = float(_LEFT), float(WIDTH - _RIGHT)
    if chart.axis is Axis.LOG and low > 0:
        ticks = log_ticks(low, high)
        return Scale(low=min(low, ticks[0]), high=max(high, ticks[-1]), begin=begin, end=end, log=True), ticks
    if chart.axis is Axis.TIME:
        return Scale(low=low, high=max(high, low + 1), begin=begin, end=end), time_ticks(low, max(high, low + 1))
    ticks = even_ticks(high, about=8)
    return Scale(low=0.0, high=ticks[-1], begin=begin, end=end), ticks


def _level_line(tick: float, up: Scale, unit: str) -> str:
    y = up.at(tick)
    line = f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text class="tick" x="{_LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{_short(tick)}</text>'


def _tick(tick: float, across: Scale, axis: Axis) -> str:
    text = _clock(tick) if axis is Axis.TIME else _short(tick)
    return f'<text class="tick" x="{across.at(tick):.1f}" y="{HEIGHT - _BOTTOM + 15}" text-anchor="middle">{text}</text>'


def _titles(chart: Chart) -> str:
    upright = f'<text class="unit" x="4" y="11">{markup(chart.unit)}</text>'
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    return f'{upright}<text class="unit" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{markup(chart.across)}</text>'


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h" if whole >= 36000 else f"{whole // 60}:{whole % 60:02d}"


def _short(value: float) -> str:
    """Return a number as a short tick label such as 15k or 20M."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if suffix == 'k' else size):g}{suffix}"
    return f"{value:g}" if value < 1e4 else words.number(value)


def _shape(series: ChartSeries, across: Scale, up: Scale) -> Iterator[str]:
    draw: Callable[[ChartSeries, Scale, Scale], Iterator[str]]
    match series.shape:
        case SeriesShape.BARS:
            draw = _bars
        case SeriesShape.POINTS:
            draw = _points
        case _:
            draw = _lines
    return draw(series, across, up)


def _lines(series: ChartSeries, across: Scale, up: Scale) -> Iterator[str]:
    """Draw a line through neighbouring points, interrupted where a value is missing; a point on its own becomes a dot."""
    dash = ' stroke-dasharray="5 4"' if series.dashed else ""
    for stretch in _stretches(series.points):
        places = [(across.at(x), up.at(y)) for x, y in stretch]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        if len(places) == 1:
            yield f'<circle class="c{series.colour} dot" cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="2"/>'
            continue
        if series.shape is SeriesShape.AREA:
            begin, end = (f"{x:.1f},{up.begin:.1f}" for x in (places[0][0], places[-1][0]))
            yield f'<polygon class="c{series.colour} area" points="{begin} {path} {end}"/>'
        yield f'<polyline class="c{series.colour} line" points="{path}"{dash}/>'


def _stretches(points: Sequence[Point]) -> Iterator[list[tuple[float, float]]]:
    for missing, group in groupby(points, key=lambda point: point[1] is None):
        if not missing:
            yield [(x, y) for x, y in downsample(list(group), _POINTS) if y is not None]


def _points(series: ChartSeries, across: Scale, up: Scale) -> Iterator[str]:
    for x, y in series.points:
        if y is not None:
            title = f"<title>{markup(f'{series.name}: {words.number(x)} → {words.number(y)}')}</title>"
            yield f'<circle class="c{series.colour} dot" cx="{across.at(x):.1f}" cy="{up.at(y):.1f}" r="4">{title}</circle>'


def _bars(series: ChartSeries, across: Scale, up: Scale) -> Iterator[str]:
    """Draw a bar from each point's x to the next point's x; the last point only ends the last bar."""
    for (x, y), (after, _) in zip(series.points, series.points[1:], strict=False):
        if y:
            left, right, top = across.at(x), across.at(after), up.at(y)
            title = f"<title>{markup(f'{words.number(x)} – {words.number(after)}: {words.number(y)}')}</title>"
            size = f'width="{max(right - left - 0.5, 0.5):.1f}" height="{max(up.begin - top, 0.5):.1f}"'
            yield f'<rect class="c{series.colour} bar" x="{left:.1f}" y="{top:.1f}" {size}>{title}</rect>'


def _band(band: Band, across: Scale) -> str:
    left, right = across.at(band.begin), across.at(band.end)
    if right - left < 1:
        return ""
    box = f'<rect class="band" x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" height="{HEIGHT - _BOTTOM - _TOP}"/>'
    fits = right - left > 8 * len(band.label) + 6
    return box + (f'<text class="tick" x="{left + 4:.1f}" y="{_TOP + 11}">{markup(band.label)}</text>' if fits else "")


def _mark(mark: Mark, across: Scale, up: Scale, row: int) -> str:
    title = f"<title>{markup(mark.label)}</title>"
    if mark.x is not None:
        x, high = across.at(mark.x), _TOP + 11 + 13 * (row % 4)
        side, text_x = ("end", x - 4) if x > WIDTH / 2 else ("start", x + 4)
        place = f'x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"'
        return f'<line class="c{mark.colour} mark" {place}>{title}</line>{_written(mark.drawn, text_x, high, side)}'
    y = up.at(mark.y or 0.0)
    place = f'x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
    text = _written(mark.label, WIDTH - _RIGHT - 4, y + 12 if mark.below else y - 4, "end")
    return f'<line class="c{mark.colour} mark" {place}>{title}</line>{text}'


def _written(text: str, x: float, y: float, side: str) -> str:
    return f'<text class="tick over" x="{x:.1f}" y="{y:.1f}" text-anchor="{side}">{markup(text)}</text>' if text else ""


def _hovers(chart: Chart, across: Scale) -> Iterator[str]:
    """Draw transparent columns that show the values of all series as tooltips."""
    lines = [series for series in chart.series if series.shape in (SeriesShape.LINE, SeriesShape.AREA)]
    xs = sorted({x for series in lines for x, _ in series.points})
    if chart.axis is not Axis.TIME or not xs:
        return
    values = [dict(series.points) for series in lines]
    step = -(-len(xs) // _HOVERS)
    width = (across.end - across.begin) / max(len(xs[::step]), 1)
    for x in xs[::step]:
        values_text = "\n".join(f"{each.name}: {words.number(v.get(x))}" for each, v in zip(lines, values, strict=True))
        place = f'x="{across.at(x) - width / 2:.1f}" y="{_TOP}" width="{width:.1f}" height="{HEIGHT - _BOTTOM - _TOP}"'
        yield f'<rect class="hover" {place}><title>{_clock(x)}\n{markup(values_text)}</title></rect>'
