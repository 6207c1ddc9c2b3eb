"""How many workers there should be, which must go, which are ill. Pure: no clock, no I/O, no log.

judge and recover → the policy's wish → its limits → spawn or drain, never both → what the next beat must know.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from drumbeat.core.decision import Decision
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.fleet.decide.classify import Classified, classify, note
from drumbeat.fleet.decide.learned import remember
from drumbeat.fleet.decide.limits import BoundedDecision, guard
from drumbeat.fleet.decide.policy_input import policy_input
from drumbeat.fleet.decide.scale import drain, respawn, rotate, spawn, trial_of
from drumbeat.fleet.decide.storage import watch_storage
from drumbeat.fleet.decide.summary import summary, why_nothing
from drumbeat.fleet.model import (
    Action,
    AskToDrain,
    FleetState,
    FleetView,
    ForgetRefusals,
    PolicyName,
    Reap,
    ScalingVerdict,
    SetTarget,
    Spawn,
)
from drumbeat.fleet.policies import POLICIES

__all__ = ["DecisionStep", "decide", "step", "verdict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionStep:
    """A decision as values: what shall be done, and what the next must know."""

    crew: Classified
    verdict: ScalingVerdict
    actions: list[Action]
    state: FleetState


def decide(view: FleetView) -> Decision[Action]:
    """Recover first, then bring the number of workers to what the policy asks for, within all limits."""
    made = step(view)
    return Decision(
        actions=made.actions,
        why_not=None if made.actions else why_nothing(view, made.crew, made.verdict),
        summary=summary(view, made.crew, made.verdict, made.actions, made.state),
    )


def step(view: FleetView) -> DecisionStep:
    """The same decision without its words: what a simulation needs of it."""
    crew, guarded = _weigh(view)
    leaving = drain(view, crew, guarded)
    spawning = [] if leaving else _spawning(view, crew, guarded)
    leaving = leaving or ([] if spawning else rotate(view, crew, guarded))
    filling, state = watch_storage(view, crew.living, _moved(view, guarded.state, spawning, leaving))
    actions = [
        *forget_refusals(view),
        *note(view),
        *crew.actions,
        *spawning,
        *leaving,
        *_targets(view, crew, leaving),
        *filling,
    ]
    return DecisionStep(crew=crew, verdict=guarded.verdict, actions=_by_need(view, actions), state=state)


def forget_refusals(view: FleetView) -> list[ForgetRefusals]:
    """Once, at the first beat after a person asked for it."""
    if view.retry_at is None or (view.last is not None and view.retry_at < view.last.at):
        return []
    return [ForgetRefusals(reason=f"a person asked at {view.retry_at:%H:%M:%S} that the provider be tried again")]


def _by_need(view: FleetView, actions: list[Action]) -> list[Action]:
    """As they are; but where the provider gave no list, what hangs on it comes last: it may not answer now either."""
    return sorted(actions, key=lambda each: isinstance(each, Reap | Spawn)) if view.instances_partial else actions


def verdict(view: FleetView) -> ScalingVerdict:
    """How many there shall be, and why: what ``explain`` shows."""
    return _weigh(view)[1].verdict


def _weigh(view: FleetView) -> tuple[Classified, BoundedDecision]:
    crew = classify(view)
    state = remember(view, crew)
    opinion = POLICIES[view.policy.policy](policy_input(view, crew, state))
    return crew, guard(view, crew, opinion, state)


def _spawning(view: FleetView, crew: Classified, guarded: BoundedDecision) -> list[Spawn]:
    again = respawn(view, crew, guarded)
    return [*again, *spawn(view, crew, guarded, guarded.calls - len(again))]


def _moved(view: FleetView, state: FleetState, spawned: Sequence[Spawn], leaving: Sequence[AskToDrain]) -> FleetState:
    """The state with this beat's own doings: when it last scaled, and whom the breaker tries."""
    new = [action for action in spawned if action.is_new]
    if new and state.breaker.opened_at is not None:
        state = replace(state, breaker=replace(state.breaker, trial=trial_of(new)))
    return replace(state, up_at=view.now if new else state.up_at, down_at=view.now if leaving else state.down_at)


def _targets(view: FleetView, crew: Classified, leaving: Sequence[AskToDrain]) -> list[SetTarget]:
    """A fixed fleet's workers are told what to hold, but for those who leave."""
    if view.policy.policy is not PolicyName.FIXED:
        return []
    asked = {action.worker_id for action in leaving}
    return set_targets(view, [worker for worker in crew.staying if worker.worker_id not in asked])


def set_targets(view: FleetView, kept: Sequence[Worker]) -> list[SetTarget]:
    """Workers that have joined and whose target is not the policy's."""
    return [
        SetTarget(
            worker_id=worker.worker_id,
            target=view.policy.target,
            ramp=view.policy.ramp,
            reason=f"the policy asks for {view.policy.target}, it was told {worker.target}",
        )
        for worker in kept
        if worker.status is not WorkerStatus.SPAWNING and worker.target != view.policy.target
    ]
