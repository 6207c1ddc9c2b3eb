"""Each rule of stability as a row: what was measured at 15 connections after many quiet looks at 5, and what it is called."""

from dataclasses import replace

import pytest

from bench.control.modes.given_find_max import ended, figures, look, measuring, plan, view
from drumbeat.bench.model import ALL_KINDS, Figures, KindFigures, Objective, Queueing, RunPlan
from drumbeat.core.run import Step

ALL_WAITS, LOCKS, NO_WAITS = Queueing.ALL, Queueing.LOCKS, Queueing.OFF
QUIET = tuple(look(5) for _ in range(60))  #: so many looks that scatter is known to be next to nothing

P95 = plan(objectives={"INSERT": Objective(p95_ms=20.0)})
P99 = plan(objectives={"INSERT": Objective(p99_ms=20.0)})
ERRORS = plan(objectives={"INSERT": Objective(max_error_pct=0.5)})
ALL = plan(objectives={ALL_KINDS: Objective(p95_ms=8.0)})
ALL_ERRORS = plan(objectives={ALL_KINDS: Objective(max_error_pct=0.5)})
OFF = plan(objectives={"INSERT": Objective()})


def inserts(**measured: float) -> Figures:
    return figures(kinds={"INSERT": KindFigures(operations=1000, **measured)})  # type: ignore[arg-type]


RULES = [
    ("nothing wrong", plan(), figures(), "STABLE", "p95 +0.0%"),
    ("nobody waits", plan(), figures(waiting=0.0), "STABLE", "p95"),
    ("a single lock wait is no queue", plan(), figures(waiting=1.0), "STABLE", "p95"),
    ("a tenth of the connections may wait", plan(), figures(connections=200, waiting=20.0), "STABLE", "p95"),
    ("more wait", plan(), figures(waiting=4.0), "QUEUE_DETECTED", "4.0 sessions waited"),
    ("a lock makes a queue", plan(), figures(waiting=4.0, lock_waits=4.0), "QUEUE_DETECTED", "4.0 sessions waited"),
    ("group commit while throughput grows", plan(), figures(waiting=14.0, lock_waits=0.0), "STABLE", "p95"),
    (
        "latches that hold throughput",
        plan(),
        figures(waiting=4.0, lock_waits=1.0, qps=520.0),
        "QUEUE_DETECTED",
        "gained only +4",
    ),
    ("no queue, no gain: others judge that", plan(), figures(waiting=1.0, lock_waits=0.0, qps=520.0), "STABLE", "p95"),
    ("latches count at once if told to", plan(queueing=ALL_WAITS), figures(waiting=4.0, lock_waits=0.0), "QUEUE_DETECTED", ""),
    ("latches never count", plan(queueing=LOCKS), figures(waiting=14.0, lock_waits=0.0, qps=520.0), "STABLE", "p95"),
    ("queues are switched off", plan(queueing=NO_WAITS), figures(waiting=14.0, lock_waits=14.0), "STABLE", "switched off"),
    ("a share of one's own", plan(max_waiting_pct=50.0), figures(waiting=7.0, lock_waits=7.0), "STABLE", "p95"),
    ("a queue comes before errors", plan(), figures(waiting=4.0, errors=45_000), "QUEUE_DETECTED", "waited"),
    ("errors at the limit", plan(), figures(errors=450), "STABLE", "p95"),
    ("errors above it", plan(), figures(errors=900), "ERROR_THRESHOLD", "2.00 % of operations failed, more than 1 %"),
    (
        "failed connects count as errors",
        plan(),
        figures(errors=0, failed_connects=900),
        "ERROR_THRESHOLD",
        "1.96 % of operations failed (0 failed, 900 failed connects)",
    ),
    ("errors come before latency", plan(), figures(errors=900, p95_ms=90.0), "ERROR_THRESHOLD", "2.00 %"),
    ("latency within the limit", plan(), figures(p95_ms=11.9), "STABLE", "p95 +19.0%"),
    ("latency above it", plan(), figures(p95_ms=12.1), "DEGRADED", "p95 +21.0%"),
    ("a limit of one's own", plan(latency_stability_pct=50.0), figures(p95_ms=14.9), "STABLE", "p95 +49.0%"),
    ("latency comes before throughput", plan(), figures(p95_ms=20.0, qps=100.0), "DEGRADED", "p95"),
    ("throughput falls within the limit", plan(), figures(qps=476.0), "STABLE", "p95"),
    ("throughput falls below it", plan(), figures(qps=474.0), "DEGRADED", "throughput -5.2%"),
    ("nothing ended", plan(min_operations=0), figures(qps=0.0, p95_ms=None), "DEGRADED", "no operation ended"),
    ("an objective is kept", P95, inserts(p95_ms=19.0), "STABLE", "p95"),
    ("p95 above the objective", P95, inserts(p95_ms=25.0), "SLO", "INSERT: p95 of 25 ms is above the objective of 20 ms"),
    ("p99 above the objective", P99, inserts(p99_ms=25.0), "SLO", "INSERT: p99 of 25 ms"),
    ("errors above the objective", ERRORS, inserts(errors=8), "SLO", "INSERT: errors of 0.8 %"),
    ("an objective for a kind that did nothing", P95, figures(), "SLO", "INSERT: an objective is set and no operation ended"),
    ("an objective for all together", ALL, figures(), "SLO", "all operations: p95 of 10 ms"),
    ("failed connects miss an objective for all", ALL_ERRORS, figures(failed_connects=300), "SLO", "all operations: errors of"),
    ("an objective that is switched off", OFF, figures(), "STABLE", "p95"),
    ("latency comes before objectives", P95, figures(p95_ms=20.0), "DEGRADED", "p95 +100.0%"),
]


