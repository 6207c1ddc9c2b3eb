"""The composition root: builds the store, the spawner, loops and services from settings."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import InvalidInput, InvalidSettings
from drumbeat.core.pool import Pool, PoolId, PoolKind, Thresholds
from drumbeat.core.worker import ExitCode
from drumbeat.extras import bench_part, part
from drumbeat.runtime.log_output import logging_to_stderr as logging_to_stderr
from drumbeat.settings import STATE_DIR_VARIABLE, Settings, public_url, store_name
from drumbeat.spawn.interface import Spawner
from drumbeat.spawn.private import private_folder
from drumbeat.store import Store, open_store

if TYPE_CHECKING:
    from drumbeat.bench.results.compare import Comparison as Comparison
    from drumbeat.bench.service import BenchDesk as BenchDesk
    from drumbeat.bench.targets.connections import ConnectionDesk as ConnectionDesk
    from drumbeat.bench.targets.vault import Vault as Vault
    from drumbeat.composition.due_jobs import Pools, Wake
    from drumbeat.core.job import JobId, NewJob
    from drumbeat.fleet.explain import Explanation as Explanation
    from drumbeat.fleet.model import Action, FleetView
    from drumbeat.fleet.model import FleetPolicy as FleetPolicy
    from drumbeat.fleet.policy_store import FleetKept as FleetKept
    from drumbeat.fleet.service import FleetDesk as FleetDesk
    from drumbeat.fleet.service import FleetStatus as FleetStatus
    from drumbeat.pool.checker import Checker as Checker
    from drumbeat.pool.model import Action as PoolAction
    from drumbeat.pool.model import PoolView
    from drumbeat.pool.service import PoolDesk as PoolDesk
    from drumbeat.pool.service import PushOn
    from drumbeat.pool.worker.handlers import Handlers
    from drumbeat.pool.worker.options import WorkPlan as WorkPlan
    from drumbeat.runtime.beat import BeatReport as BeatReport
    from drumbeat.runtime.beat import ControlLoop
    from drumbeat.spawn.fork_client import Door as Door
    from drumbeat.spawn.local import LocalSpawner
    from drumbeat.triggers.model import Firing
    from drumbeat.triggers.service import TriggerDesk as TriggerDesk

TRIGGER_FILES = (Path("triggers.yml"), Path("trigger_registry.yml"))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """What came of a job worker's life."""

    worker_id: str
    code: ExitCode
    ended: int = 0  #: attempts that are over: finished, failed, cancelled or given back
    finished: int = 0  #: jobs that are done
    failed: int = 0


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
        self.clock = clock
        self.forks: Door | None = None  #: the way to a fork server of this process's own

    def local_spawner(self, *, survive: bool = False) -> "LocalSpawner":
        """Starts workers on this machine, with this store in their environment. Raises InvalidSettings without a folder."""
        from drumbeat.spawn.fork_client import SocketDoor
        from drumbeat.spawn.local import LocalSpawner
        from drumbeat.spawn.state_dir import folder_of

        state_dir = self.settings.state_dir
        _check_folder(state_dir)
        environment = {**self.settings.for_children(), STATE_DIR_VARIABLE: str(state_dir)}
        folder, forks = folder_of(state_dir, store_name(self.settings.store)), self.forks or SocketDoor(state_dir.resolve())
        return LocalSpawner(folder, environment, survive=survive, clock=self.clock, forks=forks)

    def spawner(self, provider: str) -> Spawner:
        """Starts workers where a provider has them; they outlive this process. Raises InvalidSettings, MissingExtra."""
        if provider == "local":
            return self.local_spawner(survive=True)
        if provider != "runpod":
            raise InvalidSettings(f"expected the provider local or runpod, got {provider!r}")
        if not self.store.traits.networked:
            from drumbeat.fleet.policy_store import unreachable

            raise InvalidSettings(unreachable(self.store.traits.name, provider))
        runpod = part("spawn.runpod", "runpod", "the RunPod spawner")
        settings = runpod.RunPodSettings.from_environment(os.environ)
        environment, folder = self.settings.for_children(), self.settings.state_dir
        made: Spawner = runpod.RunPodSpawner(settings, environment, self.clock, state_dir=folder)
        return made

    @asynccontextmanager
    async def fleet_spawner(self, name: str, provider: str | None = None) -> AsyncIterator[Spawner]:
        """Where a pool's workers are: as told, or as its policy says. Raises NotFound, InvalidSettings, MissingExtra."""
        chosen = provider or (await self.fleet(name).policy()).provider
        async with self.spawner(chosen) as spawner:
            yield spawner

    async def heeded_policy(self, name: str, **told: Any) -> "FleetPolicy":
        """What a beat of this process would go by: a pool's policy, over it this process's variables, over them what is told.

        Nothing is written. Raises NotFound, InvalidInput when the pool is no fleet, InvalidSettings.
        """
        from drumbeat.fleet.policy_store import heeded

        return (await heeded(self.store, PoolId(name), os.environ, told))[1]

    async def heed_environment(self, name: str, **told: Any) -> "FleetPolicy":
        """The same, and written into the pool's policy once it is checked."""
        from drumbeat.fleet.policy_store import heeded, keep_policy

        home, policy = await heeded(self.store, PoolId(name), os.environ, told)
        await keep_policy(self.store, home, policy)
        return policy

    async def create_fleet(self, name: str, policy: "FleetPolicy", thresholds: Thresholds | None = None) -> Pool:
        """A pool whose workers start as soon as they are ready. Raises AlreadyExists, InvalidSettings."""
        from drumbeat.fleet.policy_store import create_fleet

        return await create_fleet(self.store, name, policy, thresholds)

    async def set_fleet_policy(self, pool_id: PoolId, policy: "FleetPolicy", thresholds: Thresholds | None = None) -> Pool:
        """What the next beat will decide by. Raises NotFound, InvalidSettings."""
        from drumbeat.fleet.policy_store import set_policy

        return await set_policy(self.store, pool_id, policy, thresholds)

    async def keep_fleet(
        self,
        name: str,
        settings: Mapping[str, Any],
        *,
        file: Path | None = None,
        preset: str | None = None,
        handlers: Mapping[str, str] | None = None,
    ) -> "FleetKept":
        """Have a pool follow a policy. One that is a fleet already changes only in what is told; a file is the whole.

        Raises InvalidInput, InvalidSettings.
        """
        from drumbeat.composition.fleets import keep_fleet

        return await keep_fleet(self, name, settings, file=file, preset=preset, handlers=handlers)

    def fleet_loop(
        self,
        pool_id: PoolId,
        spawner: Spawner,
        every: timedelta,
        lease: timedelta | None = None,
        on_beat: "Callable[[BeatReport], None] | None" = None,
        heed: "Callable[[FleetPolicy], None] | None" = None,
    ) -> "ControlLoop[FleetView, Action]":
        """One controller of a fleet. Any number may run: the one that holds the lease acts. ``on_beat`` hears of each.

        ``heed`` hears what each beat is to be decided by; what it raises fails that beat before anything is done.
        """
        from drumbeat.fleet.act import FleetActor
        from drumbeat.fleet.decide import decide
        from drumbeat.fleet.observe import observe
        from drumbeat.fleet.outcome import with_outcome
        from drumbeat.runtime.beat import ControlLoop
        from drumbeat.runtime.lease import Leadership, lease_for

        async def seen(gap: timedelta) -> "FleetView":
            view = await observe(self.store, spawner, pool_id, gap, every=every, clock=self.clock)
            if heed is not None:
                heed(view.policy)
            return view

        return ControlLoop(
            store=self.store,
            pool_id=pool_id,
            leadership=Leadership(self.store, pool_id, process_name(), lease or lease_for(every), self.clock),
            clock=self.clock,
            every=every,
            observe=seen,
            decide=decide,
            act=FleetActor(self.store, spawner, pool_id).act,
            on_beat=on_beat,
            sum_up=with_outcome,
            after=self.tidy,
        )

    async def beat_fleet(self, name: str, **told: Any) -> "BeatReport":
        """One beat of a fleet by its policy, this process's variables and what is told. Raises as ``heed_environment`` does."""
        from drumbeat.composition.fleets import beat_once

        return await beat_once(self, name, **told)

    async def keep_beating(
        self,
        name: str,
        spawner: Spawner,
        every: timedelta,
        stop: asyncio.Event,
        on_beat: "Callable[[BeatReport], None] | None" = None,
        heed: "Callable[[FleetPolicy], None] | None" = None,
    ) -> None:
        """Beat until told to stop; a job that is pushed to an empty queue is answered with a beat at once."""
        from drumbeat.composition.fleets import keep_beating

        await keep_beating(self, name, spawner, every, stop, on_beat, heed)

    def fleet(self, name: str) -> "FleetDesk":
        """What one may ask about a pool's workers, and do to one."""
        from drumbeat.fleet.service import FleetDesk
        from drumbeat.runtime.beat import encode_action

        return FleetDesk(self.store, PoolId(name), encode_action)

    async def scale_pool(
        self, name: str, policy: "FleetPolicy", plan: "WorkPlan | None" = None, thresholds: Thresholds | None = None
    ) -> Pool:
        """Have a pool of jobs scaled by a fleet's policy, and its workers stay for more. It is made if it is not there.

        Raises InvalidInput when it is no pool of jobs, InvalidSettings.
        """
        from drumbeat.composition.fleets import scale_pool

        return await scale_pool(self, name, policy, plan, thresholds)

    def pool_loop(
        self, pool_id: PoolId, spawner: Spawner, every: timedelta, lease: timedelta | None = None
    ) -> "ControlLoop[PoolView, PoolAction]":
        """One controller of a pool of jobs, for a process that runs anyway; triggers do the same, one beat at a time."""
        from drumbeat.pool.beats import Beating, pool_loop
        from drumbeat.runtime.lease import lease_for

        beating = Beating(store=self.store, spawner=spawner, clock=self.clock, owner=process_name())
        return pool_loop(beating, pool_id, every, lease or lease_for(every), after=self.tidy)

    async def tidy(self) -> None:
        """Delete some of what is over and old, unless another process has just done so."""
        from drumbeat.runtime.retention import Housekeeping

        await Housekeeping(self.store, self.settings.retention, self.clock, process_name()).tidy()

    def checker(self, later: "Firing | None" = None) -> "Checker":
        """Checks and reaps pools of jobs, one beat a call. Workers it starts outlive this process; ``later`` is what is fired
        for jobs that come due when nobody is here, instead of a check."""
        from drumbeat.pool.checker import Checker

        spawner = partial(self.local_spawner, survive=True)
        return Checker(self.store, self.clock, process_name, spawner, partial(self._watch_later, firing=later), self.tidy)

    async def _watch_later(self, pool_id: PoolId, firing: "Firing | None") -> None:
        from drumbeat.composition.due_jobs import start_watching

        await start_watching(self, pool_id, firing)

    async def _keep_due(self, pools: "Pools", wake: "Wake", file: Path) -> None:
        from drumbeat.composition.due_jobs import keep_due

        await keep_due(self, pools, wake, file)

    async def watch_pool(self, pool_id: PoolId, firing: "Firing | None" = None) -> None:
        """Watch for jobs of a pool that come due, and start workers for them, until none are pending or a day is over."""
        from drumbeat.composition.due_jobs import watch_pool

        await watch_pool(self, pool_id, firing)

    def watching(self) -> AbstractAsyncContextManager[None]:
        """Inside the block the pools that this folder's triggers are for are watched for jobs that come due."""
        if triggers_file() is None or not self.store.traits.shared:
            return nullcontext()
        from drumbeat.composition.due_jobs import watching

        return watching(self)

    async def run_trigger(self, firing: "Firing") -> Mapping[str, Any]:
        """The beat every trigger wakes; answers with each pool's report. Raises NotFound, InvalidInput."""
        from drumbeat.pool.beats import told
        from drumbeat.triggers.model import Machine

        if firing.machine is Machine.FLEET:
            return await self._beat_fleets(firing)
        checker, one = self.checker(), PoolId(firing.pool_id) if firing.pool_id else None
        if firing.machine is Machine.REAPER:
            reaped = await checker.reap(one, lost_after=firing.lost_after)
            return {pool_id: told(report) for pool_id, report in reaped.items()}
        if firing.worker is not None and one is not None:
            return {one: await self._start_machines(firing, one)}
        pools = [one] if one else [each.pool_id for each in await self.store.pools.list(PoolKind.JOBS)]
        return {pool_id: told(await checker.check(pool_id, max_workers=firing.max_workers)) for pool_id in pools}

    async def _start_machines(self, firing: "Firing", pool_id: PoolId) -> Mapping[str, Any]:
        """Take back what the dead hold, then start workers that run a FlatMachines machine. Raises NotFound, SpawnFailed."""
        from drumbeat.triggers.machines import start_machines

        await self.checker().reap(pool_id)
        state_dir = str(self.settings.state_dir.absolute())
        beat = await start_machines(firing, {**self.settings.for_children(), STATE_DIR_VARIABLE: state_dir})
        await self.watch_for_later(firing, pool_id)
        return beat

    async def watch_for_later(self, firing: "Firing", pool_id: PoolId) -> None:
        """Have a process watch for jobs of a pool that come due later, and fire this then. Never raises for a store."""
        await self.checker(firing).watch_for_later(pool_id)

    async def _beat_fleets(self, firing: "Firing") -> Mapping[str, Any]:
        """A beat of one fleet, or of each: then one that cannot be beaten is reported, and the next is beaten."""
        from drumbeat.composition.fleets import beat_each, outcome_of

        told = {} if firing.max_workers is None else {"max_workers": firing.max_workers}
        if firing.pool_id:
            return {firing.pool_id: outcome_of(await self.beat_fleet(firing.pool_id, **told))}
        return await beat_each(self, [each.pool_id for each in await self.store.pools.list() if each.is_scaled], **told)

    async def fire(self, firing: "Firing") -> Mapping[str, Any]:
        """The same for a checker that was sent by a push: work that is added from here on sends another."""
        from drumbeat.triggers.detached import arrive

        if firing.pool_id is not None:
            await arrive(self.store.leases, firing.trigger, firing.pool_id)
        return await self.fired(firing)

    async def fired(self, firing: "Firing") -> Mapping[str, Any]:
        """The beat of a trigger of a file, and a note of when it fired and what came of it."""
        from drumbeat.triggers.firings import noted

        return await noted(self.store.notes, self.run_trigger, firing)

    def triggers(self, file: Path | None = None) -> "TriggerDesk":
        """The triggers of a file, or of the usual one. Raises InvalidSettings, MissingExtra."""
        desk = part("triggers.service", "triggers", "triggers.yml")
        around = desk.Surroundings(
            store=self.store,
            clock=self.clock,
            owner=process_name(),
            variables=os.environ,
            for_children={**self.settings.for_children(), STATE_DIR_VARIABLE: str(self.settings.state_dir)},
            public_variables=self.settings.public_variables(),
            public_store=public_url(self.settings.store),
            state_dir=self.settings.state_dir,
            keep_due=self._keep_due,
        )
        made: TriggerDesk = desk.TriggerDesk(file or triggers_file() or TRIGGER_FILES[0], self.fired, around)
        return made

    async def answer_event(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the beat a cloud's event asks for; HTTP events need a file of triggers. Raises InvalidInput, NotFound."""
        file = triggers_file()
        if file is not None:
            return await self.triggers(file).answer_event(event)
        answer: Mapping[str, Any] = await part("triggers.serverless", "triggers", "a trigger").answer_event(
            event, self.fired, None
        )
        return answer

    async def work_added(self, pool_id: PoolId) -> Sequence[str]:
        """Pull the triggers that wait for work in a pool, if there is a file of them here. Answers with their names."""
        return await self.waker()(pool_id)

    def waker(self) -> Callable[[PoolId], Awaitable[Sequence[str]]]:
        """The same, for later: a file that cannot be used is refused now, before there is work. Raises InvalidSettings."""
        file = triggers_file()
        return self.triggers(file).work_added if file else _nobody

    @asynccontextmanager
    async def waking(self, file: Path | None = None) -> AsyncIterator[Callable[[str], Awaitable[Sequence[str]]]]:
        """Gives what to call with a pool's name after each push: it pulls the triggers that wait for work, in-loop ones too.

        Those run beside the caller; at the end of the block they are waited for.
        """
        desk = self.triggers(file)
        async with desk.in_loop() as beside:
            yield partial(desk.work_added, beside=beside)

    def bench(self) -> "BenchDesk":
        """Templates, runs, comparisons and reports. Its workers outlive this process: another may go on with their run."""
        from drumbeat.runtime.host import this_host

        host = this_host()
        desk: BenchDesk = bench_part("service").BenchDesk(
            self.store,
            self.clock,
            process_name(),
            bench_part("control.create").capacity(host.cores, host.memory),
            partial(self.local_spawner, survive=True),
            self.connections(),
        )
        return desk

    def connections(self) -> "ConnectionDesk":
        """Databases under test by name. Raises InvalidSettings when DRUMBEAT_KEY is set and holds no key."""
        desk: ConnectionDesk = bench_part("targets.connections").ConnectionDesk(self.store, self.vault())
        return desk

    def vault(self) -> "Vault":
        """What seals secrets, with the keys of this process's environment. Raises InvalidSettings."""
        from drumbeat.bench.targets.vault import open_vault

        return open_vault(os.environ)

    async def run_worker(self, arguments: WorkerArguments) -> ExitCode:
        """Be a worker of a pool, from joining to leaving. Raises NotFound when there is no such pool or run."""
        from drumbeat.composition.workers import Lives

        return await Lives(self).spawned(arguments)

    async def work(
        self,
        name: str,
        plan: "WorkPlan",
        worker_id: str | None = None,
        *,
        handlers: "Handlers | None" = None,
        signals: bool = True,
        grace: timedelta | None = None,
    ) -> WorkDone:
        """Be a worker of a pool of jobs, by this plan, without being spawned. Raises NotFound, InvalidInput.

        ``handlers`` stand in for those of the plan; without ``signals`` the process's own are left alone. ``grace`` is how long
        running jobs may go on when it is told to stop; None: as the pool says.
        """
        from drumbeat.composition.workers import Lives

        return await Lives(self).unbidden(name, plan, worker_id, handlers, signals=signals, grace=grace)

    def pool(self, name: str) -> "PoolDesk":
        """Everything one may ask of a pool of jobs; it need not exist yet."""
        from drumbeat.pool.service import PoolDesk

        return PoolDesk(self.store, self.clock, name, process_name(), push_on=push_on(self.settings.store))


def _check_folder(folder: Path) -> None:
    try:
        private_folder(folder)
    except OSError as exc:
        raise InvalidSettings(
            f"expected to keep workers' logs in {folder}, got: {exc.strerror}; set {STATE_DIR_VARIABLE}"
        ) from exc
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidSettings(f"expected to keep workers' logs in {folder}, but may not write there; set {STATE_DIR_VARIABLE}")


def process_name() -> str:
    """A name no other process has: two workers or controllers are never taken for one."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"


def push_on(store: str) -> "PushOn | None":
    """How jobs are pushed on a caller's own connection to this store; None where that cannot be."""
    parts = urlsplit(store)
    if parts.scheme not in ("postgres", "postgresql"):
        return None
    schema = dict(parse_qsl(parts.query)).get("schema", "drumbeat")

    async def push(store: Any, connection: Any, pool_id: PoolId, jobs: "Sequence[NewJob]") -> "Sequence[JobId]":
        from drumbeat.store.sql.postgres import push_on as push

        return await push(connection, pool_id, jobs, schema=schema, home=store.queue.home)

    return push


@contextmanager
def forking(become: "Callable[[Sequence[str]], int]", modules: Sequence[str]) -> "Iterator[Door]":
    """A fork server of this process's own, with these modules loaded: the way to it. Nothing may run beside the caller yet."""
    from drumbeat.spawn.fork_client import OwnDoor
    from drumbeat.spawn.fork_server import own_fork_server

    with own_fork_server(become, modules) as line:
        yield OwnDoor(line)


def serve_forks(
    settings: Settings, become: "Callable[[Sequence[str]], int]", modules: Sequence[str], idle: timedelta | None
) -> None:
    """Be the fork server of the state folder, until told to stop or nobody asked for ``idle``. Raises AlreadyExists."""
    from drumbeat.spawn.fork_server import ForkServer, listening, warm_up

    _check_folder(settings.state_dir)
    with listening(settings.state_dir) as knocks:
        warm_up(modules)
        ForkServer(knocks, become, idle).serve()


@contextmanager
def until_stopped(*stops: asyncio.Event) -> Iterator[None]:
    """Inside the block SIGTERM and SIGINT set these events, and do nothing else."""

    def stop_all(_: str) -> None:
        for stop in stops:
            stop.set()

    with on_stop_signals(stop_all):
        yield


@contextmanager
def on_stop_signals(stop: Callable[[str], object], *numbers: signal.Signals) -> Iterator[None]:
    """Inside the block these signals, or SIGTERM and SIGINT, call ``stop`` with the signal's name, and do nothing else."""
    from drumbeat.runtime import signals

    with signals.on_stop_signals(stop, numbers or signals.STOPPING):
        yield


async def _nobody(_: PoolId) -> Sequence[str]:
    return ()


def triggers_file() -> Path | None:
    """The triggers' file of this folder, under our name or the seed's."""
    return next((file for file in TRIGGER_FILES if file.is_file()), None)
