"""QPS: a throughput held with as few connections as it takes. One controller on the totals of all workers (C28).

The workers are paced: together they issue the target, each its share, on at most the connections it has. So they stay below it
only while connections are too few for the time an operation takes, and above it only while they catch up on what is overdue.
How many it takes is Little's law: throughput × time. The law is looked at once an interval:

- *Below the deadband* (C27: the one lower bound for everything): as many as the law says and a quarter more. The first two
  looks may take any step (feed-forward); later ones at most triple what is there (or add ``max_increase``, if that is more).
  That limit is what settling within eight intervals of a latency three times as long takes. In simulation, where workers catch
  up, a limit of a tenth or a quarter more was late in 24 of 100 seeds; where workers had to be added, doubling was in one.
- *Inside it*: fewer, after three intervals in a row in which less than half were busy; never fewer than the law says for the
  slowest of them and a quarter more, so that the step cannot leave the deadband. After a step up four in five are busy, so
  that one never calls for the other.
- *Above it*: nothing; they catch up.
- *Inside or above it, with hardly a connection to spare*: as many as the law says and a quarter more, or what is overdue would
  never get less.

Workers are added when all are at their ceiling and the throughput was below the deadband twice. With a bound on workers, what
is still below it at that bound for ``bounds_patience_intervals`` ends the run; without one, workers that brought nothing are
the last, but for a single one that is tried now and then. An interval in which workers came, went or did not hold what they
were told is not looked at, unless that lasts.

Looks are one ``interval`` apart. Samples need a moment to arrive, so a look is at what was measured until shortly before it;
after a change it is at what was measured since then. ``has_settled`` says when a measurement may begin: once a look found
nothing to change.

What this cannot mend: operations that fell overdue on the first workers while others were being started stay with the first,
who have little to spare. Where workers catch up *and* had to be added, it often takes longer than eight intervals (simulated:
54 of 150 starts, 85 of 150 latency steps).
"""

from dataclasses import replace
from datetime import timedelta
from math import ceil

from drumbeat.bench.control.modes.allocate import ceiling, workers_for
from drumbeat.bench.model import Figures, Finish, LoadMode, ModeView, QpsState, RunPlan, ScalingMode, Steer, Window
from drumbeat.bench.model.steering import SAMPLES_ARRIVE_WITHIN
from drumbeat.core.run import Phase, Step, StepType

HEADROOM = 1.25  #: connections, over what Little's law says
MOST_GROWTH = 3  #: times what is held, in one later look
FEED_FORWARD_LOOKS = 2  #: that may take any step: one on the first workers, one on those added next
ALL_BUSY = 0.7  #: from this share of busy connections on, they may be what is short
NOTHING_TO_SPARE = 0.95  #: … and from this on, what is overdue hardly gets less
SLACK = 0.5  #: below it they are too many …
SLACK_WINDOWS = 3  #: … if that lasts for so many windows
SCALE_OUT_AFTER = 2  #: windows below the target with every worker at its ceiling
HELD_SHARE = 0.95  #: of what they were told; single connections may be on their way back
UNSETTLED_INTERVALS = 3  #: after which a window is looked at all the same
GAIN_SHARE = 0.25  #: of what they should, workers that were added must bring …
LEAST_GAIN = 0.05  #: … and at least so much
LEAST_WINDOW = timedelta(seconds=2)  #: less than that says little: workers send a sample a second
SETTLE_WITHIN = 8  #: intervals after the warm-up; then the measurement begins all the same
TRIED_AGAIN = 12  #: windows after workers brought nothing, with a single one


def steer(view: ModeView, state: QpsState) -> Steer:
    """What to hold from now on, and the state to give back at the next beat."""
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
    """Whether the connections a throughput takes must be found before it is measured."""
    return plan.load_mode is LoadMode.QPS and plan.scaling.mode is not ScalingMode.FIXED


def has_settled(plan: RunPlan, state: QpsState | None) -> bool:
    """Whether the throughput is as steady as it gets. Where connections are FIXED there is nothing to find first."""
    return not settles_first(plan) or (state is not None and state.settled)


def starting_connections(view: ModeView) -> int:
    """What is held before anything is known: what the user says, or each worker's floor (C29)."""
    scaling, asked = view.plan.scaling, view.plan.qps.starting_connections
    least = scaling.min_connections * max(1, scaling.min_workers)
    if asked is None or scaling.mode is ScalingMode.FIXED:
        return least
    return max(1, min(asked, workers_for(asked, scaling) * ceiling(scaling)))


def needed(figures: Figures, view: ModeView) -> int:
    """Connections for the target by Little's law, with headroom: a quarter more, at least one more for each worker."""
    workers = max(1, view.ready)
    share = view.plan.qps.target_qps * (figures.service_ms or 0.0) / 1000 / workers
    return workers * max(ceil(share * HEADROOM), ceil(share) + 1)