def judged(of: RunPlan, measured: Figures) -> Step:
    said = ended(of, measuring(15, *QUIET), measured)
    assert said.step is not None
    return said.step


def test_a_step_has_the_failed_connects_that_its_error_rate_counts() -> None:
    step = judged(plan(), figures(operations=950, errors=0, failed_connects=50))

    assert (step.failed_connects, step.error_rate) == (50, 0.05)


@pytest.mark.parametrize(("of", "measured", "outcome", "reason"), [row[1:] for row in RULES], ids=[row[0] for row in RULES])
def test_rule(of: RunPlan, measured: Figures, outcome: str, reason: str) -> None:
    step = judged(of, measured)

    assert (step.outcome, reason in (step.reason or "")) == (outcome, True), step.reason


@pytest.mark.parametrize(("waiting", "detected"), [(None, None), (0.0, False), (9.0, True)])
def test_a_server_that_says_nothing_of_queues_is_not_evaluated_and_it_is_said(
    waiting: float | None, detected: bool | None
) -> None:
    step = judged(plan(), figures(waiting=waiting))

    assert step.queue_detected is detected
    assert ("queueing not evaluated" in (step.reason or "")) is (waiting is None)


FIRST = [
    ("any latency", figures(5, p95_ms=900.0), "STABLE"),
    ("any throughput", figures(5, qps=1.0), "STABLE"),
    ("errors", figures(5, errors=9000), "ERROR_THRESHOLD"),
    ("a queue", figures(5, waiting=3.0), "QUEUE_DETECTED"),
    ("group commit", figures(5, waiting=3.0, lock_waits=0.0), "STABLE"),
    ("nothing at all", figures(5, qps=0.0, p95_ms=None), "DEGRADED"),
]


@pytest.mark.parametrize(("measured", "outcome"), [row[1:] for row in FIRST], ids=[row[0] for row in FIRST])
def test_the_first_step_is_judged_by_itself_alone(measured: Figures, outcome: str) -> None:
    said = ended(plan(), measuring(5, repeated=True), measured)

    assert said.step is not None
    assert said.step.outcome == outcome
    assert (said.finish is None) is (outcome == "STABLE")


def test_without_a_stable_first_step_there_is_no_level() -> None:
    said = ended(plan(), measuring(5), figures(5, errors=9000))

    assert said.finish is not None
    assert said.finish.completion_reason == "MAX_FOUND"
    assert {
        name: said.finish.result[name] for name in ("best_connections", "max_type", "bounded", "ceiling_reached", "knee")
    } == {
        "best_connections": None,
        "max_type": None,
        "bounded": False,
        "ceiling_reached": False,
        "knee": None,
    }
    assert "No stable level" in said.finish.result["message"]
    assert "20.00 % of operations failed" in said.finish.result["reason"]


NARROW = [
    ("errors", plan(), figures(errors=500), "ERROR_THRESHOLD"),
    ("waiting sessions", plan(), figures(waiting=1.8), "QUEUE_DETECTED"),
    ("an objective", P95, inserts(p95_ms=21.0), "SLO"),
]


