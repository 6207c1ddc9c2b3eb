from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bench.recorded import BEGAN, record, run
from drumbeat.bench.model.verdict import ExitStatus
from drumbeat.bench.results.compare import Candidate, compared, last_good, regress
from drumbeat.core.run import Run, RunStatus


def made(name: str, minutes: int, **known: Any) -> Run:
    fields: dict[str, Any] = {"template_id": "t", "config": {"load_mode": "QPS"}} | known
    called = fields.pop("called", "nightly")
    return replace(run(name, **fields), name=called, created_at=BEGAN + timedelta(minutes=minutes))


def good(found: Run, passed: bool = True) -> Candidate:
    return Candidate(run=found, passed=passed)


def picked(*candidates: Candidate, of: Run | None = None) -> str | None:
    found = last_good(candidates, of or made("now", 60))
    return found.run_id if found else None


def test_the_newest_run_that_passed_is_the_one_to_compare_with() -> None:
    assert (
        picked(good(made("old", 1)), good(made("new", 3)), good(made("older", 2)), good(made("bad", 4), passed=False)) == "new"
    )


@pytest.mark.parametrize(
    "candidate",
    [
        good(made("failed", 1, status=RunStatus.FAILED)),
        good(made("missed", 1), passed=False),
        good(made("other template", 1, template_id="u")),
        good(made("other mode", 1, config={"load_mode": "CONCURRENCY"})),
        good(made("now", 1)),
        good(made("later", 61)),
    ],
    ids=lambda candidate: candidate.run.run_id,
)
def test_no_other_run_will_do(candidate: Candidate) -> None:
    assert picked(candidate) is None


def test_without_a_template_the_same_config_is_looked_for_and_else_the_same_name() -> None:
    bare: dict[str, Any] = {"template_id": None}
    hashed = {"load_mode": "QPS", "config_hash": "h"}
    same = good(made("same", 1, config=hashed, called="renamed", **bare))
    namesake = good(made("namesake", 2, **bare))

    assert picked(same, namesake, of=made("now", 60, config=hashed, **bare)) == "same"
    assert picked(same, namesake, of=made("now", 60, **bare)) == "namesake"


@pytest.mark.parametrize(
    ("shape", "gate"),
    [
        ({}, ExitStatus.PASSED),
        ({"qps": 1300}, ExitStatus.PASSED),
        ({"qps": 870}, ExitStatus.PASSED),
        ({"qps": 500}, ExitStatus.REGRESSED),
        ({"length": 10}, ExitStatus.INCONCLUSIVE),
    ],
)
def test_a_regression_ends_in_a_code_of_its_own(shape: dict[str, Any], gate: ExitStatus) -> None:
    steady: dict[str, Any] = {"length": 200, "spread": 0.03, "likeness": 0.3}

    assert regress(compared(record(seed=1, **steady), record(seed=2, **(steady | shape)))) is gate


def test_nothing_to_compare_with_is_inconclusive() -> None:
    assert regress(None) is ExitStatus.INCONCLUSIVE


def test_a_run_that_failed_is_not_called_fine() -> None:
    failed = replace(record(), run=run(status=RunStatus.FAILED))

    assert regress(compared(record(), failed)) is ExitStatus.RUN_FAILED
