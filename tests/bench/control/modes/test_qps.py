"""What the throughput controller does with one window."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from drumbeat.bench.control.modes.qps import has_settled, steer
from drumbeat.bench.model import Figures, LoadMode, ModeView, QpsPlan, QpsState, RunPlan, Scaling, ScalingMode, Window
from drumbeat.bench.model.steering import SAMPLES_ARRIVE_WITHIN
from drumbeat.core.run import RunId, StepType

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
INTERVAL = timedelta(seconds=5)
AUTO = Scaling()
BOUNDED = Scaling(mode=ScalingMode.BOUNDED, max_workers=2, cap=50)
FIXED = Scaling(mode=ScalingMode.FIXED, min_workers=2, min_connections=10)
LAST = Window(since=NOW - INTERVAL - SAMPLES_ARRIVE_WITHIN, until=NOW - SAMPLES_ARRIVE_WITHIN)


def view(scaling: Scaling = AUTO, figures: Figures | None = None, starting: int | None = None, **fields: Any) -> ModeView:
    seen: dict[str, Any] = {"connections": 20, "held": 20, "ready": 1, "coming": 0, "phase": "MEASUREMENT"} | fields
    return ModeView(
        run_id=RunId("r"),
        now=NOW,
        plan=RunPlan(scaling=scaling, qps=QpsPlan(target_qps=1000, starting_connections=starting)),
        phase_began=NOW,
        most_workers=scaling.most_workers,
        figures=figures,
        **seen,
    )


def state(connections: int = 20, **fields: Any) -> QpsState:
    return replace(QpsState(connections=connections, workers=1, window=LAST, looks=5, ready=1), **fields)


def figures(qps: float, service_ms: float | None, held: int = 20) -> Figures:
    return Figures(
        since=LAST.since, until=LAST.until, operations=int(qps * 5), qps=qps, service_ms=service_ms, connections=held, workers=1
    )


@pytest.mark.parametrize(
    ("scaling", "starting", "expected"),
    [
        pytest.param(Scaling(), None, (1, 1), id="one worker, one connection"),
        pytest.param(Scaling(min_workers=2, min_connections=25), None, (50, 2), id="each worker's floor (C29)"),
        pytest.param(Scaling(), 40, (40, 1), id="what the user says"),
        pytest.param(Scaling(cap=50), 120, (120, 3), id="on as many workers as it takes"),
        pytest.param(BOUNDED, 500, (100, 2), id="within bounds"),
        pytest.param(FIXED, 7, (20, 2), id="FIXED: exactly"),
    ],
)
def test_it_begins_with(scaling: Scaling, starting: int | None, expected: tuple[int, int]) -> None:
    steered = steer(view(scaling, starting=starting), QpsState())

    assert (steered.connections, steered.workers, steered.qps) == (*expected, 1000)
    assert steered.qps_state is not None
    assert steered.qps_state.window == Window(since=NOW, until=NOW + INTERVAL - SAMPLES_ARRIVE_WITHIN)
    assert steered.step is None


@pytest.mark.parametrize(
    ("seen", "before", "expected"),
    [
        pytest.param(figures(100, 200), state(looks=0), 200, id="the first look takes Little's law whole, within the cap"),
        pytest.param(figures(100, 100), state(looks=0), 125, id="and a quarter more"),
        pytest.param(figures(200, 100), state(), 60, id="later at most three times as many"),
        pytest.param(figures(100, 10, held=1), state(1), 13, id="or max_increase, if that is more"),
        pytest.param(figures(900, 22), state(), 28, id="as far as the law says"),
        pytest.param(figures(949, 15.5), state(), 21, id="at least one more"),
        pytest.param(figures(951, 20.5), state(), 26, id="on target with nothing to spare"),
        pytest.param(figures(951, 18), state(), 20, id="on target"),
        pytest.param(figures(1200, 16), state(), 20, id="catching up"),
        pytest.param(figures(0, None), state(), 40, id="nothing ended: double"),
        pytest.param(figures(500, 4), state(), 20, id="connections are not what is short"),
        pytest.param(figures(1000, 2), state(), 20, id="slack, not yet long enough"),
        pytest.param(figures(1000, 2), state(slack=2, peak_service_ms=1.0), 10, id="slack for long: half way at most"),
        pytest.param(figures(1000, 2), state(slack=2, peak_service_ms=9.5), 12, id="never below the law for the slowest"),
        pytest.param(figures(1000, 12), state(slack=2, peak_service_ms=1.0), 20, id="no slack any more"),
    ],
)
def test_connections_follow_what_was_measured(seen: Figures, before: QpsState, expected: int) -> None:
    now = view(figures=seen, held=before.connections, connections=before.connections)
    steered = steer(now, before)

    assert steered.connections == expected, steered.reason
    assert (steered.step is None) == (expected == before.connections)


def test_a_change_is_a_step_for_the_record() -> None:
    steered = steer(view(figures=figures(500, 40)), state(step=3))

    assert steered.step is not None
    assert (steered.step.type, steered.step.n, steered.step.outcome) == (StepType.QPS_SCALING, 4, "UNDER_TARGET")
    assert (steered.step.from_target, steered.step.to_target, steered.step.target_qps) == (20, 50, 1000)
    assert (steered.step.started_at, steered.step.ended_at) == (LAST.since, LAST.until)
    assert "500.0 of 1000 QPS" in steered.reason


def test_fixed_connections_never_change_and_never_end_the_run() -> None:
    for qps, service in ((100.0, 200.0), (1000.0, 1.0), (1000.0, 20.0), (1500.0, 10.0)):
        before = state(workers=2, ready=2, slack=9, under=9, at_ceiling=9)
        steered = steer(view(FIXED, figures(qps, service), ready=2), before)

        assert (steered.connections, steered.workers, steered.finish) == (20, 2, None)


@pytest.mark.parametrize(
    ("fields", "before", "why"),
    [
        pytest.param({"held": 18}, state(), "18 of 20 connections are open", id="not all are open"),
        pytest.param({"ready": 2}, state(), "2 workers ready, 1 before", id="a worker joined"),
        pytest.param({"ready": 0}, state(), "0 workers ready, 1 before", id="a worker is gone"),
        pytest.param({"coming": 1}, state(), "1 workers are starting", id="a worker is coming"),
    ],
)
def test_a_window_that_says_nothing_is_measured_again(fields: dict[str, Any], before: QpsState, why: str) -> None:
    steered = steer(view(figures=figures(500, 40), **fields), before)

    assert why in steered.reason
    assert steered.connections == 20
    assert steered.qps_state is not None
    assert (steered.qps_state.window, steered.qps_state.looks) == (
        Window(since=NOW, until=NOW + INTERVAL - SAMPLES_ARRIVE_WITHIN),
        5,
    )


def test_what_stays_unsettled_is_judged_in_the_end() -> None:
    waiting = state(unsettled_since=NOW - 3 * INTERVAL)

    assert steer(view(figures=figures(500, 40), held=12), waiting).connections == 50


def test_a_few_connections_on_their_way_back_do_not_matter() -> None:
    assert steer(view(figures=figures(500, 40), held=19), state()).connections == 50


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param(state(50), (50, 1), id="below once: not yet"),
        pytest.param(state(50, under=1), (100, 2), id="below twice: another worker, and room for more"),
        pytest.param(state(49, under=5), (50, 1), id="not at the ceiling: connections first"),
    ],
)
def test_workers_are_added_when_all_are_full(before: QpsState, expected: tuple[int, int]) -> None:
    now = view(BOUNDED, figures(200, 250, before.connections), connections=before.connections, held=before.connections)
    steered = steer(now, before)

    assert (steered.connections, steered.workers) == expected


def at_bounds(phase: str, windows: int) -> tuple[ModeView, QpsState]:
    before = state(100, workers=2, ready=2, under=5, at_ceiling=windows)
    return view(BOUNDED, figures(400, 250, 100), connections=100, held=100, ready=2, phase=phase), before


def test_below_the_target_at_the_bounds_for_long_ends_the_run() -> None:
    finish = steer(*at_bounds("MEASUREMENT", 2)).finish

    assert finish is not None
    assert finish.completion_reason == "BOUNDS_LIMIT_REACHED"
    assert finish.result["achieved_qps"] == 400
    assert finish.result["target_qps"] == 1000
    assert (finish.result["max_workers"], finish.result["max_connections"]) == (2, 50)
    assert "max 2 workers × 50 connections" in finish.reason


def test_it_has_patience_and_none_is_used_up_while_warming() -> None:
    patient = steer(*at_bounds("MEASUREMENT", 1))
    warming = steer(*at_bounds("WARMUP", 2))

    assert (patient.finish, warming.finish) == (None, None)
    assert patient.qps_state is not None
    assert warming.qps_state is not None
    assert (patient.qps_state.at_ceiling, warming.qps_state.at_ceiling) == (2, 0)


def test_the_state_survives_being_kept_as_json() -> None:
    steered = steer(view(figures=figures(1000, 2)), state(last_change=NOW, unsettled_since=None))

    kept = msgspec.json.encode(msgspec.to_builtins(steered.qps_state))

    assert msgspec.convert(msgspec.json.decode(kept), QpsState) == steered.qps_state


@pytest.mark.parametrize(
    ("seen", "before", "scaling", "settled"),
    [
        pytest.param(figures(951, 18), state(), AUTO, True, id="on target"),
        pytest.param(figures(1000, 2), state(), AUTO, True, id="on target with slack"),
        pytest.param(figures(500, 4), state(), AUTO, True, id="connections are not what is short"),
        pytest.param(figures(500, 40), state(settled=True), AUTO, False, id="changed just now"),
        pytest.param(figures(1200, 16), state(settled=True), AUTO, False, id="catching up"),
        pytest.param(figures(500, 40), state(), FIXED, True, id="FIXED: nothing to find"),
    ],
)
def test_it_has_settled_once_a_look_finds_nothing_to_change(
    seen: Figures, before: QpsState, scaling: Scaling, settled: bool
) -> None:
    now = view(scaling, seen)
    plan = replace(now.plan, load_mode=LoadMode.QPS)

    assert has_settled(plan, steer(now, before).qps_state) is settled


def test_at_the_bounds_it_has_settled_and_below_them_not() -> None:
    steered = steer(*at_bounds("WARMUP", 0)).qps_state

    assert steered is not None
    assert steered.settled


@pytest.mark.parametrize("late", [0.0, 0.3, 0.9], ids=lambda late: f"{late} s late")
def test_looks_are_an_interval_apart_whether_connections_change_or_not(late: float) -> None:
    for seen in (figures(951, 18), figures(500, 40)):
        now = replace(view(figures=seen), now=NOW + timedelta(seconds=late))
        window = steer(now, state()).qps_state.window  # type: ignore[union-attr]

        assert window is not None
        assert window.until + SAMPLES_ARRIVE_WITHIN == NOW + INTERVAL
        assert window.since == (LAST.until if seen.qps > 900 else now.now)
