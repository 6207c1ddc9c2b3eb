"""Decides a run's next actions: workers to start, targets to set, phases to enter, when to end. Pure: no clock, no I/O, no log.

The state records the wanted connections and the targets already sent to workers; each beat (pass of the control loop) sends the
difference. So if an orchestrator stops between two actions, the next beat, of this or another orchestrator, decides the missing
actions again.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from drumbeat.bench.control import losses
from drumbeat.bench.control.guardrails import guard, soft_guardrails
from drumbeat.bench.control.modes import concurrency, find_max, qps
from drumbeat.bench.control.staffing import reconcile_workers, staffing_of, with_assigned_targets
from drumbeat.bench.control.waiting import READY, note_waiting, start_overdue, waiting_for
from drumbeat.bench.model import (
    Action,
    AskWorkersToDrain,
    Begin,
    Conclude,
    ControllerState,
    EnterPhase,
    FindMaxState,
    GuardedWorker,
    GuardrailDecision,
    GuardState,
    GuardView,
    LoadDecision,
    LoadMode,
    ModeView,
    NoteFact,
    QpsState,
    Remember,
    RunEnding,
    RunView,
    SaveStep,
    StopLoad,
)
from drumbeat.core.decision import Decision
from drumbeat.core.recovery import MarkFailed, Reap, Recovered, never_started, recover
from drumbeat.core.run import Phase, RunStatus
from drumbeat.core.worker import Health, Worker, WorkerStatus, judge

_BUSY = frozenset({RunStatus.STARTING, RunStatus.RUNNING})
LAST = "after_measurement"  #: name of the server statistics read when the load stops, and again when all workers have left
_TOTALS_DELAY = timedelta(seconds=1)  #: database sessions add their counts to the server statistics once a second
_READINGS_AFTER_END = 1  #: how many times the server statistics are read after the last worker has left
_MAX_BEATS_WAITED = 8  #: most beats to wait for the reading after the last worker has left


def decide(view: RunView) -> Decision[Action]:
    """Return the actions of one pass of the control loop: those for lost workers, then those for the run's current status."""
    recovered = recover(view.snapshot)
    match view.status:
        case RunStatus.STARTING:
            actions = _starting(view, recovered)
        case RunStatus.RUNNING:
            actions = _running(view, recovered)
        case RunStatus.STOPPING | RunStatus.CANCELLING:
            actions = _ending(view, recovered)
        case _:
            actions = []
    reaps = [action for action in recovered.actions if isinstance(action, Reap)] if view.unlisted is not None else []
    first = [action for action in recovered.actions if action not in reaps]
    every = [*first, *actions, *(reaps if view.status not in _BUSY else ())]
    others = [action for action in every if not isinstance(action, Remember)]
    return Decision(
        actions=every,
        why_not=None if others else _why_nothing(view, recovered),
        summary=_summary(view, recovered),
    )


def _starting(view: RunView, recovered: Recovered) -> list[Action]:
    steer = _steer(view, recovered)
    staffing = staffing_of(view, recovered, steer, view.state, {})
    wanted, connections = staffing.state.workers, staffing.state.connections
    if ending := losses.while_starting(view, recovered) or start_overdue(view, recovered, wanted, connections):
        return _stop(view, staffing.state, ending)
    waiting = waiting_for(view, recovered, wanted)
    actions: list[Action] = [*note_waiting(view.state, waiting), *reconcile_workers(view, recovered, staffing)]
    state = replace(with_assigned_targets(staffing.state, actions), waiting=waiting)
    ready = [worker for worker in recovered.staying if worker.status in READY]
    if len(ready) >= wanted and not staffing.spawns:
        state = _snapshot(state, "before_warmup", view)
        actions.append(_begin(view, len(ready)))
    return [*actions, *_remember(view, state)]


def _begin(view: RunView, ready: int) -> Begin:
    phase = Phase.WARMUP if view.plan.warmup or qps.settles_first(view.plan) else Phase.MEASUREMENT
    return Begin(phase=phase, workers=ready, reason=f"all {ready} workers are ready")