def busy_share(figures: Figures, view: ModeView) -> float:
    """How many of the connections were in use, on average, as a share."""
    held = figures.connections or view.held
    return figures.qps * (figures.service_ms or 0.0) / 1000 / held if held else 1.0


def _begin(view: ModeView) -> Steer:
    connections = starting_connections(view)
    workers = workers_for(connections, view.plan.scaling)
    state = QpsState(connections=connections, workers=workers, window=_window(view), ready=view.ready)
    return _keep(view, state, f"begins with {connections} connections on {workers} workers")


def _unsettled(view: ModeView, state: QpsState) -> str | None:
    """Why what is measured now says nothing of the connections that were asked for."""
    if view.ready != state.ready:
        return f"{view.ready} workers work, {state.ready} did"
    if _stuck(view, state):
        return None
    if view.held < HELD_SHARE * view.connections:
        return f"{view.held} of {view.connections} connections are open"
    return f"{view.coming} workers are on their way" if view.coming else None


def _stuck(view: ModeView, state: QpsState) -> bool:
    """Whether it has been unsettled for so long that it may stay so."""
    since = state.unsettled_since
    return since is not None and view.now - since >= UNSETTLED_INTERVALS * view.plan.qps.interval


def _wait(view: ModeView, state: QpsState, why: str) -> Steer:
    since = view.now if view.ready != state.ready else state.unsettled_since or view.now
    waiting = replace(state, ready=view.ready, unsettled_since=since, window=_window(view), settled=False)
    return _keep(view, waiting, f"{why}: not judged")


def _judge(view: ModeView, state: QpsState, figures: Figures) -> Steer:
    target, tolerance = view.plan.qps.target_qps, view.plan.qps.tolerance
    state = replace(state, last_error_pct=100 * (figures.qps - target) / target if target else None, settled=False)
    if figures.qps < target - tolerance:
        return _below(view, replace(state, under=state.under + 1, slack=0, peak_service_ms=None), figures)
    state = replace(state, under=0, at_ceiling=0, scaled_out_at_qps=None, scaled_out_from=None, futile=0)
    if (more := _relief(view, state, figures)) > state.connections:
        return _change(view, replace(state, slack=0, peak_service_ms=None), figures, more)
    if figures.qps > target + tolerance:
        return _keep(
            view, replace(state, slack=0, peak_service_ms=None), f"{_says(figures, view)}: catches up on what is overdue"
        )
    return _on_target(view, state, figures)


def _relief(view: ModeView, state: QpsState, figures: Figures) -> int:
    """What to hold when the target is reached with nothing to spare."""
    if busy_share(figures, view) < NOTHING_TO_SPARE or view.plan.scaling.mode is ScalingMode.FIXED:
        return state.connections
    return min(needed(figures, view), _room(view, state))


def _below(view: ModeView, state: QpsState, figures: Figures) -> Steer:
    if view.plan.scaling.mode is ScalingMode.FIXED:
        return _keep(view, state, f"{_says(figures, view)}; FIXED: connections stay")
    wish = _wish(view, state, figures)
    if _is_full(view, state):
        return _at_ceiling(view, state, figures, wish)
    state = replace(state, at_ceiling=0)
    total = min(wish, _room(view, state))
    if total <= state.connections:
        idle = f"{busy_share(figures, view):.0%} of the connections are busy"
        return _keep(view, replace(state, settled=True), f"{_says(figures, view)}; {idle}: they are not what is short")
    return _change(view, state, figures, total)


def _wish(view: ModeView, state: QpsState, figures: Figures) -> int:
    """What would be held if workers had room for it."""
    now = state.connections
    if figures.service_ms is None:
        return 2 * now
    enough = needed(figures, view)
    if enough <= now and busy_share(figures, view) < ALL_BUSY and not _is_full(view, state):
        return now
    wish = max(enough, now + max(1, view.ready))
    return wish if state.looks <= FEED_FORWARD_LOOKS else min(wish, max(now + view.plan.qps.max_increase, MOST_GROWTH * now))


def _at_ceiling(view: ModeView, state: QpsState, figures: Figures, wish: int) -> Steer:
    """Every worker is full: more workers, or the end of what bounds allow."""
    have = _workers(view, state)
    if view.most_workers is not None and have >= view.most_workers:
        return _out_of_bounds(view, state, figures)
    if state.under < SCALE_OUT_AFTER or view.coming:
        return _keep(view, state, f"{_says(figures, view)}; all workers are at their ceiling of {ceiling(view.plan.scaling)}")
    futile = state.futile + 1 if state.futile or _brought_nothing(state, figures) else 0
    if view.most_workers is None and futile % TRIED_AGAIN:
        waiting = replace(state, futile=futile, settled=True)
        return _keep(view, waiting, f"{_says(figures, view)}; more workers brought no more: the database gives no more")
    return _scale_out(view, state, figures, state.connections if futile else wish)


