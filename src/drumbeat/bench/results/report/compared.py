"""Writes comparisons of runs as Markdown, HTML or JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from drumbeat.bench.model.record import RunRecord, Second
from drumbeat.bench.results.compare import Comparison, Delta, FigureChange
from drumbeat.bench.results.compare.sides import Pair
from drumbeat.bench.results.report import content, words
from drumbeat.bench.results.report.escape import markdown as plain, markup
from drumbeat.bench.results.report.page import charts, page, section
from drumbeat.bench.results.report.scale import is_wide
from drumbeat.bench.results.report.svg import Chart, ChartSeries, Point
from drumbeat.bench.results.report.table import ReportTable
from drumbeat.core.run import Phase

_COLOURS = {
    FigureChange.REGRESSED: "bad",
    FigureChange.WARNING: "warn",
    FigureChange.IMPROVED: "good",
    FigureChange.STABLE: "good",
}


def figures(comparison: Comparison) -> ReportTable:
    head = ("figure", "before", "after", "Δ", "shift (99 % interval)", "p", "change")
    rows = [_figure(delta) for delta in comparison.deltas]
    note = (
        "Shift with its 99 % confidence interval, and p-value: Welch's t-test on the logarithms of batches of seconds, widened "
        "for the correlation of neighbouring batches and for the usual difference between two equal runs. A change must be "
        "significant and large enough; errors are counted, not tested."
    )
    return ReportTable(head=head, rows=rows, prose=frozenset({"change"}), note=note)


def _figure(delta: Delta) -> tuple[str, ...]:
    show = words.percent if delta.bounds.absolute else words.number
    apart = show(delta.difference) if delta.bounds.absolute else words.signed(delta.relative)
    unit = f" ({delta.bounds.unit})" if delta.bounds.unit else ""
    p_value = words.NOTHING if delta.shift is None else f"{delta.shift.p_value:.3g}"
    return (delta.bounds.label + unit, show(delta.before), show(delta.after), apart, _interval(delta), p_value, delta.words)


def _interval(delta: Delta) -> str:
    found = delta.shift
    if found is None:
        return words.NOTHING
    show = words.percent if delta.bounds.absolute else words.number
    return f"{show(found.estimate)} [{show(found.low)}, {show(found.high)}]"


def kinds(comparison: Comparison) -> ReportTable | None:
    """Return a table of each kind of operation in both runs, for information only; None if there are no kinds."""
    rows = [(pair.subject, *_pair(pair)) for pair in comparison.kinds]
    return ReportTable(head=("kind", "figure", "before", "after", "Δ"), rows=rows, texts=2) if rows else None


def costs(comparison: Comparison) -> ReportTable | None:
    rows = [_pair(pair) for pair in comparison.costs]
    return ReportTable(head=("cost", "before", "after", "Δ"), rows=rows) if rows else None


def _pair(pair: Pair) -> tuple[str, ...]:
    unit = f" ({pair.unit})" if pair.unit else ""
    return (f"{pair.figure}{unit}", words.number(pair.before), words.number(pair.after), words.signed(pair.relative))


def _further_tables(comparison: Comparison) -> dict[str, ReportTable]:
    """Return tables of the kinds of operation, of cost and of configuration, each under its heading; no empty tables."""
    tables = {"By kind": kinds(comparison), "Cost": costs(comparison), "Configuration": settings(comparison)}
    return {heading: table for heading, table in tables.items() if table is not None}


def settings(comparison: Comparison) -> ReportTable | None:
    rows = [(each.path, each.before or words.NOTHING, each.after or words.NOTHING) for each in comparison.configuration]
    return ReportTable(head=("setting", "before", "after"), rows=rows, texts=3) if rows else None


def named(record: RunRecord) -> str:
    """Return a run's name and id. The id is needed as runs of one template share their name."""
    title, run_id = content.title(record), str(record.run.run_id)
    return title if title == run_id else f"{title}, {run_id}"


def side(record: RunRecord) -> str:
    """Describe a run in one line: name, id, template and start."""
    template = f", template {record.run.template_id}" if record.run.template_id else ", without a template"
    return f"{named(record)}{template}, {words.when(record.origin)}"