def _running(view: RunView, recovered: Recovered) -> list[Action]:
    guarded = _guard(view, recovered)
    steer = _steer(view, recovered)
    before = replace(view.state, guard=guarded.state)
    staffing = staffing_of(view, recovered, steer, before, _ceilings(recovered, guarded), guarded.extra_workers)
    facts: list[Action] = [NoteFact(event=each, reason=guarded.reason or guarded.banner or each.type) for each in guarded.facts]
    steps: list[Action] = [SaveStep(step=steer.step, reason=steer.reason)] if steer.step else []
    if ending := _why_end(view, recovered, guarded, steer):
        state = _snapshot(staffing.state, LAST, view)
        shown = _remember(view, state) if guarded.failure is not None else []
        return [*facts, *steps, *shown, *_stop(view, state, ending)]
    actions = [*facts, *steps, *reconcile_workers(view, recovered, staffing)]
    state = with_assigned_targets(staffing.state, actions)
    if _snapshot_is_due(view):
        state = _snapshot(state, "after_warmup", view)
    if reason := _why_measure(view, steer):
        actions.append(EnterPhase(phase=Phase.MEASUREMENT, reason=reason))
    return [*actions, *_remember(view, state)]


def _snapshot_is_due(view: RunView) -> bool:
    """Whether to store the current server statistics as "after_warmup": 1 s after the warm-up ended, if none are stored yet."""
    since, warm = view.warmup_ended_at, "after_warmup" in view.state.snapshots
    return (
        view.phase == Phase.MEASUREMENT
        and (bool(view.plan.warmup) or qps.settles_first(view.plan))
        and not warm
        and since is not None
        and view.now - since >= _TOTALS_DELAY
    )


def _why_end(view: RunView, recovered: Recovered, guarded: GuardrailDecision, steer: LoadDecision) -> RunEnding | None:
    if lost := losses.while_running(view, recovered):
        return lost
    if guarded.failure is not None:
        return RunEnding(
            status=RunStatus.FAILED, completion_reason=guarded.failure.completion_reason, reason=guarded.failure.reason
        )
    if steer.finish is not None:
        finish = steer.finish
        return RunEnding(
            status=RunStatus.COMPLETED,
            completion_reason=finish.completion_reason,
            reason=finish.reason,
            result=finish.result,
        )
    if _measured_enough(view):
        reason = f"measured for {view.plan.duration.total_seconds():g} s"
        return RunEnding(status=RunStatus.COMPLETED, completion_reason="DURATION", reason=reason)
    return None


def _why_measure(view: RunView, steer: LoadDecision) -> str | None:
    """Return the reason to begin the measurement now, or None to stay in the warm-up."""
    since, plan = view.warmup_started_at, view.plan
    if view.phase != Phase.WARMUP or since is None or view.now - since < plan.warmup:
        return None
    lasted = f"warmed up for {(view.now - since).total_seconds():.0f} s"
    if not qps.settles_first(plan):
        return f"warmed up for {plan.warmup.total_seconds():g} s"
    if qps.has_settled(plan, steer.qps_state):
        return f"{lasted}; the throughput has settled: {steer.reason}"
    if view.now - since >= plan.warmup + qps.SETTLE_WITHIN * plan.qps.interval:
        return f"{lasted}; the throughput has not settled within {qps.SETTLE_WITHIN} intervals and is measured as it is"
    return None


def _measured_enough(view: RunView) -> bool:
    """Whether the measurement has lasted for the planned duration. A find-max run has no planned duration."""
    if view.plan.load_mode is LoadMode.FIND_MAX_CONCURRENCY or view.phase != Phase.MEASUREMENT:
        return False
    return view.warmup_ended_at is not None and view.now - view.warmup_ended_at >= view.plan.duration


def _stop(view: RunView, state: ControllerState, ending: RunEnding) -> list[Action]:
    within = view.thresholds.drain_within
    return [
        StopLoad(
            state=replace(state, ending=ending),
            completion_reason=ending.completion_reason,
            drain_within=within,
            reason=ending.reason,
        )
    ]


