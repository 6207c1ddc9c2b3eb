"""Panels for two load modes: the search for the maximum number of connections, and the throughput controller."""

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from drumbeat.bench.model import STABLE, LiveRun, LoadMode, RunPlan
from drumbeat.web.pages.components import FigureTile, PageTable, TableColumn, tiles
from drumbeat.web.pages.element_names import set_attribute
from drumbeat.web.pages.plain_words import MAXIMUM_TYPES, SEARCH_STAGES, STEP_OUTCOMES, plain
from drumbeat.web.pages.run_live.figures import ms, number, percent
from drumbeat.web.pages.run_live.knee import SearchResultPanel, answer
from drumbeat.web.snapshot_sections import find_max, qps_controller

Section = Mapping[str, Any]


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f} %"


STEPS: list[TableColumn] = [
    TableColumn(name="step", read=lambda step: f"{step['n']}{'*' if step['is_probe'] else ''}"),
    TableColumn(name="connections", read=lambda step: step["to_target"], number=True),
    TableColumn(name="qps", label="ops/s", read=lambda step: number(step["qps"]), number=True),
    TableColumn(
        name="qps_change", label="ops/s vs last stable step", read=lambda step: _signed(step["qps_vs_prior"]), number=True
    ),
    TableColumn(name="p95", read=lambda step: ms(step["p95_ms"]), number=True),
    TableColumn(name="p95_change", label="p95 vs first step", read=lambda step: _signed(step["p95_vs_baseline"]), number=True),
    TableColumn(name="p99", read=lambda step: ms(step["p99_ms"]), number=True),
    TableColumn(name="errors", label="error rate", read=lambda step: percent(step["error_rate"]), number=True),
    TableColumn(name="outcome", read=lambda step: plain(STEP_OUTCOMES, step["outcome"])),
    TableColumn(name="reason", read=lambda step: step["reason"]),
]


def steps_table() -> PageTable:
    return PageTable("Steps", STEPS, lambda step: str(step["n"]))


_TILES = (
    "step", "current connections", "next connections", "step ends in", "baseline p95", "last p95", "best so far",
    "saturation point (knee)",
)  # fmt: skip


def knee_words(section: Section) -> str | None:
    """Return the knee (number of connections where throughput stops growing), or its range so far; None if nothing is known."""
    found, best = section["knee"], section["best"]
    if found:
        saturation = found.get("saturation")
        linear = f" (linear scaling would need {number(saturation)})" if saturation else ""
        return f"{found['connections']} connections{linear}"
    if section["result"] or not best:
        return "not reached" if section["badge"] == "BOUNDED_MAX" else None
    failed = [step["to_target"] for step in section["steps"] if step["outcome"] not in (None, STABLE)]
    above = min((each for each in failed if each > best["connections"]), default=None)
    return f"above {best['connections']} connections" if above is None else f"{best['connections']} to {above} connections"


class FindMaxPanel:
    """Shows the search for the maximum number of connections: result, charts, key figures and steps."""

    def __init__(self) -> None:
        with ui.card().props("flat bordered").classes("w-full"):
            with ui.row().classes("items-center"):
                ui.label("Find max connections").classes("text-h6").props("role=heading aria-level=2")
                self._badge = ui.badge("", text_color="white").props('aria-label="Type of maximum"').classes("q-pa-xs")
            self._knee = SearchResultPanel()
            self._message = ui.label().classes("text-weight-medium")
            with tiles():
                self._tiles = {name: FigureTile(name) for name in _TILES}
            self._limits = ui.label().classes("text-caption faint")
            self._steps = steps_table()

    def show(self, watched: LiveRun) -> None:
        section = find_max(watched)
        if section is None:
            return
        self._knee.show(section)
        best, baseline, last = (section[name] or {} for name in ("best", "baseline", "last"))
        countdown = section["countdown_seconds"]
        values = {
            "step": ": ".join(str(each) for each in (section["step"] or "–", plain(SEARCH_STAGES, section["status"])) if each),
            "current connections": section["connections"],
            "next connections": section["next_connections"],
            "step ends in": None if countdown is None else f"{countdown:.0f} s",
            "baseline p95": ms(baseline.get("p95_ms")),
            "last p95": ms(last.get("p95_ms")),
            "best so far": f"{best['connections']} connections at {number(best['qps'])} ops/s" if best else None,
            "saturation point (knee)": knee_words(section),
        }
        for name, value in values.items():
            self._tiles[name].show(value)
        self._show_texts(section)
        self._steps.show(section["steps"])

    def _show_texts(self, section: Section) -> None:
        limits = section["limits"]
        self._limits.text = (
            f"A step is stable if p95 is within {limits['latency_pct']:g} % of the first step, throughput within "
            f"{limits['qps_pct']:g} % of the last stable step, and the error rate below {limits['error_pct']:g} %. "
            "* = extra step that verifies or narrows down the maximum"
        )
        self._message.text = section["message"] or ""
        self._message.set_visibility(bool(section["message"]) and section["message"] != answer(section))
        self._badge.set_visibility(bool(section["badge"]))
        self._badge.text = plain(MAXIMUM_TYPES, section["badge"]) or ""
        set_attribute(self._badge, "color", "warning" if section["badge"] == "BOUNDED_MAX" else "positive")


HISTORY: list[TableColumn] = [
    TableColumn(name="time", label="time (UTC)", read=lambda step: step["ended_at"]),
    TableColumn(name="change", read=lambda step: f"{step['from_target']} → {step['to_target']} connections"),
    TableColumn(name="qps", label="ops/s", read=lambda step: number(step["qps"]), number=True),
    TableColumn(name="outcome", read=lambda step: plain(STEP_OUTCOMES, step["outcome"])),
    TableColumn(name="reason", read=lambda step: step["reason"]),
]


class QpsPanel:
    """Shows the throughput controller: deviation from the target, connections, workers and latest changes."""

    def __init__(self) -> None:
        with ui.card().props("flat bordered").classes("w-full"):
            ui.label("Throughput controller").classes("text-h6").props("role=heading aria-level=2")
            with tiles():
                names = ("target ops/s", "current ops/s", "deviation", "target connections", "target workers", "next check in")
                self._tiles = {name: FigureTile(name) for name in names}
            self._history = PageTable("Load changes", HISTORY, lambda step: str(step["n"]))

    def show(self, watched: LiveRun) -> None:
        section = qps_controller(watched)
        if section is None:
            return
        wait = section["next_evaluation_seconds"]
        values = {
            "target ops/s": number(section["target_qps"]),
            "current ops/s": number(section["current_qps"]),
            "deviation": _signed(section["error_pct"]),
            "target connections": section["connections"],
            "target workers": section["workers"],
            "next check in": None if wait is None else f"{wait:.0f} s",
        }
        for name, value in values.items():
            self._tiles[name].show(value)
        self._history.show(list(reversed(section["history"])))


def mode_panel(plan: RunPlan) -> FindMaxPanel | QpsPanel | None:
    """Add the panel for a plan's load mode; None for a fixed number of connections."""
    match plan.load_mode:
        case LoadMode.FIND_MAX_CONCURRENCY:
            return FindMaxPanel()
        case LoadMode.QPS:
            return QpsPanel()
    return None
