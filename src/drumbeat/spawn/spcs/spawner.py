"""Starts, lists and ends workers as job services of Snowflake.

A worker is a job service with one container. The service's name is made of store, pool, worker and a number: the first start of
a worker has the number 0, so that Snowflake refuses to start it twice. A worker that has ended may be started again, with the
next number. For that, no service has to be dropped, so no controller can drop a service that another has just started.

Snowflake can send a signal to a container only by dropping its service: SIGTERM, and SIGKILL 30 seconds later. Then exit code
and log are lost. They are kept if the worker ends by itself, such as after it was drained through the store.
"""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from types import TracebackType
from typing import Final, Self
from uuid import uuid4
from weakref import WeakValueDictionary

from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import InvalidInput, NotFound, SpawnAmbiguous, SpawnError, SpawnFailed, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Instance, InstanceState, Order, SpawnerTraits
from drumbeat.spawn.names import Name
from drumbeat.spawn.spcs.lookup import ServiceLookup, newest, newest_of_each
from drumbeat.spawn.spcs.problems import NotSubmitted, SpcsRefused
from drumbeat.spawn.spcs.services import SpcsContainer, SpcsService, worker_instance
from drumbeat.spawn.spcs.session import Connect, SpcsClient, sign_in
from drumbeat.spawn.spcs.settings import SpcsSettings
from drumbeat.spawn.spcs.specification import specification
from drumbeat.spawn.spcs.statements import Statements, comment, identifiers, service_name, start_number
from drumbeat.spawn.traits import remote_traits

log = logging.getLogger(__name__)

_TRIES: Final = 5  #: how often a start begins again because another controller's service ended or vanished meanwhile
_GONE_WITHIN: Final = timedelta(minutes=2)  #: 30 seconds for the worker, and time for Snowflake
_POLLS: Final = (timedelta(milliseconds=100), timedelta(milliseconds=500), timedelta(seconds=2))
_DROPS: Final = 5  #: how many services that ended long ago are dropped with one list


@dataclass(frozen=True, slots=True)
class _Open:
    """What an open spawner needs: the client, and the lookup that uses it."""

    client: SpcsClient
    lookup: ServiceLookup


