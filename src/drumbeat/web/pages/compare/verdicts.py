"""Shows the comparison of a run with the baseline: metrics with intervals, warnings, and configuration differences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nicegui import ui

from drumbeat.bench.model import LoadMode
from drumbeat.web.pages.compare.overlays import title
from drumbeat.web.pages.components import PageTable, TableColumn
from drumbeat.web.pages.frame import heading
from drumbeat.web.pages.plain_words import CHANGES, COMPARED_FIGURES, capitalised, plain
from drumbeat.web.pages.run_live.figures import number, percent

if TYPE_CHECKING:
    from drumbeat.composition.plane import Comparison

_COLOURS = {"regressed": "negative", "warning": "warning", "improved": "positive", "stable": "positive"}

_FOR_ONE = " for an hourly cost of 1"


def verdict(comparison: "Comparison") -> None:
    with ui.card().props("flat bordered").classes("w-full"):
        with ui.row().classes("items-center gap-2"):
            heading(f"{title(comparison.before)} → {title(comparison.after)}", 2)
            colour = _COLOURS.get(str(comparison.change), "grey-8")
            badge = ui.badge(plain(CHANGES, comparison.change) or "", color=colour, text_color="white")
            badge.classes("q-pa-xs").props('aria-label="Verdict"')
        if comparison.reason is not None:
            ui.label(capitalised(comparison.reason)).classes("text-weight-medium").props('role=note aria-label="Reason"')
        for warning in comparison.warnings:
            with ui.row().classes("items-center gap-1"):
                ui.icon("warning").props("aria-hidden=true").classes("text-warning")
                ui.label(warning)
        _metrics(comparison)
        ui.label(" · ".join(_notes(comparison))).classes("text-caption faint")
        _pairs("Metrics by operation kind", "Metrics by operation kind", comparison.kinds, _PAIRS)
        _pairs("Cost", "Cost of both runs", comparison.costs, _PAIRS[1:])
        _configuration(comparison)


def _metrics(comparison: "Comparison") -> None:
    table = PageTable("Metrics", _COLUMNS, lambda delta: delta.bounds.name)
    table.show(comparison.deltas)
    ui.label(rules_text(comparison)).classes("text-caption faint")


def rules_text(comparison: "Comparison") -> str:
    """Return the rules by which changes are judged; a search for the max connections has other rules, without a test."""
    counting = [each.bounds for each in comparison.deltas if not each.informative]
    limits = ", ".join(f"{_label(each)} {_limit(each, each.warning)}" for each in counting)
    fewer = ", ".join(_limit(each, each.better) for each in counting if each.absolute)
    if comparison.before.plan.load_mode is comparison.after.plan.load_mode is LoadMode.FIND_MAX_CONCURRENCY:
        others = ", ".join(_label(each.bounds) for each in comparison.deltas if each.informative)
        return (
            "A search for the max connections has one value per metric, so changes are not tested for significance. "
            "A change counts if it exceeds: "
            f"{limits} (a lower error rate: {fewer}). For information only: {others}."
        )
    return (
        "Estimated change: how much the compared run differs from the baseline, with the range that contains the true "
        "difference with 99 % confidence. p-value: how likely such a difference is by chance alone (Welch's t-test over "
        f"batches of seconds). A change counts if its p-value is below 0.01 and it exceeds: {limits}. A smaller change for the "
        'worse is "slightly worse" if its p-value is below 0.01 and its range reaches that limit. A higher error rate counts '
        f"without a test; a lower one counts if it exceeds {fewer} and its p-value is below 0.01."
    )


def _limit(bounds: Any, share: float) -> str:
    return _points(share) if bounds.absolute else percent(share)


def _points(share: float | None) -> str:
    """Return a share as percentage points; a difference of two rates in percent has this unit."""
    return "–" if share is None else f"{number(share * 100)} % points"


def _signed_points(share: float | None) -> str:
    return f"+{_points(share)}" if share is not None and share > 0 else _points(share)


def _label(bounds: Any) -> str:
    return COMPARED_FIGURES.get(bounds.name, str(bounds.label))


def metric_text(bounds: Any) -> str:
    """Return the name of a metric with its unit, unless the name has it already."""
    label = _label(bounds)
    return f"{label} ({bounds.unit})" if bounds.unit and bounds.unit not in label else label


def _figure_text(figure: str, unit: str) -> str:
    """Return a metric's name with its unit, such as ``p95 (ms)``, or ``operations/s per USD of hourly cost``."""
    if figure.endswith(_FOR_ONE):
        return f"{figure.removesuffix(_FOR_ONE)} per {unit} of hourly cost"
    return f"{figure} ({unit})" if unit else figure


