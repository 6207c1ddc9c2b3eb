"""Makes the content of a run's report: tables of text that every format uses."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drumbeat.bench.model.best import best_of, find_max_steps, knee_of
from drumbeat.bench.model.explanation import RunExplanation, stored_explanation
from drumbeat.bench.model.plan import LoadMode
from drumbeat.bench.model.record import Measured, RunRecord, WorkerRecord
from drumbeat.bench.results.availability import availability_of, corrected
from drumbeat.bench.results.caveats import caveats
from drumbeat.bench.results.compare.configuration import flattened, without_secrets
from drumbeat.bench.results.cost import Cost, Method, cost_of
from drumbeat.bench.results.report import words
from drumbeat.bench.results.report.table import ReportTable
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.bench.results.top_errors import most_frequent
from drumbeat.bench.results.verdicts import LimitStanding, Measure, SloVerdict, judged_at, verdicts_of
from drumbeat.core.run import RunStatus, Step

MOST_DECISIONS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTile:
    """A key figure of a run with its label, shown at the top of a report."""

    label: str
    value: str
    note: str = ""


def title(record: RunRecord) -> str:
    return record.run.name or str(record.run.run_id)


def verdict(record: RunRecord) -> str:
    """Return the verdict on the whole run, with the reason, as one line."""
    return judge_run(record).headline


def summary(record: RunRecord) -> tuple[str, ...]:
    """Return the summary of the run: a few sentences made from its figures by fixed rules, not by a language model."""
    return record.summary


def explanation(record: RunRecord) -> RunExplanation | None:
    """Return what a language model wrote about the run, or None. A report must show it with its ``label``."""
    return stored_explanation(record.run)


def header(record: RunRecord) -> Mapping[str, str]:
    run = record.run
    length = record.ended - record.origin if record.ended and record.origin else None
    fields = {
        "run": str(run.run_id),
        "status": str(run.status),
        "reason": reason(record),
        "mode": f"{record.plan.load_mode}, scaling {record.plan.scaling.mode}",
        "target": target(record),
        "template": run.template_id or "",
        "started": words.when(record.origin),
        "ended": words.when(run.ended_at),
        "duration": words.duration(length),
    }
    return {name: text for name, text in fields.items() if text not in ("", words.NOTHING)}


def reason(record: RunRecord) -> str:
    """Return why the run ended: its completion reason and, if it failed, the failure."""
    failure = record.result.failure_reason if record.result else None
    why = record.run.custom_metrics.get("failure_reason") or failure
    return ": ".join(str(part) for part in (record.run.completion_reason, why) if part)


def target(record: RunRecord) -> str:
    """Return the URL or kind of the database under test, without secrets."""
    block = record.run.config.get("target")
    return without_secrets(str(block.get("url") or block.get("kind") or "")) if isinstance(block, Mapping) else ""


def tiles(record: RunRecord) -> list[ReportTile]:
    whole, latency = record.whole, record.whole.latency
    slowest95, slowest99 = record.slowest
    return [
        ReportTile(label="operations/s", value=words.number(whole.qps), note=f"{words.number(whole.operations, 9)} operations"),
        ReportTile(label="p50", value=words.ms(latency.p50_ms), note=f"mean {words.ms(latency.mean_ms)}"),
        ReportTile(label="p95", value=words.ms(latency.p95_ms), note=f"slowest worker {words.ms(slowest95)}"),
        ReportTile(label="p99", value=words.ms(latency.p99_ms), note=f"slowest worker {words.ms(slowest99)}"),
        ReportTile(
            label="errors",
            value=words.percent(whole.error_rate if whole.operations else None),
            note=f"{words.number(whole.errors, 9)} failed" + words.and_failed_connects(whole.failed_connects),
        ),
        *_availability_tile(record),
        *_best_tile(record),
        ReportTile(label="workers", value=str(len(record.workers)), note=f"{_most_held(record):g} connections at most"),
    ]


def _availability_tile(record: RunRecord) -> Iterable[ReportTile]:
    found = availability_of(record)
    if found is not None and found.percent is not None:
        missing = f"no service in {found.without_service} of {found.seconds} s"
        yield ReportTile(label="availability", value=f"{words.number(found.percent, 5)} %", note=missing)


def _best_tile(record: RunRecord) -> Iterable[ReportTile]:
    if record.plan.load_mode is not LoadMode.FIND_MAX_CONCURRENCY:
        return
    best, found = best_of(record), record.find_max_result
    value = f"{best.connections:g}" if best else "no stable level"
    knee = knee_of(record)
    note = str(found.get("max_type") or "") + (f", USL peak {words.number(knee)}" if knee else "")
    yield ReportTile(label="best connections", value=value, note=note.strip(", "))


def _most_held(record: RunRecord) -> float:
    stored = record.result.connections if record.result else None
    return round(max((second.held for second in record.timeline), default=stored or 0))


def warnings(record: RunRecord) -> list[str]:
    """List the reasons to doubt a run's figures, and the most frequent error of the run."""
    found = list(record.notes)
    if not record.whole.operations:
        found.append("nothing was measured")
    if (error := most_frequent(record)) is not None:
        found.append(error.words)
    found += caveats(record)
    if record.run.status not in (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED):
        found.append(f"the run is {record.run.status}: the figures are those of when this report was made")
    return found


