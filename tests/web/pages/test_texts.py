"""What pages say in words, without a browser: each text says what is, in numbers and units that are right."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nicegui import Client, ui
from nicegui.page import page

from bench.recorded import record, search
from drumbeat.bench.model import LiveRun
from drumbeat.bench.results.compare import compared
from drumbeat.bench.results.compare.changes import BEST_LEVEL, ERRORS, KNEE, P95, QPS, Delta, FigureChange
from drumbeat.core.job import JobCounts
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.run import RunId, Template
from drumbeat.core.worker import UNANSWERED, Worker, WorkerId, WorkerStatus
from drumbeat.triggers.firings import LastFired
from drumbeat.web.app_state import AppState
from drumbeat.web.pages import actions
from drumbeat.web.pages.compare.verdicts import change_text, interval_text, metric_text, rules_text, verdict
from drumbeat.web.pages.fleet_simulate import SimulateForm
from drumbeat.web.pages.fleet_text import money
from drumbeat.web.pages.overview import OverviewData, PoolSummary, attention_items, workers_text
from drumbeat.web.pages.plain_words import counted
from drumbeat.web.pages.settings import template_prices
from drumbeat.web.pages.templates_fields import GUARDRAILS, MORE
from drumbeat.web.pages.templates_form import _field
from drumbeat.web.pages.templates_operations import OperationRows, error_text
from drumbeat.web.pages.triggers import fired_text
from drumbeat.web.roles import AuthMethod, Caller, Role
from drumbeat.web.run_warnings import RunWarnings
from drumbeat.web.snapshot_sections import guardrails

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def on_a_page(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Elements may be made for an operator, though no browser looks at them."""
    monkeypatch.setattr(actions, "caller", lambda: Caller(role=Role.OPERATOR, means=AuthMethod.SESSION, is_valid=lambda: True))
    client = Client(page("/nowhere"))
    with client:
        yield
    client.delete()


@pytest.mark.parametrize(
    ("count", "shown", "text"), [(0, None, "0 jobs"), (1, None, "1 job"), (2000, None, "2,000 jobs"), (2, "2+", "2+ jobs")]
)
def test_a_count_has_its_noun_in_the_right_number(count: int, shown: str | None, text: str) -> None:
    assert counted(count, "job", shown) == text


@pytest.mark.parametrize(
    ("reason", "message"),
    [("SERVER_QUEUE", "Statements queue in the database server"), ("GUARDRAIL", "Resource exhaustion")],
)
def test_a_run_that_failed_by_a_guardrail_says_by_which(reason: str, message: str) -> None:
    run = SimpleNamespace(completion_reason=reason, custom_metrics={}, controller_state={}, status="FAILED")

    assert guardrails(cast(LiveRun, SimpleNamespace(run=run, results=())))["message"] == message


def worker(name: str, silent: timedelta | None = None, **fields: Any) -> Worker:
    at = None if silent is None else NOW - silent
    return Worker(
        pool_id=PoolId("p"), worker_id=WorkerId(name), slot=0, created_at=NOW, started_at=at, heartbeat_at=at,
        **{"status": WorkerStatus.ACTIVE, **fields},
    )  # fmt: skip


def test_an_unhealthy_worker_is_called_what_it_is() -> None:
    home = pool("p", PoolKind.JOBS)
    limits = home.thresholds
    workers = (
        worker("well", timedelta()),
        worker("late", (limits.stale_after + limits.lost_after) / 2),
        worker("silent", limits.lost_after * 2),
        worker("absent", status=WorkerStatus.SPAWNING, meta={UNANSWERED: "no answer in 30 s"}),
    )
    counts = JobCounts(poisoned=1)

    found = attention_items(OverviewData(runs=(), active_runs=(), pools=(summary(counts, workers),)))

    assert [text for text, _ in found] == [
        "1 poisoned job in p",
        "worker late of p: late heartbeat",
        "worker silent of p: lost",
        "worker absent of p: not started: no answer in 30 s",
    ]
    assert workers_text(workers) == "3 active, 1 not started"


def summary(counts: JobCounts, workers: tuple[Worker, ...] = ()) -> PoolSummary:
    return PoolSummary(pool=pool("p", PoolKind.JOBS), counts=counts, workers=workers, now=NOW)


def test_jobs_that_wait_for_workers_say_for_how_long() -> None:
    counts = JobCounts(ready=1, oldest_ready=NOW - timedelta(minutes=5))

    found = attention_items(OverviewData(runs=(), active_runs=(), pools=(summary(counts),)))

    assert [text for text, _ in found] == ["1 ready job in p (longest wait: 5 min), but no workers"]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [(0.01, 0.02, "+1 % points"), (0.02, 0.005, "-1.5 % points"), (0.01, 0.01, "0 % points"), (None, 0.01, "–")],
)
def test_a_difference_of_error_rates_is_in_percentage_points(before: float | None, after: float | None, text: str) -> None:
    delta = Delta(bounds=ERRORS, before=before, after=after, change=FigureChange.STABLE)

    assert change_text(delta) == text