def _brought_nothing(state: QpsState, figures: Figures) -> bool:
    """Whether the workers added last brought less than a quarter of what as many more connections should."""
    if state.scaled_out_at_qps is None or not state.scaled_out_from:
        return False
    growth = state.connections / state.scaled_out_from - 1
    return figures.qps < state.scaled_out_at_qps * (1 + max(LEAST_GAIN, GAIN_SHARE * growth))


def _scale_out(view: ModeView, state: QpsState, figures: Figures, wish: int) -> Steer:
    """As many workers as the wish takes, at least one more."""
    cap = ceiling(view.plan.scaling)
    workers = max(_workers(view, state) + 1, ceil(wish / cap))
    if view.most_workers is not None:
        workers = min(workers, view.most_workers)
    grown = replace(state, workers=workers, scaled_out_at_qps=figures.qps, scaled_out_from=state.connections, futile=0)
    return _change(view, grown, figures, min(max(wish, state.connections + cap), _room(view, grown)))


def _out_of_bounds(view: ModeView, state: QpsState, figures: Figures) -> Steer:
    patience = view.plan.qps.bounds_patience_intervals
    counts = view.phase == Phase.MEASUREMENT and not view.coming
    state = replace(state, at_ceiling=state.at_ceiling + 1 if counts else 0, settled=not view.coming)
    reason = f"{_says(figures, view)}; at the bounds ({_bounds(view)}) for {state.at_ceiling} of {patience} intervals"
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


def _on_target(view: ModeView, state: QpsState, figures: Figures) -> Steer:
    if busy_share(figures, view) >= SLACK or view.plan.scaling.mode is ScalingMode.FIXED:
        return _keep(view, replace(state, slack=0, peak_service_ms=None, settled=True), f"{_says(figures, view)}: on target")
    peak = max(state.peak_service_ms or 0.0, figures.service_ms or 0.0)
    state = replace(state, slack=state.slack + 1, peak_service_ms=peak)
    total = _fewest(view, state, replace(figures, service_ms=peak))
    if state.slack < SLACK_WINDOWS or total >= state.connections:
        return _keep(view, replace(state, settled=True), f"{_says(figures, view)}: on target")
    return _change(view, replace(state, slack=0, peak_service_ms=None), figures, total)


def _fewest(view: ModeView, state: QpsState, figures: Figures) -> int:
    """How far down one step may go: half way, never below the law, never below the floor of the fewest workers."""
    least = view.plan.scaling.min_connections * max(1, view.plan.scaling.min_workers)
    return max(needed(figures, view), ceil(state.connections / 2), least)


def _change(view: ModeView, state: QpsState, figures: Figures, total: int) -> Steer:
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
    reason = f"{_says(figures, view)}; {figures.service_ms or 0:.1f} ms each: {state.connections} to {total} connections"
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
    """What a throughput is called."""
    error = qps - view.plan.qps.target_qps
    if abs(error) <= view.plan.qps.tolerance:
        return "ON_TARGET"
    return "OVER_TARGET" if error > 0 else "UNDER_TARGET"


def _keep(view: ModeView, state: QpsState, reason: str) -> Steer:
    return Steer(
        connections=state.connections, workers=state.workers, reason=reason, qps=view.plan.qps.target_qps, qps_state=state
    )


def _workers(view: ModeView, state: QpsState) -> int:
    """Those there are or shall be, whoever asked for them."""
    return max(state.workers, view.ready)


def _room(view: ModeView, state: QpsState) -> int:
    return _workers(view, state) * ceiling(view.plan.scaling)


def _is_full(view: ModeView, state: QpsState) -> bool:
    return state.connections >= _room(view, state)


def _window(view: ModeView) -> Window:
    """From now on, so that the next look comes an interval from now."""
    length = max(view.plan.qps.interval - SAMPLES_ARRIVE_WITHIN, LEAST_WINDOW)
    return Window(since=view.now, until=view.now + length)


def _next(view: ModeView, last: Window) -> Window:
    """The interval after the last window: nothing is left out, and a beat that comes late does not put later looks off."""
    until = last.until + view.plan.qps.interval
    if until + SAMPLES_ARRIVE_WITHIN <= view.now:
        return _window(view)
    return Window(since=max(last.since, min(last.until, until - LEAST_WINDOW)), until=until)


def _since_change(view: ModeView, planned: Window | None) -> Window:
    """What is measured before a change says nothing of what comes after it."""
    until = planned.until if planned else view.now
    return Window(since=view.now, until=max(until, view.now + LEAST_WINDOW))


def _bounds(view: ModeView) -> str:
    return f"max {view.most_workers} workers × {ceiling(view.plan.scaling)} connections"


def _says(figures: Figures, view: ModeView) -> str:
    return f"{figures.qps:.1f} of {view.plan.qps.target_qps:g} QPS"
