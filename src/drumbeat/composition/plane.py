"""The control plane: opens the store, and builds spawners, control loops and services from the settings."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumbeat.composition.base import (
    TRIGGER_FILES,
    ControlPlaneBase,
    WorkerArguments as WorkerArguments,
    WorkerSummary as WorkerSummary,
    check_state_dir,
    process_name,
    triggers_file,
)
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.engine import DEFAULT_ENGINE
from drumbeat.core.errors import InvalidSettings, MissingExtra
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import ExitCode
from drumbeat.extras import bench_part, import_part
from drumbeat.runtime.log_output import logging_to_stderr as logging_to_stderr, stderr_handler as stderr_handler
from drumbeat.runtime.signals import on_stop_signals as on_stop_signals
from drumbeat.settings import STATE_DIR_VARIABLE, Settings, public_url
from drumbeat.spawn.interface import Spawner
from drumbeat.store import open_store

if TYPE_CHECKING:
    from drumbeat.bench.control.orchestrator import RunReport as RunReport
    from drumbeat.bench.results.compare import Comparison as Comparison
    from drumbeat.bench.service import BenchService as BenchService
    from drumbeat.bench.targets.connections import ConnectionService as ConnectionService
    from drumbeat.bench.targets.vault import Vault as Vault
    from drumbeat.composition.fleets import Fleets
    from drumbeat.composition.scoped_engines import ScopedSpawner
    from drumbeat.composition.workers import WorkerRunner
    from drumbeat.fleet.explain import BeatExplanation as BeatExplanation
    from drumbeat.fleet.model import FleetPolicy as FleetPolicy
    from drumbeat.fleet.policy_store import FleetConfigured as FleetConfigured
    from drumbeat.fleet.service import FleetService as FleetService, FleetStatus as FleetStatus
    from drumbeat.pool.checker import Checker as Checker
    from drumbeat.pool.model import Action as PoolAction, PoolView
    from drumbeat.pool.service import Pool as Pool
    from drumbeat.pool.worker.handlers import Handlers
    from drumbeat.pool.worker.options import WorkPlan as WorkPlan
    from drumbeat.runtime.beat import BeatReport as BeatReport, ControlLoop
    from drumbeat.spawn.fork_client import ForkConnector as ForkConnector
    from drumbeat.triggers.model import Firing, RunBeats
    from drumbeat.triggers.service import TriggerService as TriggerService

log = logging.getLogger(__name__)

#: with these a benchmark's workers sign in at a Snowflake under test
_SNOWFLAKE_SECRETS = ("SNOWFLAKE_PASSWORD", "SNOWFLAKE_PRIVATE_KEY_PASSPHRASE")


@asynccontextmanager
async def open_control_plane(
    settings: Settings, *, create: bool = False, check_version: bool = True, clock: Clock | None = None
) -> AsyncIterator["ControlPlane"]:
    """Open the store of the settings and yield a control plane on it; leaving the block closes the store."""
    async with open_store(settings.store, create=create, check_version=check_version) as store:
        yield ControlPlane(settings, store, clock or SystemClock())


class ControlPlane(ControlPlaneBase):
    """All operations of the command line, the HTTP API and the Python API, on one store."""

    @cached_property
    def fleets(self) -> "Fleets":
        """The operations that create, configure and run fleets."""
        from drumbeat.composition.fleets import Fleets

        return Fleets(self)

    def fleet(self, name: str) -> "FleetService":
        """Return the service for one pool: the status of its workers, and actions on single workers."""
        return self.fleets.service(name)

    def pool_loop(
        self, pool_id: PoolId, spawner: Spawner, every: timedelta, lease: timedelta | None = None
    ) -> "ControlLoop[PoolView, PoolAction]":
        """Build a controller of a job pool for a process that keeps running. (Triggers run single beats instead.)"""
        from drumbeat.pool.beats import BeatContext, pool_loop
        from drumbeat.runtime.lease import lease_for

        beating = BeatContext(
            store=self.store, spawner=spawner, clock=self.clock, owner=process_name(), plugins=lambda: self.plugins
        )
        return pool_loop(beating, pool_id, every, lease or lease_for(every), after=self.tidy)

    def checker(self, later: "Firing | None" = None) -> "Checker":
        """Return a checker, which checks job pools one pass (beat) at a time. Workers it starts outlive this process.

        If a pool has delayed jobs, the checker starts a process that waits until they are ready and then checks the pool
        again, or, if ``later`` is given, runs this trigger instead."""
        from drumbeat.pool.checker import Checker

        watch = partial(self._watch_later, firing=later)
        return Checker(
            self.store, self.clock, process_name, self.spawner, watch, self.tidy, lambda: self.plugins, self._engines_here
        )

    def _engines_here(self, engines: str) -> str:
        return engines if engines == DEFAULT_ENGINE else self.engines.on_this_machine(engines)

    async def _watch_later(self, pool_id: PoolId, firing: "Firing | None") -> None:
        from drumbeat.composition.due_jobs import start_watching

        await start_watching(self, pool_id, firing)

    async def watch_pool(self, pool_id: PoolId, firing: "Firing | None" = None) -> None:
        """Start workers whenever delayed jobs of a pool become ready. Returns when no job is pending, or after a day."""
        from drumbeat.composition.due_jobs import watch_pool

        async def wake(pool_id: PoolId) -> object:
            return await (self.checker().check(pool_id) if firing is None else self.fired(firing))

        await watch_pool(self, pool_id, wake)

    def watching(self) -> AbstractAsyncContextManager[None]:
        """While the block runs, start workers when delayed jobs come due, if the current folder has a triggers file."""
        if triggers_file() is None or not self.store.traits.shared:
            return nullcontext()
        from drumbeat.composition.due_jobs import watching

        async def keep() -> None:
            triggers = await asyncio.to_thread(self.triggers, triggers_file())
            await triggers.keep_due()

        return watching(self, keep)

    async def run_trigger(self, firing: "Firing") -> Mapping[str, Any]:
        """Run the beats that a trigger asks for. Returns a report for each pool.

        If it names no pool, the report of a pool whose beat fails contains the error. Raises NotFound, InvalidInput."""
        from drumbeat.pool.beats import beat_report
        from drumbeat.triggers.model import BeatKind

        if firing.machine is BeatKind.FLEET:
            return await self._beat_fleets(firing)
        checker, only = self.checker(), PoolId(firing.pool_id) if firing.pool_id else None
        if firing.machine is BeatKind.REAPER:
            reports = await checker.reap(only, lost_after=firing.lost_after)
        elif only is None:
            reports = await checker.check_each(max_workers=firing.max_workers)
        elif firing.worker is not None:
            return {only: await self._start_machines(firing, only)}
        else:
            reports = {only: await checker.check(only, max_workers=firing.max_workers)}
        return {pool_id: beat_report(report) for pool_id, report in reports.items()}

    async def _start_machines(self, firing: "Firing", pool_id: PoolId) -> Mapping[str, Any]:
        """Return jobs of lost workers to the queue, then start workers that run a FlatMachines machine. Raises SpawnFailed."""
        from drumbeat.triggers.machines import start_machine_workers

        await self.checker().reap(pool_id)
        state_dir = str(self.settings.state_dir.absolute())
        report = await start_machine_workers(firing, {**self.worker_environment, STATE_DIR_VARIABLE: state_dir})
        await self.watch_for_later(firing, pool_id)
        return report

    async def watch_for_later(self, firing: "Firing", pool_id: PoolId) -> None:
        """Start a process that runs the trigger ``firing`` when delayed jobs become ready. Store errors are only logged."""
        await self.checker(firing).watch_for_later(pool_id)

    async def _beat_fleets(self, firing: "Firing") -> Mapping[str, Any]:
        """Run a beat of the fleet that the trigger names or, if it names none, of every fleet in the store."""
        from drumbeat.composition.fleets import outcome_of

        settings = {} if firing.max_workers is None else {"max_workers": firing.max_workers}
        if firing.pool_id:
            return {firing.pool_id: outcome_of(await self.fleets.beat(firing.pool_id, **settings))}
        return await self.fleets.beat_each(
            [each.pool_id for each in await self.store.pools.list() if each.is_scaled], **settings
        )

    async def fire(self, firing: "Firing") -> Mapping[str, Any]:
        """Run the beat of a trigger that a push has fired. From the start of the beat, new pushes fire the trigger again,
        because the beat might already have read the pool and miss their jobs."""
        from drumbeat.triggers.detached import mark_checker_started

        if firing.pool_id is not None:
            await mark_checker_started(self.store.leases, firing.trigger, firing.pool_id)
        return await self.fired(firing)

    async def fired(self, firing: "Firing") -> Mapping[str, Any]:
        """Run a trigger's beat, and store when it ran and with which result."""
        from drumbeat.triggers.firings import run_and_record

        return await run_and_record(self.store.notes, self.run_trigger, firing)

    def triggers(self, file: Path | None = None, run: "RunBeats | None" = None) -> "TriggerService":
        """Return the service for the triggers of a file; by default triggers.yml in the current folder. ``run`` runs the beat
        of a trigger; by default ``fired``.

        Raises InvalidSettings, MissingExtra.
        """
        from drumbeat.composition.due_jobs import keep_due

        module = import_part("triggers.service", "triggers", "triggers.yml")
        environment = module.TriggerEnvironment(
            store=self.store,
            clock=self.clock,
            owner=process_name(),
            variables=os.environ,
            for_children=self.worker_environment,
            public_variables=self.settings.public_variables(),
            public_store=public_url(self.settings.store),
            store_in_file=self.settings.store_in_file == self.settings.store,
            shell_variables=self.settings.shell_variables(os.environ),
            state_dir=self.settings.state_dir,
            keep_due=partial(keep_due, self),
        )
        service: TriggerService = module.TriggerService(
            file or triggers_file() or TRIGGER_FILES[0], run or self.fired, environment
        )
        return service

    async def answer_event(
        self, event: Mapping[str, Any], on_firing: "Callable[[Firing], object] | None" = None
    ) -> Mapping[str, Any]:
        """Run the beat that a cloud event asks for. An HTTP event needs a triggers file, which defines its webhook.
        ``on_firing`` is called with the request for the beat, before the beat runs.

        Raises InvalidInput, NotFound."""

        async def run(firing: "Firing") -> Mapping[str, Any]:
            if on_firing is not None:
                on_firing(firing)
            return await self.fired(firing)

        file = triggers_file()
        if file is not None:
            return await self.triggers(file, run).answer_event(event)
        module = import_part("triggers.serverless", "triggers", "a trigger")
        answer: Mapping[str, Any] = await module.answer_event(event, run, None)
        return answer

    async def work_added(self, pool_id: PoolId) -> Sequence[str]:
        """Fire the triggers for new jobs in a pool, if the current folder has a triggers file. Returns the triggers' names.

        The jobs are stored already, so a file that cannot be used raises nothing: a warning is logged, and no trigger fires."""
        try:
            fire = self.waker()
        except (InvalidSettings, MissingExtra) as exc:
            log.warning("stored jobs in pool %s, but fired no trigger: %s; see: drumbeat trigger check", pool_id, exc)
            return ()
        return await fire(pool_id)

    def waker(self) -> Callable[[PoolId], Awaitable[Sequence[str]]]:
        """Return a function that fires the triggers for a pool's new jobs. Raises InvalidSettings if their file is invalid."""
        file = triggers_file()
        return self.triggers(file).work_added if file else _no_triggers

    @asynccontextmanager
    async def waking(self, file: Path | None = None) -> AsyncIterator[Callable[[str], Awaitable[Sequence[str]]]]:
        """Yield a function to call with a pool's name after each push: it fires the triggers for new jobs in the pool.

        Triggers that run in this process run in the background; leaving the block waits for them."""
        service = self.triggers(file)
        async with service.in_loop() as beside:
            yield partial(service.work_added, beside=beside)

    def bench(self) -> "BenchService":
        """Return the service for benchmarks. Its workers outlive this process, so another process can continue a run."""
        from drumbeat.composition.language_model import open_language_model
        from drumbeat.composition.worker_slots import engine_capacity
        from drumbeat.runtime.host import this_host

        host = this_host()
        service: BenchService = bench_part("service").BenchService(
            self.store,
            self.clock,
            process_name(),
            bench_part("control.create").capacity(host.cores, host.memory),
            self._bench_spawner,
            self.connections(),
            self.engines.check_reach,
            partial(engine_capacity, self.engines),
            partial(open_language_model, self.settings, os.environ),
        )
        return service

    def _bench_spawner(self, engines: str) -> "Spawner | ScopedSpawner":
        """Return a spawner for the workers of a benchmark. They get the secrets for the database under test as environment
        variables; workers on this machine also get those of Snowflake, even if an engine signs in with them."""
        from drumbeat.bench.driver.session import PASSWORD_VARIABLE
        from drumbeat.bench.targets.vault import KEY_VARIABLE

        secrets, here = (
            {name: os.environ[name] for name in names if os.environ.get(name)}
            for names in ((PASSWORD_VARIABLE, KEY_VARIABLE), _SNOWFLAKE_SECRETS)
        )
        if engines == DEFAULT_ENGINE:
            return self.local_spawner(survive=True, secrets={**secrets, **here})
        return self.engines.open(engines, secrets, here)

    def connections(self) -> "ConnectionService":
        """Return the service for saved connections to databases under test. Raises InvalidSettings (invalid DRUMBEAT_KEY)."""
        service: ConnectionService = bench_part("targets.connections").ConnectionService(self.store, self.vault())
        return service

    def vault(self) -> "Vault":
        """Return the vault, which encrypts secrets with the keys in DRUMBEAT_KEY. Raises InvalidSettings."""
        from drumbeat.bench.targets.vault import open_vault

        return open_vault(os.environ)

    async def run_worker(self, arguments: WorkerArguments) -> ExitCode:
        """Run a worker that a controller has started, until it ends. Raises NotFound if its pool or run does not exist."""
        return await self._worker_runner().run_spawned(arguments)

    async def work(
        self,
        name: str,
        plan: "WorkPlan",
        worker_id: str | None = None,
        *,
        handlers: "Handlers | None" = None,
        signals: bool = True,
        grace: timedelta | None = None,
        on_start: "Callable[[Callable[[str], object]], object] | None" = None,
    ) -> WorkerSummary:
        """Run a worker of a job pool in this process, without a controller. Raises NotFound, InvalidInput.

        ``handlers`` replace those of the plan. Without ``signals`` no signal handlers are installed. ``grace`` is how long
        running jobs can continue once the worker is asked to stop; None: the pool's drain time. ``on_start`` is called
        with a function that asks the worker to stop."""
        runner = self._worker_runner()
        return await runner.run_adhoc(name, plan, worker_id, handlers, signals=signals, grace=grace, on_start=on_start)

    def _worker_runner(self) -> "WorkerRunner":
        from drumbeat.composition.workers import WorkerRunner

        return WorkerRunner(self, self.checker(), self.watching())

    def pool(self, name: str, on_push: Callable[[PoolId], Awaitable[object]] | None = None) -> "Pool":
        """Return the job pool with this name, as an object to push to and read from; it need not exist in the store yet.

        ``on_push`` (such as ``waker()``) is called after changes that let jobs run, to start workers."""
        from drumbeat.pool.service import Pool

        url, clock = self.settings.store, self.clock
        return Pool(self.store, clock, name, process_name(), on_push, url, self.check_engine, self.plugins)

    async def check_engine(self, engines: str) -> None:
        """Raise InvalidSettings for engines that are not known here, or whose workers cannot reach the store."""
        self.engines.check_reach(engines)


