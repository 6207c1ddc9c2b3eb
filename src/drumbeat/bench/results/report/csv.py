"""Writes the figures of each second of a run as CSV."""

from drumbeat.bench.model.record import RunRecord, Second
from drumbeat.bench.results.availability import availability_of
from drumbeat.bench.results.report.escape import cell

_HEAD = (
    "second", "phase", "operations", "errors", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "connections", "target_connections",
    "cpu_percent", "memory_percent", "workers", "client_limited", "failed_connects", "no_service",
)  # fmt: skip


def csv(record: RunRecord) -> str:
    """Return the CSV text: a header, and one line for each second of the run."""
    found = availability_of(record)
    missing = {offset for began, ended in found.stretches for offset in range(began, ended)} if found else set()
    lines = [_HEAD, *((*_line(second), int(second.offset in missing)) for second in record.timeline)]
    return "".join(",".join(cell(each) for each in line) + "\r\n" for line in lines)


def _line(second: Second) -> tuple[object, ...]:
    return (
        second.offset,
        second.phase or "",
        round(second.operations, 3),
        round(second.errors, 3),
        *(_rounded(value) for value in (second.mean_ms, second.p50_ms, second.p95_ms, second.p99_ms)),
        round(second.held, 2),
        round(second.target, 2),
        _rounded(second.cpu_percent),
        _rounded(second.memory_percent),
        second.workers,
        int(second.client_limited),
        second.failed_connects,
    )


def _rounded(value: float | None) -> object:
    return "" if value is None else round(value, 4)