def objectives(record: RunRecord) -> ReportTable | None:
    found = verdicts_of(record)
    rows = [(each.subject, _measure(each), *_limit_and_found(each), _mark(each)) for each in found]
    head, where = ("kind", "objective", "limit", "found", "verdict"), judged_at(record)
    note = f"{where[0].upper()}{where[1:]}." if where else ""
    return ReportTable(head=head, rows=rows, texts=2, prose=frozenset({"verdict"}), note=note) if rows else None


def _measure(verdict: SloVerdict) -> str:
    return {Measure.P95: "p95", Measure.P99: "p99", Measure.ERRORS: "errors", Measure.AVAILABILITY: "availability"}[
        verdict.measure
    ]


def _limit_and_found(verdict: SloVerdict) -> tuple[str, str]:
    if verdict.measure not in (Measure.ERRORS, Measure.AVAILABILITY):
        return words.ms(verdict.limit), words.ms(verdict.found)
    if verdict.found is None:
        return f"{words.number(verdict.limit)} %", words.NOTHING
    limit, found = words.texts_that_differ(verdict.limit, verdict.found)
    return f"{limit} %", f"{found} %"


def _mark(verdict: SloVerdict) -> str:
    signs = {
        LimitStanding.OK: "✓ ok", LimitStanding.NEAR: "! near", LimitStanding.OVER: "✗ over", LimitStanding.UNDER: "✗ under",
        LimitStanding.NOT_MEASURED: "? not measured",
    }  # fmt: skip
    return signs[verdict.standing]


_CORRECTED = "all kinds, corrected"
_FIGURES = ("operations", "ops/s", "errors", "avg", "min", "max", "stddev", "p50", "p90", "p95", "p99", "p99.9")


def _figures(measured: Measured) -> tuple[str, ...]:
    latency = measured.latency
    known = (
        latency.mean_ms,
        latency.least_ms,
        latency.greatest_ms,
        latency.stddev_ms,
        latency.p50_ms,
        latency.p90_ms,
        latency.p95_ms,
        latency.p99_ms,
        latency.p999_ms,
    )
    counts = (words.number(measured.operations, 9), words.number(measured.qps), words.percent(measured.error_rate))
    return (*counts, *(words.number(value) for value in known))


def kinds(record: RunRecord) -> ReportTable | None:
    if not record.whole.operations:
        return None
    rows = [("all kinds", *_figures(record.whole)), *_corrected(record)]
    rows += [(kind, *_figures(measured)) for kind, measured in record.kinds.items()]
    note = "Latencies in milliseconds, of successful operations, from the exact merged histograms of all workers."
    if len(rows) > 1 and rows[1][0] == _CORRECTED:
        note += (
            " Corrected for coordinated omission: includes the operations that connections did not send while they waited for "
            "the database or could not reach it."
        )
    return ReportTable(head=("kind", *_FIGURES), rows=rows, note=note)


def _corrected(record: RunRecord) -> list[tuple[str, ...]]:
    fair = corrected(record)
    if fair is None:
        return []
    known = (
        fair.mean_ms,
        fair.least_ms,
        fair.greatest_ms,
        None,
        fair.p50_ms,
        fair.p90_ms,
        fair.p95_ms,
        fair.p99_ms,
        fair.p999_ms,
    )
    return [(_CORRECTED, words.number(fair.count, 9), "", "", *(words.number(value) for value in known))]


def phases(record: RunRecord) -> ReportTable | None:
    rows = []
    for phase in record.phases:
        rows.append((phase.name, "all kinds", words.at(phase.began), words.at(phase.ended), *_figures(phase.whole)))
        rows += [(phase.name, kind, "", "", *_figures(measured)) for kind, measured in phase.kinds.items()]
    head = ("phase", "kind", "from", "to", *_FIGURES)
    note = (
        "MEASUREMENT counts the operations that began in it, as in the totals. Other phases are counted from samples: an "
        "interval belongs to the phase in which it ended, so their limits are accurate to about a second."
    )
    return ReportTable(head=head, rows=rows, texts=2, note=note) if rows else None


def workers(record: RunRecord) -> ReportTable | None:
    head = (
        "worker",
        "status",
        "host",
        "operations",
        "ops/s",
        "errors",
        "p50",
        "p95",
        "p99",
        "connections",
        "cpu",
        "memory",
        "client-limited",
    )
    note = "Latencies in milliseconds. CPU and memory: the highest values of the worker's host."
    rows = [_worker(worker) for worker in record.workers]
    return ReportTable(head=head, rows=rows, texts=3, note=note) if rows else None


