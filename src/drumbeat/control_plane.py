"""The composition root: from settings to store, spawner, loops and workers. The only file that knows everything."""

import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from drumbeat.bench.model import DriveOutcome, DriveProgress, DriveRequest
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import InvalidInput, InvalidSettings, MissingExtra
from drumbeat.core.event import start
from drumbeat.core.pool import PRESETS, Pool, PoolId, PoolKind, Thresholds, pool
from drumbeat.core.run import RunId
from drumbeat.core.worker import ExitCode, WorkerId
from drumbeat.fleet.act import FleetActor
from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import Action, FleetPolicy, FleetView
from drumbeat.fleet.observe import observe
from drumbeat.fleet.workload import Metronome
from drumbeat.runtime.beat import ControlLoop
from drumbeat.runtime.host import this_host
from drumbeat.runtime.lease import Leadership
from drumbeat.runtime.logs import LogShipper
from drumbeat.runtime.probe import Probe
from drumbeat.runtime.signals import run_until_signalled
from drumbeat.runtime.worker import WorkerLife, Workload
from drumbeat.settings import STATE_DIR_VARIABLE, STORE_VARIABLE, Settings
from drumbeat.spawn.interface import Spawner
from drumbeat.spawn.leash import hold_leash
from drumbeat.spawn.local import LocalSpawner
from drumbeat.store import Store, open_store
from drumbeat.store.interface import Joining

if TYPE_CHECKING:
    from drumbeat.bench.desk import BenchDesk as BenchDesk


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerArguments:
    """What a worker is told on its command line (seed 001, 1.1)."""

    run_id: str
    worker_id: str
    worker_group_id: int
    worker_group_count: int

    def __post_init__(self) -> None:
        if not 0 <= self.worker_group_id < self.worker_group_count:
            raise InvalidInput(
                f"expected 0 ≤ --worker-group-id < --worker-group-count, "
                f"got {self.worker_group_id} and {self.worker_group_count}"
            )


@asynccontextmanager
async def open_control_plane(
    settings: Settings, *, create: bool = False, check_version: bool = True, clock: Clock | None = None
) -> AsyncIterator["ControlPlane"]:
    """The control plane over the settings' store, for as long as the block lasts."""
    async with open_store(settings.store, create=create, check_version=check_version) as store:
        yield ControlPlane(settings, store, clock or SystemClock())


class ControlPlane:
    """What surfaces call. Everything it does goes through the store."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        self.settings = settings
        self.store = store
        self._clock = clock

    def local_spawner(self, *, survive: bool = False) -> LocalSpawner:
        """Starts workers on this machine, with this store in their environment. Raises InvalidSettings without a folder."""
        _check_folder(self.settings.state_dir)
        environment = {STORE_VARIABLE: self.settings.store, STATE_DIR_VARIABLE: str(self.settings.state_dir)}
        return LocalSpawner(self.settings.state_dir, environment, survive=survive, clock=self._clock)

    async def create_fleet(self, name: str, policy: FleetPolicy, thresholds: Thresholds | None = None) -> Pool:
        """A pool whose workers start as soon as they are ready."""
        limits = thresholds or PRESETS[PoolKind.FLEET]
        made = await self.store.pools.create(pool(name, PoolKind.FLEET, limits, **policy.to_json()))
        await self.store.events.append(made.pool_id, [start(expected_workers=policy.workers)])
        return made

    async def set_fleet_policy(self, pool_id: PoolId, policy: FleetPolicy) -> Pool:
        """What the next beat will decide by."""
        return await self.store.pools.save(replace(await self.store.pools.get(pool_id), policy=policy.to_json()))

    def fleet_loop(
        self, pool_id: PoolId, spawner: Spawner, every: timedelta, lease: timedelta | None = None
    ) -> ControlLoop[FleetView, Action]:
        """One controller of a fleet. Any number may run: the one that holds the lease acts."""
        return ControlLoop(
            store=self.store,
            pool_id=pool_id,
            leadership=Leadership(self.store, pool_id, process_name(), lease or every * 5, self._clock),
            clock=self._clock,
            every=every,
            observe=partial(observe, self.store, spawner, pool_id),
            decide=decide,
            act=FleetActor(self.store, spawner, pool_id).act,
        )

    def bench(self) -> "BenchDesk":
        """Templates, runs, comparisons and reports. Its workers outlive this process: another may go on with their run."""
        host = this_host()
        desk: BenchDesk = _bench("desk").BenchDesk(
            self.store,
            self._clock,
            process_name(),
            _bench("creation").capacity(host.cores, host.memory),
            partial(self.local_spawner, survive=True),
        )
        return desk

    async def run_worker(self, arguments: WorkerArguments) -> ExitCode:
        """Be a worker of a pool, from joining to leaving. Raises NotFound when there is no such pool or run."""
        hold_leash()
        home = await self.store.pools.get(PoolId(arguments.run_id))
        identity = self._identity(arguments)
        workload = self._workload(home, identity)
        life = WorkerLife(self.store, identity, home.thresholds, workload, clock=self._clock, probe=Probe(self._clock))
        async with LogShipper(self.store, home.pool_id, self._clock, worker_id=identity.worker_id):
            return await run_until_signalled(life)

    def _workload(self, home: Pool, identity: Joining) -> Workload:
        if home.kind is PoolKind.FLEET:
            return Metronome(self._clock)
        if home.kind is PoolKind.BENCH:
            run_id, folder = RunId(home.pool_id), self.settings.state_dir / "executions"
            made: Workload = _bench("worker").bench_workload(
                self.store, run_id, identity.worker_id, identity.slot, folder, self._clock
            )
            return made
        raise InvalidInput(f"pool {home.pool_id!r} is a {home.kind} pool; this Drumbeat has workers for: bench, fleet")

    def _identity(self, arguments: WorkerArguments) -> Joining:
        return Joining(
            pool_id=PoolId(arguments.run_id),
            worker_id=WorkerId(arguments.worker_id),
            slot=arguments.worker_group_id,
            instance=process_name(),
            host=socket.gethostname(),
            pid=os.getpid(),
        )


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise InvalidSettings(
            f"expected to keep workers' logs in {folder}, got: {exc.strerror}; set {STATE_DIR_VARIABLE}"
        ) from exc
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidSettings(f"expected to keep workers' logs in {folder}, but may not write there; set {STATE_DIR_VARIABLE}")


def process_name() -> str:
    """A name no other process has: two workers or controllers are never taken for one."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"


async def drive(url: str, request: DriveRequest, on_progress: Callable[[DriveProgress], None]) -> DriveOutcome:
    """Drive a database from this process alone; needs no store."""
    outcome: DriveOutcome = await _bench("drive").drive_url(url, request, SystemClock(), on_progress)
    return outcome


async def prepare(url: str, workload: str, scale: float, *, fresh: bool, on_progress: Callable[[str, int, int], None]) -> None:
    """Create and load a workload's tables in a database under test."""
    await _bench("drive").prepare_url(url, workload, scale, fresh=fresh, on_progress=on_progress)


def template_schema() -> Mapping[str, Any]:
    """The JSON Schema of benchmark templates."""
    schema: Mapping[str, Any] = _bench("template").json_schema()
    return schema


def _bench(part: str) -> ModuleType:
    """A part of the bench, imported late: it needs numpy and pyarrow, which nothing else does."""
    try:
        return import_module(f"drumbeat.bench.{part}")
    except ModuleNotFoundError as exc:
        raise MissingExtra("the bench", "bench") from exc
