"""A simulated cluster for the tests of this folder, and settings for spawners that use it."""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import programs
from drumbeat.spawn.interface import Instance, InstanceState, Order
from drumbeat.spawn.kubernetes import KubernetesSettings, KubernetesSpawner
from spawn.kubernetes.cluster import Cluster
from spawn.kubernetes.server import ApiServer, served, write_kubeconfig

P, W = PoolId("p"), WorkerId("w")


class LeapingClock(SystemClock):
    """Sleeps for a moment only, and then tells a time as if it had slept as long as it was asked to."""

    def __init__(self) -> None:
        self.leapt = timedelta()
        self.pauses: list[float] = []

    def now(self) -> datetime:
        return super().now() + self.leapt

    def elapsed(self) -> timedelta:
        return super().elapsed() + self.leapt

    async def sleep(self, duration: timedelta) -> None:
        self.pauses.append(duration.total_seconds())
        self.leapt += duration
        await asyncio.sleep(0.005)


def order(worker_id: str = W, *arguments: str, program: str = programs.WORKER, **environment: str) -> Order:
    command = ("sh", "-c", program, "kubernetes-worker", *arguments)
    return Order(
        pool_id=P, worker_id=WorkerId(worker_id), slot=2, group_count=5, command=command, environment=dict(environment)
    )


async def until(spawner: KubernetesSpawner, state: InstanceState, worker_id: WorkerId = W) -> Instance:
    """List until the worker is in a state."""
    async with asyncio.timeout(120):
        while True:
            for one in await spawner.list(P):
                if one.worker_id == worker_id and one.state is state:
                    return one
            await asyncio.sleep(0.01)


def settings_at(folder: Path, **changed: Any) -> KubernetesSettings:
    """Settings for the cluster whose kubeconfig is in a folder."""
    given: dict[str, Any] = {
        "image": "drumbeat/worker:1",
        "kubeconfig": folder / "kubeconfig",
        "timeout": timedelta(seconds=60),
        **changed,
    }
    return KubernetesSettings(**given)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    """A cluster of this test alone."""
    with served(Cluster(tmp_path)) as (api, url):
        write_kubeconfig(tmp_path / "kubeconfig", url)
        yield api
    assert api.violations == []
