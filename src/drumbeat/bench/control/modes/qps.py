"""QPS: holds a target throughput with as few connections as possible. One controller for the totals of all workers.

Together the workers send at the target rate. Throughput is below the target only if there are too few connections for the time
an operation takes, and above it only while workers catch up on overdue operations. Little's law gives the connections needed:
throughput × time per operation. Once per ``interval`` a check compares throughput with the target ± tolerance (the deadband):

- *Below the deadband*, or with nearly all connections busy: a quarter more connections than the law says. The first two checks
  can add any number; later ones at most triple the connections (or add ``max_increase``). In simulations of tripled latency,
  24 of 100 runs needed more than eight intervals to settle if a check could add at most a tenth or a quarter of the
  connections, and one of 100 if it could at most double them.
- *Inside the deadband*, if less than half of the connections were busy in three intervals in a row: fewer connections, but a
  quarter more than the law says for the slowest of these intervals, so that connections just added are not removed again.
- *Above the deadband*: no change, the workers catch up.

Workers are added if all have the most connections allowed and throughput was below the deadband at two checks in a row. If no
more are allowed, the run ends after ``bounds_patience_intervals``. Throughput is not judged while workers start, end or open
connections, unless this goes on for three intervals. The time shortly before a check is left out, as samples arrive late.

Known limit: operations that became overdue on the first workers while others started stay with the first workers. Then settling
often takes longer than eight intervals (simulated: 54 of 150 starts, 85 of 150 latency increases).
"""

from dataclasses import replace
from datetime import timedelta
from math import ceil

from drumbeat.bench.control.modes.allocate import ceiling, workers_for
from drumbeat.bench.model import Figures, Finish, LoadDecision, LoadMode, ModeView, QpsState, RunPlan, ScalingMode, Window
from drumbeat.bench.model.steering import SAMPLES_ARRIVE_WITHIN
from drumbeat.core.run import Phase, Step, StepType

HEADROOM = 1.25  #: use a quarter more connections than Little's law says
MOST_GROWTH = 3  #: after the first checks, one check at most triples the connections
FEED_FORWARD_LOOKS = 2  #: how many of the first checks may add any number of connections; later checks may add less
ALL_BUSY = 0.7  #: with at least this share of connections busy, connections may be the bottleneck …
NOTHING_TO_SPARE = 0.95  #: … and with this share busy, workers hardly catch up on overdue operations
SLACK = 0.5  #: with less than this share of connections busy, there are too many …
SLACK_WINDOWS = 3  #: … if that lasts for this many checks
SCALE_OUT_AFTER = 2  #: a worker is added after this many checks below the target, if all workers are full
HELD_SHARE = 0.95  #: share of the target connections that must be open; a few may be reconnecting
UNSETTLED_INTERVALS = 3  #: after this many intervals throughput is judged even if connections are still missing
GAIN_SHARE = 0.25  #: share of the expected throughput gain that added workers must bring …
LEAST_GAIN = 0.05  #: … and the least gain in any case, as a share of throughput
LEAST_WINDOW = timedelta(seconds=2)  #: a shorter time window has too few samples: workers send one per second
SETTLE_WITHIN = 8  #: the measurement begins at most this many intervals after the warm-up, settled or not
TRIED_AGAIN = 12  #: checks until one more worker is tried, after added workers brought no throughput


def steer(view: ModeView, state: QpsState) -> LoadDecision:
    """Return the connections and workers that the run should have now, and the controller state for the next beat."""
    if state.window is None:
        return _begin(view)
    why = _unsettled(view, state)
    if why is not None:
        return _wait(view, state, why)
    settled = state if _stuck(view, state) else replace(state, unsettled_since=None)
    if view.figures is None:
        return _keep(view, settled, f"measuring until {state.window.until.isoformat()}")
    return _judge(view, replace(settled, window=_next(view, state.window), looks=state.looks + 1), view.figures)


def settles_first(plan: RunPlan) -> bool:
    """Whether the number of connections must be found before the measurement begins."""
    return plan.load_mode is LoadMode.QPS and plan.scaling.mode is not ScalingMode.FIXED


def has_settled(plan: RunPlan, state: QpsState | None) -> bool:
    """Whether the measurement can begin: the number of connections has been found, or need not be found."""
    return not settles_first(plan) or (state is not None and state.settled)


