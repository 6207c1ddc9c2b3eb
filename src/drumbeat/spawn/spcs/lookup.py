"""Finds the services of workers, and reads the state of their containers."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from drumbeat.core.clock import Clock
from drumbeat.core.errors import SpawnError, Unanswered
from drumbeat.spawn.interface import InstanceState
from drumbeat.spawn.names import Name
from drumbeat.spawn.spcs.problems import SpcsRefused
from drumbeat.spawn.spcs.services import SpcsContainer, SpcsService, read_container, read_service
from drumbeat.spawn.spcs.session import SpcsClient
from drumbeat.spawn.spcs.statements import Row, Statements, scope_prefix, start_number, worker_prefix

log = logging.getLogger(__name__)

_LOOKUPS: Final = 16  #: how many services that a list lacks are looked up by name at once
_MOST_ROWS: Final = 10_000  #: the most rows that a SHOW statement returns: a list of this length may be incomplete
_LOOK_AGAIN: Final = timedelta(seconds=30)  #: how often the container of a worker that does not start is read again
_NEVER: Final = ("", datetime.min.replace(tzinfo=UTC), SpcsContainer())


class ServiceLookup:
    """Finds the services of one store's workers. If the services cannot be listed, raises Unanswered: workers may still run."""

    def __init__(self, client: SpcsClient, statements: Statements, scope: str, clock: Clock) -> None:
        self._client = client
        self._statements = statements
        self._scope = scope
        self._clock = clock
        self._containers: dict[str, tuple[str, datetime, SpcsContainer]] = {}  #: by ref: status, time and result of a read

    async def all(self) -> Sequence[SpcsService]:
        """Return the services of all workers of the store; each start of a worker has its own service."""
        found = await self._shown(scope_prefix(self._scope))
        return [each for each in found if start_number(self._scope, each.name, each.service) is not None]

    async def of(self, name: Name, seen: SpcsService | None = None) -> Sequence[SpcsService]:
        """Return the services of one worker. ``seen``: a known service, which is looked up by its name if the list lacks it."""
        found = [each for each in await self._shown(worker_prefix(self._scope, name), name) if each.name == name]
        if seen is None or seen.service in {each.service for each in found}:
            return found
        return [*found, *await self.unlisted([seen])]

    async def unlisted(self, missing: Sequence[SpcsService]) -> Sequence[SpcsService]:
        """Look up by name the services that Snowflake's list lacks, in case the list is outdated. Return those that exist.

        If none of the first few exists, the others are not looked up: they count as gone, too.
        """
        found: list[SpcsService] = []
        for at in range(0, len(missing), _LOOKUPS):
            looked = await asyncio.gather(*map(self._described, missing[at : at + _LOOKUPS]))
            found += [service for service in looked if service is not None]
            if not found:
                break
        return found

    async def container(self, service: SpcsService) -> SpcsContainer:
        """Return the state of a service's container: the last known state, unless the service's status has changed since.

        Until the worker has started, reads the state again every 30 s. If it cannot be read, returns the last known state.
        """
        status, at, known = self._containers.get(service.ref, _NEVER)
        is_waiting = service.state is InstanceState.PENDING or (service.status == "RUNNING" and known.started_at is None)
        now = self._clock.now()
        if service.is_leaving or (status == service.status and not (is_waiting and now - at > _LOOK_AGAIN)):
            return known
        try:
            rows = await self._read("SHOW SERVICE CONTAINERS", self._statements.containers(service.service))
        except SpawnError as exc:
            log.warning(
                "could not read the container of worker %s of pool %s: %s; using its last known state",
                *reversed(service.name),
                exc,
            )
            return known
        seen = read_container(rows)
        self._containers[service.ref] = service.status, now, seen
        return seen

    def known_container(self, service: SpcsService) -> SpcsContainer:
        """Return the last known state of a service's container; an empty ``SpcsContainer`` if it was never read."""
        return self._containers.get(service.ref, _NEVER)[2]

    def forget_others(self, refs: Sequence[str]) -> None:
        """Forget the containers of all services but these."""
        self._containers = {ref: self._containers[ref] for ref in refs if ref in self._containers}

    async def _shown(self, prefix: str, name: Name | None = None) -> Sequence[SpcsService]:
        rows = await self._read("SHOW JOB SERVICES", self._statements.show(prefix))
        if len(rows) >= _MOST_ROWS:
            raise Unanswered(
                f"the list of services has reached its limit of {_MOST_ROWS} rows and may be incomplete; "
                "drop services that have ended"
            )
        return _existing(read_service(row, name) for row in rows if str(row.get("name", "")).startswith(prefix))

    async def _described(self, seen: SpcsService) -> SpcsService | None:
        """Look up a known service by its name, and return its current state; None if it no longer exists."""
        try:
            rows = await self._client.run("DESCRIBE SERVICE", self._statements.describe(seen.service))
        except SpcsRefused as exc:
            if exc.says_missing:
                return None
            raise Unanswered(str(exc), cause=exc.cause, retry_after=exc.retry_after) from exc
        return next(iter(_existing(read_service(row, seen.name, seen.token) for row in rows)), None)

    async def _read(self, what: str, statement: str) -> Sequence[Row]:
        try:
            return await self._client.run(what, statement)
        except SpcsRefused as exc:
            raise Unanswered(str(exc), cause=exc.cause, retry_after=exc.retry_after) from exc


def newest(services: Sequence[SpcsService]) -> SpcsService | None:
    """Return the worker's live service; if none is live, the service of its last start. None if there are no services."""
    return max(services, key=lambda each: (each.is_alive, int(each.service.rpartition("_")[2])), default=None)


def newest_of_each(services: Sequence[SpcsService]) -> dict[Name, SpcsService]:
    """Return the newest service of each worker."""
    grouped: dict[Name, list[SpcsService]] = {}
    for service in services:
        grouped.setdefault(service.name, []).append(service)
    return {name: found for name, each in grouped.items() if (found := newest(each)) is not None}


def _existing(found: Iterable[SpcsService | None]) -> Sequence[SpcsService]:
    """Return the services that are not deleted. Leaves out None, which stands for a service that Drumbeat did not start."""
    return [service for service in found if service is not None and service.status != "DELETED"]
