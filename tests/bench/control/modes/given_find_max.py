"""Views, states and figures for the tests of a search, each with what matters left to say."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from drumbeat.bench.control.modes.find_max import steer
from drumbeat.bench.model import (
    Figures,
    FindMaxPlan,
    FindMaxState,
    LoadDecision,
    LoadMode,
    ModeView,
    RunPlan,
    Scaling,
    StepFigures,
    Window,
)
from drumbeat.core.run import RunId

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def plan(*, objectives: Any = None, scaling: Scaling | None = None, **find_max: Any) -> RunPlan:
    return RunPlan(
        load_mode=LoadMode.FIND_MAX_CONCURRENCY,
        find_max=FindMaxPlan(**find_max),
        objectives=objectives or {},
        scaling=scaling or Scaling(),
    )


def view(of: RunPlan | None = None, **changes: Any) -> ModeView:
    chosen = of or plan()
    seen = ModeView(
        run_id=RunId("r"),
        now=NOW,
        plan=chosen,
        phase="MEASUREMENT",
        phase_began=NOW,
        connections=5,
        held=5,
        ready=1,
        coming=0,
        most_workers=chosen.scaling.most_workers,
    )
    return replace(seen, **changes)


def figures(connections: float = 15, *, qps: float = 1500.0, p95_ms: float | None = 10.0, **changes: Any) -> Figures:
    measured = Figures(
        since=NOW - 30 * SECOND,
        until=NOW,
        operations=round(qps * 30),
        qps=qps,
        p50_ms=5.0,
        p95_ms=p95_ms,
        p99_ms=15.0,
        connections=connections,
        workers=1,
    )
    return replace(measured, **changes)


def look(
    connections: int, *, qps: float | None = None, p95_ms: float = 10.0, stable: bool = True, is_probe: bool = False
) -> StepFigures:
    return StepFigures(
        connections=connections,
        qps=100.0 * connections if qps is None else qps,
        p95_ms=p95_ms,
        p99_ms=15.0,
        stable=stable,
        is_probe=is_probe,
    )


def measuring(trial: int, *history: StepFigures, **changes: Any) -> FindMaxState:
    """A search whose step at a level ends now."""
    state = FindMaxState(
        step=len(history) + 1,
        connections=trial,
        trial=trial,
        previous=history[-1].connections if history else None,
        began=NOW - 35 * SECOND,
        window=Window(since=NOW - 30 * SECOND, until=NOW),
        baseline=history[0] if history else None,
        best=history[-1] if history else None,
        history=history,
    )
    return replace(state, **changes)


def ended(of: RunPlan, state: FindMaxState, measured: Figures, **changes: Any) -> LoadDecision:
    """What is said when the step of this state has been measured."""
    return steer(view(of, figures=measured, held=state.connections, **changes), state)
