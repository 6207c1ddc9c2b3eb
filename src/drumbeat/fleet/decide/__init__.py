"""How many workers there should be, which must go, which are ill. Pure: no clock, no I/O, no log.

judge and recover → the policy's wish → its limits → spawn or drain, never both → what the next beat must know.
"""

from collections.abc import Sequence
from dataclasses import replace

from drumbeat.core.decision import Decision
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.fleet.decide.crew import Crew, judge_crew
from drumbeat.fleet.decide.guard import Guarded, guard
from drumbeat.fleet.decide.knowledge import remember
from drumbeat.fleet.decide.scale import drain, respawn, rotate, spawn, trial_of
from drumbeat.fleet.decide.scene import scene
from drumbeat.fleet.decide.summary import summary, why_nothing
from drumbeat.fleet.model import Action, AskToDrain, FleetState, FleetView, PolicyName, SetTarget, Spawn, Verdict
from drumbeat.fleet.policies import POLICIES

__all__ = ["decide", "verdict"]


def decide(view: FleetView) -> Decision[Action]:
    """Recover first, then bring the number of workers to what the policy asks for, within all limits."""
    crew, guarded = _weigh(view)
    leaving = drain(view, crew, guarded)
    spawning = [] if leaving else _spawning(view, crew, guarded)
    leaving = leaving or ([] if spawning else rotate(view, crew))
    asked = {action.worker_id for action in leaving}
    kept = [worker for worker in crew.staying if worker.worker_id not in asked]
    actions = [*crew.actions, *spawning, *leaving, *set_targets(view, kept)]
    state = _moved(view, guarded.state, spawning, leaving)
    return Decision(
        actions=actions,
        why_not=None if actions else why_nothing(view, crew, guarded.verdict),
        summary=summary(view, crew, guarded.verdict, actions, state),
    )


def verdict(view: FleetView) -> Verdict:
    """How many there shall be, and why: what ``explain`` shows."""
    return _weigh(view)[1].verdict


def _weigh(view: FleetView) -> tuple[Crew, Guarded]:
    crew = judge_crew(view)
    state = remember(view, crew)
    opinion = POLICIES[view.policy.policy](scene(view, crew, state))
    return crew, guard(view, crew, opinion, state)


def _spawning(view: FleetView, crew: Crew, guarded: Guarded) -> list[Spawn]:
    again = respawn(view, crew, guarded)
    return [*again, *spawn(view, crew, guarded, guarded.calls - len(again))]


def _moved(view: FleetView, state: FleetState, spawned: Sequence[Spawn], leaving: Sequence[AskToDrain]) -> FleetState:
    """The state with this beat's own doings: when it last scaled, and whom the breaker tries."""
    new = [action for action in spawned if action.is_new]
    if new and state.breaker.opened_at is not None:
        state = replace(state, breaker=replace(state.breaker, trial=trial_of(new)))
    return replace(state, up_at=view.now if new else state.up_at, down_at=view.now if leaving else state.down_at)


def set_targets(view: FleetView, kept: Sequence[Worker]) -> list[SetTarget]:
    """Workers of a fixed fleet that have joined and whose target is not the policy's."""
    if view.policy.policy is not PolicyName.FIXED:
        return []
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
