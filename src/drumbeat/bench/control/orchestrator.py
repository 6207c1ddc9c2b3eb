"""Creates, starts, conducts and stops benchmark runs. All state is in the store, so any number of orchestrators can run."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from drumbeat.bench.control.act import RunActor
from drumbeat.bench.control.decide import decide
from drumbeat.bench.control.observe import Observer
from drumbeat.bench.model import Action, Conclude, RunView, ServerProbe
from drumbeat.bench.results.judgement import led_by
from drumbeat.bench.run_state import stored_plan
from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidInput, Refused, StaleWrite, StoreError
from drumbeat.core.event import stop
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, Thresholds, pool
from drumbeat.core.run import RUN_ENDED, Phase, Run, RunId, RunStatus
from drumbeat.core.worker import Worker
from drumbeat.runtime.beat import BeatReport, ControlLoop
from drumbeat.runtime.lease import Leadership
from drumbeat.runtime.timeouts import LostRace, pause, race
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import RunChange, Store

log = logging.getLogger(__name__)

EVERY = timedelta(seconds=1)
BRISKLY = timedelta(milliseconds=400)  #: time between beats while workers start or end
LEASE = timedelta(seconds=10)
UNDER_WAY = (RunStatus.STARTING, RunStatus.RUNNING, RunStatus.STOPPING, RunStatus.CANCELLING)
_TRIES = 5
_LEASED_BEATS = 6  #: a lease lasts at least this many beats, which matters for a slow store with long beats

Watch = Callable[[Run], AbstractAsyncContextManager[Callable[[], ServerProbe | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A run with its workers and the orchestrator that leads it, read from the store."""

    run: Run
    workers: tuple[Worker, ...]
    led_by: str | None  #: the orchestrator that holds the run's lease; None: no orchestrator does

    @property
    def is_orphan(self) -> bool:
        return self.led_by is None and self.run.status in UNDER_WAY


