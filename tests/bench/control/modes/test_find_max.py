"""A search beat by beat: what is held, when a window opens, where it goes next and how it ends."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bench.control.modes.given_find_max import NOW, SECOND, ended, figures, look, measuring, plan, view
from drumbeat.bench.control.modes.find_max import steer
from drumbeat.bench.model import (
    FindMaxState,
    FindMaxStatus,
    KindFigures,
    LoadDecision,
    Objective,
    RunPlan,
    Scaling,
    ScalingMode,
    StepFigures,
    Window,
)

BOUNDED = Scaling(mode=ScalingMode.BOUNDED, min_workers=2, max_workers=3, max_connections=10, cap=10)
FIXED = Scaling(mode=ScalingMode.FIXED, min_workers=5, min_connections=20, cap=200)
FAST = {"p95_ms": 10.0}
SLOW = {"p95_ms": 30.0}
SLOWEST = {"p95_ms": 900.0}


def state_of(said: LoadDecision) -> FindMaxState:
    assert said.find_max is not None
    return said.find_max


def test_warmup_holds_the_start_level_and_opens_no_window() -> None:
    said = steer(view(phase="WARMUP"), FindMaxState())

    assert (said.connections, said.workers, state_of(said).step, state_of(said).window) == (5, 1, 0, None)


def test_measurement_begins_with_step_one_at_the_start_level() -> None:
    said = steer(view(), state_of(steer(view(phase="WARMUP"), FindMaxState())))

    state = state_of(said)
    assert (said.connections, state.step, state.connections, state.trial, state.began, state.window) == (5, 1, 5, 5, NOW, None)
    assert state.previous is None
    assert state.next_connections == 15


WAITS = [
    ("all held", {"held": 15, "ready": 1}, True),
    ("too few connections", {"held": 14, "ready": 1}, False),
    ("too few workers", {"held": 15, "ready": 0}, False),
    ("the level before still drains", {"held": 40, "ready": 1}, False),
]


@pytest.mark.parametrize(("seen", "opens"), [row[1:] for row in WAITS], ids=[row[0] for row in WAITS])
def test_the_window_opens_when_the_target_is_held(seen: dict[str, Any], opens: bool) -> None:
    begun = measuring(15, look(5), window=None, began=NOW)

    said = steer(view(now=NOW + SECOND, **seen), begun)

    since = NOW + 3 * SECOND
    assert state_of(said).window == (Window(since=since, until=since + 30 * SECOND) if opens else None)
    assert said.connections == 15


@pytest.mark.parametrize(("duration", "patience"), [(10, 30), (60, 60)])
def test_a_target_that_is_never_held_is_measured_as_it_is_and_that_is_said(duration: int, patience: int) -> None:
    chosen = plan(step_duration=timedelta(seconds=duration))
    begun = measuring(15, look(5), window=None, began=NOW)

    early = steer(view(chosen, now=NOW + (patience - 1) * SECOND, held=14), begun)
    late = steer(view(chosen, now=NOW + patience * SECOND, held=14), begun)

    assert state_of(early).window is None
    assert state_of(late).window is not None
    step = ended(chosen, replace(state_of(late), window=measuring(15).window), figures()).step
    assert step is not None
    assert "measured with 14 of 15 connections open, 1 of 1 workers ready" in (step.reason or "")


def test_nothing_changes_while_a_window_lasts() -> None:
    state = measuring(15, look(5), window=Window(since=NOW, until=NOW + 30 * SECOND))

    assert state_of(steer(view(held=15), state)) == state


LEVELS: list[tuple[str, Scaling, int, int, int]] = [
    ("one worker is enough", Scaling(), 15, 25, 1),
    ("a second worker when the first is full", Scaling(cap=20), 15, 25, 2),
    ("no fewer than there must be", replace(BOUNDED, max_workers=9), 5, 15, 2),
    ("clipped to the ceiling", BOUNDED, 25, 30, 3),
    ("FIXED keeps its workers", FIXED, 15, 25, 5),
    ("FIXED is clipped to exactly what was specified", FIXED, 95, 100, 5),
    ("no limit is ten thousand", Scaling(), 9_995, 10_000, 50),
]


@pytest.mark.parametrize(("scaling", "level", "after", "workers"), [row[1:] for row in LEVELS], ids=[row[0] for row in LEVELS])
def test_a_stable_step_goes_up_by_one_increment(scaling: Scaling, level: int, after: int, workers: int) -> None:
    chosen = plan(scaling=scaling)
    history = [look(1)] if level > 5 else []

    said = ended(chosen, measuring(level, *history), figures(level, qps=100.0 * level), ready=99)

    assert said.finish is None
    assert (said.connections, said.workers, state_of(said).step) == (after, workers, len(history) + 2)


def test_a_start_above_the_ceiling_is_clipped_to_it() -> None:
    said = steer(view(plan(scaling=BOUNDED, start_connections=99)), FindMaxState())

    assert said.connections == 30


def test_a_stable_ceiling_is_a_bounded_maximum() -> None:
    said = ended(plan(scaling=BOUNDED), measuring(30, look(10), look(20)), figures(30, qps=3000.0), ready=3)

    assert said.finish is not None
    assert said.finish.completion_reason == "MAX_FOUND"
    assert {**said.finish.result, "usl": None} == {
        "best_connections": 30,
        "best_qps": 3000.0,
        "best_p95_ms": pytest.approx(10.0),
        "best_p99_ms": pytest.approx(15.0),
        "best_kinds": {},
        "max_type": "BOUNDED_MAX",
        "bounded": True,
        "ceiling_reached": True,
        "outcome": None,
        "reason": None,
        "message": "Maximum within configured bounds (not system limit)",
        "baseline_p95_ms": pytest.approx(10.0),
        "steps": 3,
        "knee": None,
        "usl": None,
    }


def test_the_result_keeps_what_kinds_with_an_objective_did_at_the_best_level() -> None:
    chosen = plan(scaling=BOUNDED, objectives={"read": Objective(p99_ms=20)})
    kinds = {"read": KindFigures(operations=800, errors=1, p99_ms=12.0), "write": KindFigures(operations=200)}

    said = ended(chosen, measuring(30, look(10), look(20)), figures(30, qps=3000.0, kinds=kinds), ready=3)

    assert said.finish is not None
    found = said.finish.result["best_kinds"]
    assert {kind: (each["operations"], each["p99_ms"]) for kind, each in found.items()} == {"read": (800, 12.0)}


def follow(
    chosen: RunPlan, state: FindMaxState, curve: dict[int, Any]
) -> tuple[list[tuple[int, bool, str | None]], LoadDecision]:
    """Every step from here on, with what is measured at each level (10 ms where nothing is said), and the end."""
    rows: list[tuple[int, bool, str | None]] = []
    while True:
        level = state.connections
        said = ended(chosen, state, figures(level, qps=100.0 * level, **curve.get(level, FAST)), ready=99)
        assert said.step is not None
        rows.append((said.step.to_target, said.step.is_probe, said.step.outcome))
        if said.finish:
            return rows, said
        state = replace(state_of(said), window=measuring(1).window)


QUIET = (*(look(5) for _ in range(30)), look(15), look(25))


def test_the_best_level_is_verified_after_the_first_failure() -> None:
    rows, said = follow(plan(bisect=False), measuring(35, *QUIET), {35: SLOW})

    assert rows == [(35, False, "DEGRADED"), (25, True, "STABLE")]
    assert said.finish is not None
    assert said.finish.result["best_connections"] == 25
    assert said.finish.result["max_type"] == "TRUE_MAX"
    assert said.finish.result["outcome"] == "DEGRADED"
    assert said.finish.result["reason"].startswith("p95 +200.0%")
    assert said.finish.result["knee"]["method"] == "steps"


def test_bisection_ends_next_to_the_lowest_level_that_failed() -> None:
    slow = dict.fromkeys(range(29, 36), SLOW)

    rows, said = follow(plan(), measuring(35, *QUIET), slow)

    assert rows == [
        (35, False, "DEGRADED"),
        (25, True, "STABLE"),
        (30, True, "DEGRADED"),
        (27, True, "STABLE"),
        (28, True, "STABLE"),
        (29, True, "DEGRADED"),
    ]
    assert said.finish is not None
    assert said.finish.result["best_connections"] == 28
    assert said.finish.result["knee"] == {"connections": 28, "method": "bisection", "saturation": pytest.approx(35.0)}


def test_bisection_ends_when_the_gap_is_narrow_enough() -> None:
    history = (*(look(100) for _ in range(30)), *(look(1000) for _ in range(30)), look(2000))

    rows, said = follow(plan(), measuring(3000, *history), dict.fromkeys(range(2501, 3001), SLOW))

    assert said.finish is not None
    assert 2475 <= said.finish.result["best_connections"] <= 2500
    assert [level for level, _, _ in rows] == [3000, 2000, 2500, 2750, 2625, 2562, 2531]


def test_a_best_level_that_fails_its_verification_gives_way_to_the_next_lower_one() -> None:
    rows, said = follow(plan(bisect=False), measuring(35, *QUIET), {35: SLOW, 25: {"p95_ms": 90.0}})

    assert rows == [(35, False, "DEGRADED"), (25, True, "DEGRADED"), (15, True, "STABLE")]
    assert said.finish is not None
    assert said.finish.result["best_connections"] == 15
    assert said.finish.result["reason"].startswith("p95 +200.0%")


def test_verification_gives_up_after_three_rounds() -> None:
    history = (*QUIET, look(35), look(45), look(55))
    slow = dict.fromkeys((65, 55, 45, 35), SLOWEST)

    rows, said = follow(plan(bisect=False), measuring(65, *history), slow)

    assert [level for level, _, _ in rows] == [65, 55, 45, 35]
    assert said.finish is not None
    assert said.finish.result["best_connections"] == 25


def test_a_first_level_that_fails_its_verification_leaves_none() -> None:
    _, said = follow(plan(), measuring(15, look(5)), {15: SLOW, 5: {"waiting": 5.0, **FAST}})

    assert said.finish is not None
    assert said.finish.result["best_connections"] is None
    assert "No stable level" in said.finish.result["message"]


def test_a_finished_search_says_its_end_again() -> None:
    _, said = follow(plan(), measuring(35, *QUIET), {35: SLOW})
    again = steer(view(), state_of(said))

    assert state_of(said).status is FindMaxStatus.COMPLETED
    assert again.finish == said.finish
    assert (again.step, again.connections) == (None, said.connections)


def test_a_step_keeps_what_it_was_measured_by() -> None:
    step = ended(plan(), measuring(15, look(5)), figures(errors=5, p95_ms=11.0)).step

    assert step is not None
    assert (step.n, step.from_target, step.to_target, step.direction) == (2, 5, 15, "up")
    assert (step.started_at, step.ended_at) == (NOW - 35 * SECOND, NOW)
    assert (step.operations, step.errors, step.qps, step.p95_ms) == (45_000, 5, 1500.0, 11.0)
    assert step.p95_vs_baseline == pytest.approx(10.0)
    assert step.qps_vs_prior == pytest.approx(200.0)


def test_what_was_measured_several_times_is_reported_as_one() -> None:
    noisy: list[StepFigures] = [look(5, p95_ms=p95) for p95 in (8.0, 12.5) * 10]

    said = ended(plan(), measuring(15, *noisy), figures(p95_ms=10.0))

    baseline = state_of(said).baseline
    assert baseline is not None
    assert baseline.p95_ms == pytest.approx(10.0)
