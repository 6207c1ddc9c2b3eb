"""Decides how many workers a run needs, and which new targets (connections and rate) to send to which workers. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from drumbeat.bench.control import losses
from drumbeat.bench.control.modes.allocate import allocate
from drumbeat.bench.model import Action, AssignedTarget, ControllerState, LoadDecision, RunView, SetTargets, SpawnBenchWorker
from drumbeat.bench.values.draw import VIRTUAL_SLOTS
from drumbeat.core.recovery import Recovered, end_strays, may_run, never_started, next_number
from drumbeat.core.refusal import refusal_of
from drumbeat.core.worker import Worker, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Staffing:
    """The workers and connections that a run should have now, with the state to store."""

    state: ControllerState
    connections: Mapping[int, int]  #: by slot, the number of a worker in its run
    spawns: tuple[SpawnBenchWorker, ...]
    reason: str


def staffing_of(
    view: RunView,
    recovered: Recovered,
    steer: LoadDecision,
    state: ControllerState,
    ceilings: Mapping[int, int],
    extra: int = 0,
) -> Staffing:
    """Return the workers and connections that the load mode asks for (``steer``), minus lost workers that are not replaced,
    plus ``extra`` workers. ``ceilings``: the most connections, by slot (worker number), for workers that a guardrail limits."""
    workers = losses.workers_wanted(view, recovered, steer.workers) + extra
    missing = workers - len(recovered.staying)
    if (most := view.plan.scaling.most_workers) is not None:
        workers = min(workers, most)
        missing = min(workers - len(recovered.staying), most - _running(view))
    staying = [worker.slot for worker in recovered.staying]
    fresh = _new_slots(view, staying, missing)
    slots = [*staying, *fresh]
    connections = allocate(steer.connections, slots, view.plan.scaling, ceilings)
    return Staffing(
        state=replace(
            state,
            connections=steer.connections,
            workers=workers,
            pace=steer.qps,
            find_max=steer.find_max,
            qps=steer.qps_state,
        ),
        connections=connections,
        spawns=(*_respawn(view, recovered, workers, connections), *_spawn(view, recovered, workers, fresh, connections)),
        reason=steer.reason,
    )


def _running(view: RunView) -> int:
    """Count the workers that might be running, including stopping workers and workers not known to have ended."""
    return len(may_run(view.snapshot)) + len(end_strays(view.snapshot))


def _new_slots(view: RunView, staying: Sequence[int], missing: int) -> list[int]:
    """Return slots (worker numbers) for new workers. No slot is used twice, so that no two workers insert the same keys. If
    keys are sharded, each new slot takes the partition that has the fewest workers."""
    first, partitions = max((worker.slot for worker in view.workers), default=-1) + 1, view.plan.partitions
    fresh: list[int] = []
    for _ in range(missing):
        held = Counter(slot % partitions for slot in (*staying, *fresh))
        free = [slot for slot in range(first, first + partitions + len(fresh)) if slot not in fresh]
        fresh.append(min(free, key=lambda slot: (slot >= VIRTUAL_SLOTS, held[slot % partitions], slot)))
    return fresh


def _respawn(view: RunView, recovered: Recovered, workers: int, connections: Mapping[int, int]) -> list[SpawnBenchWorker]:
    """Return the actions that start workers which have a row but no running instance. While the engine cannot list its workers,
    only workers that it refused to start are requested again, because others might run already."""
    return [
        SpawnBenchWorker(
            worker_id=worker.worker_id,
            slot=worker.slot,
            group_count=max(workers, worker.slot + 1),
            connections=connections.get(worker.slot, 0),
            reason=_why_again(worker),
            is_new=False,
            at=view.now,
        )
        for worker in never_started(view.snapshot, recovered.staying)
        if _may_ask_again(view, worker)
    ]


def _may_ask_again(view: RunView, worker: Worker) -> bool:
    refusal = refusal_of(worker)
    return view.unlisted is None if refusal is None else refusal.retry_at <= view.now


def _why_again(worker: Worker) -> str:
    refusal = refusal_of(worker)
    return "it was requested but has no instance" if refusal is None else f"requested again; it was refused: {refusal.reason}"


def _spawn(
    view: RunView, recovered: Recovered, workers: int, slots: Sequence[int], connections: Mapping[int, int]
) -> list[SpawnBenchWorker]:
    first = next_number(view.snapshot)
    return [
        SpawnBenchWorker(
            worker_id=WorkerId(f"worker-{first + n}"),
            slot=slot,
            group_count=max(workers, slot + 1),
            connections=connections.get(slot, 0),
            reason=f"{len(recovered.staying)} of {workers} workers are here",
            at=view.now,
        )
        for n, slot in enumerate(slots)
    ]


def reconcile_workers(view: RunView, recovered: Recovered, staffing: Staffing) -> list[Action]:
    """Return the actions that start missing workers, and send each worker its connections and rate if they have changed."""
    slots = {
        **{worker.worker_id: worker.slot for worker in recovered.staying},
        **{spawn.worker_id: spawn.slot for spawn in staffing.spawns},
    }
    total = sum(staffing.connections.values())
    changed = {
        name: share for name, slot in slots.items() if (share := _share(staffing, slot, total)) != view.state.told.get(name)
    }
    actions: list[Action] = [*staffing.spawns]
    if changed:
        actions.append(SetTargets(targets=changed, ramp=view.plan.ramp, reason=staffing.reason))
    return actions


def _share(staffing: Staffing, slot: int, total: int) -> AssignedTarget:
    """Return a worker's share of the connections and of the rate. The rate is None for full speed; 0 means no load."""
    connections, pace = staffing.connections.get(slot, 0), staffing.state.pace
    return AssignedTarget(connections=connections, qps=None if pace is None else pace * connections / max(total, 1))


def with_assigned_targets(state: ControllerState, actions: Sequence[Action]) -> ControllerState:
    """Return the state updated with the targets (connections and rate) that these actions send to workers."""
    assigned = dict(state.told)
    for action in actions:
        if isinstance(action, SetTargets):
            assigned |= action.targets
    return replace(state, told=assigned)
