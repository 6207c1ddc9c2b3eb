"""Prints a benchmark's plan and its results, and writes its reports."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumbeat.bench.model import (
    RunExplanation,
    RunJudgement,
    RunRecord,
    RunVerdict,
    and_failed_connects,
    ms,
    number,
    stored_explanation,
    texts_that_differ,
)
from drumbeat.cli.live import STEPS
from drumbeat.cli.render import Columns, console, say, table
from drumbeat.core.engine import DEFAULT_ENGINE
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Phase

if TYPE_CHECKING:
    from drumbeat.composition.plane import BenchService

_FORMATS = {
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".csv": "csv",
    ".json": "json",
    ".xml": "junit",
    ".prom": "prometheus",
}
_STYLES = {RunVerdict.PASSED: "bold green", RunVerdict.NO_OBJECTIVE: "bold", RunVerdict.PENDING: "bold"}
_ESTIMATES = {
    Phase.WARMUP: "longer if the throughput takes longer to stabilise",
    Phase.MEASUREMENT: "less if the search ends early, more if it has to measure a level again",
}


def form_of(path: str) -> str:
    """Return the report format for a file name. Raises InvalidInput for an unknown extension or a missing folder."""
    found = _FORMATS.get(Path(path).suffix.lower())
    if found is None:
        raise InvalidInput(f"expected a report file that ends in one of {', '.join(_FORMATS)}, got {path!r}")
    if not Path(path).parent.is_dir():
        raise InvalidInput(f"cannot write the report {path!r}: folder {str(Path(path).parent)!r} does not exist; create it")
    return found


def write(path: str, content: str) -> None:
    """Write a report to a file. Raises InvalidInput if it cannot be written."""
    try:
        Path(path).write_text(content, encoding="utf-8")
    except OSError as exc:
        raise InvalidInput(f"cannot write the report {path!r}: {exc.strerror}") from exc


def print_plan(found: Any) -> None:
    """Print the workers, connections, phases and warnings of a planned run."""
    limit = "no maximum" if found.most_workers is None else f"at most {found.most_workers}"
    each = ", ".join(str(number) for number in found.connections[:10]) + (" …" if len(found.connections) > 10 else "")
    say(f"{found.load_mode}: {found.workers} workers initially ({limit}), with {each} connections", style="bold")
    total = f"at most {found.most_connections}" if found.most_connections else "no maximum"
    say(f"connections: at most {found.cap} per worker, {total} in total")
    if found.engine != DEFAULT_ENGINE or found.slots is not None:
        say(f"engine: {found.engine}, " + ("unknown limit of workers" if found.slots is None else f"max {found.slots} workers"))
    for phase in found.phases:
        if phase.duration is not None:
            about, more = ("about ", f"; {_ESTIMATES[phase.phase]}") if phase.is_estimate else ("", "")
            say(f"{phase.phase}: {about}{round(phase.duration.total_seconds(), 1):g} s{more}")
    if found.estimated_cost is not None:
        say(f"estimated cost: {found.estimated_cost:.2f} {found.currency}")
    print_notes(found)


def print_notes(found: Any) -> None:
    """Print the warnings and errors of a plan."""
    for warning in found.warnings:
        say(f"note: {warning}", style="yellow")
    for error in found.errors:
        say(f"cannot run: {error}", style="red")


def print_outcome(
    bench: "BenchService", record: RunRecord, reports: Sequence[str] = (), known: RunJudgement | None = None
) -> None:
    """Print how a run ended and what it measured. ``known``: the run's verdict, if it was read already."""
    ended, total, judgement = record.run, record.whole, known or bench.judge(record)
    reason = f" ({ended.completion_reason})" if ended.completion_reason else ""
    say(f"{ended.run_id} {ended.status}{reason}", style="bold")
    say_verdict(judgement)
    failure = record.result.failure_reason if record.result else None
    if failure:
        say(failure, style="red")
    for sentence in record.summary:
        say(sentence)
    if total.operations:
        say(
            f"{total.qps:,.0f} ops/s over {total.seconds:.1f} s: {total.operations:,} operations, {total.errors:,} errors"
            f"{and_failed_connects(total.failed_connects)}",
            style="bold",
        )
        console.print(table([*record.kinds.items(), ("all", total)], _KINDS))
    _print_search(record)
    _print_availability(bench, record)
    _print_verdicts(bench, record)
    for warning in bench.warnings(record):
        say(f"note: {warning}", style="yellow")
    if (explanation := stored_explanation(ended)) is not None:
        print_explanation(explanation)
    for path in reports:
        say(f"report: {path}")