def _ending(view: RunView, recovered: Recovered) -> list[Action]:
    """Return the actions that end a run: stop all workers, wait until they have left, enter PROCESSING, store the result.

    If the engine does not answer, the run ends although the engine has not confirmed that the instances of ended workers are
    gone: these workers have been told to leave, and each ends when it finds its row closed."""
    unstarted = never_started(view.snapshot, recovered.living)
    actions: list[Action] = [
        MarkFailed(worker=worker, exit_code=0, reason="the run ended before this worker was started") for worker in unstarted
    ]
    running = tuple(
        worker.worker_id for worker in recovered.living if worker.drain_deadline is None and worker not in unstarted
    )
    if running:
        actions.append(AskWorkersToDrain(workers=running, within=view.thresholds.drain_within, reason=_why_ending(view)))
    unconfirmed = [action for action in recovered.actions if view.unlisted is None or not isinstance(action, Reap)]
    if recovered.living or unconfirmed:
        return actions
    if view.phase != Phase.PROCESSING:
        return [EnterPhase(phase=Phase.PROCESSING, reason="every worker has left")]
    if _waits_for_totals(view):
        waiting = replace(view.state, left_at_look=_left_at(view), looks_waited=view.state.looks_waited + 1)
        return _remember(view, waiting)
    ending = _how_to_end(view)
    last = _snapshot(view.state, LAST, view)
    return [*(_remember(view, last) if last != view.state else ()), Conclude(ending=ending, reason=ending.reason)]


def _left_at(view: RunView) -> int:
    """Return the number of the latest reading of server statistics when the last worker left. A new orchestrator counts its
    readings from 1 again: until it has made that many, return the number of its latest reading."""
    now = view.probe.look if view.probe else 0
    return now if view.state.left_at_look is None else min(now, view.state.left_at_look)


def _waits_for_totals(view: RunView) -> bool:
    """Whether to wait a few beats for another reading of server statistics, as they are complete only once all sessions are
    closed."""
    if view.status is RunStatus.CANCELLING or view.probe is None or not view.probe.counters or not view.state.snapshots:
        return False
    return view.probe.look < _left_at(view) + _READINGS_AFTER_END and view.state.looks_waited < _MAX_BEATS_WAITED


def _how_to_end(view: RunView) -> RunEnding:
    """Return the final status of the run and its reason. A cancelled run ends as CANCELLED even if it was about to complete."""
    if view.status is RunStatus.CANCELLING or view.state.ending is None:
        result = view.state.ending.result if view.state.ending else {}
        return RunEnding(status=RunStatus.CANCELLED, completion_reason="USER", reason="stopped by the user", result=result)
    return view.state.ending


def _why_ending(view: RunView) -> str:
    return view.state.ending.reason if view.state.ending else "stopped by the user"


def _steer(view: RunView, recovered: Recovered) -> LoadDecision:
    mode_view = _mode_view(view, recovered)
    match view.plan.load_mode:
        case LoadMode.CONCURRENCY:
            return concurrency.steer(mode_view)
        case LoadMode.QPS:
            return qps.steer(mode_view, view.state.qps or QpsState())
        case LoadMode.FIND_MAX_CONCURRENCY:
            return find_max.steer(mode_view, view.state.find_max or FindMaxState())


def _mode_view(view: RunView, recovered: Recovered) -> ModeView:
    ready = [worker for worker in recovered.staying if worker.status in READY]
    phase = view.phase if view.phase in (Phase.WARMUP, Phase.MEASUREMENT) else Phase.WARMUP
    return ModeView(
        run_id=view.run_id,
        now=view.now,
        plan=view.plan,
        phase=phase or Phase.WARMUP,
        phase_began=_phase_began(view),
        connections=view.state.connections,
        held=sum(worker.applied_target for worker in ready),
        ready=len(ready),
        coming=len(recovered.staying) - len(ready),
        most_workers=view.plan.scaling.most_workers,
        figures=view.figures,
    )


def _phase_began(view: RunView) -> datetime:
    if view.phase == Phase.MEASUREMENT and view.warmup_ended_at is not None:
        return view.warmup_ended_at
    return view.warmup_started_at or view.started_at or view.now