class SpcsSpawner:
    """Starts each worker as a job service of Snowflake. Spawners with the same ``scope`` and schema see the same workers."""

    def __init__(
        self,
        settings: SpcsSettings,
        environment: Mapping[str, str],
        scope: str,
        clock: Clock | None = None,
        name: str = "spcs",
        *,
        connect: Connect = sign_in,
    ) -> None:
        """``environment`` is added to the image's environment; ``scope`` identifies the store; ``name`` names the engine."""
        self._name = name
        self._settings = settings
        self._environment = dict(environment)
        self._scope = scope
        self._clock = clock or SystemClock()
        self._connect = connect
        self._statements = Statements(*settings.place)
        self._is_open: _Open | None = None
        self._seen: dict[Name, SpcsService] = {}  #: workers that were alive at the last look
        self._left: dict[Name, tuple[datetime, Instance]] = {}  #: workers whose services are gone, and since when
        self._ended: dict[str, datetime] = {}  #: services that ended while this spawner existed, by ref, and when
        self._problems: dict[Name, str] = {}  #: the last problem of each worker that was logged
        self._count = 0  #: workers of all pools that were alive at the last look
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()

    @property
    def traits(self) -> SpawnerTraits:
        traits = remote_traits(self._name, self._settings, self._settings.price_per_hour)
        return replace(traits, keeps_drained=False)

    async def spawn(self, order: Order) -> Instance:
        self._opened()
        name = (order.pool_id, order.worker_id)
        text = specification(order, self._settings, self._environment, os.environ)
        async with self._lock(name):
            found = None if order.is_first else await self._looked_up(name)
            for _ in range(_TRIES):
                if found is not None and found.is_alive:
                    return self._adopted(found)
                number = 0 if found is None else (start_number(self._scope, name, found.service) or 0) + 1
                service = service_name(self._scope, name, number)
                made = SpcsService(service=service, status="PENDING", name=name, token=uuid4().hex[:12])
                if await self._create(made, text):
                    return self._adopted(made)
                found = await self._looked_up(name)
        raise SpawnAmbiguous(
            f"{_subject(name)}: at every try its service existed already but had ended; list the workers before trying again"
        )

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        lookup = self._opened().lookup
        shown = await lookup.all()
        services = newest_of_each(shown)
        missing = [service for name, service in self._seen.items() if name[0] == pool_id and name not in services]
        services |= {service.name: service for service in await lookup.unlisted(missing)}
        self._count = sum(service.is_alive for service in services.values())
        here = {name: service for name, service in services.items() if name[0] == pool_id}
        containers = await asyncio.gather(*map(lookup.container, here.values()))
        price = self._price(self._count)
        found = {
            service.name: worker_instance(service, each, price) for service, each in zip(here.values(), containers, strict=True)
        }
        self._note(pool_id, here, found)
        lookup.forget_others([service.ref for service in services.values()])
        await self._drop_old([service for service in shown if not service.is_alive])
        found |= {name: left for name, (_, left) in self._left.items() if name[0] == pool_id and name not in found}
        return [found[name] for name in sorted(found)]

    async def pools(self) -> Set[PoolId]:
        """Return the pools of this store that have pending or running workers."""
        return {service.name[0] for service in await self._opened().lookup.all() if service.is_alive}

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """Drop the worker's service: Snowflake sends SIGTERM, and SIGKILL after 30 s.

        If the worker can need longer to finish, drain it through the store, as the fleet does.
        """
        for service in await self._services_of((pool_id, worker_id)):
            if service.is_alive and not service.is_leaving:
                await self._drop(service)

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """End the worker as ``drain`` does, and wait until none of its services exists."""
        name = (pool_id, worker_id)
        async with self._lock(name):
            await self._end(name)
            self._seen.pop(name, None)
            self._left.pop(name, None)

    async def logs(self, pool_id: PoolId, worker_id: WorkerId, *, lines: int = 200) -> str:
        """Return the last lines of the worker's log. Raises SpawnError; NotFound if there is no log or no service."""
        name = (pool_id, worker_id)
        service = newest(await self._services_of(name))
        if service is None:
            raise NotFound(f"no service of {_subject(name)} was found; it may not have started, or it was dropped")
        try:
            rows = await self._opened().client.run("SYSTEM$GET_SERVICE_LOGS", self._statements.logs(service.service, lines))
        except SpcsRefused as exc:
            if service.state is InstanceState.PENDING or exc.says_missing:
                raise NotFound(f"{_subject(name)} has no log: its container has not started, or is gone ({exc.said})") from exc
            raise
        text = str((rows[0].get("log") if rows else "") or "")
        return f"{text}\n" if text and not text.endswith("\n") else text

    async def __aenter__(self) -> Self:
        client = SpcsClient(self._settings, self._clock, self._connect)
        self._is_open = _Open(client, ServiceLookup(client, self._statements, self._scope, self._clock))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._is_open = self._is_open, None
        if opened is not None:
            await opened.client.close()

    # Starting

    async def _looked_up(self, name: Name) -> SpcsService | None:
        """Return the worker's newest service; None if it has none. Raises SpawnAmbiguous if Snowflake does not answer."""
        try:
            return newest(await self._services_of(name))
        except SpawnError as exc:
            raise SpawnAmbiguous(f"{_subject(name)} may have been started before: {exc}; try again") from exc

    async def _create(self, service: SpcsService, text: str) -> bool:
        """Start a service. Returns False if a service of this name exists already.

        This call may itself have created that service, if the answer to its first attempt was lost.

        Raises SpawnFailed, SpawnAmbiguous.
        """
        settings = self._settings
        statement = self._statements.execute(
            service.service,
            compute_pool=identifiers(settings.compute_pool)[0],
            specification=text,
            comment=comment(service.name, service.token),
            warehouse=identifiers(settings.warehouse)[0] if settings.warehouse else None,
            external_access=[identifiers(each)[0] for each in settings.external_access],
        )
        try:
            await self._opened().client.run("EXECUTE JOB SERVICE", statement, abandon=False)
        except SpcsRefused as exc:
            if exc.says_exists:
                return False
            raise SpawnFailed(f"{_subject(service.name)}: {exc}", cause=exc.cause, retry_after=exc.retry_after) from exc
        except NotSubmitted as exc:
            raise SpawnFailed(f"{_subject(service.name)}: {exc}", cause=exc.cause, retry_after=exc.retry_after) from exc
        except Unanswered as exc:
            found = await self._looked_up(service.name)
            if found is not None and (found.is_alive or found.service == service.service):
                return False
            raise SpawnAmbiguous(
                f"{_subject(service.name)} may have been started: {exc}; list the workers before trying again"
            ) from exc
        return True

    def _adopted(self, service: SpcsService) -> Instance:
        """Return the instance of a service that runs already or was just created."""
        self._left.pop(service.name, None)
        if service.name not in self._seen:
            self._count += 1
        self._seen[service.name] = service
        return worker_instance(service, self._opened().lookup.known_container(service), self._price(self._count))

    # Ending

    async def _drop(self, service: SpcsService) -> None:
        await self._opened().client.run("DROP SERVICE", self._statements.drop(service.service))

    async def _end(self, name: Name) -> None:
        """Drop all services of a worker, and wait until they are gone. Raises SpawnError if one does not end."""
        deadline, polls, dropped = self._clock.elapsed() + _GONE_WITHIN, iter(_POLLS), set[str]()
        pause = _POLLS[0]
        while services := await self._services_of(name):
            for service in services:
                if service.ref not in dropped:
                    await self._drop(service)
                    dropped.add(service.ref)
            if self._clock.elapsed() > deadline:
                raise SpawnError(
                    f"{_subject(name)}: expected its service to be gone within {_GONE_WITHIN.total_seconds():.0f} s, it is "
                    f"still {services[0].status}; look at it: {self._statements.describe(services[0].service)}"
                )
            await self._clock.sleep(pause)
            pause = next(polls, pause)

    async def _drop_old(self, ended: Sequence[SpcsService]) -> None:
        """Drop services that ended long ago: Snowflake would keep them for weeks, and limits how many an account can have."""
        self._ended = {each.ref: self._ended[each.ref] for each in ended if each.ref in self._ended}
        before = self._clock.now() - self._settings.keep_ended
        old = [each for each in ended if self._ended.get(each.ref, each.updated_on or each.created_on or before) < before]
        for service in old[:_DROPS]:
            try:
                await self._drop(service)
            except SpawnError as exc:
                log.info("could not drop the ended service of %s: %s; trying again later", _subject(service.name), exc)

    # Looking

    async def _services_of(self, name: Name) -> Sequence[SpcsService]:
        return await self._opened().lookup.of(name, self._seen.get(name))

    def _price(self, count: int) -> float:
        """Return the price of one worker per hour, if ``count`` workers share the price of the nodes that they need."""
        nodes = ceil(max(count, 1) / self._settings.workers_per_node)
        return self._settings.node_price * nodes / max(count, 1)

    def _note(self, pool_id: PoolId, services: Mapping[Name, SpcsService], found: Mapping[Name, Instance]) -> None:
        """Remember which workers are alive and which have ended, and log each new problem of a worker once."""
        now = self._clock.now()
        for name in [name for name in self._seen if name[0] == pool_id and name not in services]:
            service = self._seen.pop(name)
            self._left[name] = now, _left(service, self._opened().lookup.known_container(service))
        for name, service in services.items():
            self._left.pop(name, None)
            if service.is_alive:
                self._seen[name] = service
            elif self._seen.pop(name, None) is not None:
                self._ended[service.ref] = now
            problem = str(found[name].meta.get("problem", ""))
            if problem and self._problems.get(name) != problem:
                log.warning("%s: %s", _subject(name), problem)
            self._problems[name] = problem
        self._left = {name: each for name, each in self._left.items() if now - each[0] < self._settings.keep_ended}
        for name in [name for name in self._problems if name[0] == pool_id and name not in services]:
            del self._problems[name]

    def _lock(self, name: Name) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def _opened(self) -> _Open:
        if self._is_open is None:
            raise InvalidInput("expected an open spawner; use it as: async with SpcsSpawner(...) as spawner")
        return self._is_open


def _left(service: SpcsService, container: SpcsContainer) -> Instance:
    """Return the instance of a worker whose service is gone, because the worker was drained or somebody dropped the service."""
    return replace(worker_instance(service, container, 0.0), state=InstanceState.EXITED, exit_code=None)


def _subject(name: Name) -> str:
    return f"worker {name[1]} of {name[0]}"
