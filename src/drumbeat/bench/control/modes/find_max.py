"""FIND_MAX_CONCURRENCY: finds the highest stable number of connections: step up, step back to verify, then bisect.

    STEPPING ──first unstable──▶ VERIFYING ──stable──▶ BISECTING ──narrow enough──▶ COMPLETED
        └──the ceiling is stable, or the first step is not──────────────────────────────▲

A level is a number of connections. Each measurement of a level is a step: the workers open the connections, the settling time
passes, and only then the measured time window begins. A level is measured again until the result is clear despite the noise.
"""

from dataclasses import replace
from datetime import timedelta

from drumbeat.bench.control.modes import level_samples, stability
from drumbeat.bench.control.modes.allocate import ceiling as most_per_worker, workers_for
from drumbeat.bench.control.modes.find_max_result import finish, step_row
from drumbeat.bench.control.modes.stability import LevelOutcome, LevelVerdict
from drumbeat.bench.model import FindMaxState, FindMaxStatus, LoadDecision, ModeView, StepFigures, Window

UNBOUNDED = 10_000  #: most connections of all workers, if the number of workers has no limit
NARROW_ENOUGH = 0.0125  #: bisection ends when the lowest failed level is above the best level by at most this share
PATIENCE = timedelta(seconds=30)  #: how long a step waits for connections to open; ``step_duration`` if longer
MOST_ROUNDS = 3  #: after this many failed verifications the search bisects, instead of verifying a lower level


def steer(view: ModeView, state: FindMaxState) -> LoadDecision:
    """Return how many connections the search uses now, and its new state. Deterministic, so it is safe to call it again."""
    if view.phase == "WARMUP":
        return _hold(view, replace(state, connections=start(view), next_connections=_above(view, start(view))), "warming up")
    if state.status is FindMaxStatus.COMPLETED:
        return replace(_hold(view, state, "the search is over"), finish=finish(view.plan, state))
    if state.step == 0:
        return _begin(view, replace(state, trial=start(view)), start(view), "the first step")
    if state.window is None:
        return _wait(view, state)
    if view.figures is None or view.figures.until <= state.window.since or view.now < state.window.until:
        return _hold(view, state, f"step {state.step}: measuring until {state.window.until:%H:%M:%S}")
    return _end_step(view, state)


def ceiling(view: ModeView) -> int:
    """Return the most connections that the configured limits on workers and connections allow."""
    scaling = view.plan.scaling
    most = scaling.most_workers if view.most_workers is None else view.most_workers
    return UNBOUNDED if most is None else max(1, most * most_per_worker(scaling))


def start(view: ModeView) -> int:
    return max(1, min(view.plan.find_max.start_connections, ceiling(view)))


def workers(view: ModeView, connections: int) -> int:
    needed = workers_for(connections, view.plan.scaling)
    return needed if view.most_workers is None else max(1, min(needed, view.most_workers))


def _above(view: ModeView, level: int) -> int:
    return min(level + max(1, view.plan.find_max.connections_increment), ceiling(view))


def _hold(view: ModeView, state: FindMaxState, reason: str) -> LoadDecision:
    return LoadDecision(connections=state.connections, workers=workers(view, state.connections), reason=reason, find_max=state)


def _begin(view: ModeView, state: FindMaxState, level: int, reason: str) -> LoadDecision:
    """Begin a step of the search: request ``level`` connections. The measurement begins once they are open."""
    begun = replace(
        state,
        step=state.step + 1,
        previous=state.connections if state.step else None,
        connections=level,
        began=view.now,
        window=None,
        short=None,
    )
    return _hold(view, replace(begun, next_connections=_next_if_stable(view, begun)), f"step {begun.step}: {reason}")


def _next_if_stable(view: ModeView, state: FindMaxState) -> int | None:
    """Return the number of connections to try next if the current one is stable; None if the search would then end."""
    if state.connections != state.trial:
        return state.trial
    if state.status is FindMaxStatus.STEPPING:
        return None if state.trial >= ceiling(view) else _above(view, state.trial)
    if state.failed is None or not view.plan.find_max.bisect:
        return None
    return _middle(state.trial, state.failed.connections)


def _wait(view: ModeView, state: FindMaxState) -> LoadDecision:
    """Wait until all connections are open and all workers are ready, then begin to measure. If that takes too long, begin to
    measure without them."""
    needed = workers(view, state.connections)
    held = state.connections <= view.held <= state.connections * 1.02 + 1 and view.ready >= needed
    overdue = state.began is not None and view.now - state.began >= max(PATIENCE, view.plan.find_max.step_duration)
    missing = f"{view.held} of {state.connections} connections open, {view.ready} of {needed} workers ready"
    if not held and not overdue:
        return _hold(view, state, f"step {state.step}: {missing}")
    since = view.now + view.plan.find_max.settle
    window = Window(since=since, until=since + view.plan.find_max.step_duration)
    short = None if held else f"measured with {missing}"
    return _hold(
        view, replace(state, window=window, short=short), f"step {state.step}: measuring {state.connections} connections"
    )