def _value(delta: Any, value: float | None) -> str:
    return percent(value) if delta.bounds.absolute else number(value)


def change_text(delta: Any) -> str:
    """Return the difference of a metric between two runs: of a rate in percentage points, else in percent."""
    if delta.bounds.absolute:
        return _signed_points(delta.difference)
    return "–" if delta.relative is None else f"{delta.relative * 100:+.1f} %"


def interval_text(delta: Any) -> str:
    """Return the estimated change with its confidence interval."""
    found = delta.shift
    if found is None:
        return "–"
    show = _signed_points if delta.bounds.absolute else number
    return f"{show(found.estimate)} [{show(found.low)}, {show(found.high)}]"


_COLUMNS = [
    TableColumn(name="metric", read=lambda delta: metric_text(delta.bounds)),
    TableColumn(name="before", label="baseline", read=lambda delta: _value(delta, delta.before), number=True),
    TableColumn(name="after", label="compared run", read=lambda delta: _value(delta, delta.after), number=True),
    TableColumn(name="delta", label="difference", read=change_text, number=True),
    TableColumn(name="shift", label="estimated change (99 % confidence interval)", read=interval_text, number=True),
    TableColumn(name="p-value", read=lambda delta: None if delta.shift is None else f"{delta.shift.p_value:.3g}", number=True),
    TableColumn(name="change", label="verdict", read=lambda delta: plain(CHANGES, delta.words)),
]


def _notes(comparison: "Comparison") -> list[str]:
    similarity = comparison.similarity
    notes = [
        f"configuration similarity {similarity.score:.2f} of 1 (comparability: {similarity.confidence})",
        *similarity.gates,
    ]
    if comparison.divergence is not None:
        differ = "differ" if comparison.latencies_differ else "do not differ"
        notes.append(f"the latency distributions {differ} (Kullback-Leibler divergence {comparison.divergence:.3f} nats)")
    return notes


_PAIRS = [
    TableColumn(name="subject", label="operation kind", read=lambda pair: pair.subject),
    TableColumn(name="metric", read=lambda pair: _figure_text(pair.figure, pair.unit)),
    TableColumn(name="before", label="baseline", read=lambda pair: number(pair.before), number=True),
    TableColumn(name="after", label="compared run", read=lambda pair: number(pair.after), number=True),
    TableColumn(
        name="delta",
        label="difference",
        read=lambda pair: "–" if pair.relative is None else f"{pair.relative * 100:+.1f} %",
        number=True,
    ),
]


def _pairs(title: str, name: str, pairs: Sequence[Any], columns: Sequence[TableColumn]) -> None:
    """Show a table of further metrics of the two compared runs, which do not affect the verdict; nothing if there are none."""
    if pairs:
        heading(title, 3)
        PageTable(name, columns, lambda pair: f"{pair.subject} {pair.figure}").show(pairs)


_SETTINGS = [
    TableColumn(name="setting", read=lambda each: each.path),
    TableColumn(name="before", label="baseline", read=lambda each: each.before),
    TableColumn(name="after", label="compared run", read=lambda each: each.after),
]


def _configuration(comparison: "Comparison") -> None:
    heading("Configuration", 3)
    if not comparison.configuration:
        ui.label("Same configuration").classes("faint")
        return
    table = PageTable("Configuration differences", _SETTINGS, lambda each: each.path)
    table.show(comparison.configuration)
