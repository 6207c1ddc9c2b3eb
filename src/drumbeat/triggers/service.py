"""The triggers of one triggers.yml: list, check, install, fire and serve them."""

import asyncio
import logging
import shlex
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
from drumbeat.core.store_url import PASSWORD_VARIABLE, POSTGRES_PASSWORD_VARIABLE, reads_postgres_password
from drumbeat.runtime.task_group import plain_task_group
from drumbeat.store.interface import Store
from drumbeat.triggers import crontab
from drumbeat.triggers.deliveries import PATH, Deliveries, WebhookAnswer, secret_of
from drumbeat.triggers.detached import CheckerLaunch, start_checker_once
from drumbeat.triggers.file import load_triggers
from drumbeat.triggers.firings import LastFired, last_fired
from drumbeat.triggers.in_loop import InLoop, in_loop
from drumbeat.triggers.model import BeatKind, Firing, RunBeats, Trigger, TriggerType
from drumbeat.triggers.scheduler import Scheduler, due_after
from drumbeat.triggers.server import serve
from drumbeat.triggers.serverless import answer_event, cron_job, kubernetes_name

log = logging.getLogger(__name__)


KeepDue = Callable[
    [Callable[[], Awaitable[Sequence[PoolId]]], Callable[[PoolId], Awaitable[object]], Path], Awaitable[None]
]  #: takes a function that lists the pools, one that starts workers for a pool, and the path of triggers.yml


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerEnvironment:
    """What triggers need from the process that runs them: store, clock, environment variables and a state folder."""

    store: Store
    clock: Clock
    owner: str  #: a lease owner's name, unique to this process
    variables: Mapping[str, str]  #: the environment variables, including webhook secrets
    for_children: Mapping[str, str]  #: environment variables for the checkers that are started
    public_variables: Mapping[str, str]  #: the part of ``for_children`` that is not secret, without the store's URL
    public_store: str | None  #: the store's URL, if it contains no password
    store_in_file: bool  #: whether drumbeat.toml has the store's URL
    shell_variables: Mapping[str, str]  #: settings without secrets from this shell, which a process started by cron lacks
    state_dir: Path
    keep_due: KeepDue | None = None  #: watches pools for delayed jobs that come due, until cancelled