@contextmanager
def forking(become: "Callable[[Sequence[str]], int]", modules: Sequence[str]) -> "Iterator[ForkConnector]":
    """Inside the block, run a fork server: a process that has already imported ``modules`` and forks workers. Each worker calls
    ``become`` with its arguments and exits with the result. Enter the block before any thread is started."""
    from drumbeat.spawn.fork_client import OwnForkConnector
    from drumbeat.spawn.fork_server import own_fork_server

    with own_fork_server(become, modules) as line:
        yield OwnForkConnector(line)


def serve_forks(
    settings: Settings, become: "Callable[[Sequence[str]], int]", modules: Sequence[str], idle: timedelta | None
) -> None:
    """Run a fork server that listens in ``settings.state_dir``, until stopped or unused for ``idle``. Raises AlreadyExists.

    For each request it forks a process, such as a worker, that passes its arguments to ``become`` and exits with the result."""
    from drumbeat.spawn.fork_server import ForkServer, listening, warm_up

    check_state_dir(settings.state_dir)
    with listening(settings.state_dir) as requests:
        warm_up(modules)
        ForkServer(requests, become, idle).serve()


@contextmanager
def until_stopped(*stops: asyncio.Event) -> Iterator[None]:
    """Inside the block, SIGTERM and SIGINT do not end the process: they set these events."""

    def stop_all(_: str) -> None:
        for stop in stops:
            stop.set()

    with on_stop_signals(stop_all):
        yield


async def _no_triggers(_: PoolId) -> Sequence[str]:
    return ()