def say_verdict(judgement: RunJudgement) -> None:
    """Print a run's verdict and the reason for it."""
    style = "yellow" if judgement.is_orphan else _STYLES.get(judgement.verdict, "bold red")
    say(f"verdict: {judgement.headline}", style=style)


def print_explanation(explanation: RunExplanation) -> None:
    """Print a language model's text about a run, who wrote it, and which numbers in it are not among the run's figures."""
    say(explanation.label, style="bold")
    for line in explanation.text.splitlines():
        say(f"  {line}")
    if explanation.warning:
        say(f"note: {explanation.warning}", style="yellow")


def print_folders(folders: Sequence[str]) -> None:
    """Print the folders on other hosts that hold the recorded operations of a run."""
    if folders:
        say(f"recorded operations are on the workers' hosts (reports do not need them): {', '.join(folders)}")


def _print_availability(bench: "BenchService", record: RunRecord) -> None:
    found, corrected = bench.availability(record), bench.corrected(record)
    if found is not None and found.percent is not None:
        missing = f": {found.words}" if found.without_service else ""
        say(f"available {number(found.percent, 5)} % of the time{missing}", style="red" if missing else None)
    if corrected is not None:
        latencies = (("p50", corrected.p50_ms), ("p95", corrected.p95_ms), ("p99", corrected.p99_ms))
        shown = ", ".join(f"{name} {number(ms, 4)} ms" for name, ms in latencies)
        say(f"corrected for coordinated omission: {shown}")


def _print_verdicts(bench: "BenchService", record: RunRecord) -> None:
    if where := bench.judged_at(record):
        say(f"service levels, {where}")
    for verdict in bench.verdicts(record):
        found, limit = "not measured", number(verdict.limit, 4)
        if verdict.found is not None:
            found, limit = texts_that_differ(verdict.found, verdict.limit, 4)
        line = f"{verdict.subject} {verdict.measure}: {found}, limit {limit}: {verdict.standing}"
        say(line, style=None if verdict.is_met else "red")


def _print_search(record: RunRecord) -> None:
    found = record.find_max_result
    if not found:
        return
    console.print(table(record.steps, STEPS))
    best = found.get("best_connections")
    if best is None:
        say(str(found.get("message")), style="bold yellow")
        return
    say(
        f"highest stable level: {best} connections, {found.get('best_qps') or 0:,.0f} ops/s, "
        f"p95 {ms(found.get('best_p95_ms'))} ({found.get('max_type')})",
        style="bold green",
    )
    say(f"why not higher: {found.get('reason') or found.get('message')}")


_KINDS: Columns = {
    "kind": lambda row: row[0],
    "operations": lambda row: f"{row[1].operations:,}",
    "errors": lambda row: row[1].errors,
    "mean": lambda row: ms(row[1].latency.mean_ms),
    "p50": lambda row: ms(row[1].latency.p50_ms),
    "p95": lambda row: ms(row[1].latency.p95_ms),
    "p99": lambda row: ms(row[1].latency.p99_ms),
    "p99.9": lambda row: ms(row[1].latency.p999_ms),
    "max": lambda row: ms(row[1].latency.greatest_ms),
}
