"""What makes a run's figures hard to believe is said wherever the run is."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bench.recorded import rich
from drumbeat.bench.model.record import RunRecord, WorkerRecord
from drumbeat.bench.results.report import as_json, html, markdown
from drumbeat.core.worker import WorkerStatus

TRUE = {"connections": 8.0, "throughput_times_latency": 7.95, "off_by": 0.006, "client_share": 0.005, "unexplained": 0.001}
OFF = {"connections": 8.0, "throughput_times_latency": 6.0, "off_by": 0.25, "client_share": 0.05, "unexplained": 0.2}
KEPT = {"files": 1, "rows": 100, "lost": 0, "why": ""}
CLEAN: Mapping[str, Any] = {
    "little": TRUE,
    "drained": {"operations": 8, "errors": 0},
    "failed_connects": 0,
    "skipped": 0,
    "executions": KEPT,
    "send_lag": {"p99_ms": 0.4},
}


def run_of(first: Mapping[str, Any] | None = None, **known: Any) -> RunRecord:
    """Two workers, of whose first this is known."""
    plain = rich()
    one, other = (replace(worker, extra=CLEAN) for worker in plain.workers)
    return replace(plain, workers=(replace(one, extra={**CLEAN, **(first or {})}, **known), other))


def said(record: RunRecord) -> list[str]:
    found: list[str] = json.loads(as_json(record))["warnings"]
    return found


def test_a_clean_run_has_no_warnings() -> None:
    assert said(run_of()) == []


def test_a_worker_whose_operations_failed_is_not_lost() -> None:
    assert said(run_of(error="DATABASE_ERROR 40001")) == []


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ({"executions": {**KEPT, "lost": 12, "why": "No space left on device"}}, ["12", "No space left on device"]),
        ({"from_samples": True}, ["from_samples", "w0", "counted from samples"]),
        ({"little": OFF}, ["w0", "throughput × latency is 6,", "not reliable"]),
        ({"skipped": 1234}, ["1,234", "due but never sent"]),
        ({"failed_connects": 10}, ["10 attempts to open a connection failed"]),
        ({"drained": {"operations": 8, "errors": 3}}, ["3 of 16 operations that ended after the load was stopped failed"]),
    ],
)
def test_what_a_worker_noted_of_itself_is_said(first: Mapping[str, Any], words: list[str]) -> None:
    (warning,) = said(run_of(first))

    assert [word for word in words if word not in warning] == []


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"status": WorkerStatus.LOST, "error": "silent for 60 s"}, ["WORKERS_LOST", "w0 (silent for 60 s)"]),
        ({"status": WorkerStatus.ERROR, "error": "killed by signal 9"}, ["WORKERS_LOST", "w0 (killed by signal 9)"]),
        ({"meta": {"drain_timed_out": True, "abandoned": 4}}, ["drain_timed_out", "w0", "4 operations"]),
        ({"late_seconds": 7}, ["7 intervals", "sent late or waited for a connection", "0.4 ms"]),
    ],
)
def test_what_is_known_of_a_worker_beside_that_is_said(known: Mapping[str, Any], words: list[str]) -> None:
    (warning,) = said(run_of(**known))

    assert [word for word in words if word not in warning] == []


def test_of_many_workers_the_worst_is_named() -> None:
    plain = rich()
    workers = [replace(plain.workers[0], extra={"little": {**OFF, "unexplained": 0.03 + n / 100}}) for n in range(9)]

    (warning,) = said(replace(plain, workers=tuple(workers)))

    assert "11.0%" in warning
    assert "8 other workers" in warning


@pytest.mark.parametrize("form", [markdown, html])
def test_reports_say_it_too(form: Any) -> None:
    assert "due but never sent" in form(run_of({"skipped": 5}))


def test_workers_of_which_nothing_is_known_are_no_reason_to_doubt() -> None:
    assert said(replace(rich(), workers=(WorkerRecord(worker_id=rich().workers[0].worker_id),))) == []
