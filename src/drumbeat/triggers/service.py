"""The triggers of one file at work: listed, checked, installed, pulled and kept."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, InvalidSettings, NotFound
from drumbeat.core.pool import PoolId, PoolKind
from drumbeat.store.interface import Store
from drumbeat.triggers import crontab
from drumbeat.triggers.deliveries import PATH, Deliveries, WebhookAnswer, secret_of
from drumbeat.triggers.detached import Dispatch, send
from drumbeat.triggers.file import load_triggers
from drumbeat.triggers.firings import LastFired, last_fired
from drumbeat.triggers.in_loop import InLoop, in_loop
from drumbeat.triggers.model import BeatKind, Firing, Run, Trigger, TriggerType
from drumbeat.triggers.scheduler import Scheduler, due_after
from drumbeat.triggers.server import serve
from drumbeat.triggers.serverless import answer_event, cron_job

log = logging.getLogger(__name__)


KeepDue = Callable[
    [Callable[[], Awaitable[Sequence[PoolId]]], Callable[[PoolId], Awaitable[object]], Path], Awaitable[None]
]  #: given the pools, what has workers started for one, and the file that says so


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerEnvironment:
    """What triggers need to know of the process they are in."""

    store: Store
    clock: Clock
    owner: str  #: unique to this process
    variables: Mapping[str, str]  #: the environment; secrets are in it
    for_children: Mapping[str, str]  #: what a checker that is started needs in its environment
    public_variables: Mapping[str, str]  #: those of them that anybody may read, but for the store
    public_store: str | None  #: the store's URL if it holds no password
    state_dir: Path
    keep_due: KeepDue | None = None  #: watches pools for jobs that come due, until cancelled


class TriggerService:
    """One triggers.yml. All its triggers run the same beat, ``run``."""

    def __init__(self, file: Path, run: Run, around: TriggerEnvironment) -> None:
        """Raises InvalidSettings when the file cannot be used."""
        self._file = file.absolute()
        self._run = run
        self._around = around
        self.triggers: Sequence[Trigger] = load_triggers(self._file)

    def get(self, name: str) -> Trigger:
        """Raises NotFound."""
        found = next((trigger for trigger in self.triggers if trigger.name == name), None)
        if found is None:
            names = ", ".join(trigger.name for trigger in self.triggers) or "none"
            raise NotFound(f"no trigger {name!r} in {self._file}; it has: {names}")
        return found

    def due(self, trigger: Trigger) -> datetime | None:
        """When it comes due next, if it has a schedule."""
        return due_after(trigger, self._around.clock.now()) if trigger.schedule is not None else None

    async def last_fired(self) -> Mapping[str, LastFired]:
        """When each last fired and what came of it, by name, whoever pulled it; not those that never did."""
        return await last_fired(self._around.store.notes)

    async def problems(self) -> Sequence[str]:
        """What would keep the triggers from working: pools that are not there, secrets that are not set."""
        found = []
        for trigger in self.triggers:
            if trigger.pool_id is not None and await self._around.store.pools.find(PoolId(trigger.pool_id)) is None:
                found.append(f"trigger {trigger.name}: input.pool_id: there is no pool {trigger.pool_id!r}")
            if trigger.secret_variable is not None:
                found.extend(self._no_secret(trigger))
        return found

    def _no_secret(self, trigger: Trigger) -> list[str]:
        try:
            secret_of(trigger, self._around.variables)
        except InvalidSettings as exc:
            return [str(exc)]
        return []

    async def fire(self, name: str, pool_id: str | None = None) -> Mapping[str, Any]:
        """Pull one now, whatever it waits for. Raises NotFound, and what the beat raises."""
        return await self._run(self.get(name).firing(pool_id))

    async def work_added(self, pool_id: str, beside: InLoop | None = None) -> Sequence[str]:
        """Pull what waits for work in a pool. Answers with the names of those that were pulled now; never raises for them."""
        pulled = []
        for trigger in self.triggers:
            if trigger.hears(pool_id) and await self._pull(trigger, pool_id, beside):
                pulled.append(trigger.name)
        return pulled

    async def _pull(self, trigger: Trigger, pool_id: str, beside: InLoop | None) -> bool:
        if trigger.type is TriggerType.IN_LOOP:
            if beside is not None:
                beside.fire(trigger, pool_id)
            return beside is not None
        try:
            return await send(self._dispatch(trigger), trigger, pool_id)
        except DrumbeatError as exc:
            log.warning("trigger %s: work was added to %s, and nobody was sent: %s", trigger.name, pool_id, exc)
            return False

    @asynccontextmanager
    async def in_loop(self) -> AsyncIterator[InLoop]:
        """In-loop triggers run in the caller's loop for as long as the block lasts."""
        async with in_loop(self._run) as beside:
            yield beside

    async def install(self) -> Sequence[str]:
        """Put cron triggers into the user's crontab. Raises InvalidSettings while the store's URL would be seen there."""
        folder = Path.cwd()
        if self._around.public_store is None and not (folder / "drumbeat.toml").exists():
            raise InvalidSettings(
                f"the store's URL holds a password, which no crontab shall show; write it as store into "
                f"{folder / 'drumbeat.toml'}, readable by you alone, and try again"
            )
        around = self._around
        place = crontab.CronPlace(file=self._file, folder=folder, state_dir=around.state_dir, store=around.public_store)
        return await crontab.install(self.triggers, place)

    async def remove(self) -> Sequence[str]:
        """Take this file's lines out of the user's crontab."""
        return await crontab.remove(self._file)

    def manifest(self, name: str, image: str, secret: str) -> str:
        """A Kubernetes CronJob for a trigger with a schedule, as YAML."""
        trigger = self.get(name)
        made = cron_job(trigger, image, secret, _command(trigger.firing()), self._around.public_variables)
        return yaml.safe_dump(made, sort_keys=False)

    async def serve(self, host: str, port: int, ready: Callable[[str], None], stop: asyncio.Event) -> None:
        """Keep schedules and listen for webhooks until told to stop."""
        deliveries = self._deliveries()
        async with serve(deliveries.answer, host, port) as (address, number), asyncio.TaskGroup() as group:
            keeping = group.create_task(self.keep())
            ready(f"http://{address}:{number}")
            await stop.wait()
            keeping.cancel()

    async def keep_schedules(self) -> None:
        """Pull each trigger when its schedule says so, until cancelled."""
        await Scheduler(self.triggers, self._run, self._around.clock).keep()

    async def keep(self) -> None:
        """Keep the schedules, and watch for jobs that come due, until cancelled: for a process that runs anyway."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.keep_schedules())
            group.create_task(self.keep_due())

    async def keep_due(self) -> None:
        """Start workers for jobs that come due later, in pools that have a trigger; until cancelled.

        Retries and delayed jobs need no cron as long as one such process runs anywhere.
        """
        if self._around.keep_due is not None:
            await self._around.keep_due(self._looked_after, self._wake, self._file)

    async def _looked_after(self) -> Sequence[PoolId]:
        pools = await self._around.store.pools.list(PoolKind.JOBS)
        return [pool.pool_id for pool in pools if any(trigger.looks_after(pool.pool_id) for trigger in self.triggers)]

    async def _wake(self, pool_id: PoolId) -> None:
        trigger = next(each for each in self.triggers if each.looks_after(pool_id))
        await self._run(trigger.firing(pool_id))

    async def answer_event(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the beat a cloud's event asks for."""
        return await answer_event(event, self._run, self._deliveries())

    async def hear(self, name: str, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Answer a webhook's request that some other server took. Never raises for what was sent; raises InvalidSettings
        while a secret is missing."""
        return await self._deliveries().answer("POST", f"{PATH}{name}", headers, body)

    def _deliveries(self) -> Deliveries:
        around = self._around
        return Deliveries(self.triggers, self._run, around.clock, around.store.leases, around.variables, around.owner)

    def _dispatch(self, trigger: Trigger) -> Dispatch:
        around = self._around
        return Dispatch(
            leases=around.store.leases,
            owner=around.owner,
            environment=around.for_children,
            log=around.state_dir / "triggers" / f"{trigger.name}.log",
            state_dir=around.state_dir,
        )


def _command(firing: Firing) -> Sequence[str]:
    """The same beat as a command of its own, which needs no file."""
    if firing.machine is BeatKind.FLEET and firing.pool_id is not None:
        return ("fleet", "beat", firing.pool_id)
    if firing.machine is BeatKind.REAPER:
        silent = () if firing.lost_after is None else ("--lost-after", f"{firing.lost_after.total_seconds():.0f}s")
        return ("pool", "reap", *(() if firing.pool_id is None else (firing.pool_id,)), *silent)
    if firing.pool_id is None:
        raise InvalidSettings(f"trigger {firing.trigger}: input.pool_id: expected the pool to check, or the fleet to beat")
    if firing.worker is not None:
        raise InvalidSettings(f"trigger {firing.trigger}: machine: expected {BeatKind.CHECKER}, for a CronJob to run")
    cap = () if firing.max_workers is None else ("--max-workers", str(firing.max_workers))
    return ("pool", "check", firing.pool_id, "--wait", *cap)
