"""The result of a search for the maximum number of connections: one sentence, and charts by number of connections."""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from drumbeat.bench.model import STABLE, Point
from drumbeat.web.pages.plain_words import counted
from drumbeat.web.pages.run_live.charts import ChartLine, LimitLine, LiveChart, options
from drumbeat.web.pages.run_live.figures import ms, number

Section = Mapping[str, Any]
_HELD = "HELD"  #: outcome of an undecided step: the search continues without a verdict on its number of connections
_LAW_POINTS = 60
_BOUNDED = "Max within the template's limits"


def answer(section: Section) -> str:
    """Return in one sentence what the search for the maximum number of connections has found, at the end or so far."""
    found, best = section["result"], section["best"]
    if found and found.get("best_connections") is not None:
        level = _level(found["best_connections"], found.get("best_qps"), found.get("best_p95_ms"))
        return f"{_BOUNDED if found.get('bounded') else 'Max stable'}: {level}"
    if found:
        return str(section["message"] or "No stable number of connections")
    if not best:
        return "No stable number of connections yet"
    return f"Best so far: {_level(best['connections'], best['qps'], best.get('p95_ms'))}"


def _level(connections: int, qps: float | None, p95_ms: float | None) -> str:
    return f"{counted(connections, 'connection')} at {number(qps)} operations/s, p95 {ms(p95_ms)}"


def throughput_by_level(section: Section) -> dict[str, Any]:
    """Return a chart of throughput by number of connections, with the best number and the fitted scalability law."""
    judged = [step for step in section["steps"] if step["outcome"] not in (None, _HELD)]
    lines = [
        ChartLine(name="stable", points=_points(judged, "qps", stable=True), dots=True),
        ChartLine(name="not stable", points=_points(judged, "qps", stable=False), dots=True),
        ChartLine(name="model curve (Universal Scalability Law)", points=_law(section, judged), dashed=True),
    ]
    return options(_known(lines), unit="operations/s", across="connections", limits=_best(section))


def latency_by_level(section: Section) -> dict[str, Any]:
    judged = [step for step in section["steps"] if step["outcome"] not in (None, _HELD)]
    lines = [ChartLine(name=name, points=_points(judged, f"{name}_ms"), dots=True) for name in ("p95", "p99")]
    return options(_known(lines), unit="ms", across="connections", limits=_best(section))


def _points(steps: Sequence[Section], field: str, *, stable: bool | None = None) -> list[Point]:
    selected = [step for step in steps if stable is None or (step["outcome"] == STABLE) is stable]
    return sorted((float(step["to_target"]), step[field]) for step in selected if step[field] is not None)


def _known(lines: Sequence[ChartLine]) -> list[ChartLine]:
    """Return the chart lines that have points; if none has, return the first line, so that the chart still has axes."""
    return [line for line in lines if line.points] or [lines[0]]


def _best(section: Section) -> list[LimitLine]:
    best = (section["result"] or {}).get("best_connections") or (section["best"] or {}).get("connections")
    return [LimitLine(name=f"best {best:g}", level=best, upright=True)] if best else []


def _law(section: Section, steps: Sequence[Section]) -> list[Point]:
    """Return points of the fitted Universal Scalability Law, X(N) = λN / (1 + σ(N−1) + κN(N−1)), N: connections."""
    usl = (section["result"] or {}).get("usl") or {}
    if not all(isinstance(usl.get(name), int | float) for name in ("lambda", "sigma", "kappa")):
        return []
    highest = max((step["to_target"] for step in steps), default=0)
    levels = [max(highest * n / _LAW_POINTS, 1.0) for n in range(1, _LAW_POINTS + 1)]
    return [(n, usl["lambda"] * n / (1 + usl["sigma"] * (n - 1) + usl["kappa"] * n * (n - 1))) for n in levels]


class SearchResultPanel:
    """Shows the result of the search for the maximum number of connections, with charts."""

    def __init__(self) -> None:
        self._answer = ui.label().classes("text-h5").props('role=status aria-label="Maximum connections found"')
        with ui.element("div").classes("chart-grid w-full"):
            self._charts = {"Throughput by connections": throughput_by_level, "Latency by connections": latency_by_level}
            self._drawn = {name: LiveChart(name) for name in self._charts}

    def show(self, section: Section) -> None:
        self._answer.text = answer(section)
        for name, chart in self._drawn.items():
            chart.show(self._charts[name](section))