def starting_connections(plan: RunPlan) -> int:
    """Return the connections to start with: the configured number, or the minimum per worker times the minimum of workers."""
    scaling, requested = plan.scaling, plan.qps.starting_connections
    least = scaling.min_connections * max(1, scaling.min_workers)
    if requested is None or scaling.mode is ScalingMode.FIXED:
        return least
    return max(1, min(requested, workers_for(requested, scaling) * ceiling(scaling)))


def needed(figures: Figures, view: ModeView) -> int:
    """Return the connections that the target needs by Little's law, plus a quarter, or plus one per worker if that is more."""
    workers = max(1, view.ready)
    share = view.plan.qps.target_qps * (figures.service_ms or 0.0) / 1000 / workers
    return workers * max(ceil(share * HEADROOM), ceil(share) + 1)


def busy_share(figures: Figures, view: ModeView) -> float:
    """Return the average share of open connections that were running an operation."""
    held = figures.connections or view.held
    return figures.qps * (figures.service_ms or 0.0) / 1000 / held if held else 1.0


def _begin(view: ModeView) -> LoadDecision:
    connections = starting_connections(view.plan)
    workers = workers_for(connections, view.plan.scaling)
    state = QpsState(connections=connections, workers=workers, window=_window(view), ready=view.ready)
    return _keep(view, state, f"starting with {connections} connections on {workers} workers")


def _unsettled(view: ModeView, state: QpsState) -> str | None:
    """Return why throughput cannot be judged now (workers or connections are missing), or None if it can."""
    if view.ready != state.ready:
        return f"{view.ready} workers ready, {state.ready} before"
    if _stuck(view, state):
        return None
    if view.held < HELD_SHARE * view.connections:
        return f"{view.held} of {view.connections} connections are open"
    return f"{view.coming} workers are starting" if view.coming else None


def _stuck(view: ModeView, state: QpsState) -> bool:
    """Whether workers or connections have been missing for so long that throughput is judged anyway."""
    since = state.unsettled_since
    return since is not None and view.now - since >= UNSETTLED_INTERVALS * view.plan.qps.interval


def _wait(view: ModeView, state: QpsState, why: str) -> LoadDecision:
    since = view.now if view.ready != state.ready else state.unsettled_since or view.now
    waiting = replace(state, ready=view.ready, unsettled_since=since, window=_window(view), settled=False)
    return _keep(view, waiting, f"{why}: throughput is not judged")


def _judge(view: ModeView, state: QpsState, figures: Figures) -> LoadDecision:
    target, tolerance = view.plan.qps.target_qps, view.plan.qps.tolerance
    state = replace(state, last_error_pct=100 * (figures.qps - target) / target if target else None, settled=False)
    if figures.qps < target - tolerance:
        return _below(view, replace(state, under=state.under + 1, slack=0, peak_service_ms=None), figures)
    state = replace(state, under=0, at_ceiling=0, scaled_out_at_qps=None, scaled_out_from=None, futile=0)
    if (more := _relief(view, state, figures)) > state.connections:
        return _change(view, replace(state, slack=0, peak_service_ms=None), figures, more)
    if figures.qps > target + tolerance:
        caught_up = replace(state, slack=0, peak_service_ms=None)
        return _keep(view, caught_up, f"{_throughput(figures, view)}: catching up on overdue operations")
    return _on_target(view, state, figures)


def _relief(view: ModeView, state: QpsState, figures: Figures) -> int:
    """Return a higher number of connections if nearly all are busy although the target is reached, else the current number."""
    if busy_share(figures, view) < NOTHING_TO_SPARE or view.plan.scaling.mode is ScalingMode.FIXED:
        return state.connections
    return min(needed(figures, view), _room(view, state))


def _below(view: ModeView, state: QpsState, figures: Figures) -> LoadDecision:
    if view.plan.scaling.mode is ScalingMode.FIXED:
        return _keep(view, state, f"{_throughput(figures, view)}; FIXED: connections are not changed")
    wish = _wanted_connections(view, state, figures)
    if _is_full(view, state):
        return _at_ceiling(view, state, figures, wish)
    state = replace(state, at_ceiling=0)
    total = min(wish, _room(view, state))
    if total <= state.connections:
        idle = f"{busy_share(figures, view):.0%} of the connections are busy"
        return _keep(view, replace(state, settled=True), f"{_throughput(figures, view)}; {idle}: they are not the bottleneck")
    return _change(view, state, figures, total)


