"""FIND_MAX_CONCURRENCY: the most connections that are still stable. Up step by step, back to verify, then bisected to the knee.

    STEPPING ──first unstable──▶ VERIFYING ──stable──▶ BISECTING ──narrow enough──▶ COMPLETED
        └──the ceiling is stable, or the first step is not──────────────────────────────▲

Each look at a level is a step: its target is set, every connection is waited for, the settling time passes, and only then
begins the window that is measured. A level is looked at as often as it takes to tell it from the figures' own scatter.
"""

from dataclasses import replace
from datetime import timedelta

from drumbeat.bench.control.modes import level_samples, stability
from drumbeat.bench.control.modes.allocate import ceiling as most_per_worker
from drumbeat.bench.control.modes.allocate import workers_for
from drumbeat.bench.control.modes.find_max_result import finish, step_row
from drumbeat.bench.control.modes.stability import LevelOutcome, LevelVerdict
from drumbeat.bench.model import FindMaxState, FindMaxStatus, ModeView, Steer, StepFigures, Window

UNBOUNDED = 10_000  #: connections in all, where nothing limits the workers
NARROW_ENOUGH = 0.0125  #: of the best level: a quarter of the 5 % promised, the rest is for what scatters
PATIENCE = timedelta(seconds=30)  #: how long a step waits for its connections, if it is not longer itself
MOST_ROUNDS = 3  #: of verifying a best level that fails


def steer(view: ModeView, state: FindMaxState) -> Steer:
    """What to hold from now on. The same view and state give the same answer, however late or often a beat comes."""
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
    """The most connections there may be, by the bounds of the plan."""
    scaling = view.plan.scaling
    most = scaling.most_workers if view.most_workers is None else view.most_workers
    return UNBOUNDED if most is None else max(1, most * most_per_worker(scaling))


def start(view: ModeView) -> int:
    return max(1, min(view.plan.find_max.start_connections, ceiling(view)))


def workers(view: ModeView, connections: int) -> int:
    wanted = workers_for(connections, view.plan.scaling)
    return wanted if view.most_workers is None else max(1, min(wanted, view.most_workers))


def _above(view: ModeView, level: int) -> int:
    return min(level + max(1, view.plan.find_max.connections_increment), ceiling(view))


def _hold(view: ModeView, state: FindMaxState, reason: str) -> Steer:
    return Steer(connections=state.connections, workers=workers(view, state.connections), reason=reason, find_max=state)


def _begin(view: ModeView, state: FindMaxState, level: int, reason: str) -> Steer:
    """Set the next step's target; its window opens once it is held."""
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
    """What would come after this step if it is stable, for whoever watches."""
    if state.connections != state.trial:
        return state.trial
    if state.status is FindMaxStatus.STEPPING:
        return None if state.trial >= ceiling(view) else _above(view, state.trial)
    if state.failed is None or not view.plan.find_max.bisect:
        return None
    return _middle(state.trial, state.failed.connections)


def _wait(view: ModeView, state: FindMaxState) -> Steer:
    """Open the window once the target is held by workers that are ready, or when that takes too long."""
    wanted = workers(view, state.connections)
    held = state.connections <= view.held <= state.connections * 1.02 + 1 and view.ready >= wanted
    overdue = state.began is not None and view.now - state.began >= max(PATIENCE, view.plan.find_max.step_duration)
    missing = f"{view.held} of {state.connections} connections held, {view.ready} of {wanted} workers ready"
    if not held and not overdue:
        return _hold(view, state, f"step {state.step}: {missing}")
    since = view.now + view.plan.find_max.settle
    window = Window(since=since, until=since + view.plan.find_max.step_duration)
    short = None if held else f"went on with {missing}"
    return _hold(
        view, replace(state, window=window, short=short), f"step {state.step}: measuring {state.connections} connections"
    )