def _guard(view: RunView, recovered: Recovered) -> GuardrailDecision:
    scaling = view.plan.scaling
    guard_view = GuardView(
        now=view.now,
        guardrails=view.plan.guardrails,
        scaling=scaling,
        most_workers=scaling.most_workers,
        workers=tuple(_load_of(worker, view) for worker in recovered.staying if worker.status is WorkerStatus.ACTIVE),
        coming=sum(worker.status is not WorkerStatus.ACTIVE for worker in recovered.staying),
        waiting=view.probe.waiting if view.probe is not None else None,
    )
    return guard(guard_view, view.state.guard or GuardState())


def _load_of(worker: Worker, view: RunView) -> GuardedWorker:
    fresh = judge(worker, view.now, view.thresholds, view.looking_since) is Health.HEALTHY
    return GuardedWorker(
        worker_id=worker.worker_id,
        slot=worker.slot,
        target=worker.target,
        cpu_percent=worker.cpu_percent,
        memory_percent=worker.memory_percent,
        fresh=fresh,
    )


def _ceilings(recovered: Recovered, guarded: GuardrailDecision) -> dict[int, int]:
    by_name = {worker.worker_id: worker.slot for worker in recovered.staying}
    return {by_name[name]: ceiling for name, ceiling in guarded.ceilings.items() if name in by_name}


def _snapshot(state: ControllerState, name: str, view: RunView) -> ControllerState:
    if view.probe is None or not view.probe.counters:
        return state
    return replace(state, snapshots={**state.snapshots, name: view.probe.counters})


def _remember(view: RunView, state: ControllerState) -> list[Action]:
    """Return the action that stores the orchestrator state and the current throughput, latency and error counts."""
    operations, errors = sum(worker.operations for worker in view.workers), sum(worker.errors for worker in view.workers)
    return [Remember(state=state, operations=operations, errors=errors, qps=view.recent.qps, metrics=_metrics(view, state))]


def _metrics(view: RunView, state: ControllerState) -> dict[str, Any]:
    """Return the live figures (throughput, latencies, connections) that pages read from the run's row."""
    now = view.recent
    return {
        "latest": {
            "qps": now.qps,
            "p50_ms": now.p50_ms,
            "p95_ms": now.p95_ms,
            "p99_ms": now.p99_ms,
            "slowest_p95_ms": now.slowest_p95_ms,
            "slowest_p99_ms": now.slowest_p99_ms,
            "connections": now.connections,
            "target_connections": state.connections,
        },
        "bounds_state": _bounds(view, state),
        **({"waiting": state.waiting} if state.waiting is not None and view.status is RunStatus.STARTING else {}),
        **({"soft_guardrails": soft_guardrails(state.guard)} if state.guard is not None else {}),
    }


def _bounds(view: RunView, state: ControllerState) -> dict[str, Any] | None:
    most = view.plan.scaling.most_workers
    if most is None:
        return None
    at_most = state.workers >= most
    return {
        "mode": view.plan.scaling.mode,
        "workers": state.workers,
        "max_workers": most,
        "at_max_workers": at_most,
        "message": f"At max workers ({state.workers}/{most})" if at_most else None,
    }


def _why_nothing(view: RunView, recovered: Recovered) -> str:
    here = f"{len(recovered.staying)} of {view.state.workers} workers are here"
    match view.status:
        case RunStatus.PREPARED:
            return "the run has not been started"
        case RunStatus.STARTING:
            ready = sum(worker.status in READY for worker in recovered.staying)
            waiting = waiting_for(view, recovered, view.state.workers)
            return waiting or f"{ready} of {view.state.workers} workers are ready"
        case RunStatus.RUNNING:
            return f"{view.phase}: {here}, target {view.state.connections} connections, {view.recent.qps:.0f} ops/s"
        case RunStatus.STOPPING | RunStatus.CANCELLING:
            return f"{len(recovered.living)} workers are draining or ending"
        case _:
            return f"the run is {view.status}"


def _summary(view: RunView, recovered: Recovered) -> dict[str, Any]:
    return {
        "status": view.status,
        "phase": view.phase,
        "workers": len(recovered.staying),
        "connections": view.state.connections,
        "qps": round(view.recent.qps, 1),
    }