def _wanted_connections(view: ModeView, state: QpsState, figures: Figures) -> int:
    """Return the connections wanted to reach the target, regardless of the limit per worker."""
    now = state.connections
    if figures.service_ms is None:
        return 2 * now
    enough = needed(figures, view)
    if enough <= now and busy_share(figures, view) < ALL_BUSY and not _is_full(view, state):
        return now
    wish = max(enough, now + max(1, view.ready))
    return wish if state.looks <= FEED_FORWARD_LOOKS else min(wish, max(now + view.plan.qps.max_increase, MOST_GROWTH * now))


def _at_ceiling(view: ModeView, state: QpsState, figures: Figures, wish: int) -> LoadDecision:
    """Add workers, or report that no more are allowed. Called when every worker has the most connections allowed."""
    have = _workers(view, state)
    if view.most_workers is not None and have >= view.most_workers:
        return _out_of_bounds(view, state, figures)
    if state.under < SCALE_OUT_AFTER or view.coming:
        full = f"all workers are at their ceiling of {ceiling(view.plan.scaling)}"
        return _keep(view, state, f"{_throughput(figures, view)}; {full}")
    futile = state.futile + 1 if state.futile or _brought_nothing(state, figures) else 0
    if view.most_workers is None and futile % TRIED_AGAIN:
        waiting = replace(state, futile=futile, settled=True)
        limit = "more workers brought no more throughput: the database is the limit"
        return _keep(view, waiting, f"{_throughput(figures, view)}; {limit}")
    return _scale_out(view, state, figures, state.connections if futile else wish)


def _brought_nothing(state: QpsState, figures: Figures) -> bool:
    """Whether the workers added last raised throughput by less than a quarter of what their connections should bring."""
    if state.scaled_out_at_qps is None or not state.scaled_out_from:
        return False
    growth = state.connections / state.scaled_out_from - 1
    return figures.qps < state.scaled_out_at_qps * (1 + max(LEAST_GAIN, GAIN_SHARE * growth))


def _scale_out(view: ModeView, state: QpsState, figures: Figures, wish: int) -> LoadDecision:
    """Add as many workers as ``wish`` (the wanted connections) needs, at least one."""
    cap = ceiling(view.plan.scaling)
    workers = max(_workers(view, state) + 1, ceil(wish / cap))
    if view.most_workers is not None:
        workers = min(workers, view.most_workers)
    grown = replace(state, workers=workers, scaled_out_at_qps=figures.qps, scaled_out_from=state.connections, futile=0)
    return _change(view, grown, figures, min(max(wish, state.connections + cap), _room(view, grown)))


def _out_of_bounds(view: ModeView, state: QpsState, figures: Figures) -> LoadDecision:
    patience = view.plan.qps.bounds_patience_intervals
    counts = view.phase == Phase.MEASUREMENT and not view.coming
    state = replace(state, at_ceiling=state.at_ceiling + 1 if counts else 0, settled=not view.coming)
    reason = f"{_throughput(figures, view)}; at the bounds ({_bounds(view)}) for {state.at_ceiling} of {patience} intervals"
    steered = _keep(view, state, reason)
    return replace(steered, finish=_finish(view, state, figures)) if state.at_ceiling >= patience else steered


def _finish(view: ModeView, state: QpsState, figures: Figures) -> Finish:
    target = view.plan.qps.target_qps
    return Finish(
        completion_reason="BOUNDS_LIMIT_REACHED",
        reason=f"Target QPS {target:g} not reached within {_bounds(view)}: {figures.qps:.1f} QPS",
        result={
            "achieved_qps": round(figures.qps, 3),
            "target_qps": target,
            "max_workers": view.most_workers,
            "max_connections": ceiling(view.plan.scaling),
            "workers": view.ready,
            "connections": state.connections,
            "service_ms": figures.service_ms,
            "p95_ms": figures.p95_ms,
            "intervals_at_ceiling": state.at_ceiling,
        },
    )


