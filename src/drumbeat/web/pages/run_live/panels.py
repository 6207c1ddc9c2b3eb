"""What the load mode is doing: the search for the most, or the throughput that is held."""

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from drumbeat.bench.model import STABLE, LoadMode, RunPlan, Watched
from drumbeat.web.pages.components import FigureTile, PageTable, TableColumn, tiles
from drumbeat.web.pages.element_names import given
from drumbeat.web.pages.run_live.figures import ms, number, percent
from drumbeat.web.pages.run_live.knee import Knee, answer
from drumbeat.web.snapshot_sections import find_max, qps_controller

Told = Mapping[str, Any]


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f} %"


STEPS: list[TableColumn] = [
    TableColumn(name="step", read=lambda step: f"{step['n']}{'*' if step['is_probe'] else ''}"),
    TableColumn(name="connections", read=lambda step: step["to_target"], number=True),
    TableColumn(name="qps", label="QPS", read=lambda step: number(step["qps"]), number=True),
    TableColumn(name="qps_change", label="Δ QPS", read=lambda step: _signed(step["qps_vs_prior"]), number=True),
    TableColumn(name="p95", read=lambda step: ms(step["p95_ms"]), number=True),
    TableColumn(name="p95_change", label="Δ p95", read=lambda step: _signed(step["p95_vs_baseline"]), number=True),
    TableColumn(name="p99", read=lambda step: ms(step["p99_ms"]), number=True),
    TableColumn(name="errors", read=lambda step: percent(step["error_rate"]), number=True),
    TableColumn(name="outcome", read=lambda step: step["outcome"]),
    TableColumn(name="reason", read=lambda step: step["reason"]),
]


def steps_table() -> PageTable:
    return PageTable("Steps", STEPS, lambda step: str(step["n"]))


_TILES = ("step", "connections now", "next", "this step ends in", "baseline p95", "last p95", "best so far", "knee")


def knee_words(told: Told) -> str | None:
    """Where throughput stops growing: as it was found; until then, the levels it lies between; None: not known yet."""
    found, best = told["knee"], told["best"]
    if found:
        saturation = found.get("saturation")
        return f"{found['connections']}" + (f", saturated at {number(saturation)}" if saturation else "")
    if told["result"] or not best:
        return "not reached" if told["badge"] == "BOUNDED_MAX" else None
    failed = [step["to_target"] for step in told["steps"] if step["outcome"] not in (None, STABLE)]
    above = min((each for each in failed if each > best["connections"]), default=None)
    return f"above {best['connections']}" if above is None else f"{best['connections']} to {above}"


class FindMaxPanel:
    """The answer first, with its charts; then baseline, best, knee, countdown, the next level and every step."""

    def __init__(self) -> None:
        with ui.card().props("flat bordered").classes("w-full"):
            with ui.row().classes("items-center"):
                ui.label("Search for the most connections").classes("text-h6").props("role=heading aria-level=2")
                self._badge = ui.badge("", text_color="white").props('aria-label="Kind of maximum"').classes("q-pa-xs")
            self._knee = Knee()
            self._message = ui.label().classes("text-weight-medium")
            with tiles():
                self._tiles = {name: FigureTile(name) for name in _TILES}
            self._limits = ui.label().classes("text-caption faint")
            self._steps = steps_table()

    def show(self, seen: Watched) -> None:
        told = find_max(seen)
        if told is None:
            return
        self._knee.show(told)
        best, baseline, last = (told[name] or {} for name in ("best", "baseline", "last"))
        countdown = told["countdown_seconds"]
        values = {
            "step": f"{told['step'] or '–'} {told['status'] or ''}",
            "connections now": told["connections"],
            "next": told["next_connections"],
            "this step ends in": None if countdown is None else f"{countdown:.0f} s",
            "baseline p95": ms(baseline.get("p95_ms")),
            "last p95": ms(last.get("p95_ms")),
            "best so far": f"{best['connections']} at {number(best['qps'])}/s" if best else None,
            "knee": knee_words(told),
        }
        for name, value in values.items():
            self._tiles[name].show(value)
        self._words(told)
        self._steps.show(told["steps"])

    def _words(self, told: Told) -> None:
        limits = told["limits"]
        self._limits.text = (
            f"A step is stable while p95 stays within {limits['latency_pct']:g} % of the first, throughput within "
            f"{limits['qps_pct']:g} % of the last stable one, and errors below {limits['error_pct']:g} %. * a probe."
        )
        self._message.text = told["message"] or ""
        self._message.set_visibility(bool(told["message"]) and told["message"] != answer(told))
        self._badge.set_visibility(bool(told["badge"]))
        self._badge.text = told["badge"] or ""
        given(self._badge, "color", "warning" if told["badge"] == "BOUNDED_MAX" else "positive")


HISTORY: list[TableColumn] = [
    TableColumn(name="at", read=lambda step: step["ended_at"]),
    TableColumn(name="change", read=lambda step: f"{step['from_target']} → {step['to_target']} connections"),
    TableColumn(name="qps", label="QPS", read=lambda step: number(step["qps"]), number=True),
    TableColumn(name="outcome", read=lambda step: step["outcome"]),
    TableColumn(name="reason", read=lambda step: step["reason"]),
]


class QpsPanel:
    """The throughput controller: how far off it is, what it holds, when it looks next, its last changes."""

    def __init__(self) -> None:
        with ui.card().props("flat bordered").classes("w-full"):
            ui.label("Throughput controller").classes("text-h6").props("role=heading aria-level=2")
            with tiles():
                names = ("target QPS", "now", "off by", "connections asked for", "workers asked for", "next look in")
                self._tiles = {name: FigureTile(name) for name in names}
            self._history = PageTable("Changes", HISTORY, lambda step: str(step["n"]))

    def show(self, seen: Watched) -> None:
        told = qps_controller(seen)
        if told is None:
            return
        wait = told["next_evaluation_seconds"]
        values = {
            "target QPS": number(told["target_qps"]),
            "now": number(told["current_qps"]),
            "off by": _signed(told["error_pct"]),
            "connections asked for": told["connections"],
            "workers asked for": told["workers"],
            "next look in": None if wait is None else f"{wait:.0f} s",
        }
        for name, value in values.items():
            self._tiles[name].show(value)
        self._history.show(list(reversed(told["history"])))


def mode_panel(plan: RunPlan) -> FindMaxPanel | QpsPanel | None:
    """The panel of a plan's load mode; a fixed number of connections needs none."""
    match plan.load_mode:
        case LoadMode.FIND_MAX_CONCURRENCY:
            return FindMaxPanel()
        case LoadMode.QPS:
            return QpsPanel()
    return None
