"""A run in a few sentences: each from figures that are there, none where they are not."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bench.recorded import measured, run, search, seconds
from cli.given import invoke
from drumbeat.bench.model import Guardrails, LoadMode, Objective, QpsPlan, RunPlan, RunRecord, Scaling, ScalingMode
from drumbeat.bench.model.plan import ALL_KINDS
from drumbeat.bench.results.summary import LimitKind, limits_of, summarise
from drumbeat.core.run import Result, RunId, RunStatus
from drumbeat.core.worker import WorkerId

DEGRADED = "p95 +61.0% ± 3.0% against the first step, limit +20 %"


def short(
    name: str = "run-2",
    plan: RunPlan | None = None,
    *,
    metrics: Mapping[str, Any] | None = None,
    find_max: Mapping[str, Any] | None = None,
    length: int = 60,
    error_rate: float = 0.0,
    qps: float = 1000,
    connections: int = 40,
    **known: Any,
) -> RunRecord:
    """A run as its rows tell it: no seconds, no workers' rows, no decisions."""
    total = measured(seconds(1, length=length, qps=qps, error_rate=error_rate, spread=0.0))
    whole = Result(
        run_id=RunId(name), operations=total.operations, errors=total.errors, connections=connections,
        custom_metrics=metrics or {}, find_max_result=find_max,
    )  # fmt: skip
    workers = [replace(whole, worker_id=WorkerId(f"w{n}"), custom_metrics={}, find_max_result=None) for n in range(2)]
    return RunRecord(
        run=run(name, **known), plan=plan or RunPlan(), results=(whole, *workers), totals={ALL_KINDS: total} if length else {}
    )


def told(record: RunRecord, before: RunRecord | None = None) -> str:
    return "\n".join(summarise(record, before))


QPS = RunPlan(
    load_mode=LoadMode.QPS,
    qps=QpsPlan(target_qps=2000),
    scaling=Scaling(mode=ScalingMode.BOUNDED, max_workers=2, max_connections=20),
)
FIXED = RunPlan(scaling=Scaling(mode=ScalingMode.FIXED, min_workers=2, min_connections=20))
SEARCH = RunPlan(
    load_mode=LoadMode.FIND_MAX_CONCURRENCY, scaling=Scaling(mode=ScalingMode.BOUNDED, max_workers=1, max_connections=60)
)
BACKED_OFF = {"actions_taken": [{"action": "back_off"}, {"action": "restore"}, {"action": "back_off"}]}
OVERLOADED = {"workers_over_cpu": ["w0", "w1"], "workers_over_memory": []}


def found(record: RunRecord, **result: Any) -> RunRecord:
    """A search that ended so."""
    (whole,) = record.results
    known = {**(whole.find_max_result or {}), **result}
    return replace(record, plan=SEARCH, timeline=(), results=(replace(whole, find_max_result=known),))