def _on_target(view: ModeView, state: QpsState, figures: Figures) -> LoadDecision:
    if busy_share(figures, view) >= SLACK or view.plan.scaling.mode is ScalingMode.FIXED:
        steady = replace(state, slack=0, peak_service_ms=None, settled=True)
        return _keep(view, steady, f"{_throughput(figures, view)}: on target")
    peak = max(state.peak_service_ms or 0.0, figures.service_ms or 0.0)
    state = replace(state, slack=state.slack + 1, peak_service_ms=peak)
    total = _fewest(view, state, replace(figures, service_ms=peak))
    if state.slack < SLACK_WINDOWS or total >= state.connections:
        return _keep(view, replace(state, settled=True), f"{_throughput(figures, view)}: on target")
    return _change(view, replace(state, slack=0, peak_service_ms=None), figures, total)


def _fewest(view: ModeView, state: QpsState, figures: Figures) -> int:
    """Return the lowest number of connections that a check can set: half the current number, the number ``needed`` by Little's
    law, or the configured minimum, whichever is highest."""
    least = view.plan.scaling.min_connections * max(1, view.plan.scaling.min_workers)
    return max(needed(figures, view), ceil(state.connections / 2), least)


def _change(view: ModeView, state: QpsState, figures: Figures, total: int) -> LoadDecision:
    changed = replace(
        state,
        connections=total,
        step=state.step + 1,
        last_change=view.now,
        unsettled_since=None,
        at_ceiling=0,
        settled=False,
        window=_since_change(view, state.window),
    )
    step_text = f"from {state.connections} to {total} connections"
    reason = f"{_throughput(figures, view)}; {figures.service_ms or 0:.1f} ms per operation: {step_text}"
    step = Step(
        run_id=view.run_id,
        type=StepType.QPS_SCALING,
        n=changed.step,
        from_target=state.connections,
        to_target=total,
        started_at=figures.since,
        ended_at=figures.until,
        operations=figures.operations,
        errors=figures.errors,
        failed_connects=figures.failed_connects,
        qps=figures.qps,
        target_qps=view.plan.qps.target_qps,
        p50_ms=figures.p50_ms,
        p95_ms=figures.p95_ms,
        p99_ms=figures.p99_ms,
        outcome=outcome(figures.qps, view),
        reason=reason,
    )
    return replace(_keep(view, changed, reason), step=step)


def outcome(qps: float, view: ModeView) -> str:
    """Return whether a throughput is ON_TARGET, OVER_TARGET or UNDER_TARGET, within the tolerance."""
    error = qps - view.plan.qps.target_qps
    if abs(error) <= view.plan.qps.tolerance:
        return "ON_TARGET"
    return "OVER_TARGET" if error > 0 else "UNDER_TARGET"


def _keep(view: ModeView, state: QpsState, reason: str) -> LoadDecision:
    return LoadDecision(
        connections=state.connections, workers=state.workers, reason=reason, qps=view.plan.qps.target_qps, qps_state=state
    )


def _workers(view: ModeView, state: QpsState) -> int:
    """Count the workers that run or are requested, including those added by guardrails."""
    return max(state.workers, view.ready)


def _room(view: ModeView, state: QpsState) -> int:
    return _workers(view, state) * ceiling(view.plan.scaling)


def _is_full(view: ModeView, state: QpsState) -> bool:
    return state.connections >= _room(view, state)


def _window(view: ModeView) -> Window:
    """Return the time window to measure from now. It ends early enough for its samples to arrive before the next check."""
    length = max(view.plan.qps.interval - SAMPLES_ARRIVE_WITHIN, LEAST_WINDOW)
    return Window(since=view.now, until=view.now + length)


def _next(view: ModeView, last: Window) -> Window:
    """Return the time window that follows ``last`` without a gap; if that window is over already, one that begins now."""
    until = last.until + view.plan.qps.interval
    if until + SAMPLES_ARRIVE_WITHIN <= view.now:
        return _window(view)
    return Window(since=max(last.since, min(last.until, until - LEAST_WINDOW)), until=until)


def _since_change(view: ModeView, planned: Window | None) -> Window:
    """Return a time window that begins now: connections change now, and earlier figures say nothing about the new number."""
    until = planned.until if planned else view.now
    return Window(since=view.now, until=max(until, view.now + LEAST_WINDOW))


def _bounds(view: ModeView) -> str:
    return f"max {view.most_workers} workers × {ceiling(view.plan.scaling)} connections"


def _throughput(figures: Figures, view: ModeView) -> str:
    return f"{figures.qps:.1f} of {view.plan.qps.target_qps:g} QPS"
