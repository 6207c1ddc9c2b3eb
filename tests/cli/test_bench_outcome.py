"""What is printed when a run has ended."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.recorded import record, rich, search
from drumbeat.bench.model import FailureExample, Latency, Measured, Objective, RunRecord, ms
from drumbeat.bench.model.plan import ALL_KINDS
from drumbeat.bench.service import BenchService
from drumbeat.cli.bench_outcome import form_of, print_outcome
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import RunStatus


def test_what_makes_figures_hard_to_believe_is_printed_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    plain, desk = rich(), BenchService
    known: Any = desk  # what is asked of it needs no store
    worker = replace(plain.workers[0], extra={"skipped": 5, "failed_connects": 2})

    print_outcome(known, replace(plain, workers=(worker,)), [])

    printed = capsys.readouterr().out
    assert "note: 5 operations were due but never sent" in printed
    assert "note: 2 attempts to open a connection failed" in printed


def printed(known: RunRecord, capsys: pytest.CaptureFixture[str]) -> str:
    desk: Any = BenchService  # what is asked of it needs no store
    print_outcome(desk, known, [])
    return capsys.readouterr().out


def test_a_run_whose_every_operation_failed_says_so_and_with_which_error(capsys: pytest.CaptureFixture[str]) -> None:
    plain = record(length=1, warmup=0)
    known = replace(
        plain,
        totals={ALL_KINDS: Measured(operations=10, errors=10)},
        timeline=(replace(plain.timeline[0], errors_by_class={"DATABASE_ERROR": 10}),),
        failures=(FailureExample(kind="read", error_class="DATABASE_ERROR", sqlstate="42P01", message="no such table"),),
    )

    said = printed(known, capsys)

    assert "a run COMPLETED (DURATION)\nverdict: FAILED: every operation failed\n" in said
    assert "most frequent error: DATABASE_ERROR 42P01, 10 of 10: no such table\n" in said


def test_a_search_is_judged_where_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    plain = search(p95_ms=12_345.6)
    known = replace(plain, plan=replace(plain.plan, objectives={ALL_KINDS: Objective(p95_ms=20_000)}))

    said = printed(known, capsys)

    assert "service levels, judged at the level found: 60 connections\n" in said
    assert "all kinds p95_ms: 12,346, limit 20,000: ok\n" in said


def test_a_search_without_a_stable_level_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    plain = search()
    found = {"best_connections": None, "message": "No stable level: it failed"}
    known = replace(plain, results=(replace(plain.results[0], find_max_result=found),))

    assert "search COMPLETED (DURATION)\nverdict: FAILED: no stable level\n" in printed(known, capsys)


def test_seconds_are_printed_as_plain_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    slow = Measured(operations=10, seconds=1, latency=Latency(p50_ms=999.6, p95_ms=5712.4, p99_ms=31_000.0))

    said = printed(replace(record(length=1, warmup=0), totals={ALL_KINDS: slow}), capsys)

    assert "5,712 ms" in said
    assert "e+0" not in said
    assert [ms(each) for each in (None, 0.01234, 5.678, 999.4, 999.6, 5712.4)] == [
        "–", "0.0123 ms", "5.68 ms", "999 ms", "1,000 ms", "5,712 ms",
    ]  # fmt: skip


def test_a_run_that_has_not_ended_has_no_reason_yet(capsys: pytest.CaptureFixture[str]) -> None:
    plain = record(length=1, warmup=0)
    known = replace(plain, run=replace(plain.run, status=RunStatus.RUNNING, completion_reason=None))

    assert printed(known, capsys).startswith("a run RUNNING\n")


def test_a_report_without_a_folder_is_refused_before_the_run(tmp_path: Path) -> None:
    assert form_of(f"{tmp_path}/x.html") == "html"
    with pytest.raises(InvalidInput, match=r"cannot write the report .*: folder .* does not exist"):
        form_of(f"{tmp_path}/none/x.html")