LIMITS: Mapping[str, tuple[RunRecord, LimitKind, str, str]] = {
    "workers that never came": (
        short(length=0, status=RunStatus.FAILED, completion_reason="START_TIMEOUT"),
        LimitKind.NOT_STARTED,
        "Its workers were not ready in time, so it never began.",
        "see why the workers were not ready (drumbeat bench status run-2)",
    ),
    "hosts that ended the run": (
        short(
            plan=replace(FIXED, guardrails=Guardrails(max_cpu_percent=70)),
            status=RunStatus.FAILED,
            completion_reason="RESOURCE_EXHAUSTION",
            custom_metrics={"soft_guardrails": OVERLOADED},
        ),
        LimitKind.GUARDRAIL,
        "The workers' hosts were the limit (2 workers above 70 % CPU), and guardrails ended the run.",
        "spread the load over more workers or hosts (scaling.min_workers, now 2)",
    ),
    "hosts of which nothing is known": (
        short(status=RunStatus.FAILED, completion_reason="GUARDRAIL"),
        LimitKind.GUARDRAIL,
        "The workers' hosts were the limit, at 80 % CPU or 85 % memory, and guardrails ended the run.",
        "scaling.max_workers, now without limit",
    ),
    "hosts that took load away": (
        short(custom_metrics={"soft_guardrails": BACKED_OFF}),
        LimitKind.BACKED_OFF,
        "guardrails reduced the load 2 times, at 80 % CPU or 85 % memory.",
        "spread the load over more workers or hosts",
    ),
    "lost workers": (
        short(metrics={"flags": ["WORKERS_LOST"]}),
        LimitKind.WORKERS_LOST,
        "Workers were lost, so a part of the load is missing.",
        "see why workers were lost (drumbeat logs list run-2)",
    ),
    "clients": (
        short(metrics={"client_limited": True}),
        LimitKind.CLIENT,
        "The clients, not the database, were the limit in more than a tenth of the measured seconds.",
        "spread the load over more workers or hosts",
    ),
    "an outage": (
        short(metrics={"availability": {"seconds": 60, "without_service": 3, "stretches": [[5, 8]]}}),
        LimitKind.OUTAGE,
        "In 3 of 60 s no operation succeeded.",
        "find out what happened to the database in those seconds",
    ),
    "errors": (
        short(error_rate=0.05, metrics={"error_classes": {"QUERY_TIMEOUT": 2900, "CONNECTION": 100}}),
        LimitKind.ERRORS,
        "3,000 of 60,000 operations failed, most often with QUERY_TIMEOUT (2,900).",
        "look at the errors first (drumbeat bench executions run-2 --failed)",
    ),
    "a queue in the database": (
        short(metrics={"server": {"measurement": {"statements": 60_000.0, "queued": 1200.0, "longest_queue_time": 3210.0}}}),
        LimitKind.SERVER_QUEUE,
        "1,200 of 60,000 statements queued in the database, the longest for 3,210 ms.",
        "use a larger warehouse or more clusters, or fewer connections",
    ),
    "a queue that ended the run": (
        short(completion_reason="SERVER_QUEUE"),
        LimitKind.SERVER_QUEUE,
        "Too many statements queued in the database, so the run was ended.",
        "use a larger warehouse or more clusters, or fewer connections",
    ),
    "bounds": (
        short(
            plan=QPS, completion_reason="BOUNDS_LIMIT_REACHED", metrics={"bounds": {"max_workers": 2, "max_connections": 20}}
        ),
        LimitKind.BOUNDS,
        "The bounds (2 workers, 20 connections each) were the limit: 1,000 of 2,000 operations/s were reached.",
        "raise the bounds (scaling.max_workers, now 2; scaling.max_connections, now 20), or lower the target",
    ),
    "the bounds of a search": (
        found(search(), max_type="BOUNDED_MAX"),
        LimitKind.SEARCH_BOUNDS,
        "The configured bounds ended the search, so the limit of the database was not reached.",
        "raise the bounds (scaling.max_workers, now 1; scaling.max_connections, now 60) to find the limit of the database",
    ),
    "queueing": (
        found(search(), outcome="QUEUE_DETECTED", reason="8.1 sessions waited in the server, more than 6.5"),
        LimitKind.QUEUEING,
        "Above that level sessions queued in the database: 8.1 sessions waited in the server, more than 6.5.",
        "keep to at most 60 connections",
    ),
    "latency": (
        found(search(), outcome="DEGRADED", reason=DEGRADED),
        LimitKind.SLOWER,
        f"Above that level the database became slower: {DEGRADED}.",
        "keep to at most 60 connections",
    ),
    "no level at all": (
        found(search(), best_connections=None, best_qps=None, reason="100.00 % of operations failed, more than 1 %"),
        LimitKind.NO_STABLE_LEVEL,
        "No level was stable: 100.00 % of operations failed, more than 1 %.",
        "start the search lower (find_max.start_connections, now 5)",
    ),
    "too little throughput": (
        short(plan=QPS),
        LimitKind.BELOW_TARGET,
        "The throughput stayed below its target within the bounds: 1,000 of 2,000 operations/s were reached.",
        "",
    ),
    "an objective": (
        short(plan=RunPlan(objectives={ALL_KINDS: Objective(p95_ms=1)})),
        LimitKind.OBJECTIVE,
        "It missed an objective: p95 of all kinds: ",
        "search for the most connections that meet the objectives",
    ),
    "connections that are all busy": (
        short(connections=5),
        LimitKind.CONNECTIONS,
        "All 5 connections were busy all the time: an operation took 5.36 ms on average.",
        "set objectives (slo)",
    ),
}