@pytest.mark.parametrize(("of", "measured", "outcome"), [row[1:] for row in NARROW], ids=[row[0] for row in NARROW])
def test_a_narrow_failure_counts_when_it_happens_twice(of: RunPlan, measured: Figures, outcome: str) -> None:
    first = ended(of, measuring(15, *QUIET), measured)
    again = ended(of, measuring(15, *QUIET, repeated=True), measured)

    assert first.step is not None
    assert again.step is not None
    assert (first.step.outcome, first.connections, again.step.outcome) == ("HELD", 15, outcome)
    assert first.find_max is not None
    assert first.find_max.repeated


def test_a_gain_too_close_to_call_is_looked_at_again_before_waits_count() -> None:
    noisy = tuple(look(5, qps=qps) for qps in (450.0, 550.0, 450.0, 550.0))

    said = ended(plan(), measuring(15, *noisy), figures(qps=600.0, waiting=6.0, lock_waits=0.0))

    assert said.step is not None
    assert (said.step.outcome, said.connections) == ("HELD", 15)


def test_scatter_that_shows_asks_for_another_look() -> None:
    noisy = tuple(look(5, p95_ms=p95) for p95 in (9.0, 11.0, 9.0, 11.0))

    said = ended(plan(), measuring(15, *noisy), figures(p95_ms=12.5))

    assert said.step is not None
    assert said.step.outcome == "HELD"
    assert "too close to call" in (said.step.reason or "")
    assert said.connections == 15


def test_the_first_level_is_looked_at_again_when_it_had_fewer_looks() -> None:
    state = measuring(15, look(5, p95_ms=10.0), look(15, p95_ms=13.0), look(15, p95_ms=11.5))

    said = ended(plan(), state, figures(p95_ms=12.0))

    assert said.connections == 5
    assert said.find_max is not None
    assert said.find_max.trial == 15

    then = ended(plan(), replace(said.find_max, window=state.window), figures(5))

    assert then.step is not None
    assert (then.step.outcome, then.step.is_probe, then.connections) == ("HELD", True, 15)


def test_a_failure_beyond_all_scatter_needs_no_second_look() -> None:
    said = ended(plan(), measuring(15, look(5)), figures(p95_ms=40.0))

    assert said.step is not None
    assert said.step.outcome == "DEGRADED"


def test_the_slowest_worker_is_told_and_does_not_decide() -> None:
    step = judged(plan(), figures(slowest_p95_ms=99.0, workers=2))

    assert step.outcome == "STABLE"
    assert "slowest worker's p95 99 ms" in (step.reason or "")


def test_throughput_is_compared_with_the_last_stable_regular_step() -> None:
    history = (*QUIET, look(10, qps=1000.0), look(12, qps=5000.0, is_probe=True), look(13, qps=9000.0, stable=False))

    said = ended(plan(), measuring(15, *history), figures(qps=980.0))

    assert said.step is not None
    assert said.step.outcome == "STABLE"
    assert said.step.qps_vs_prior == pytest.approx(-2.0)


HOLDS = [
    ("too few operations", figures(operations=19), {}, "19 operations ended, at least 20 are needed"),
    ("workers not ready", figures(), {"ready": 0}, "0 of 1 workers were ready"),
    ("connections not held", figures(connections=10.0), {}, "10 of 15 connections were open"),
]


@pytest.mark.parametrize(("measured", "changes", "reason"), [row[1:] for row in HOLDS], ids=[row[0] for row in HOLDS])
def test_a_step_that_cannot_be_judged_is_repeated_once(measured: Figures, changes: dict[str, int], reason: str) -> None:
    first = ended(plan(), measuring(15, *QUIET), measured, **changes)
    again = ended(plan(), measuring(15, *QUIET, repeated=True), measured, **changes)

    assert first.step is not None
    assert again.step is not None
    assert first.find_max is not None
    assert (first.step.outcome, first.connections, first.find_max.history) == ("HELD", 15, QUIET)
    assert first.find_max.repeated
    assert reason in (first.step.reason or "")
    assert again.step.outcome != "HELD"


def test_a_level_that_cannot_be_held_is_not_stable() -> None:
    said = ended(plan(), measuring(15, *QUIET, repeated=True), figures(connections=10.0))

    assert said.step is not None
    assert said.step.outcome == "DEGRADED"
    assert "only 10 of 15 connections could be kept open" in (said.step.reason or "")


def test_figures_of_an_earlier_window_are_not_taken_for_this_one() -> None:
    state = measuring(15, *QUIET)
    old = figures(since=view().now.replace(year=2025), until=view().now.replace(year=2025))

    assert ended(plan(), state, old).find_max == state