def _end_step(view: ModeView, state: FindMaxState) -> LoadDecision:
    """Judge whether the run was stable with the measured number of connections, and choose the next step of the search."""
    assert view.figures is not None
    needed = workers(view, state.connections)
    unfit = stability.why_not_counted(view.plan, state, view.figures, view.ready, needed)
    if unfit and not state.repeated:
        verdict = LevelVerdict(outcome=LevelOutcome.HELD, reason=f"{unfit}; repeated", next_level=state.connections)
        return _measure_again(view, state, state, verdict)
    updated = replace(state, history=(*state.history, _sample(view, state)))
    if state.connections != state.trial:
        verdict = LevelVerdict(
            outcome=LevelOutcome.HELD, reason=f"first level measured again, to compare {state.trial} connections with it"
        )
        return _measure_again(view, state, updated, verdict)
    verdict = stability.judge(view.plan, updated, view.figures, careful=_careful(view, state))
    if unfit:
        verdict = replace(verdict, reason=f"{verdict.reason}; {unfit}")
    if verdict.outcome is LevelOutcome.HELD:
        return _measure_again(view, state, updated, verdict)
    return _settle(view, state, updated, verdict)


def _careful(view: ModeView, state: FindMaxState) -> bool:
    """Whether a verdict of "stable" must be certain, because no later step with more connections would reveal a wrong one."""
    return state.status is not FindMaxStatus.STEPPING or state.trial >= ceiling(view)


def _sample(view: ModeView, state: FindMaxState) -> StepFigures:
    assert view.figures is not None
    return StepFigures(
        connections=state.connections,
        qps=view.figures.qps,
        p95_ms=view.figures.p95_ms,
        p99_ms=view.figures.p99_ms,
        stable=state.connections != state.trial,
        is_probe=_is_probe(state),
        kinds={kind: each for kind, each in view.figures.kinds.items() if kind in view.plan.objectives},
    )


def _is_probe(state: FindMaxState) -> bool:
    return state.status is not FindMaxStatus.STEPPING or state.connections != state.trial


def _measure_again(view: ModeView, state: FindMaxState, updated: FindMaxState, verdict: LevelVerdict) -> LoadDecision:
    row = step_row(view, state, verdict, is_probe=_is_probe(state))
    level = verdict.next_level or state.trial
    return replace(_begin(view, replace(updated, repeated=True), level, verdict.reason), step=row)


def _settle(view: ModeView, state: FindMaxState, updated: FindMaxState, verdict: LevelVerdict) -> LoadDecision:
    """Record whether this number of connections is stable, and choose the next number to try, or end the search."""
    row = step_row(view, state, verdict, is_probe=_is_probe(state))
    known = replace(updated, history=level_samples.judged(updated.history, updated.trial, verdict.stable), repeated=False)
    after = _passed(view, known) if verdict.stable else _failed(view, known, verdict)
    if after.status is FindMaxStatus.COMPLETED:
        done = replace(after, window=None, next_connections=None)
        return replace(_hold(view, done, verdict.reason), step=row, finish=finish(view.plan, done))
    return replace(_begin(view, after, after.trial, f"previous step {verdict.outcome}: {verdict.reason}"), step=row)


def _passed(view: ModeView, state: FindMaxState) -> FindMaxState:
    best = level_samples.pooled(state.history, state.trial)
    first = level_samples.pooled(state.history, state.history[0].connections)
    passed = replace(state, best=best, baseline=first)
    if state.status is not FindMaxStatus.STEPPING:
        return _bisect(view, passed)
    if state.trial >= ceiling(view):
        return replace(passed, status=FindMaxStatus.COMPLETED, ceiling_reached=True)
    return replace(passed, trial=_above(view, state.trial))


def _failed(view: ModeView, state: FindMaxState, verdict: LevelVerdict) -> FindMaxState:
    marked = replace(
        state,
        failed=level_samples.pooled(state.history, state.trial),
        failed_outcome=state.failed_outcome or verdict.outcome.value,
        failed_reason=state.failed_reason or verdict.reason,
    )
    if state.status is FindMaxStatus.BISECTING:
        return _bisect(view, marked)
    if state.status is FindMaxStatus.VERIFYING:
        return _fall_back(view, replace(marked, rounds=state.rounds + 1))
    return _fall_back(view, marked)


def _fall_back(view: ModeView, state: FindMaxState) -> FindMaxState:
    """Go back to the highest stable number of connections below the current one and verify it. After three verifications have
    failed, bisect instead; if no lower number is stable, end the search."""
    levels = level_samples.stable_levels(state.history, below=state.trial)
    if not levels:
        return replace(state, best=None, status=FindMaxStatus.COMPLETED)
    lower = replace(state, best=level_samples.pooled(state.history, levels[0]), trial=levels[0], status=FindMaxStatus.VERIFYING)
    return _bisect(view, lower) if state.rounds >= MOST_ROUNDS else lower


def _bisect(view: ModeView, state: FindMaxState) -> FindMaxState:
    """Try half way between the best and the failed number of connections; end the search if these are close together."""
    assert state.best is not None
    assert state.failed is not None
    best, failed = state.best.connections, state.failed.connections
    if not view.plan.find_max.bisect or failed - best <= max(1, NARROW_ENOUGH * best):
        return replace(state, status=FindMaxStatus.COMPLETED, trial=best)
    return replace(state, status=FindMaxStatus.BISECTING, trial=_middle(best, failed))


def _middle(low: int, high: int) -> int:
    return (low + high) // 2
