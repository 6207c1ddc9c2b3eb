"""What drumbeat bench prints before a run and after it, and the reports it writes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumbeat.bench.model import RunRecord, RunVerdict, ms, number, told_apart
from drumbeat.cli.live import STEPS
from drumbeat.cli.render import Columns, console, say, table
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Phase

if TYPE_CHECKING:
    from drumbeat.composition.plane import BenchService

_FORMS = {
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
    Phase.WARMUP: "longer until the throughput has settled",
    Phase.MEASUREMENT: "less if the search ends early, more where it has to look at a level again",
}


def form_of(path: str) -> str:
    """Which form of report a file's ending asks for. Raises InvalidInput, also where there is no folder to write it into."""
    found = _FORMS.get(Path(path).suffix.lower())
    if found is None:
        raise InvalidInput(f"expected a report's file to end in one of {', '.join(_FORMS)}, got {path!r}")
    if not Path(path).parent.is_dir():
        raise InvalidInput(
            f"expected a folder to write the report {path!r} into, got none at {str(Path(path).parent)!r}; make it"
        )
    return found


def write(path: str, content: str) -> None:
    """Keep a report in a file. Raises InvalidInput."""
    try:
        Path(path).write_text(content, encoding="utf-8")
    except OSError as exc:
        raise InvalidInput(f"expected to write a report to {path!r}, got: {exc.strerror}") from exc


def print_plan(found: Any) -> None:
    """What a run would start."""
    most = "as many as it takes" if found.most_workers is None else f"at most {found.most_workers}"
    each = ", ".join(str(number) for number in found.connections[:10]) + (" …" if len(found.connections) > 10 else "")
    say(f"{found.load_mode}: {found.workers} workers at first ({most}), holding {each} connections", style="bold")
    say(f"a worker holds at most {found.cap}; all together at most {found.most_connections or 'as many as it takes'}")
    for phase in found.phases:
        if phase.duration is not None:
            about, more = ("about ", f"; {_ESTIMATES[phase.phase]}") if phase.is_estimate else ("", "")
            say(f"{phase.phase}: {about}{round(phase.duration.total_seconds(), 1):g} s{more}")
    if found.estimated_cost is not None:
        say(f"estimated cost: {found.estimated_cost:.2f} {found.currency}")
    print_notes(found)


def print_notes(found: Any) -> None:
    """What to beware of, and what forbids it."""
    for warning in found.warnings:
        say(f"note: {warning}", style="yellow")
    for error in found.errors:
        say(f"cannot run: {error}", style="red")


def print_outcome(desk: "BenchService", record: RunRecord, reports: list[str]) -> None:
    """How a run ended, and what it measured."""
    ended, whole, judgement = record.run, record.whole, desk.judge(record)
    reason = f" ({ended.completion_reason})" if ended.completion_reason else ""
    say(f"{ended.run_id} {ended.status}{reason}", style="bold")
    say(f"verdict: {judgement.headline}", style=_STYLES.get(judgement.verdict, "bold red"))
    failure = record.result.failure_reason if record.result else None
    if failure:
        say(failure, style="red")
    if whole.operations:
        say(
            f"{whole.qps:,.0f} ops/s over {whole.seconds:.1f} s: {whole.operations:,} operations, {whole.errors:,} errors",
            style="bold",
        )
        console.print(table([*record.kinds.items(), ("all", whole)], _KINDS))
    _print_search(record)
    _print_availability(desk, record)
    _print_verdicts(desk, record)
    for warning in desk.warnings(record):
        say(f"note: {warning}", style="yellow")
    for path in reports:
        say(f"report: {path}")


def _print_availability(desk: "BenchService", record: RunRecord) -> None:
    found, fair = desk.availability(record), desk.corrected(record)
    if found is not None and found.percent is not None:
        missing = f": {found.words}" if found.without_service else ""
        say(f"available {number(found.percent, 5)} % of the time{missing}", style="red" if missing else None)
    if fair is not None:
        shown = ", ".join(
            f"{name} {number(ms, 4)} ms" for name, ms in (("p50", fair.p50_ms), ("p95", fair.p95_ms), ("p99", fair.p99_ms))
        )
        say(f"corrected for coordinated omission: {shown}")


def _print_verdicts(desk: "BenchService", record: RunRecord) -> None:
    if where := desk.judged_at(record):
        say(f"service levels, {where}")
    for verdict in desk.verdicts(record):
        found, limit = "nothing measured", number(verdict.limit, 4)
        if verdict.found is not None:
            found, limit = told_apart(verdict.found, verdict.limit, 4)
        line = f"{verdict.subject} {verdict.measure}: {found}, limit {limit}: {verdict.standing}"
        say(line, style=None if verdict.kept else "red")


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
        f"most that is stable: {best} connections, {found.get('best_qps') or 0:,.0f} ops/s, "
        f"p95 {ms(found.get('best_p95_ms'))} ({found.get('max_type')})",
        style="bold green",
    )
    say(f"why no more: {found.get('reason') or found.get('message')}")


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