def _worker(worker: WorkerRecord) -> tuple[str, ...]:
    measured, latency = worker.measured, worker.measured.latency
    return (
        str(worker.worker_id),
        str(worker.status or ""),
        worker.host or "",
        words.number(measured.operations, 9),
        words.number(measured.qps),
        words.percent(measured.error_rate),
        words.number(latency.p50_ms),
        words.number(latency.p95_ms),
        words.number(latency.p99_ms),
        str(max((second.held for second in worker.series), default=0)),
        _highest(second.cpu_percent for second in worker.series),
        _highest(second.memory_percent for second in worker.series),
        f"{worker.client_limited_seconds} s",
    )


def _highest(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{words.number(max(known))} %" if known else words.NOTHING


def steps(record: RunRecord) -> ReportTable | None:
    head = ("step", "connections", "QPS", "Δ QPS", "p95", "Δ p95", "p99", "error", "outcome", "reason")
    rows = [_step(step) for step in (find_max_steps(record) or record.steps)]
    note = "Δ QPS: against the last stable step; Δ p95: against the first step. *: a step of verification or bisection."
    return ReportTable(head=head, rows=rows, prose=frozenset({"outcome", "reason"}), note=note) if rows else None


def _step(step: Step) -> tuple[str, ...]:
    return (
        f"{step.n}{'*' if step.is_probe else ''}",
        str(step.to_target),
        words.number(step.qps),
        words.points(step.qps_vs_prior),
        words.ms(step.p95_ms),
        words.points(step.p95_vs_baseline),
        words.ms(step.p99_ms),
        words.percent(step.error_rate),
        step.outcome or "",
        step.reason or "",
    )


def server_totals(record: RunRecord) -> ReportTable | None:
    """Return a table of how much the database's own counters rose during the run; None if they were not read."""
    stored = record.result.custom_metrics.get("server") if record.result else None
    parts = {name: rise for name, rise in stored.items() if isinstance(rise, Mapping)} if isinstance(stored, Mapping) else {}
    names = sorted({name for rise in parts.values() for name in rise})
    rows = [(name, *(words.number(rise.get(name), 9) for rise in parts.values())) for name in names]
    note = str(stored.get("note") or "") if isinstance(stored, Mapping) else ""
    return ReportTable(head=("server counter", *parts), rows=rows, note=note) if rows else None


def errors(record: RunRecord) -> ReportTable | None:
    """Return a table of errors by kind of operation, with examples of failed operations; None without errors."""
    counted = [
        (kind, words.number(m.errors, 9), words.percent(m.error_rate), "", "", "")
        for kind, m in record.kinds.items()
        if m.errors
    ]
    if record.whole.failed_connects:
        counted.append(("connecting", words.number(record.whole.failed_connects, 9), "", "", "", ""))
    examples = [(each.kind or "connecting", "", "", each.error_class, each.sqlstate, each.message) for each in record.failures]
    head = ("kind", "errors", "share", "class", "SQLSTATE", "example")
    rows = [*counted, *examples]
    return ReportTable(head=head, rows=rows, prose=frozenset({"class", "SQLSTATE", "example"})) if rows else None


def decisions(record: RunRecord) -> ReportTable | None:
    shown = record.decisions[:MOST_DECISIONS]
    rows = [
        (words.at(each.offset), each.what, each.reason + (f" (not done: {each.error})" if each.error else "")) for each in shown
    ]
    more = len(record.decisions) - len(shown)
    note = f"{more} later decisions are left out; drumbeat bench show lists all of them." if more else ""
    return ReportTable(head=("at", "what", "why"), rows=rows, texts=3, note=note) if rows else None


def cost(record: RunRecord) -> ReportTable | None:
    found = cost_of(record)
    return ReportTable(head=("cost", found.currency), rows=_cost_rows(found)) if found.method is Method.ACTUAL else None


def _cost_rows(found: Cost) -> list[tuple[str, str]]:
    return [
        (f"workers ({words.number(found.worker_hours)} h)", words.number(found.workers, 4)),
        (f"target ({words.number(found.target_hours)} h)", words.number(found.target, 4)),
        ("total", words.number(found.total, 4)),
        ("per hour", words.number(found.per_hour, 4)),
        ("per 1,000 operations", words.number(found.per_1000_operations, 4)),
        ("per 1,000 operations/s, per hour", words.number(found.per_1000_qps, 4)),
        (f"operations/s for 1 {found.currency} per hour", words.number(found.qps_per_money, 4)),
    ]


def configuration(record: RunRecord) -> ReportTable | None:
    rows = list(flattened(record.run.config).items())
    return ReportTable(head=("setting", "value"), rows=rows, texts=2) if rows else None
