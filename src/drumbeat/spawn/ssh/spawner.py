"""Starts, lists and ends workers on hosts that are reached over SSH. Workers keep running when the connection ends."""

import asyncio
import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from types import TracebackType
from typing import Any, Self
from uuid import uuid4
from weakref import WeakValueDictionary

from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import (
    InvalidInput,
    InvalidSettings,
    NotFound,
    SpawnAmbiguous,
    SpawnCause,
    SpawnError,
    SpawnFailed,
    Unanswered,
)
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import HostReport, Instance, InstanceState, Order, ReachableList, SpawnerTraits
from drumbeat.spawn.names import POOL, WORKER, Name, instance_name, scope_name
from drumbeat.spawn.ssh.hosts import ConnectedHost, HostView, HostViews, LostAnswer
from drumbeat.spawn.ssh.session import AgentRefused
from drumbeat.spawn.ssh.settings import WORKER_PYTHON, SshSettings
from drumbeat.spawn.traits import remote_traits

log = logging.getLogger(__name__)


class SshSpawner:
    """Starts workers on SSH hosts, each leading its own session, supervised by a small process that records its exit code.

    Spawners with the same ``scope`` and hosts see the same workers. A worker is started on one host only: before a start, all
    hosts are asked whether it runs there. If a host does not answer, ``list`` raises only if workers of the pool might be on
    this host: it has never answered this spawner, or its last answer listed such workers, or it was asked to start one.
    ``spawn`` raises only if the worker itself might be on this host, which is impossible if it was never started before. An
    exit code of -n means that signal n ended the worker.
    """

    def __init__(
        self,
        settings: SshSettings,
        environment: Mapping[str, str],
        scope: str,
        clock: Clock | None = None,
        name: str = "ssh",
    ) -> None:
        """``environment`` is added to the logins' environment; ``scope`` identifies the store; ``name`` names the engine."""
        self._name = name
        self._settings = settings
        self._environment = dict(environment)
        self._store = scope
        self._scope = scope_name(scope)
        self._clock = clock or SystemClock()
        self._hosts: Sequence[ConnectedHost] = ()
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()

    @property
    def traits(self) -> SpawnerTraits:
        return remote_traits(self._name, self._settings, max(host.price_per_hour for host in self._settings.hosts))

    async def spawn(self, order: Order) -> Instance:
        self._check_open()
        name = (order.pool_id, order.worker_id)
        async with self._lock(name):
            views = await HostViews.of(self._hosts)
            found = next((one for view in views.seen if (one := view.find(name)) is not None), None)
            return found or await self._place(order, name, views)

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        self._check_open()
        views = await HostViews.of(self._hosts)
        if missing := [error for host, error in views.unanswered if host.may_hold_any_of(pool_id)]:
            raise _combined_error(missing)
        return _without_duplicates([one for view in views.seen for one in view.instances if one.pool_id == pool_id])

    async def list_reachable(self, pool_id: PoolId | None) -> ReachableList:
        """Return the workers of a pool, or of all pools, on the hosts that answer, and the hosts that do not."""
        self._check_open()
        views = await HostViews.of(self._hosts)
        silent = [host.silent_place(self._name, error) for host, error in views.unanswered]
        missed = any(pool_id is None or host.may_hold_any_of(pool_id) for host, _ in views.unanswered)
        found = [one for view in views.seen for one in view.instances if pool_id in (None, one.pool_id)]
        return ReachableList(instances=_without_duplicates(found), silent=silent, is_answered=bool(views.seen) or not missed)

    async def pools(self) -> Set[PoolId]:
        """Return the pools of this store that have running workers on the hosts that answer. Raises Unanswered if none does."""
        self._check_open()
        views = await HostViews.of(self._hosts)
        if views.unanswered and not views.seen:
            raise _combined_error([error for _, error in views.unanswered])
        for _, error in views.unanswered:
            log.warning("could not list the pools of one host: %s; its pools are left out", error)
        return {one.pool_id for view in views.seen for one in view.instances if one.state is not InstanceState.EXITED}

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        await self._tell((pool_id, worker_id), "drain")

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        await self._tell((pool_id, worker_id), "terminate")

    async def logs(self, pool_id: PoolId, worker_id: WorkerId, *, lines: int = 200) -> str:
        """Return the last lines of the worker's log. It exists until the worker is terminated. Raises NotFound, SpawnError."""
        self._check_open()
        name, silent = (pool_id, worker_id), []
        for host in self._hosts:
            try:
                return str((await host.ask({"do": "logs", "key": self._key(name), "lines": lines}))["text"])
            except Unanswered as exc:
                silent += [exc] if host.may_hold(name) else []
            except AgentRefused as exc:
                if exc.kind != "missing":
                    raise
        if silent:
            unknown = f"no host that answers has a log of worker {worker_id} of pool {pool_id}"
            raise Unanswered(f"{unknown}; the others do not answer: {_combined_error(silent)}", cause=silent[0].cause)
        raise NotFound(f"no host has a log of worker {worker_id} of pool {pool_id}; it may have been terminated")

    async def check_hosts(self) -> Sequence[HostReport]:
        """Ask each host whether workers can run there; hosts that were down a moment ago are asked again, too."""
        self._check_open()
        return await asyncio.gather(*(self._report(host) for host in self._hosts))

    def at_host(self, name: str) -> "SshSpawner":
        """Return a spawner for one of the hosts only. Raises InvalidSettings for an unknown name."""
        chosen = [host for host in self._settings.hosts if host.name == name]
        if not chosen:
            known = ", ".join(host.name for host in self._settings.hosts)
            raise InvalidSettings(f"expected a host of the engine {self._name} ({known}), got {name!r}")
        settings = replace(self._settings, hosts=chosen, labels={})
        return SshSpawner(settings, self._environment, self._store, self._clock, self._name)

    async def __aenter__(self) -> Self:
        self._hosts = [ConnectedHost(each, self._settings, self._scope, self._clock) for each in self._settings.hosts]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hosts, self._hosts = self._hosts, ()
        await asyncio.gather(*(host.close() for host in hosts))

    # Starting

    async def _place(self, order: Order, name: Name, views: HostViews) -> Instance:
        """Start a worker, after all hosts that answered said that they do not run it. Raises SpawnFailed, SpawnAmbiguous."""
        if hidden := [error for host, error in views.unanswered if host.may_hold(name, is_first=order.is_first)]:
            raise SpawnAmbiguous(
                f"worker {name[1]} of {name[0]} might run on a host that does not answer: {_combined_error(hidden)}"
            )
        went_down: list[Unanswered] = []
        for view in views.candidates(name, self._settings.chosen_hosts):
            started = await self._start(order, name, view.host)
            if isinstance(started, Instance):
                return await self._end_duplicates(name, started, view)
            went_down += [] if started is None else [started]
        raise self._no_room(name, views, went_down)

    async def _start(self, order: Order, name: Name, host: ConnectedHost) -> Instance | Unanswered | None:
        """Start the worker on a host. Returns None if the host has no free slot, the error if the host cannot be reached.

        Raises SpawnFailed, SpawnAmbiguous.
        """
        subject = f"worker {name[1]} of {name[0]}"
        request = {
            "do": "spawn",
            "key": self._key(name),
            "pool": name[0],
            "worker": name[1],
            "run": uuid4().hex[:16],
            "slots": host.settings.slots,
            "command": order.command_line(self._settings.command_of(host.settings)),
            "environment": {**self._environment, **order.environment, POOL: name[0], WORKER: name[1]},
        }
        earlier = host.note_start(name)
        try:
            answer = await host.ask(request)
        except LostAnswer as exc:
            raise SpawnAmbiguous(f"{subject} may have been started: {exc}; list the workers before trying again") from exc
        except Unanswered as exc:
            host.note_not_started(name, earlier)
            if earlier is not None:
                raise SpawnAmbiguous(
                    f"{subject} may have been started by an earlier request: {exc}; trying again later"
                ) from exc
            log.warning("could not start %s: %s; trying the next host", subject, exc)
            return exc
        except AgentRefused as exc:
            if exc.kind == "full":
                host.note_not_started(name, earlier)
                if earlier is not None:
                    raise SpawnAmbiguous(
                        f"{subject} may still be starting after an earlier request: {exc}; trying again later"
                    ) from exc
                return None
            if exc.kind not in {"start", "unstarted"}:
                raise SpawnAmbiguous(f"{subject} may have been started: {exc}; list the workers before trying again") from exc
            cause = SpawnCause.BAD_REQUEST if exc.kind == "start" else SpawnCause.TRANSIENT
            raise SpawnFailed(f"{subject} could not be started: {exc}", cause=cause) from exc
        return host.instance(answer["instance"])

    async def _end_duplicates(self, name: Name, instance: Instance, mine: HostView) -> Instance:
        """End all but one of the worker's instances, in case another controller started it on another host at the same time.
        The instance on the host that comes first in the settings stays and is returned.

        Records of ended runs on other hosts are deleted: they would look as if the worker had run there last."""
        others = [host for host in self._hosts if host is not mine.host]
        views = await HostViews.of(others)
        for each in views.seen:
            for ended in each.ended(name):
                await self._forget(each.host, name, ended)
        twins = [(view, one) for view in views.seen if (one := view.find(name)) is not None]
        ranked = sorted([(mine, instance), *twins], key=lambda pair: self._hosts.index(pair[0].host))
        for view, twin in ranked[1:]:
            log.warning("worker %s of %s was started twice; ending %s", name[1], name[0], twin.ref)
            run = twin.ref.partition(":")[2]
            await view.host.ask({"do": "terminate", "key": self._key(name), "run": run})
        return ranked[0][1]

    async def _forget(self, host: ConnectedHost, name: Name, ended: Instance) -> None:
        """Delete the record of an ended run on a host. A failure is only logged: the worker has been started."""
        try:
            await host.ask({"do": "terminate", "key": self._key(name), "run": ended.ref.partition(":")[2]})
        except SpawnError as exc:
            log.warning(
                "could not delete the record of %s, an ended run of worker %s of %s: %s; the host deletes it later",
                ended.ref,
                name[1],
                name[0],
                exc,
            )

    def _no_room(self, name: Name, views: HostViews, went_down: Sequence[Unanswered]) -> SpawnFailed:
        silent = {host.settings.name: error for host, error in views.unanswered}
        chosen = self._settings.chosen_hosts
        asked = [host for host in chosen if host.name not in silent]
        subject = f"worker {name[1]} of {name[0]}"
        if not asked or went_down:
            down = _combined_error([*went_down, *(silent[host.name] for host in chosen if host.name in silent)])
            return SpawnFailed(f"{subject} could not be started: {down}", cause=down.cause)
        also = f"; {_combined_error([*silent.values()])}" if silent else ""
        slots = sum(host.slots for host in asked)
        return SpawnFailed(
            f"{subject} could not be started: all {slots} slots are taken{also}; add a host, or raise its slots",
            cause=SpawnCause.NO_CAPACITY,
        )

    # Asking

    async def _tell(self, name: Name, verb: str) -> None:
        """Send the request ``verb`` for a worker to all hosts. Raises Unanswered if a host that might have it does not answer.

        If one host answers that it has the worker, a silent host might have it too only if that host's last answer listed the
        worker, or if it was asked to start the worker.
        """
        self._check_open()
        request = {"do": verb, "key": self._key(name)}
        answers = await asyncio.gather(*(host.ask(request) for host in self._hosts), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, Unanswered):
                raise answer
        is_found = any(not isinstance(each, BaseException) and each["found"] for each in answers)
        pairs = zip(self._hosts, answers, strict=True)
        if silent := [each for host, each in pairs if isinstance(each, Unanswered) and host.may_hold(name, is_found=is_found)]:
            raise _combined_error(silent)

    async def _report(self, host: ConnectedHost) -> HostReport:
        settings = host.settings
        is_chosen = settings in self._settings.chosen_hosts
        request = {"do": "check", "python": self._settings.python_of(settings), "environment": self._environment}
        try:
            answer: Mapping[str, Any] = await host.ask(request, at_once=True)
            offset = answer["time"] - self._clock.now().timestamp()
            view = await host.look()
        except SpawnError as exc:
            return HostReport(name=settings.name, problem=str(exc), cause=exc.cause, slots=settings.slots, is_chosen=is_chosen)
        problem = _import_problem(settings.place, answer) if "problem" in answer else None
        return HostReport(
            name=settings.name,
            problem=problem,
            cause=SpawnCause.BAD_REQUEST if problem else None,
            python=answer.get("python"),
            drumbeat=answer.get("drumbeat"),
            clock_offset=timedelta(seconds=offset),
            slots=settings.slots,
            taken=view.taken,
            is_chosen=is_chosen,
        )

    def _key(self, name: Name) -> str:
        """Return the name of the worker's run directory."""
        return instance_name(self._scope, *name, prefix="w")

    def _lock(self, name: Name) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def _check_open(self) -> None:
        if not self._hosts:
            raise InvalidInput("expected an open spawner; use it as: async with SshSpawner(...) as spawner")


