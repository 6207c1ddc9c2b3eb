"""The fleet's decision: how many workers a pool should have, which to start, drain or fail. Pure: no clock, no I/O, no log.

classify and recover workers → what the policy wants → limits → spawn or drain, never both → the state for the next beat.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from drumbeat.core.decision import Decision
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.fleet.decide.classify import Classified, classify, note_instances
from drumbeat.fleet.decide.learned import update_state
from drumbeat.fleet.decide.limits import BoundedDecision, apply_limits
from drumbeat.fleet.decide.policy_input import policy_input
from drumbeat.fleet.decide.scale import drain, respawn, rotate, spawn
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionStep:
    """A decision: the workers by state, how many are wanted, the actions, and the state for the next beat."""

    classified: Classified
    verdict: ScalingVerdict
    actions: list[Action]
    state: FleetState


def decide(view: FleetView) -> Decision[Action]:
    """Decide the actions: clean up after ended and failed workers, then start or drain workers to reach the wanted number."""
    decided = decide_step(view)
    return Decision(
        actions=decided.actions,
        why_not=None if decided.actions else why_nothing(view, decided.classified, decided.verdict),
        summary=summary(view, decided.classified, decided.verdict, decided.actions, decided.state),
    )


def decide_step(view: FleetView) -> DecisionStep:
    """Decide like ``decide``, but without the summary and the explanation, which a simulation does not need."""
    classified, bounded = _weigh(view)
    leaving = drain(view, classified, bounded)
    spawning = [] if leaving else _spawning(view, classified, bounded)
    leaving = leaving or ([] if spawning else rotate(view, classified, bounded))
    filling, state = watch_storage(view, classified.living, _with_actions(view, bounded.state, spawning, leaving))
    actions = [
        *forget_refusals(view),
        *note_instances(view),
        *classified.actions,
        *spawning,
        *leaving,
        *_targets(view, classified, leaving),
        *filling,
    ]
    return DecisionStep(classified=classified, verdict=bounded.verdict, actions=_provider_last(view, actions), state=state)


def forget_refusals(view: FleetView) -> list[ForgetRefusals]:
    """Return the action that clears the record of refused requests, in the first beat after a user's retry; otherwise none."""
    if view.retry_at is None or (view.last is not None and view.retry_at < view.last.at):
        return []
    return [ForgetRefusals(reason=f"a user asked at {view.retry_at:%H:%M:%S} to try the provider again")]


def _provider_last(view: FleetView, actions: list[Action]) -> list[Action]:
    """If the provider failed to list its instances, move the actions that call it to the end: they could fail too."""
    return sorted(actions, key=lambda each: isinstance(each, Reap | Spawn)) if view.instances_partial else actions


def verdict(view: FleetView) -> ScalingVerdict:
    """Return how many workers are wanted, what each rule wants, and which limits apply, for ``explain`` to show."""
    return _weigh(view)[1].verdict


def _weigh(view: FleetView) -> tuple[Classified, BoundedDecision]:
    classified = classify(view)
    state = update_state(view, classified)
    opinion = POLICIES[view.policy.policy](policy_input(view, classified, state))
    return classified, apply_limits(view, classified, opinion, state)


def _spawning(view: FleetView, classified: Classified, bounded: BoundedDecision) -> list[Spawn]:
    again = respawn(view, classified, bounded)
    return [*again, *spawn(view, classified, bounded, bounded.calls - len(again))]


def _with_actions(view: FleetView, state: FleetState, spawned: Sequence[Spawn], leaving: Sequence[AskToDrain]) -> FleetState:
    """Return the state updated with this beat's actions: when the fleet last scaled, and an open breaker's trial worker."""
    new = [action for action in spawned if action.is_new]
    if new and state.breaker.opened_at is not None:
        state = replace(state, breaker=replace(state.breaker, trial=new[0].worker_id))
    return replace(state, up_at=view.now if new else state.up_at, down_at=view.now if leaving else state.down_at)


def _targets(view: FleetView, classified: Classified, leaving: Sequence[AskToDrain]) -> list[SetTarget]:
    """Set the policy's target (such as connections per worker) for a fixed fleet's workers, except those asked to drain."""
    if view.policy.policy is not PolicyName.FIXED:
        return []
    asked = {action.worker_id for action in leaving}
    return set_targets(view, [worker for worker in classified.staying if worker.worker_id not in asked])


def set_targets(view: FleetView, workers: Sequence[Worker]) -> list[SetTarget]:
    """Set the policy's target (such as connections per worker) for joined workers that have another target."""
    return [
        SetTarget(
            worker_id=worker.worker_id,
            target=view.policy.target,
            ramp=view.policy.ramp,
            reason=f"the policy's target is {view.policy.target}, the worker's is {worker.target}",
        )
        for worker in workers
        if worker.status is not WorkerStatus.SPAWNING and worker.target != view.policy.target
    ]
