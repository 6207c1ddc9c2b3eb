"""What is printed when a run has ended."""

from dataclasses import replace
from typing import Any

import pytest

from bench.recorded import rich
from drumbeat.bench.desk import BenchDesk
from drumbeat.cli.bench_outcome import print_outcome


def test_what_makes_figures_hard_to_believe_is_printed_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    plain, desk = rich(), BenchDesk
    known: Any = desk  # what is asked of it needs no store
    worker = replace(plain.workers[0], extra={"skipped": 5, "failed_connects": 2})

    print_outcome(known, replace(plain, workers=(worker,)), [])

    printed = capsys.readouterr().out
    assert "note: 5 operations were due and never sent" in printed
    assert "note: 2 attempts to open a connection failed" in printed
