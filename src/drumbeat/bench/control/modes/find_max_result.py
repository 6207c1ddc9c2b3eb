"""Builds what a search for the most connections stores: a row for each step, and the result at its end."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from drumbeat.bench.control.modes import usl
from drumbeat.bench.control.modes.stability import LevelVerdict, last_stable, queue_detected
from drumbeat.bench.model import Figures, FindMaxPlan, FindMaxState, Finish, ModeView, Queueing, RunPlan, StepFigures, number
from drumbeat.core.run import Step, StepType

BOUNDED = "Maximum within configured bounds (not system limit)"
NOTHING = "No stable level: the first step was not stable"


def step_row(view: ModeView, state: FindMaxState, verdict: LevelVerdict, *, is_probe: bool) -> Step:
    """Return the row to store for the step that just ended. ``state`` is the search state before the step was judged."""
    figures = view.figures
    assert figures is not None
    prior = last_stable(state)
    return Step(
        run_id=view.run_id,
        type=StepType.FIND_MAX,
        n=state.step,
        from_target=state.previous,
        to_target=state.connections,
        started_at=state.began or figures.since,
        ended_at=figures.until,
        operations=figures.operations,
        errors=figures.errors,
        failed_connects=figures.failed_connects,
        qps=figures.qps,
        p50_ms=figures.p50_ms,
        p95_ms=figures.p95_ms,
        p99_ms=figures.p99_ms,
        qps_vs_prior=_percent(figures.qps, prior.qps) if prior else None,
        p95_vs_baseline=_percent(figures.p95_ms, state.baseline.p95_ms) if state.baseline else None,
        queue_detected=queue_detected(view.plan.find_max, figures, verdict.outcome),
        outcome=verdict.outcome.value,
        reason=_reason(view.plan.find_max, state, figures, verdict),
        is_probe=is_probe,
    )


def _reason(plan: FindMaxPlan, state: FindMaxState, figures: Figures, verdict: LevelVerdict) -> str:
    reasons = [verdict.reason]
    if state.short:
        reasons.append(state.short)
    if plan.queueing is Queueing.OFF:
        reasons.append("queueing not evaluated: switched off")
    elif figures.waiting is None:
        reasons.append("queueing not evaluated: the server does not report waits")
    if figures.slowest_p95_ms is not None and figures.workers > 1:
        reasons.append(f"slowest worker's p95 {number(figures.slowest_p95_ms, 4)} ms")
    if figures.client_limited:
        reasons.append("the clients, not the database, were the limit")
    return "; ".join(reasons)


def _percent(figure: float | None, reference: float | None) -> float | None:
    return 100 * (figure / reference - 1) if figure is not None and reference else None


def finish(plan: RunPlan, state: FindMaxState) -> Finish:
    """Return the completion reason, message and result of a finished search."""
    outcome = result(plan, state)
    return Finish(completion_reason="MAX_FOUND", reason=str(outcome["message"]), result=outcome)


def result(plan: RunPlan, state: FindMaxState) -> Mapping[str, Any]:
    """Return the search's result: best number of connections, why more were unstable, knee, and fit of the scalability law."""
    best, bounded = state.best, state.ceiling_reached
    return {
        "best_connections": best.connections if best else None,
        "best_qps": best.qps if best else None,
        "best_p95_ms": best.p95_ms if best else None,
        "best_p99_ms": best.p99_ms if best else None,
        "best_kinds": {kind: asdict(each) for kind, each in best.kinds.items()} if best else {},
        "max_type": None if best is None else "BOUNDED_MAX" if bounded else "TRUE_MAX",
        "bounded": bounded,
        "ceiling_reached": bounded,
        "outcome": state.failed_outcome,
        "reason": state.failed_reason,
        "message": message(state),
        "baseline_p95_ms": state.baseline.p95_ms if state.baseline else None,
        "steps": state.step,
        "knee": _knee(plan, state),
        "usl": usl.fit_summary([(sample.connections, sample.qps) for sample in state.history]),
    }


def message(state: FindMaxState) -> str:
    if state.best is None:
        return f"{NOTHING if state.step == 1 or state.baseline is None else 'No stable level'}: {state.failed_reason}"
    if state.ceiling_reached:
        return BOUNDED
    return f"Maximum found: {state.best.connections} connections; above it: {state.failed_reason}"


def _knee(plan: RunPlan, state: FindMaxState) -> Mapping[str, Any] | None:
    """Return the highest stable number of connections (the knee) and how it was found; None if every number tried was stable,
    or none was."""
    if state.best is None or state.ceiling_reached:
        return None
    return {
        "connections": state.best.connections,
        "method": "bisection" if plan.find_max.bisect else "steps",
        "saturation": _saturation(state.history),
    }


def _saturation(history: tuple[StepFigures, ...]) -> float | None:
    """Return how many connections would have been enough for the highest measured throughput if throughput had grown in
    proportion to the connections, starting from the first step; None if the first step has no throughput."""
    highest = max((sample.qps for sample in history), default=0.0)
    first = history[0] if history else None
    return highest * first.connections / first.qps if first and first.qps > 0 else None