def _without_duplicates(instances: Sequence[Instance]) -> Sequence[Instance]:
    """Sort the instances by pool and worker. If a worker has several, return only its live ones; if none, only its newest."""
    ordered = sorted(instances, key=_name_of)
    return [one for _, group in groupby(ordered, key=_name_of) for one in _latest([*group])]


def _name_of(instance: Instance) -> Name:
    return instance.pool_id, instance.worker_id


def _latest(instances: Sequence[Instance]) -> Sequence[Instance]:
    """Return a worker's live instances, or else the one that was started last."""
    live = [one for one in instances if one.state is not InstanceState.EXITED]
    return live or [max(instances, key=lambda one: one.started_at.timestamp() if one.started_at else 0.0)]


def _combined_error(errors: Sequence[Unanswered]) -> Unanswered:
    """Return one error for all hosts that did not answer."""
    return Unanswered("; ".join(map(str, errors)), cause=errors[0].cause)


def _import_problem(place: str, answer: Mapping[str, Any]) -> str:
    """Return one line that says why Drumbeat cannot be imported on a host, and what to do."""
    version = answer.get("python")
    is_old = version is not None and tuple(map(int, version.split(".")[:2])) < WORKER_PYTHON
    needed = ".".join(map(str, WORKER_PYTHON))
    advice = (
        f"its Python is {version}, and workers need {needed} or newer: set python to the path of a newer one"
        if is_old
        else "install it there: pip install 'drumbeat[postgres]', or set python to a Python that has it"
    )
    return f"{place}: Drumbeat cannot be imported there: {answer['problem']}; {advice}"
