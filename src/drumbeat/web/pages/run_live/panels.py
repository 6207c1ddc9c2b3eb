"""Panels for two load modes: the search for the maximum number of connections, and the throughput controller."""

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from drumbeat.bench.model import STABLE, LiveRun, LoadMode, RunPlan
from drumbeat.web.pages.components import FigureTile, PageTable, TableColumn, tiles
from drumbeat.web.pages.element_names import set_attribute
from drumbeat.web.pages.plain_words import MAXIMUM_TYPES, SEARCH_STAGES, STEP_OUTCOMES, counted, plain
from drumbeat.web.pages.run_live.figures import ms, number, percent
from drumbeat.web.pages.run_live.knee import SearchResultPanel, answer
from drumbeat.web.snapshot_sections import find_max, qps_controller

Section = Mapping[str, Any]


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f} %"


STEPS: list[TableColumn] = [
    TableColumn(name="step", read=lambda step: f"{step['n']}{'*' if step['is_probe'] else ''}"),
    TableColumn(name="connections", read=lambda step: step["to_target"], number=True),
    TableColumn(name="qps", label="operations/s", read=lambda step: number(step["qps"]), number=True),
    TableColumn(
        name="qps_change",
        label="operations/s vs last stable step",
        read=lambda step: _signed(step["qps_vs_prior"]),
        number=True,
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
    "Step", "Current connections", "Next connections", "Step ends in", "First-step p95", "Last p95", "Best so far",
    "Max stable connections",
)  # fmt: skip


def knee_words(section: Section) -> str | None:
    """Return the highest stable number of connections, or its range so far; None if nothing is known."""
    found, best = section["knee"], section["best"]
    if found:
        saturation = found.get("saturation")
        linear = f" (with linear scaling, {number(saturation)} would give the same throughput)" if saturation else ""
        return f"{counted(found['connections'], 'connection')}{linear}"
    if section["result"] or not best:
        return "not reached" if section["badge"] == "BOUNDED_MAX" else None
    failed = [step["to_target"] for step in section["steps"] if step["outcome"] not in (None, STABLE)]
    above = min((each for each in failed if each > best["connections"]), default=None)
    least = best["connections"]
    if above is None:
        return f"{counted(least, 'connection')} or more"
    return f"{least:,} to {counted(above - 1, 'connection')}" if above - 1 > least else counted(least, "connection")


def _best_text(best: Section) -> str:
    return f"{counted(best['connections'], 'connection')} at {number(best['qps'])} operations/s"


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
            "Step": ": ".join(str(each) for each in (section["step"] or "–", plain(SEARCH_STAGES, section["status"])) if each),
            "Current connections": section["connections"],
            "Next connections": section["next_connections"],
            "Step ends in": None if countdown is None else f"{countdown:.0f} s",
            "First-step p95": ms(baseline.get("p95_ms")),
            "Last p95": ms(last.get("p95_ms")),
            "Best so far": _best_text(best) if best else None,
            "Max stable connections": knee_words(section),
        }
        for name, value in values.items():
            self._tiles[name].show(value)
        self._show_texts(section)
        self._steps.show(section["steps"])

    def _show_texts(self, section: Section) -> None:
        limits = section["limits"]
        self._limits.text = (
            f"A step is stable if p95 rises at most {limits['latency_pct']:g} % above the first step, throughput falls at most "
            f"{limits['qps_pct']:g} % below the last stable step, at most {limits['error_pct']:g} % of operations fail, "
            "the database does not queue, and the objectives are met. * = extra step that verifies or narrows down the maximum"
        )
        self._message.text = section["message"] or ""
        self._message.set_visibility(bool(section["message"]) and section["message"] != answer(section))
        self._badge.set_visibility(bool(section["badge"]))
        self._badge.text = plain(MAXIMUM_TYPES, section["badge"]) or ""
        set_attribute(self._badge, "color", "warning" if section["badge"] == "BOUNDED_MAX" else "positive")


HISTORY: list[TableColumn] = [
    TableColumn(name="time", label="time (UTC)", read=lambda step: step["ended_at"]),
    TableColumn(name="change", read=lambda step: f"{step['from_target']} → {counted(step['to_target'], 'connection')}"),
    TableColumn(name="qps", label="operations/s", read=lambda step: number(step["qps"]), number=True),
    TableColumn(name="outcome", read=lambda step: plain(STEP_OUTCOMES, step["outcome"])),
    TableColumn(name="reason", read=lambda step: step["reason"]),
]


_CONTROLLER_TILES = (
    "Target operations/s", "Current operations/s", "Deviation", "Target connections", "Target workers", "Next check in",
)  # fmt: skip


class QpsPanel:
    """Shows the throughput controller: deviation from the target, connections, workers and latest changes."""

    def __init__(self) -> None:
        with ui.card().props("flat bordered").classes("w-full"):
            ui.label("Throughput controller").classes("text-h6").props("role=heading aria-level=2")
            with tiles():
                self._tiles = {name: FigureTile(name) for name in _CONTROLLER_TILES}
            self._history = PageTable("Load changes", HISTORY, lambda step: str(step["n"]))

    def show(self, watched: LiveRun) -> None:
        section = qps_controller(watched)
        if section is None:
            return
        wait = section["next_evaluation_seconds"]
        values = {
            "Target operations/s": number(section["target_qps"]),
            "Current operations/s": number(section["current_qps"]),
            "Deviation": _signed(section["error_pct"]),
            "Target connections": section["connections"],
            "Target workers": section["workers"],
            "Next check in": None if wait is None else f"{wait:.0f} s",
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
