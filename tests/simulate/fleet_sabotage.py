"""Safeguards of the fleet that can be taken away, one by one, to see that runs with faults find it out."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from drumbeat.core.lease import Fence
from drumbeat.core.recovery import never_started
from drumbeat.core.worker import Holder, Worker, WorkerId, WorkerStatus
from drumbeat.fleet.decide.classify import Classified
from drumbeat.fleet.model import FleetView
from drumbeat.runtime.recovery import RecoveryActor
from drumbeat.spawn.interface import Order
from drumbeat.spawn.names import Name
from drumbeat.spawn.runpod.pods import Pod
from drumbeat.spawn.runpod.spawner import RunPodSpawner
from drumbeat.spawn.runpod.watch import PodFinder, WorkerPods
from drumbeat.store.memory.state import MemoryState

Patch = pytest.MonkeyPatch


def money_limit(patch: Patch) -> None:
    """However much is spent, more may be."""
    patch.setattr(_module("fleet.decide.limits"), "affordable", lambda view, staying: (1_000_000_000, ""))


def reserve_for_new_workers(patch: Patch) -> None:
    """A worker that is about to be started costs nothing."""
    patch.setattr(_module("fleet.money"), "_cost_of_new", lambda rates, ceiling, span: 0.0)


def reserve_for_starting_workers(patch: Patch) -> None:
    """A worker that was started and is not ready will cost no more than it has."""
    ready, whole = {WorkerStatus.ACTIVE, WorkerStatus.DRAINING}, _module("fleet.money")._future_cost
    patch.setattr(_module("fleet.money"), "_future_cost", lambda *told: whole(*told) if told[2].status in ready else 0.0)


def next_period(patch: Patch) -> None:
    """What falls into the next hour, day or month is not thought of."""
    whole = _module("fleet.money").ceilings
    patch.setattr(_module("fleet.money"), "ceilings", lambda view: [each for each in whole(view) if not each.begins_in])


def fencing(patch: Patch) -> None:
    """The store takes what a controller writes after another has begun to lead."""

    def admit(self: MemoryState, fence: Fence | None) -> None:
        return None

    patch.setattr(MemoryState, "admit", admit)


def pool_of_a_holder(patch: Patch) -> None:
    """Whoever holds a job is known by its worker's id alone, which other pools have too."""
    patch.setattr(Holder, "__eq__", lambda self, other: self.worker_id == other.worker_id)


def listing_before_a_retry(patch: Patch) -> None:
    """A creation that got no answer is asked for again, whether or not it may turn up."""

    async def at_once(self: RecoveryActor, worker_id: WorkerId, fence: Fence) -> Worker:
        return Worker(pool_id=self._pool_id, worker_id=worker_id, slot=0)

    async def unseen(self: RunPodSpawner, order: Order, name: Name) -> None:
        return None

    patch.setattr(RecoveryActor, "_ask_again", at_once)
    patch.setattr(RunPodSpawner, "_adopt", unseen)
    patch.setattr(_module("fleet.decide.scale"), "unstarted", _believe_one_list)


def looking_twice(patch: Patch) -> None:
    """Every list is believed: what is not in it is not there."""

    async def find_pods(self: PodFinder, mine: Callable[[Name], bool]) -> Mapping[Name, WorkerPods]:
        return await self._sorted(await self._listed(mine))

    def known(self: PodFinder, mine: Callable[[Name], bool]) -> Mapping[Name, Pod]:
        return {}

    patch.setattr(PodFinder, "find_pods", find_pods)
    patch.setattr(PodFinder, "known", known)
    patch.setattr(_module("fleet.decide.scale"), "unstarted", _believe_one_list)
    patch.setattr(_module("fleet.decide.classify"), "_may_drain", lambda view, missing: True)


def _believe_one_list(view: FleetView, classified: Classified) -> Sequence[Worker]:
    return never_started(view.snapshot, classified.starting)


def _module(name: str) -> Any:
    """As it was imported: a package may have a function of the same name."""
    return sys.modules[f"drumbeat.{name}"]