class Orchestrator:
    """Creates, starts and stops benchmark runs. With a spawner it also conducts a run: controls its workers until the end."""

    def __init__(self, store: Store, spawner: Spawner | None, clock: Clock, owner: str, watch: Watch) -> None:
        self._store = store
        self._spawner = spawner
        self._clock = clock
        self._owner = owner
        self._watch = watch
        self._slowest = store.traits.shortest_beat  #: the shortest time between two beats that the store allows
        self.lease = max(LEASE, self._slowest * _LEASED_BEATS)  #: how long a run's lease lasts after the last beat

    async def create_run(
        self, template_id: str | None, config: Mapping[str, Any], *, name: str = "", thresholds: Thresholds | None = None
    ) -> RunId:
        """Store a new PREPARED run. ``config`` comes from ``bench.templates.run_config`` of a checked document.

        Raises InvalidInput if ``config`` has no valid plan, because no orchestrator could conduct such a run.
        """
        run_id = RunId(f"run-{uuid4().hex[:12]}")
        run = Run(run_id=run_id, name=name or str(config.get("name") or run_id), config=config, template_id=template_id)
        stored_plan(run)
        await self._store.runs.create(run, pool(run_id, PoolKind.BENCH, thresholds or PRESETS[PoolKind.BENCH]))
        return run_id

    async def start_run(self, run_id: RunId) -> None:
        """Request the start of a run; its orchestrator carries it out. Raises NotFound, and Refused unless it is PREPARED."""
        run = await self._store.runs.get(run_id)
        if run.status is not RunStatus.PREPARED:
            raise Refused(f"run {run_id}: expected status PREPARED to start it, got {run.status}; to repeat it, use rerun")
        await self._store.runs.update(run, RunChange(status=RunStatus.STARTING, phase=Phase.PREPARING))

    async def stop_run(self, run_id: RunId, reason: str = "stopped by the user") -> RunStatus:
        """Cancel a run and notify its workers, in one transaction. Returns the run's status, which is unchanged if the run has
        ended. Raises NotFound, and Refused if another process changes the run's row during each of several tries."""
        for _ in range(_TRIES):
            run = await self._store.runs.get(run_id)
            if run.status in RUN_ENDED or run.status is RunStatus.CANCELLING:
                return run.status
            try:
                return (await self._cancel(run, reason)).status
            except StaleWrite:
                continue
        raise Refused(f"run {run_id} was not stopped: its row changed during each of {_TRIES} tries; try again")

    async def _cancel(self, run: Run, reason: str) -> Run:
        if run.status is RunStatus.PREPARED:
            change = RunChange(status=RunStatus.CANCELLED, completion_reason="USER", ended=True)
            return await self._store.runs.update(run, change)
        phase = None if run.phase == Phase.PROCESSING else Phase.COOLDOWN
        change = RunChange(status=RunStatus.CANCELLING, phase=phase, completion_reason="USER")
        return await self._store.runs.update(run, change, [stop(reason)])

    async def get_run_status(self, run_id: RunId) -> RunReport:
        """Read a run, its workers and which orchestrator leads it. Raises NotFound."""
        run = await self._store.runs.get(run_id)
        workers = tuple(await self._store.workers.list(PoolId(run_id)))
        return RunReport(run=run, workers=workers, led_by=await led_by(self._store, run))

    async def orphans(self) -> list[Run]:
        """List runs under way that have lost their orchestrator. Any orchestrator can take them over."""
        found = await self._store.runs.list(statuses=UNDER_WAY, limit=1000)
        return [run for run in found if (await self.get_run_status(run.run_id)).is_orphan]

    def loop(
        self, run_id: RunId, probe: Callable[[], ServerProbe | None], leave: asyncio.Event | None = None
    ) -> ControlLoop[RunView, Action]:
        """Return a control loop for one run. Several loops can exist for a run; only the one that holds the lease acts.

        The result of a run with millions of samples takes minutes to compute, so that action has no time limit; it is given up
        once ``leave`` is set."""
        spawner = self._spawner
        if spawner is None:
            raise InvalidInput(f"cannot orchestrate run {run_id}: expected a spawner (it starts workers) as argument, got none")
        return ControlLoop(
            store=self._store,
            pool_id=PoolId(run_id),
            leadership=Leadership(self._store, run_id, self._owner, self.lease, self._clock),
            clock=self._clock,
            every=max(EVERY, self._slowest),
            observe=Observer(self._store, spawner, run_id, probe).observe,
            decide=decide,
            act=partial(_act, RunActor(self._store, spawner, run_id), leave or asyncio.Event()),
            unlimited=(Conclude,),
        )

    async def conduct(
        self, run_id: RunId, leave: asyncio.Event, on_beat: Callable[[BeatReport], None] | None = None
    ) -> RunStatus:
        """Lead a run until it has ended or ``leave`` is set (another orchestrator can then take over). Returns its status."""
        run = await self._store.runs.get(run_id)
        async with self._watch(run) as probe:
            return await self._beat_on(run_id, probe, leave, on_beat or (lambda report: None))

    async def _beat_on(
        self,
        run_id: RunId,
        probe: Callable[[], ServerProbe | None],
        leave: asyncio.Event,
        on_beat: Callable[[BeatReport], None],
    ) -> RunStatus:
        loop = self.loop(run_id, probe, leave)
        status = RunStatus.PREPARED
        try:
            while not leave.is_set():
                began = self._clock.elapsed()
                on_beat(await loop.beat())
                status = await self._status(run_id) or status
                if status in RUN_ENDED:
                    break
                every = max(EVERY if status is RunStatus.RUNNING else BRISKLY, self._slowest)
                await pause(self._clock, max(every - (self._clock.elapsed() - began), timedelta()), leave)
        finally:
            await loop.resign()
        return status

    async def _status(self, run_id: RunId) -> RunStatus | None:
        """Return the run's status; None if the store did not answer."""
        try:
            return (await self._store.runs.get(run_id)).status
        except StoreError as exc:
            log.warning("could not read the status of run %s: %s; retrying at the next beat", run_id, exc)
            return None


async def _act(actor: RunActor, leave: asyncio.Event, action: Action, fence: Fence) -> None:
    """Carry out an action. The computation of the run's result, which can take long, is given up once ``leave`` is set."""
    if not isinstance(action, Conclude):
        await actor.act(action, fence)
        return
    try:
        await race(leave.wait(), actor.act(action, fence))
    except LostRace:
        raise Refused(
            "the run's result is not computed yet, because this process was told to leave the run; another orchestrator can "
            "take the run over"
        ) from None
