"""A spawner that uses several engines (places to run workers) in order: if one refuses to start a worker, it asks the next."""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Sequence, Set
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, TypeVar
from weakref import WeakValueDictionary

from drumbeat.core.errors import InvalidInput, NotFound, SpawnCause, SpawnError, SpawnFailed, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.spawn.group_member import GroupMember
from drumbeat.spawn.interface import (
    ForgetsRefusals,
    Instance,
    InstanceState,
    ListsPools,
    Order,
    ReachableList,
    Spawner,
    SpawnerTraits,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

ENGINE: Final = "engine"  #: key in an instance's ``meta``: the name of the engine that runs it
#: if several engines refuse a start, the first of these causes is reported: causes that may pass by themselves come first
_CURABLE_FIRST = (
    SpawnCause.NO_CAPACITY,
    SpawnCause.RATE_LIMITED,
    SpawnCause.TRANSIENT,
    SpawnCause.NO_MONEY,
    SpawnCause.AUTH,
    SpawnCause.BAD_REQUEST,
)


_Reached = tuple[GroupMember, ReachableList]
_Silent = tuple[GroupMember, SpawnError]


class EngineGroup:
    """Starts each worker at the first engine that does not refuse it.

    A worker runs at one engine only: before a start, all engines are asked whether they run it; and if an engine does not
    answer a start, no other engine is tried. ``list`` is complete or raises, because a worker that is missing in a list counts
    as ended; ``list_reachable`` names the engines and hosts that do not answer.
    """

    def __init__(self, members: Sequence[Spawner], older: Sequence[Spawner] = ()) -> None:
        """``older``: engines that may still run workers, but start no new ones."""
        if not members:
            raise InvalidInput("expected at least one engine, got none")
        self._members = [GroupMember(each) for each in members]
        self._all = [*self._members, *(GroupMember(each) for each in older)]
        self._stack = AsyncExitStack()
        self._locks: WeakValueDictionary[tuple[PoolId, WorkerId], asyncio.Lock] = WeakValueDictionary()

    @property
    def traits(self) -> SpawnerTraits:
        """The combined traits of all engines: mostly the least favourable value, such as the highest price."""
        each = [member.spawner.traits for member in self._members]
        notices = [one.preemption_notice for one in each if one.preemption_notice is not None]
        asked_with = " ".join(one.asked_with for one in each)
        return SpawnerTraits(
            name=",".join(one.name for one in each),
            unique_names=all(one.unique_names for one in each),
            outlives_controller=all(one.outlives_controller for one in each),
            reports_exit_codes=all(one.reports_exit_codes for one in each),
            reports_logs=any(one.reports_logs for one in each),
            preemption_notice=min(notices) if notices else None,
            price_per_hour=max(one.price_per_hour for one in each),
            billing_granule=max(one.billing_granule for one in each),
            usual_start=max(one.usual_start for one in each),
            settle=max(one.settle for one in each),
            expands_volumes=any(one.expands_volumes for one in each),
            owns_all=all(one.owns_all for one in each),
            keeps_drained=all(one.keeps_drained for one in each),
            asked_with=hashlib.sha256(asked_with.encode()).hexdigest()[:12] if asked_with.strip() else "",
        )

    async def spawn(self, order: Order) -> Instance:
        """Start a worker at the first engine that does not refuse it, or return its instance if an engine already runs it.

        Raises SpawnFailed if all engines refuse. If an engine does not answer a start, no other engine is tried.
        """
        lock = self._locks.setdefault((order.pool_id, order.worker_id), asyncio.Lock())
        async with lock:
            found = await self._reach(order.pool_id)
            return self._find(order, found) or await self._start(order, found)

    def _find(self, order: Order, found: Sequence[_Reached]) -> Instance | None:
        """Return the worker's instance; None if no engine runs it. ``found``: what each engine has listed.

        Raises Unanswered if an engine that might run it does not answer; but not at the worker's first start, as no engine can
        run it then.
        """
        for member, reached in found:
            for one in reached.instances:
                if one.worker_id == order.worker_id and one.state is not InstanceState.EXITED:
                    return _tagged(one, member)
        row = Worker(pool_id=order.pool_id, worker_id=order.worker_id, slot=order.slot)
        silent = [] if order.is_first else _silent(found, row)
        if silent:
            raise _unanswered(f"worker {order.worker_id} was not started again, because it might already be running", silent)
        return None

    async def _start(self, order: Order, found: Sequence[_Reached]) -> Instance:
        """Start the worker at an engine that has listed its workers, or at any engine if none has: an engine that hangs would
        take the request and not answer, so that no other engine may be tried."""
        silent = [(member, one.silent[0].error) for member, one in found if member in self._members and not one.is_answered]
        mute = [member for member, _ in silent] if len(silent) < len(self._members) else []
        refusals = [(member, error) for member, error in silent if member in mute]
        for member in self._members:
            if member in mute:
                continue
            try:
                return _tagged(await member.spawn(order), member)
            except SpawnFailed as exc:
                refusals.append((member, exc))
        raise _refused(order.worker_id, refusals)

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        """Return the instances of all engines. Raises Unanswered if one engine does not answer."""
        answers = await asyncio.gather(*(_answer(member, member.list(pool_id)) for member in self._all))
        if silent := [(member, answer) for member, answer in answers if isinstance(answer, SpawnError)]:
            raise _unanswered(f"the list of pool {pool_id} is incomplete", silent)
        found = [(member, answer) for member, answer in answers if not isinstance(answer, SpawnError)]
        return [_tagged(one, member) for member, instances in found for one in instances]

    async def list_reachable(self, pool_id: PoolId | None) -> ReachableList:
        """Return the instances at the engines and hosts that answer, and the names of the engines and hosts that do not."""
        found = await self._reach(pool_id)
        return ReachableList(
            instances=[_tagged(one, member) for member, reached in found for one in reached.instances],
            silent=[place for _, reached in found for place in reached.silent],
            is_answered=any(reached.is_answered for _, reached in found),
        )

    async def pools(self) -> Set[PoolId]:
        """Return the pools with instances at the engines that answer; engines that cannot list pools are left out.

        Raises SpawnError if no engine answers.
        """
        able = [member for member in self._members if isinstance(member.spawner, ListsPools)]
        answers = [answer for _, answer in await asyncio.gather(*(_answer(member, member.pools()) for member in able))]
        failed = [answer for answer in answers if isinstance(answer, SpawnError)]
        if failed and len(failed) == len(answers):
            raise failed[0]
        for error in failed:
            log.warning("could not list the pools of one engine: %s; its pools are left out", error)
        return {pool_id for answer in answers if not isinstance(answer, SpawnError) for pool_id in answer}

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """Ask the worker to finish and leave, at the engine that runs it."""
        owners = await self._owners(pool_id, worker_id)
        await _each([member.drain(pool_id, worker_id) for member in owners])

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """End the worker at the engine that runs it, or at every engine if none lists it.

        Raises Unanswered if the worker might run at an engine that does not answer.
        """
        owners = await self._owners(pool_id, worker_id)
        await _each([member.terminate(pool_id, worker_id) for member in owners])

    async def logs(self, pool_id: PoolId, worker_id: WorkerId, *, lines: int = 200) -> str:
        """Return the last lines of a worker's output, from the engine that has it. Raises NotFound, SpawnError."""
        silent: list[_Silent] = []
        for member in self._all:
            try:
                return await member.logs(pool_id, worker_id, lines)
            except NotFound:
                continue
            except Unanswered as exc:
                silent.append((member, exc))
        if silent:
            raise _unanswered(f"the output of worker {worker_id} was not found", silent)
        raise NotFound(
            f"expected the output of worker {worker_id} of pool {pool_id}, but no engine of {self.traits.name} has it"
        )

    async def expand_volume(self, volume: str, to_gb: int, seen_gb: float) -> int:
        """Expand a volume at the engine that has it. Raises SpawnError if no engine has it."""
        refused = SpawnError(f"volume {volume}: no engine of {self.traits.name} has it", cause=SpawnCause.BAD_REQUEST)
        for member in [each for each in self._members if each.expands_volumes]:
            try:
                return await member.expand_volume(volume, to_gb, seen_gb)
            except SpawnError as exc:
                if exc.cause is not SpawnCause.BAD_REQUEST:
                    raise
                refused = exc
        raise refused

    def forget_refusals(self, pool_id: PoolId) -> None:
        """Let every engine that remembers refusals forget them, so that starts for the pool are retried at once."""
        for member in self._members:
            if isinstance(member.spawner, ForgetsRefusals):
                member.spawner.forget_refusals(pool_id)

    async def __aenter__(self) -> Self:
        """Open the engines. Raises SpawnError if none can be opened; an engine with invalid settings does not stop the rest."""
        async with AsyncExitStack() as stack:
            for member in self._all:
                stack.push_async_callback(member.close)
            problems = [problem for member in self._all if (problem := await member.open()) is not None]
            if len(problems) == len(self._all):
                raise problems[0]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _reach(self, pool_id: PoolId | None) -> Sequence[_Reached]:
        """Ask all engines concurrently for the instances of a pool, or of all pools if ``pool_id`` is None."""
        answers = await asyncio.gather(*(member.reach(pool_id) for member in self._all))
        return [*zip(self._all, answers, strict=True)]

    async def _owners(self, pool_id: PoolId, worker_id: WorkerId) -> Sequence[GroupMember]:
        """Return the engines that run the worker; if none does, those that list its ended instance, or else all engines.

        Raises Unanswered if no engine runs the worker and an engine that might run it does not answer.
        """
        found = await self._reach(pool_id)
        listed = [(member, one) for member, reached in found for one in reached.instances if one.worker_id == worker_id]
        if owners := [member for member, one in listed if one.state is not InstanceState.EXITED]:
            return owners
        if silent := _silent(found, Worker(pool_id=pool_id, worker_id=worker_id, slot=0)):
            raise _unanswered(f"worker {worker_id} cannot be stopped now, because no engine that answers runs it", silent)
        return [member for member, _ in listed] or self._all


def _silent(found: Sequence[_Reached], row: Worker) -> list[_Silent]:
    """For each engine or host that does not answer and might run the worker, return the engine and the error."""
    return [(member, place.error) for member, reached in found for place in reached.may_hold(row)]


async def _each(calls: Sequence[Awaitable[None]]) -> None:
    """Make all calls, also after one that fails: it must not keep the others from being made. Raises the first error."""
    failed = [error for error in await asyncio.gather(*calls, return_exceptions=True) if error is not None]
    if failed:
        raise failed[0]


async def _answer(member: GroupMember, asked: Awaitable[T]) -> tuple[GroupMember, T | SpawnError]:
    try:
        return member, await asked
    except SpawnError as exc:
        return member, exc


def _tagged(instance: Instance, member: GroupMember) -> Instance:
    """Return the instance with its engine's name in ``meta``, and with the engine's price if it has no price of its own."""
    price = member.spawner.traits.price_per_hour if instance.price_per_hour is None else instance.price_per_hour
    return replace(instance, price_per_hour=price, meta={**instance.meta, ENGINE: member.name})


def _unanswered(effect: str, silent: Sequence[_Silent]) -> Unanswered:
    reasons = "; ".join(f"{member.name}: {exc}" for member, exc in silent)
    return Unanswered(f"{effect}: {len({member.name for member, _ in silent})} of the engines did not answer: {reasons}")


def _refused(worker_id: WorkerId, refusals: Sequence[_Silent]) -> SpawnFailed:
    """Combine all engines' refusals into one error: its cause is the one that is easiest to fix, its wait is the shortest."""
    reasons = "; ".join(f"{member.name}: {exc}" for member, exc in refusals)
    causes = {exc.cause for _, exc in refusals}
    waits = [exc.retry_after for _, exc in refusals if exc.retry_after is not None]
    return SpawnFailed(
        f"worker {worker_id}: every engine refused: {reasons}",
        cause=next((cause for cause in _CURABLE_FIRST if cause in causes), SpawnCause.TRANSIENT),
        retry_after=min(waits) if waits and len(waits) == len(refusals) else None,
    )
