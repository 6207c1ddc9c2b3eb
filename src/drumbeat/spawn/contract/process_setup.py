"""Base class for tests of spawners that run real commands: fixtures, orders for shell programs, and ways to wait."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import ClassVar, Protocol
from uuid import uuid4

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import NotFound
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import programs
from drumbeat.spawn.contract.base import (
    ANN,
    OTHER_POOL,
    POOL,
    ExitCodeContract,
    OrderFactory,
    SpawnerContract,
    alive,
)
from drumbeat.spawn.interface import Instance, Order, ReadsLogs, Spawner

THIRD_POOL = PoolId("Contract-Pool")  # differs from POOL in case only


class Controllers(Protocol):
    """Opens spawners that share one provider and one store, like two controllers that run at the same time."""

    def __call__(self) -> AbstractAsyncContextManager[Spawner]: ...


class ProcessSetup(SpawnerContract, ExitCodeContract):
    """Fixtures and helpers for tests whose workers are real commands that run on this machine.

    Subclasses must provide the fixtures ``controllers`` and ``written`` (see the package docstring), and can override
    ``unstartable`` and ``kill_outside``.
    """

    shell: ClassVar[Sequence[str]] = ("sh", "-c")

    @pytest.fixture
    async def spawner(self, controllers: Controllers) -> AsyncIterator[Spawner]:
        async with controllers() as spawner:
            yield spawner

    @pytest.fixture
    def order(self) -> OrderFactory:
        def make(worker_id: WorkerId, pool_id: PoolId, *, exits: int | None = None, startable: bool = True) -> Order:
            made = self.order_of(programs.WORKER, worker_id=worker_id, pool_id=pool_id)
            if exits is not None:
                made = self.order_of(programs.EXITS, str(exits), worker_id=worker_id, pool_id=pool_id)
            return made if startable else self.unstartable(made)

        return make

    @pytest.fixture(autouse=True)
    async def _terminated_afterwards(self, spawner: Spawner) -> AsyncIterator[None]:
        """After each test, terminate the workers that it left behind."""
        yield
        for pool_id in (POOL, OTHER_POOL, THIRD_POOL):
            for worker_id in {one.worker_id for one in await spawner.list(pool_id)}:
                await spawner.terminate(pool_id, worker_id)

    def order_of(
        self,
        program: str,
        *arguments: str,
        worker_id: WorkerId = ANN,
        pool_id: PoolId = POOL,
        mark: str = "contract-worker",
        environment: Mapping[str, str] | None = None,
    ) -> Order:
        """Create an order for a shell program, with the argument ``mark``, by which its process can be found."""
        command = (*self.shell, program, mark, *arguments)
        return Order(
            pool_id=pool_id, worker_id=worker_id, slot=0, group_count=1, command=command, environment=dict(environment or {})
        )

    def unstartable(self, order: Order) -> Order:
        """Change an order so that the provider refuses to start it."""
        return Order(
            pool_id=order.pool_id, worker_id=order.worker_id, slot=0, group_count=1, command=("/nowhere/no-such-program",)
        )

    def drained_code(self, spawner: Spawner) -> int | None:
        """Return the exit code that the spawner must report for a drained worker: 0, or None if it cannot report the code."""
        return 0 if spawner.traits.keeps_drained else None

    async def kill_outside(self, instance: Instance, mark: str) -> None:
        """Kill the worker's process without the spawner, as another user or the kernel would."""
        for process in programs.processes_named(mark):
            os.kill(process.pid, signal.SIGKILL)

    # Waiting

    async def running(self, spawner: Spawner, ordered: Order) -> None:
        """Start the worker, and wait until it runs and handles SIGTERM."""
        await super().running(spawner, ordered)
        await self.said(spawner, "ready", worker_id=ordered.worker_id, pool_id=ordered.pool_id)

    async def said(self, spawner: Spawner, line: str, worker_id: WorkerId = ANN, pool_id: PoolId = POOL) -> str:
        """Wait until the worker has written a line, and return its whole output."""
        assert isinstance(spawner, ReadsLogs)
        clock, output = SystemClock(), ""
        deadline = clock.elapsed() + self.timeout
        while line not in output.splitlines():
            assert clock.elapsed() < deadline, f"expected {worker_id} to write {line!r} within {self.timeout}, got {output!r}"
            with suppress(NotFound):
                output = await spawner.logs(pool_id, worker_id, lines=10_000)
            await clock.sleep(self.interval)
        return output

    async def until_processes(self, mark: str, count: int) -> None:
        """Wait until exactly ``count`` processes have the argument ``mark``."""
        clock = SystemClock()
        deadline = clock.elapsed() + self.timeout
        while len(found := await asyncio.to_thread(programs.processes_named, mark)) != count:
            assert clock.elapsed() < deadline, f"expected {count} processes named {mark} within {self.timeout}, got {found}"
            await clock.sleep(self.interval)

    async def until_ended(self, spawner: Spawner, pool_id: PoolId = POOL) -> Sequence[Instance]:
        """Wait until no instance of the pool runs."""
        return await self.until(spawner, lambda instances: alive(instances) == [], pool_id)


def new_mark() -> str:
    """Return a unique command-line argument by which the processes of one test can be found."""
    return f"contract-{uuid4().hex}"