def notes(comparison: Comparison) -> list[str]:
    alike = comparison.similarity
    lines = [f"before: {side(comparison.before)}", f"after: {side(comparison.after)}"]
    if comparison.reason is not None:
        lines.append(f"{comparison.change}: {comparison.reason}")
    lines += [f"similarity {alike.score:.2f}: confidence {alike.confidence}", *alike.gates, *comparison.warnings]
    if comparison.divergence is not None:
        differ = "differ" if comparison.latencies_differ else "do not differ"
        lines.append(f"the latency distributions {differ} (Kullback–Leibler divergence {comparison.divergence:.3f})")
    return lines


def comparison_markdown(comparisons: Sequence[Comparison]) -> str:
    parts = []
    for each in comparisons:
        parts.append(f"## {plain(named(each.before))} → {plain(named(each.after))}: {each.change}")
        parts.append(figures(each).as_markdown())
        parts.append("\n".join(f"- {plain(note)}" for note in notes(each)))
        parts += [f"### {heading}\n\n{table.as_markdown()}" for heading, table in _further_tables(each).items()]
    return "\n\n".join(parts) + "\n"


def comparison_html(comparisons: Sequence[Comparison]) -> str:
    """Return an HTML page: charts with the lines of all runs, then each comparison with the first run."""
    records = [comparisons[0].before, *(each.after for each in comparisons)]
    pictures = charts(
        _overlay(records, "Throughput", "/s", lambda s: s.qps), _overlay(records, "p95", "ms", lambda s: s.p95_ms)
    )
    sections = [section(f"comparison-{n}", _heading(each), *_body(each)) for n, each in enumerate(comparisons, 1)]
    return page("Comparison – Drumbeat", ["<h1>Comparison</h1>", section("overlay", "Measurement", pictures), *sections])


def _heading(comparison: Comparison) -> str:
    return f"{named(comparison.before)} → {named(comparison.after)}"


def _body(comparison: Comparison) -> list[str]:
    colour = _COLOURS.get(comparison.change, "warn")
    paragraphs = "".join(f'<p class="warning">{markup(note)}</p>' for note in notes(comparison))
    return [
        f'<p class="verdict {colour}">{comparison.change}</p>',
        figures(comparison).as_html(),
        paragraphs,
        *(f"<h3>{heading}</h3>{table.as_html()}" for heading, table in _further_tables(comparison).items()),
    ]


def _overlay(records: Sequence[RunRecord], title: str, unit: str, of: Callable[[Second], float | None]) -> Chart:
    series = [ChartSeries(name=named(each), points=_measured(each, of), colour=n + 1) for n, each in enumerate(records)]
    values = [y for each in series for _, y in each.points if y is not None]
    return Chart(title=title, unit=unit, series=series, log=is_wide(values), across="time since the measurement began (min:s)")


def _measured(record: RunRecord, of: Callable[[Second], float | None]) -> list[Point]:
    seconds = [second for second in record.timeline if second.phase == Phase.MEASUREMENT]
    return [(second.offset - seconds[0].offset, of(second)) for second in seconds]


def comparison_json(comparisons: Sequence[Comparison]) -> str:
    return json.dumps([_plain(each) for each in comparisons], indent=1, ensure_ascii=False) + "\n"


def _plain(comparison: Comparison) -> Mapping[str, Any]:
    return {
        "before": comparison.before.run.run_id,
        "after": comparison.after.run.run_id,
        "names": {"before": content.title(comparison.before), "after": content.title(comparison.after)},
        "templates": {"before": comparison.before.run.template_id, "after": comparison.after.run.template_id},
        "change": comparison.change,
        "reason": comparison.reason,
        "figures": {delta.bounds.name: _plain_delta(delta) for delta in comparison.deltas},
        "kinds": [asdict(pair) | {"relative": pair.relative} for pair in comparison.kinds],
        "cost": [asdict(pair) | {"relative": pair.relative} for pair in comparison.costs],
        "similarity": {"score": comparison.similarity.score, "confidence": comparison.similarity.confidence},
        "gates": list(comparison.similarity.gates),
        "warnings": list(comparison.warnings),
        "divergence": comparison.divergence,
        "configuration": [asdict(each) for each in comparison.configuration],
    }


def _plain_delta(delta: Delta) -> Mapping[str, Any]:
    values = {"before": delta.before, "after": delta.after, "difference": delta.difference, "relative": delta.relative}
    return values | {
        "change": delta.change,
        "words": delta.words,
        "shown": delta.is_significant,
        "shift": delta.shift and asdict(delta.shift),
    }