def _end_step(view: ModeView, state: FindMaxState) -> Steer:
    """Judge what was measured and go on from there."""
    assert view.figures is not None
    wanted = workers(view, state.connections)
    unfit = stability.held_back(view.plan, state, view.figures, view.ready, wanted)
    if unfit and not state.repeated:
        verdict = LevelVerdict(outcome=LevelOutcome.HELD, reason=f"{unfit}; repeated", look_at=state.connections)
        return _look_again(view, state, state, verdict)
    seen = replace(state, history=(*state.history, _look(view, state)))
    if state.connections != state.trial:
        verdict = LevelVerdict(
            outcome=LevelOutcome.HELD, reason=f"the first level again, to compare {state.trial} connections with"
        )
        return _look_again(view, state, seen, verdict)
    verdict = stability.judge(view.plan, seen, view.figures, careful=_careful(view, state))
    if unfit:
        verdict = replace(verdict, reason=f"{verdict.reason}; {unfit}")
    if verdict.outcome is LevelOutcome.HELD:
        return _look_again(view, state, seen, verdict)
    return _settle(view, state, seen, verdict)


def _careful(view: ModeView, state: FindMaxState) -> bool:
    """Whether a wrong "stable" would go unnoticed: there is no next step up that would fail."""
    return state.status is not FindMaxStatus.STEPPING or state.trial >= ceiling(view)


def _look(view: ModeView, state: FindMaxState) -> StepFigures:
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


def _look_again(view: ModeView, state: FindMaxState, seen: FindMaxState, verdict: LevelVerdict) -> Steer:
    row = step_row(view, state, verdict, is_probe=_is_probe(state))
    level = verdict.look_at or state.trial
    return replace(_begin(view, replace(seen, repeated=True), level, verdict.reason), step=row)


def _settle(view: ModeView, state: FindMaxState, seen: FindMaxState, verdict: LevelVerdict) -> Steer:
    """The level in question is known: remember it and choose the next."""
    row = step_row(view, state, verdict, is_probe=_is_probe(state))
    known = replace(seen, history=level_samples.judged(seen.history, seen.trial, verdict.stable), repeated=False)
    after = _passed(view, known) if verdict.stable else _failed(view, known, verdict)
    if after.status is FindMaxStatus.COMPLETED:
        done = replace(after, window=None, next_connections=None)
        return replace(_hold(view, done, verdict.reason), step=row, finish=finish(view.plan, done))
    return replace(_begin(view, after, after.trial, f"{verdict.outcome} before: {verdict.reason}"), step=row)


def _passed(view: ModeView, state: FindMaxState) -> FindMaxState:
    best = level_samples.pooled(state.history, state.trial)
    first = level_samples.pooled(state.history, state.history[0].connections)
    kept = replace(state, best=best, baseline=first)
    if state.status is not FindMaxStatus.STEPPING:
        return _bisect(view, kept)
    if state.trial >= ceiling(view):
        return replace(kept, status=FindMaxStatus.COMPLETED, ceiling_reached=True)
    return replace(kept, trial=_above(view, state.trial))


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
    """To the highest stable level below what failed, which is verified unless that has failed too often already."""
    levels = level_samples.stable_levels(state.history, below=state.trial)
    if not levels:
        return replace(state, best=None, status=FindMaxStatus.COMPLETED)
    lower = replace(state, best=level_samples.pooled(state.history, levels[0]), trial=levels[0], status=FindMaxStatus.VERIFYING)
    return _bisect(view, lower) if state.rounds >= MOST_ROUNDS else lower


def _bisect(view: ModeView, state: FindMaxState) -> FindMaxState:
    """Half way between the best level and the lowest that failed, until they are next to one another."""
    assert state.best is not None
    assert state.failed is not None
    best, failed = state.best.connections, state.failed.connections
    if not view.plan.find_max.bisect or failed - best <= max(1, NARROW_ENOUGH * best):
        return replace(state, status=FindMaxStatus.COMPLETED, trial=best)
    return replace(state, status=FindMaxStatus.BISECTING, trial=_middle(best, failed))


def _middle(low: int, high: int) -> int:
    return (low + high) // 2
