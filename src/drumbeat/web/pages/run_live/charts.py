"""The charts of a run, the same live and afterwards; readable on light and dark backgrounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from drumbeat.bench.model import Curves, Point, RunPlan, Stretch
from drumbeat.web.pages.components import COLOURS
from drumbeat.web.pages.element_names import set_attribute, set_label
from drumbeat.web.pages.incremental_charts import GrowingChart
from drumbeat.web.pages.plain_words import PHASES, plain

INK, FAINT, BAND = "#7d8590", "rgba(125,133,144,.25)", "rgba(125,133,144,.08)"
OUTAGE_BAND = "rgba(196,69,59,.22)"
_MINUTES_FROM = 600.0  #: seconds of data above which the time axis is in minutes
_LABELS = ("insideStartTop", "insideEndTop")
_LOG_RATIO = 50.0  #: ratio of largest to smallest value above which the axis is logarithmic


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """One line of a chart; the x values of its points are seconds."""

    name: str
    points: Sequence[Point]
    dashed: bool = False
    dots: bool = False  #: whether to draw single points instead of a line


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitLine:
    """A limit in a chart: a horizontal line at a value, or with ``upright`` a vertical line."""

    name: str
    level: float
    upright: bool = False


def options(
    lines: Sequence[ChartLine],
    *,
    unit: str = "",
    phases: Sequence[Stretch] = (),
    outages: Sequence[Stretch] = (),
    limits: Sequence[LimitLine] = (),
    across: str | None = None,
    log: bool = False,
) -> dict[str, Any]:
    """Return the ECharts options of a chart. ``across``: name of the x axis if it is not time."""
    scale, title = _time_scale(lines) if across is None else (1.0, across)
    axis = {"axisLabel": {"color": INK}, "splitLine": {"lineStyle": {"color": FAINT}}, "nameTextStyle": {"color": INK}}
    series = [_series(line, scale) for line in lines]
    if series:
        series[0] |= {"markArea": _bands(phases, outages, scale), "markLine": _limits(limits)}
    return {
        "animation": False,
        "color": list(COLOURS),
        "grid": {"left": 58, "right": 16, "top": 36, "bottom": 40},
        "legend": {"textStyle": {"color": INK}, "top": 0, "type": "scroll"},
        "tooltip": {"trigger": "item" if across else "axis"},
        "xAxis": {"type": "value", "name": title, "nameLocation": "middle", "nameGap": 24, "min": 0, "max": "dataMax", **axis},
        "yAxis": {"type": "log" if log else "value", "name": unit, **({} if log else {"min": 0}), **axis},
        "series": series,
    }


def _time_scale(lines: Sequence[ChartLine]) -> tuple[float, str]:
    longest = max((line.points[-1][0] for line in lines if line.points), default=0.0)
    return (60.0, "minutes") if longest > _MINUTES_FROM else (1.0, "seconds")


def _series(line: ChartLine, scale: float) -> dict[str, Any]:
    """Return one ECharts series. Points are tuples: NiceGUI observes each list for changes, which is slow for many points."""
    return {
        "name": line.name,
        "type": "scatter" if line.dots else "line",
        "showSymbol": line.dots or len(line.points) == 1,
        "lineStyle": {"width": 1.5, "type": "dashed" if line.dashed else "solid"},
        "data": tuple((round(x / scale, 3), y) for x, y in line.points),
    }


def _bands(phases: Sequence[Stretch], outages: Sequence[Stretch], scale: float) -> dict[str, Any]:
    """Return the coloured bands behind a chart: the phases of the run, and in red the times when no operation succeeded."""
    total = max((each.ended for each in phases), default=0.0)
    drawn = [(each, BAND if n % 2 else "transparent", "insideTop") for n, each in enumerate(phases)]
    drawn += [(each, OUTAGE_BAND, "insideBottom") for each in outages]
    return {
        "silent": True,
        "label": {"color": INK, "fontSize": 10},
        "data": [
            [
                {
                    "name": plain(PHASES, each.name) if each.ended - each.began > total / 8 or colour == OUTAGE_BAND else "",
                    "xAxis": each.began / scale,
                    "itemStyle": {"color": colour},
                    "label": {"position": position},
                },
                {"xAxis": each.ended / scale},
            ]
            for each, colour, position in drawn
        ],
    }


def _limits(limits: Sequence[LimitLine]) -> dict[str, Any]:
    return {
        "silent": True,
        "symbol": "none",
        "label": {"color": INK, "formatter": "{b}"},
        "lineStyle": {"color": "#c4453b", "type": "dashed"},
        "data": [
            {"name": each.name, "xAxis": each.level}
            if each.upright
            else {"name": each.name, "yAxis": each.level, "label": {"position": _LABELS[n % len(_LABELS)]}}
            for n, each in enumerate(limits)
        ],
    }


def throughput(curves: Curves, plan: RunPlan) -> dict[str, Any]:
    lines = [_line(curves, "qps", "operations")]
    if any(y for _, y in curves.series.get("errors", ())):
        lines.append(_line(curves, "errors", "errors"))
    limits = [LimitLine(name=f"target {plan.qps.target_qps:g}", level=plan.qps.target_qps)] if plan.load_mode == "QPS" else []
    return options(lines, unit="operations/s", phases=curves.phases, outages=curves.outages, limits=limits)


def latency(curves: Curves, plan: RunPlan) -> dict[str, Any]:
    lines = [_line(curves, f"p{percent}_ms", f"p{percent}") for percent in (50, 95, 99)]
    known = [y for line in lines for _, y in line.points if y]
    log = bool(known) and max(known) > _LOG_RATIO * min(known)
    return options([_above_zero(line) for line in lines] if log else lines, unit="ms", phases=curves.phases, log=log)


def _above_zero(line: ChartLine) -> ChartLine:
    """Return the line without its zeros, which a logarithmic axis cannot show."""
    return ChartLine(name=line.name, points=[(x, y or None) for x, y in line.points])


def connections(curves: Curves, plan: RunPlan) -> dict[str, Any]:
    lines = [_line(curves, "held", "open"), ChartLine(name="target", points=curves.series.get("target", ()), dashed=True)]
    return options(lines, unit="connections", phases=curves.phases)


def resources(curves: Curves, plan: RunPlan) -> dict[str, Any]:
    rails = plan.guardrails
    limits = [
        LimitLine(name=f"CPU guardrail {rails.max_cpu_percent:g} %", level=rails.max_cpu_percent),
        LimitLine(name=f"memory guardrail {rails.max_memory_percent:g} %", level=rails.max_memory_percent),
    ]
    lines = [_line(curves, "cpu_percent", "CPU"), _line(curves, "memory_percent", "memory")]
    return options(lines, unit="% of host", phases=curves.phases, limits=limits if rails.enabled else ())


def _line(curves: Curves, key: str, name: str) -> ChartLine:
    return ChartLine(name=name, points=curves.series.get(key, ()))


CHARTS: Mapping[str, Any] = {
    "Throughput": throughput,
    "Latency": latency,
    "Connections": connections,
    "Worker host CPU and memory": resources,
}


class LiveChart:
    """A chart with a title; redrawing it sends only new points to the browser."""

    def __init__(self, name: str, drawn: Mapping[str, Any] | None = None, *, height: int = 260) -> None:
        with ui.card().props("flat bordered").classes("chart-card q-pa-sm"):
            ui.label(name).classes("text-subtitle2").props("role=heading aria-level=3")
            self.element = set_label(ui.echart(dict(drawn or options(()))).classes("w-full").props("role=img"), name)
            self.element.style["height"] = f"{height}px"
        self._growing = GrowingChart(self.element)

    def show(self, drawn: Mapping[str, Any]) -> None:
        """Draw the chart; only new points are sent."""
        self._growing.show(drawn)


class RunCharts:
    """The four charts of a run: throughput, latency, connections, and one for the CPU and memory of the hosts."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._drawn: Curves | None = None
        self._grid = ui.element("div").classes("chart-grid w-full")
        with self._grid:
            self._charts = {name: LiveChart(name) for name in CHARTS}

    def show(self, curves: Curves) -> None:
        """Draw the charts, if the curves have changed."""
        if curves is self._drawn:
            return
        self._drawn = curves
        for name, chart in self._charts.items():
            chart.show(CHARTS[name](curves, self._plan))
        set_attribute(self._grid, "data-drawn", len(curves.series))