@pytest.mark.parametrize("case", LIMITS)
def test_what_limited_a_run_is_said_with_what_to_try(case: str) -> None:
    record, kind, sentence, advice = LIMITS[case]

    said = told(record)

    assert limits_of(record)[0].kind is kind
    assert sentence in said
    assert advice in said
    assert ("To try next: " in said) is bool(advice)


def test_what_was_run_is_said_first_with_its_figures() -> None:
    (first, *_) = summarise(short(plan=FIXED))

    assert first == (
        "This run loaded PostgreSQL with 40 connections on 2 workers for 60 s: "
        "1,000 operations/s, p95 9.11 ms, p99 11.8 ms, no errors."
    )


def test_a_search_says_the_level_it_found() -> None:
    (first, *_) = summarise(found(search()))

    assert first == (
        "This run searched for the most connections that are stable on PostgreSQL, in 9 steps: "
        "the highest stable level is 60 connections with 5,000 operations/s and p95 10 ms."
    )


def test_a_run_that_has_not_ended_has_no_summary() -> None:
    assert summarise(short(status=RunStatus.RUNNING)) == ()


def test_without_figures_nothing_is_made_up() -> None:
    bare = RunRecord(run=run("bare", RunStatus.FAILED, config={}, completion_reason=None), plan=RunPlan())

    assert summarise(bare) == ("This run measured nothing.", "It failed: the run failed.")


def test_a_cancelled_run_is_given_no_advice() -> None:
    said = told(short(status=RunStatus.CANCELLED, completion_reason="USER"))

    assert "It was cancelled." in said
    assert "To try next" not in said


def test_what_changed_since_the_run_before_is_said_in_figures() -> None:
    before = short("run-1", qps=800, template_id="t", config={"document": {"concurrent_connections": 30, "name": "a"}})
    after = short("run-2", template_id="t", config={"document": {"concurrent_connections": 40, "name": "b"}})

    said = told(after, before)

    assert "Against the run before of the same template (run-1): operations/s 800 → 1,000 (+25.0 %), " in said
    assert "p95 9.11 ms as before" in said
    assert "Settings that differ between the two: concurrent_connections." in said
    assert "Worse" not in said


def test_what_became_worse_is_named_with_the_command_that_tests_it() -> None:
    said = told(short("run-2", qps=800, error_rate=0.02), short("run-1"))

    assert "(-20.0 %)" in said
    assert "error rate 0 → 2 %" in said
    assert "Worse by more than runs usually vary: operations/s, error rate;" in said
    assert "drumbeat bench compare run-1 run-2" in said


def test_a_run_before_that_measured_nothing_is_not_compared_with() -> None:
    assert "Against" not in told(short("run-2"), short("run-1", length=0))


def test_short_measurements_are_told_to_be_longer() -> None:
    assert "Measure for 30 s or more" in told(short(length=10))
    assert "Measure for 30 s or more" not in told(short(length=40))


def test_reasons_are_written_without_control_characters_and_not_endless() -> None:
    reason = "\x1b[31mred\u202e\n" + "long " * 1000
    record = replace(short(), run=run("run-2", RunStatus.FAILED, custom_metrics={
        "verdict": {"verdict": "FAILED", "reason": reason, "exit_code": 3}
    }))  # fmt: skip

    said = told(record)

    assert all(sentence.isprintable() for sentence in said.splitlines())
    assert "It failed: [31mred long long" in said
    assert len(said) < 1500


@pytest.mark.parametrize("command", ["bench status", "bench executions", "bench compare", "logs list"])
def test_the_commands_it_names_are_there(command: str) -> None:
    assert invoke(*command.split(), "--help").code == 0


@pytest.mark.parametrize("case", LIMITS)
def test_a_summary_is_a_few_plain_sentences(case: str) -> None:
    sentences = summarise(LIMITS[case][0])

    assert 2 <= len(sentences) <= 9
    assert all(sentence.endswith(".") and sentence.isprintable() and "None" not in sentence for sentence in sentences)
