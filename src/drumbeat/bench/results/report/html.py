"""A run's report as one HTML file: no scripts, no external resources, light and dark mode."""

from drumbeat.bench.model.plan import LoadMode
from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.model.verdict import RunVerdict
from drumbeat.bench.results.report import charts, content
from drumbeat.bench.results.report.escape import markup
from drumbeat.bench.results.report.page import charts as drawn, folded, page, section, table
from drumbeat.bench.results.run_verdict import judge_run


def html(record: RunRecord) -> str:
    """Return the whole report of a run as an HTML page."""
    return page(f"{content.title(record)} – Drumbeat", [_header(record), *_sections(record)])


def _sections(record: RunRecord) -> list[str]:
    return [
        section("summary", "Summary", *(f"<p>{markup(sentence)}</p>" for sentence in content.summary(record))),
        _verdict(record),
        _explanation(record),
        section("throughput", "Throughput", drawn(charts.throughput(record), charts.per_worker(record))),
        section("latency", "Latency", drawn(charts.latency(record), charts.histogram(record))),
        section("connections", "Connections and workers", drawn(charts.connections(record), charts.worker_count(record))),
        _steps(record),
        section("resources", "Resources and guardrails", drawn(charts.resources(record))),
        section("server", "Database server", *_server(record)),
        section("errors", "Errors", table(content.errors(record))),
        section("kinds", "By kind", table(content.kinds(record))),
        section("phases", "By phase", folded("figures of each phase", content.phases(record))),
        section("workers", "By worker", table(content.workers(record))),
        section("decisions", "Decisions", table(content.decisions(record))),
        section("cost", "Cost", table(content.cost(record)) or '<p class="note">No prices were given.</p>'),
        section("configuration", "Configuration", folded("every setting", content.configuration(record))),
    ]


def _header(record: RunRecord) -> str:
    meta = "".join(
        f"<div><dt>{markup(name)}</dt><dd>{markup(text)}</dd></div>" for name, text in content.header(record).items()
    )
    return f'<header><h1>{markup(content.title(record))}</h1><dl class="meta">{meta}</dl></header>'


def _explanation(record: RunRecord) -> str:
    found = content.explanation(record)
    if found is None:
        return ""
    label, warning = f'<p class="warning">{markup(found.label)}</p>', f"<p>{markup(found.warning)}</p>" if found.warning else ""
    text = "".join(f"<p>{markup(line)}</p>" for line in found.text.splitlines())
    return section("explanation", "Explanation by a language model (AI)", label, f"<blockquote>{text}</blockquote>", warning)


_COLOURS = {RunVerdict.PASSED: "good", RunVerdict.NO_OBJECTIVE: "", RunVerdict.PENDING: "", RunVerdict.MISSED: "warn"}


def _verdict(record: RunRecord) -> str:
    colour = _COLOURS.get(judge_run(record).verdict, "bad")
    badge = f'<p class="verdict {colour}">{markup(content.verdict(record))}</p>'
    warnings = "".join(f'<p class="warning">{markup(warning)}</p>' for warning in content.warnings(record))
    return section("verdict", "Verdict", badge, warnings, _tiles(record), table(content.objectives(record)))


def _tiles(record: RunRecord) -> str:
    tiles = "".join(
        f'<div class="tile"><span>{markup(tile.label)}</span><b>{markup(tile.value)}</b><span>{markup(tile.note)}</span></div>'
        for tile in content.tiles(record)
    )
    note = "p50, p95 and p99 are exact, from the merged histograms of all workers; below them is the slowest worker's value."
    return f'<div class="tiles">{tiles}</div><p class="note">{note}</p>'


def _steps(record: RunRecord) -> str:
    heading = "Steps and knee" if record.plan.load_mode is LoadMode.FIND_MAX_CONCURRENCY else "Controller steps"
    pictures = drawn(charts.steps(record), charts.step_latency(record))
    return section("steps", heading, _found(record), pictures, _law(record), table(content.steps(record)))


def _server(record: RunRecord) -> tuple[str, str]:
    return drawn(charts.server(record), charts.wait_events(record)), folded("server counters", content.server_totals(record))


def _found(record: RunRecord) -> str:
    message = record.find_max_result.get("message")
    return f"<p>{markup(message)}</p>" if message else ""


def _law(record: RunRecord) -> str:
    usl = record.find_max_result.get("usl") or {}
    if not usl:
        return ""
    if not usl.get("fitted", True):
        return f'<p class="note">Universal Scalability Law: {markup(usl.get("reason", "not fitted"))}</p>'
    names = ("lambda", "sigma", "kappa", "r_squared")
    values = ", ".join(f"{name} {usl[name]:.4g}" for name in names if isinstance(usl.get(name), int | float))
    confidence = markup(usl.get("confidence", "?"))
    return f'<p class="note">Universal Scalability Law (USL), as a cross-check: {markup(values)}; confidence {confidence}.</p>'