def test_an_interval_of_error_rates_is_in_percentage_points() -> None:
    comparison = compared(record(seed=1), record(seed=2, error_rate=0.02))
    (errors,) = [each for each in comparison.deltas if each.bounds is ERRORS]

    assert interval_text(errors).count(" % points") == 3
    assert interval_text(errors).startswith("+")


def test_a_metric_names_its_unit_once() -> None:
    assert [metric_text(each) for each in (QPS, P95, BEST_LEVEL, KNEE)] == [
        "operations/s", "p95 (ms)", "max stable connections", "estimated peak connections (Universal Scalability Law)",
    ]  # fmt: skip


def test_the_rules_of_a_comparison_are_those_of_its_load_mode() -> None:
    loaded, searched = rules_text(compared(record(seed=1), record(seed=2))), rules_text(compared(search(), search()))

    assert "exceeds: operations/s 10 %, p50 15 %, p95 20 %, p99 25 %, error rate 1 % points." in loaded
    assert "a lower one counts if it exceeds 0.1 % points and its p-value is below 0.01" in loaded
    assert "p-value" not in searched
    assert "For information only: estimated peak connections (Universal Scalability Law), p95, p99." in searched


@pytest.mark.parametrize(
    ("amount", "text"),
    [(None, None), (0, "0.00"), (3.5, "3.50"), (40, "40.00"), (0.0042, "0.0042"), (1.2345, "1.234"), (12345.678, "12,345.68")],
)
def test_an_amount_of_money_is_not_cut_to_two_decimals(amount: float | None, text: str | None) -> None:
    assert money(amount) == text


def test_a_template_that_sets_only_the_price_of_a_credit_is_listed() -> None:
    def template(name: str, **prices: Any) -> Template:
        return Template(template_id=name, name=name, config={"prices": prices})

    assert template_prices([template("a", credit=3.0), template("b"), template("c", worker_hour=1, currency="EUR")]) == [
        ("a", "/templates/a", None, None, 3.0, "USD"),
        ("c", "/templates/c", 1, None, None, "EUR"),
    ]


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (None, ("Fired t.", False)),
        (LastFired(at=NOW, ok=True, outcome="p: no action"), ("Fired t. p: no action", False)),
        (LastFired(at=NOW, ok=False, outcome="p: no lease"), ("Fired t, but it failed: p: no lease", True)),
    ],
)
def test_a_trigger_that_failed_is_an_error(last: LastFired | None, said: tuple[str, bool]) -> None:
    assert fired_text("t", last) == said


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("workload.operations[0].values", "Values of operation 1 (JSON): expected more"),
        ("workload.operations.1.statements.0.sql", "SQL of operation 2: 0.sql: expected more"),
        ("workload.operations.1.other", "Operation 2: other: expected more"),
        ("workload.operations.2", "Operation 3: expected more"),
        ("workload.operations", "workload.operations: expected more"),
        ("seed", "seed: expected more"),
        ("", "expected more"),
    ],
)
def test_an_error_names_an_operation_as_its_row_does(path: str, text: str) -> None:
    assert error_text(path, "expected more") == text


@pytest.mark.usefixtures("on_a_page")
def test_operations_are_numbered_by_their_place_also_after_one_is_removed() -> None:
    rows = OperationRows([{"kind": kind} for kind in "abc"], enabled=True)

    rows._remove(rows._rows[0])
    rows._add({})

    assert [row.kind.props["label"] for row in rows._rows] == [f"Name of operation {n}" for n in (1, 2, 3)]
    assert [row.remove.props["aria-label"] for row in rows._rows] == [f"Remove operation {n}" for n in (1, 2, 3)]


@pytest.mark.usefixtures("on_a_page")
def test_a_select_field_says_its_default() -> None:
    shown = {each.path: _field(each, None).props.get("hint") for each in (*GUARDRAILS, *MORE)}

    assert {path: hint for path, hint in shown.items() if hint} == {
        "guardrails.mode": "Default: lower the load (soft)",
        "guardrails.fail_threshold": "Default: all workers",
        "target.use_cached_result": "Default: on; Snowflake: off",
    }


@pytest.mark.usefixtures("on_a_page")
def test_a_simulation_of_a_constant_number_of_workers_asks_for_that_number() -> None:
    form = SimulateForm(cast(AppState, None))
    shown = []
    for policy in ("fixed", "lag_aware"):
        form._policy.value = policy
        shown.append((form._fields["max_workers"].props["label"], form._fields["min_workers"].visible))

    assert shown == [("Workers", False), ("Max workers", True)]


def test_the_warnings_of_a_new_run_are_shown_once() -> None:
    kept = RunWarnings()
    kept.add(RunId("a"), ("slow disk",))

    assert [kept.take(RunId("a")), kept.take(RunId("a"))] == [("slow disk",), ()]


@pytest.mark.usefixtures("on_a_page")
def test_an_inconclusive_comparison_says_why() -> None:
    verdict(compared(record(seed=1, length=5), record(seed=2, length=5)))

    shown = [each.text for each in ui.context.client.elements.values() if isinstance(each, ui.label)]
    assert [text for text in shown if text.startswith("Too little was measured: 5 s and 5 s")]
