"""The check of an engine with hosts reaches every host, and starts a worker on each."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from composition.test_engine_check import ALL, Leaping, WorkingEngine, checked, clock as clock, engine as engine, plane as plane
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidSettings, SpawnCause
from drumbeat.spawn.fake import FakeSpawner, SpawnFails
from drumbeat.spawn.interface import HostReport, Spawner
from drumbeat.store.interface import Store


class Cluster(FakeSpawner):
    """An engine with several hosts, each of which works or has a problem."""

    def __init__(self, clock: ManualClock, store: Store, reports: Sequence[HostReport]) -> None:
        super().__init__(clock, name="gpu")
        self.reports = reports
        self.hosts = {report.name: WorkingEngine(clock, store) for report in reports}

    async def check_hosts(self) -> Sequence[HostReport]:
        return self.reports

    def at_host(self, name: str) -> Spawner:
        return self.hosts[name]

    @property
    def started(self) -> list[str]:
        return [name for name, host in self.hosts.items() if host.asked("spawn")]


GOOD = HostReport(name="node1", python="3.12.1", drumbeat="0.1", slots=4, taken=1, clock_offset=timedelta(seconds=-1))
DOWN = HostReport(name="node2", problem="host node2 (node2:22): no answer", cause=SpawnCause.TRANSIENT)


def cluster_of(plane: ControlPlane, clock: Leaping, *reports: HostReport) -> Cluster:
    cluster = Cluster(clock, plane.store, reports)
    plane.spawner = lambda engines: cluster  # type: ignore[method-assign]
    return cluster


async def test_every_host_is_reached_and_gets_a_worker(plane: ControlPlane, clock: Leaping) -> None:
    cluster = cluster_of(plane, clock, GOOD, replace(GOOD, name="node3"))

    steps = await checked(plane)

    of_one = [name for name in ALL if name not in ("settings", "reach")]
    assert [(one.step, one.host) for one in steps] == [
        ("settings", None),
        *(("reach", name) for name in ("node1", "node3")),
        *((step, name) for name in ("node1", "node3") for step in of_one),
    ]
    assert steps[1].detail == "Python 3.12.1, drumbeat 0.1, 1 of 4 slots taken, its clock is 1.0 s off"
    assert all(one.ok for one in steps)
    assert cluster.started == ["node1", "node3"]
    assert await plane.store.pools.list() == []


async def test_a_host_that_does_not_answer_fails_alone(plane: ControlPlane, clock: Leaping) -> None:
    cluster = cluster_of(plane, clock, GOOD, DOWN)

    steps = await checked(plane)

    assert [(one.step, one.host) for one in steps if not one.ok] == [("reach", "node2")]
    assert steps[2].detail == "the engine failed or cannot be reached (network): host node2 (node2:22): no answer"
    assert cluster.started == ["node1"]


async def test_a_worker_that_fails_on_one_host_is_tried_on_the_next(plane: ControlPlane, clock: Leaping) -> None:
    cluster = cluster_of(plane, clock, GOOD, replace(GOOD, name="node3"))
    cluster.hosts["node1"].faults.append(SpawnFails(reason="no such program", cause=SpawnCause.BAD_REQUEST))

    steps = await checked(plane)

    assert [(one.step, one.host) for one in steps if not one.ok] == [("start", "node1")]
    assert ("leave", "node3", True) in [(one.step, one.host, one.ok) for one in steps]


async def test_a_host_without_the_labels_gets_no_worker(plane: ControlPlane, clock: Leaping) -> None:
    cluster = cluster_of(plane, clock, GOOD, replace(GOOD, name="node3", is_chosen=False))

    steps = await checked(plane)

    assert "gets no new workers: it lacks the labels in the settings" in steps[2].detail
    assert cluster.started == ["node1"]


async def test_one_host_can_be_checked_alone(plane: ControlPlane, clock: Leaping) -> None:
    cluster = cluster_of(plane, clock, GOOD, DOWN)

    steps = await checked(plane, "node1")

    assert all(one.ok for one in steps)
    assert cluster.started == ["node1"]


async def test_an_engine_without_hosts_has_no_host_to_check(plane: ControlPlane, engine: WorkingEngine) -> None:
    steps = await checked(plane, "node1")

    assert [(one.step, one.ok) for one in steps] == [("settings", False)]
    assert "expected an engine with hosts for --host" in steps[0].detail


async def test_a_failure_of_all_hosts_together_is_a_step(
    plane: ControlPlane, clock: Leaping, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> Sequence[HostReport]:
        raise InvalidSettings("cannot read the known hosts")

    monkeypatch.setattr(cluster_of(plane, clock, GOOD), "check_hosts", fails)

    steps = await checked(plane)

    assert [(one.step, one.ok, one.detail) for one in steps[1:]] == [("reach", False, "cannot read the known hosts")]
