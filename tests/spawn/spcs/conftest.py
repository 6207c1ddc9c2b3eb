"""A simulated account for the tests of this folder, and settings for spawners that use it."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import programs
from drumbeat.spawn.interface import Instance, InstanceState, Order
from drumbeat.spawn.spcs import SpcsSettings, SpcsSpawner
from spawn.spcs.account import SpcsAccount
from spawn.spcs.connector import connect_to

P, W = PoolId("p"), WorkerId("w")
PASSWORD = "passw0rd-of-the-account"
KEY = "key-0f-the-tests"
SECRETS: Mapping[str, str] = {"SNOWFLAKE_PASSWORD": PASSWORD, "DRUMBEAT_SPCS_KEY": KEY}


_LONG = 40  #: who sleeps this often waits for a real process, which a busy machine may end late


class LeapingClock(SystemClock):
    """Sleeps for a moment only, and then tells a time as if it had slept as long as it was asked to."""

    def __init__(self) -> None:
        self.leapt = timedelta()
        self.pauses: list[float] = []
        self.is_patient = True  #: whether many sleeps one after the other mean that a real process must end

    def now(self) -> datetime:
        return super().now() + self.leapt

    def elapsed(self) -> timedelta:
        return super().elapsed() + self.leapt

    async def sleep(self, duration: timedelta) -> None:
        self.pauses.append(duration.total_seconds())
        self.leapt += duration
        await asyncio.sleep(1.0 if self.is_patient and len(self.pauses) >= _LONG else 0.005)


def settings_of(**changed: Any) -> SpcsSettings:
    given: dict[str, Any] = {
        "account": "MYORG-TEST",
        "user": "drumbeat",
        "password_variable": "SNOWFLAKE_PASSWORD",
        "database": "work",
        "schema": '"Jobs"',
        "compute_pool": '"Fast pool"',
        "image": "/work/jobs/images/drumbeat:1",
        "secrets": {"DRUMBEAT_STORE": "store_url"},
        "key_variable": "DRUMBEAT_SPCS_KEY",
        "key_secret": "worker_key",
        **changed,
    }
    return SpcsSettings(**given)


def spawner_at(account: SpcsAccount, clock: Clock | None = None, **changed: Any) -> SpcsSpawner:
    environment = {"DRUMBEAT_STORE": "postgresql://ann:of-the-controller@db/app"}
    return SpcsSpawner(settings_of(**changed), environment, "s", clock, connect=connect_to(account, SECRETS))


def order(worker_id: str = W, *arguments: str, program: str = programs.WORKER, **environment: str) -> Order:
    command = ("sh", "-c", program, "spcs-worker", *arguments)
    return Order(
        pool_id=P, worker_id=WorkerId(worker_id), slot=2, group_count=5, command=command, environment=dict(environment)
    )


async def until(spawner: SpcsSpawner, state: InstanceState, worker_id: WorkerId = W) -> Instance:
    """List until the worker is in a state."""
    async with asyncio.timeout(120):
        while True:
            for one in await spawner.list(P):
                if one.worker_id == worker_id and one.state is state:
                    return one
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMBEAT_SPCS_KEY", KEY)


@pytest.fixture
def account(tmp_path: Path) -> Iterator[SpcsAccount]:
    """An account of this test alone."""
    made = SpcsAccount(tmp_path, secrets={'WORK."Jobs".WORKER_KEY': KEY})
    yield made
    made.close()
    assert made.refusals == []
