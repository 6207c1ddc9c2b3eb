"""The answer of a search for the most connections, in a sentence and as charts by level: live and finished."""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from drumbeat.bench.model import STABLE, Point
from drumbeat.web.pages.run_live.charts import ChartLine, LimitLine, LiveChart, options
from drumbeat.web.pages.run_live.figures import ms, number

Told = Mapping[str, Any]
_HELD = "HELD"  #: a level that was kept longer, not judged again
_LAW_POINTS = 60


def answer(told: Told) -> str:
    """What the search found; while it goes on, what it has found so far."""
    found, best = told["result"], told["best"]
    if found and found.get("best_connections") is not None:
        level = _level(found["best_connections"], found.get("best_qps"), found.get("best_p95_ms"))
        return f"{'Most within its bounds' if found.get('bounded') else 'Most that is stable'}: {level}"
    if found:
        return str(told["message"] or "No stable level")
    return f"So far: {_level(best['connections'], best['qps'], best.get('p95_ms'))}" if best else "No level is stable yet"


def _level(connections: float, qps: float | None, p95_ms: float | None) -> str:
    return f"{connections:g} connections at {number(qps)} operations/s, p95 {ms(p95_ms)}"


def throughput_by_level(told: Told) -> dict[str, Any]:
    """Every level that was measured, the best of them, and the fitted scalability law once there is one."""
    judged = [step for step in told["steps"] if step["outcome"] not in (None, _HELD)]
    lines = [
        ChartLine(name="stable", points=_points(judged, "qps", stable=True), dots=True),
        ChartLine(name="not stable", points=_points(judged, "qps", stable=False), dots=True),
        ChartLine(name="scalability law, fitted", points=_law(told, judged), dashed=True),
    ]
    return options(_known(lines), unit="operations/s", across="connections", limits=_best(told))


def latency_by_level(told: Told) -> dict[str, Any]:
    judged = [step for step in told["steps"] if step["outcome"] not in (None, _HELD)]
    lines = [ChartLine(name=name, points=_points(judged, f"{name}_ms"), dots=True) for name in ("p95", "p99")]
    return options(_known(lines), unit="ms", across="connections", limits=_best(told))


def _points(steps: Sequence[Told], field: str, *, stable: bool | None = None) -> list[Point]:
    wanted = [step for step in steps if stable is None or (step["outcome"] == STABLE) is stable]
    return sorted((float(step["to_target"]), step[field]) for step in wanted if step[field] is not None)


def _known(lines: Sequence[ChartLine]) -> list[ChartLine]:
    """At least one line, so that the chart has its axes."""
    return [line for line in lines if line.points] or [lines[0]]


def _best(told: Told) -> list[LimitLine]:
    best = (told["result"] or {}).get("best_connections") or (told["best"] or {}).get("connections")
    return [LimitLine(name=f"best {best:g}", level=best, upright=True)] if best else []


def _law(told: Told, steps: Sequence[Told]) -> list[Point]:
    """X(N) = λN / (1 + σ(N−1) + κN(N−1)), over the levels that were tried."""
    usl = (told["result"] or {}).get("usl") or {}
    if not all(isinstance(usl.get(name), int | float) for name in ("lambda", "sigma", "kappa")):
        return []
    highest = max((step["to_target"] for step in steps), default=0)
    levels = [max(highest * n / _LAW_POINTS, 1.0) for n in range(1, _LAW_POINTS + 1)]
    return [(n, usl["lambda"] * n / (1 + usl["sigma"] * (n - 1) + usl["kappa"] * n * (n - 1))) for n in levels]


class Knee:
    """The answer and its charts."""

    def __init__(self) -> None:
        self._answer = ui.label().classes("text-h5").props('role=status aria-label="Answer"')
        with ui.element("div").classes("chart-grid w-full"):
            self._charts = {"Throughput by connections": throughput_by_level, "Latency by connections": latency_by_level}
            self._drawn = {name: LiveChart(name) for name in self._charts}

    def show(self, told: Told) -> None:
        self._answer.text = answer(told)
        for name, chart in self._drawn.items():
            chart.show(self._charts[name](told))