class TriggerService:
    """Lists, checks, schedules and fires the triggers of one triggers.yml. Firing a trigger runs a beat (control-loop pass)."""

    def __init__(self, file: Path, run: RunBeats, environment: TriggerEnvironment) -> None:
        """Read the triggers from a file. Raises InvalidSettings if the file cannot be read or is not valid."""
        self._file = file.absolute()
        self._run = run
        self._environment = environment
        self.triggers: Sequence[Trigger] = load_triggers(self._file)

    def get(self, name: str) -> Trigger:
        """Return the trigger with this name. Raises NotFound."""
        found = next((trigger for trigger in self.triggers if trigger.name == name), None)
        if found is None:
            names = ", ".join(trigger.name for trigger in self.triggers) or "none"
            raise NotFound(f"no trigger {name!r} in {self._file}; the file has: {names}")
        return found

    def due(self, trigger: Trigger) -> datetime | None:
        """Return when a trigger is due next, or None if it has no schedule."""
        return due_after(trigger, self._environment.clock.now()) if trigger.schedule is not None else None

    async def last_fired(self) -> Mapping[str, LastFired]:
        """Return when and with which outcome triggers last fired, by name. Triggers that never fired are left out."""
        return await last_fired(self._environment.store.notes)

    async def problems(self) -> Sequence[str]:
        """List what prevents triggers from working: missing pools and missing secrets."""
        found = []
        for trigger in self.triggers:
            if trigger.pool_id is not None and await self._environment.store.pools.find(PoolId(trigger.pool_id)) is None:
                found.append(f"trigger {trigger.name}: input.pool_id: there is no pool {trigger.pool_id!r}")
            if trigger.secret_variable is not None:
                found.extend(self._secret_problems(trigger))
        return found

    def _secret_problems(self, trigger: Trigger) -> list[str]:
        try:
            secret_of(trigger, self._environment.variables)
        except InvalidSettings as exc:
            return [str(exc)]
        return []

    async def fire(self, name: str, pool_id: str | None = None) -> Mapping[str, Any]:
        """Fire a trigger now, without waiting for its event or schedule. Returns a report for each pool.

        ``pool_id`` is used only if the trigger names no pool. Raises NotFound, and what the beat raises.
        """
        return await self._run(self.get(name).firing(pool_id))

    async def work_added(self, pool_id: str, beside: InLoop | None = None) -> Sequence[str]:
        """Fire every trigger that reacts to a push to this pool, and return the names of the fired triggers. Errors are only
        logged. ``beside`` runs the in-loop triggers (in the event loop of the caller); without it they are not fired."""
        fired = []
        for trigger in self.triggers:
            if trigger.fires_on_push_to(pool_id) and await self._fire_for(trigger, pool_id, beside):
                fired.append(trigger.name)
        return fired

    async def _fire_for(self, trigger: Trigger, pool_id: str, beside: InLoop | None) -> bool:
        try:
            if not await self._is_for(trigger, pool_id):
                return False
            if trigger.type is TriggerType.IN_LOOP:
                if beside is not None:
                    beside.fire(trigger, pool_id)
                return beside is not None
            return await start_checker_once(self._dispatch(trigger), trigger, pool_id)
        except (DrumbeatError, OSError) as exc:
            message = "trigger %s failed to start the check of pool %s for missing workers: %s; a later push tries again"
            log.warning(message, trigger.name, pool_id, exc)
            return False

    async def _is_for(self, trigger: Trigger, pool_id: str) -> bool:
        """Whether a trigger's beat can run for a pool: the beat of a fleet can run only for a fleet. Always True if the trigger
        names its pool: if that is no fleet, the beat fails and says why."""
        if trigger.machine is not BeatKind.FLEET or trigger.pool_id is not None:
            return True
        pool = await self._environment.store.pools.find(PoolId(pool_id))
        return pool is not None and pool.is_scaled

    @asynccontextmanager
    async def in_loop(self) -> AsyncIterator[InLoop]:
        """Yield an object that runs in-loop triggers in the caller's event loop. Leaving the block waits for running beats."""
        async with in_loop(self._run) as beside:
            yield beside

    async def install(self) -> Sequence[str]:
        """Put cron triggers into the user's crontab and return the lines. Raises InvalidSettings if these would show a
        password, or would need one that cron does not have."""
        env, folder = self._environment, Path.cwd()
        if problem := _password_problem(env, folder / "drumbeat.toml"):
            raise InvalidSettings(problem)
        place = crontab.CronPlace(
            file=self._file, folder=folder, state_dir=env.state_dir, store=env.public_store, variables=env.shell_variables
        )
        return await crontab.install(self.triggers, place)

    def manifest(self, name: str, image: str, secret: str) -> str:
        """Return a Kubernetes CronJob for a trigger with a schedule, as YAML. Raises NotFound, InvalidInput; InvalidSettings
        also if the CronJob of another trigger would have the same name, because one of them would replace the other."""
        trigger = self.get(name)
        self._check_cron_job_name(name)
        job = cron_job(trigger, image, secret, _command(trigger.firing()), self._environment.public_variables)
        return yaml.safe_dump(job, sort_keys=False)

    def _check_cron_job_name(self, name: str) -> None:
        made = kubernetes_name(name)
        for other in self.triggers:
            if other.name != name and other.schedule is not None and kubernetes_name(other.name) == made:
                raise InvalidSettings(
                    f"expected triggers whose CronJobs have different names, got {made!r} for {name!r} and for {other.name!r}; "
                    "rename one, so that the names differ in the first 43 lowercase letters and digits"
                )

    async def serve(self, host: str, port: int, ready: Callable[[str], None], stop: asyncio.Event) -> None:
        """Run the schedules and listen for webhooks until ``stop`` is set. Raises InvalidSettings if a secret is missing."""
        deliveries = self._deliveries()
        deliveries.check_secrets()
        async with serve(deliveries.answer, host, port) as (address, number), plain_task_group() as group:
            keeping = group.create_task(self.keep())
            ready(f"http://{address}:{number}")
            await stop.wait()
            keeping.cancel()

    async def keep(self) -> None:
        """Run the schedules and watch for jobs that come due, until cancelled. Meant for a long-running process."""
        async with plain_task_group() as group:
            group.create_task(Scheduler(self.triggers, self._run, self._environment.clock).keep())
            group.create_task(self.keep_due())

    async def keep_due(self) -> None:
        """Start workers when delayed jobs come due, in pools that a trigger starts workers for, until cancelled.

        While a process runs this, no cron trigger is needed to start workers for retries and delayed jobs.
        """
        if self._environment.keep_due is not None:
            await self._environment.keep_due(self._pools_with_trigger, self._start_workers, self._file)

    async def _pools_with_trigger(self) -> Sequence[PoolId]:
        ids = [pool.pool_id for pool in await self._environment.store.pools.list(PoolKind.JOBS)]
        return [pool_id for pool_id in ids if any(trigger.starts_workers_for(pool_id) for trigger in self.triggers)]

    async def _start_workers(self, pool_id: PoolId) -> None:
        trigger = next(each for each in self.triggers if each.starts_workers_for(pool_id))
        await self._run(trigger.firing(pool_id))

    async def answer_event(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the beat that a cloud event asks for. Returns the beat's report for each pool; to an HTTP event, a response."""
        return await answer_event(event, self._run, self._deliveries())

    async def answer_webhook(self, name: str, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Answer a webhook request that another HTTP server received. Raises InvalidSettings if its secret is missing."""
        return await self._deliveries().answer("POST", f"{PATH}{name}", headers, body)

    def _deliveries(self) -> Deliveries:
        env = self._environment
        return Deliveries(self.triggers, self._run, env.clock, env.store.answers, env.variables)

    def _dispatch(self, trigger: Trigger) -> CheckerLaunch:
        env = self._environment
        return CheckerLaunch(
            leases=env.store.leases,
            owner=env.owner,
            environment=env.for_children,
            log=env.state_dir / "triggers" / f"{trigger.name}.log",
            state_dir=env.state_dir,
        )


def _password_problem(env: TriggerEnvironment, file: Path) -> str | None:
    """Return why a process that cron starts cannot open the store, and what to do; None if it can."""
    advice = f'write store = "URL", with the password, into {file}, make the file readable only by you (chmod 600)'
    if PASSWORD_VARIABLE in env.for_children:
        unset = f"unset DRUMBEAT_STORE and {PASSWORD_VARIABLE}, and try again"
        return f"the store's password is in {PASSWORD_VARIABLE}, which must not appear in a crontab; {advice}, {unset}"
    if reads_postgres_password(env.for_children["DRUMBEAT_STORE"]) and env.variables.get(POSTGRES_PASSWORD_VARIABLE):
        name = POSTGRES_PASSWORD_VARIABLE
        return (
            f"the store's password is in {name}, which cron does not have and which must not appear in a crontab; write the "
            f"password into ~/.pgpass (chmod 600) and unset {name}; or {advice}, unset DRUMBEAT_STORE and {name}; and try again"
        )
    if env.public_store is None and not env.store_in_file:
        return f"the store's URL contains a password, which must not appear in a crontab; {advice}, and try again"
    return None


def _command(firing: Firing) -> Sequence[str]:
    """Return the drumbeat arguments with which a Kubernetes CronJob runs a trigger's beat: it has no triggers.yml to read."""
    if firing.machine is BeatKind.FLEET and firing.pool_id is not None:
        if firing.max_workers is not None:
            raise InvalidSettings(
                f"trigger {firing.trigger}: input.max_workers: a CronJob cannot pass it on; remove it and set the policy: "
                f"drumbeat fleet create {shlex.quote(firing.pool_id)} --set max_workers={firing.max_workers}"
            )
        return ("fleet", "beat", firing.pool_id)
    if firing.machine is BeatKind.REAPER:
        lost_after = () if firing.lost_after is None else ("--lost-after", f"{firing.lost_after.total_seconds():.0f}s")
        return ("pool", "reap", *(() if firing.pool_id is None else (firing.pool_id,)), *lost_after)
    if firing.pool_id is None:
        raise InvalidSettings(f"trigger {firing.trigger}: input.pool_id: expected a pool to check or fleet to scale, got none")
    if firing.worker is not None:
        raise InvalidSettings(
            f"trigger {firing.trigger}: machine: expected {BeatKind.CHECKER}, "
            "got a FlatMachines file, which a CronJob cannot run"
        )
    cap = () if firing.max_workers is None else ("--max-workers", str(firing.max_workers))
    return ("pool", "check", firing.pool_id, "--wait", *cap)
