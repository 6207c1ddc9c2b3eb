"""A spawner that uses several engines (places to run workers) in order: if one refuses to start a worker, it asks the next."""

import asyncio
import hashlib
from collections.abc import Sequence, Set
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Final, Self
from weakref import WeakValueDictionary

from drumbeat.core.errors import InvalidInput, NotFound, SpawnCause, SpawnError, SpawnFailed, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import (
    ExpandsVolumes,
    ForgetsRefusals,
    Instance,
    InstanceState,
    ListsPools,
    Order,
    ReadsLogs,
    Spawner,
    SpawnerTraits,
)

ENGINE: Final = "engine"  #: key in an instance's ``meta``: the name of the engine that runs it
#: of several refusals, the first of these causes is reported: those that time alone may cure come first
_CURABLE_FIRST = (
    SpawnCause.NO_CAPACITY,
    SpawnCause.RATE_LIMITED,
    SpawnCause.TRANSIENT,
    SpawnCause.NO_MONEY,
    SpawnCause.AUTH,
    SpawnCause.BAD_REQUEST,
)


_Listed = tuple[Spawner, Sequence[Instance]]
_Silent = tuple[Spawner, SpawnError]


class EngineGroup:
    """Starts each worker at the first engine that does not refuse it.

    A worker runs at one engine only: before a start, all engines are asked whether they run it, and a start that got no answer
    is not tried at another engine. A list is complete or an error is raised, since a worker that is missing in it counts as
    ended.
    """

    def __init__(self, members: Sequence[Spawner]) -> None:
        if not members:
            raise InvalidInput("expected at least one engine, got none")
        self._members = tuple(members)
        self._stack = AsyncExitStack()
        self._locks: WeakValueDictionary[tuple[PoolId, WorkerId], asyncio.Lock] = WeakValueDictionary()

    @property
    def traits(self) -> SpawnerTraits:
        """What is true of every engine in the group: the weakest promise, the highest price, the longest wait."""
        each = [member.traits for member in self._members]
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
            asked_with=hashlib.sha256(asked_with.encode()).hexdigest()[:12] if asked_with.strip() else "",
        )

    async def spawn(self, order: Order) -> Instance:
        """Start a worker at the first engine that does not refuse it, or return its instance if an engine already runs it.

        Raises SpawnFailed if all engines refuse. If an engine gives no answer to a start, no other engine is asked.
        """
        lock = self._locks.setdefault((order.pool_id, order.worker_id), asyncio.Lock())
        async with lock:
            return await self._find(order) or await self._start(order)

    async def _find(self, order: Order) -> Instance | None:
        """Return the worker's instance if an engine runs it. Raises Unanswered if an engine that may run it cannot be asked."""
        found, silent = await self._ask(order.pool_id)
        for member, instances in found:
            for one in instances:
                if one.worker_id == order.worker_id and one.state is not InstanceState.EXITED:
                    return _tagged(one, member)
        if silent and not order.is_first:
            raise _unanswered(f"worker {order.worker_id} is not started", silent)
        return None

    async def _start(self, order: Order) -> Instance:
        refusals: list[tuple[Spawner, SpawnFailed]] = []
        for member in self._members:
            try:
                return _tagged(await member.spawn(order), member)
            except SpawnFailed as exc:
                refusals.append((member, exc))
        raise _refused(order.worker_id, refusals)

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        """Return the instances of all engines. Raises Unanswered if one engine cannot be asked."""
        found, silent = await self._ask(pool_id)
        if silent:
            raise _unanswered(f"the list of pool {pool_id} is incomplete", silent)
        return [_tagged(one, member) for member, instances in found for one in instances]

    async def pools(self) -> Set[PoolId]:
        """Return the pools with an instance at any engine that can list its pools."""
        lists = [member.pools() for member in self._members if isinstance(member, ListsPools)]
        return {pool_id for found in await asyncio.gather(*lists) for pool_id in found}

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """Ask the worker to finish and leave, at the engine that runs it."""
        for member in await self._owners(pool_id, worker_id):
            await member.drain(pool_id, worker_id)

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """End the worker at the engine that runs it, or at every engine if none lists it. Raises Unanswered if it may run at an
        engine that cannot be asked."""
        for member in await self._owners(pool_id, worker_id):
            await member.terminate(pool_id, worker_id)

    async def logs(self, pool_id: PoolId, worker_id: WorkerId, *, lines: int = 200) -> str:
        """Return the last lines of a worker's output, from the engine that has it. Raises NotFound, SpawnError."""
        for member in self._members:
            if isinstance(member, ReadsLogs):
                try:
                    return await member.logs(pool_id, worker_id, lines=lines)
                except NotFound:
                    continue
        raise NotFound(
            f"expected the output of worker {worker_id} of pool {pool_id}, but no engine of {self.traits.name} has it"
        )

    async def expand_volume(self, volume: str, to_gb: int, seen_gb: float) -> int:
        """Expand a volume at the engine that has it. Raises SpawnError if no engine has it."""
        refused = SpawnError(f"volume {volume}: no engine of {self.traits.name} has it", cause=SpawnCause.BAD_REQUEST)
        for member in self._members:
            if isinstance(member, ExpandsVolumes) and member.traits.expands_volumes:
                try:
                    return await member.expand_volume(volume, to_gb, seen_gb)
                except SpawnError as exc:
                    if exc.cause is not SpawnCause.BAD_REQUEST:
                        raise
                    refused = exc
        raise refused

    def forget_refusals(self, pool_id: PoolId) -> None:
        """Let every engine that remembers refusals forget them."""
        for member in self._members:
            if isinstance(member, ForgetsRefusals):
                member.forget_refusals(pool_id)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for member in self._members:
                await stack.enter_async_context(member)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _ask(self, pool_id: PoolId) -> tuple[Sequence[_Listed], Sequence[_Silent]]:
        """Ask all engines concurrently for their lists. Returns the lists, and the errors of the engines that gave none."""
        answers = await asyncio.gather(*(_listed(member, pool_id) for member in self._members))
        found = [(member, answer) for member, answer in answers if not isinstance(answer, SpawnError)]
        return found, [(member, answer) for member, answer in answers if isinstance(answer, SpawnError)]

    async def _owners(self, pool_id: PoolId, worker_id: WorkerId) -> Sequence[Spawner]:
        """Return the engines that list the worker, or all engines if none does. Raises Unanswered if none lists the worker and
        an engine cannot be asked."""
        found, silent = await self._ask(pool_id)
        owners = [member for member, instances in found if any(one.worker_id == worker_id for one in instances)]
        if owners:
            return owners
        if silent:
            raise _unanswered(f"worker {worker_id} may run where it cannot be ended now", silent)
        return self._members


async def _listed(member: Spawner, pool_id: PoolId) -> tuple[Spawner, Sequence[Instance] | SpawnError]:
    try:
        return member, await member.list(pool_id)
    except SpawnError as exc:
        return member, exc


def _tagged(instance: Instance, member: Spawner) -> Instance:
    """Return the instance with the name of its engine, and with the engine's price if it reports none of its own."""
    price = member.traits.price_per_hour if instance.price_per_hour is None else instance.price_per_hour
    return replace(instance, price_per_hour=price, meta={**instance.meta, ENGINE: member.traits.name})


def _unanswered(effect: str, silent: Sequence[_Silent]) -> Unanswered:
    reasons = "; ".join(f"{member.traits.name}: {exc}" for member, exc in silent)
    return Unanswered(f"{effect}: {len(silent)} of the engines did not answer: {reasons}")


def _refused(worker_id: WorkerId, refusals: Sequence[tuple[Spawner, SpawnFailed]]) -> SpawnFailed:
    """Combine the refusals of all engines into one error, with the cause that is easiest to cure and the shortest wait."""
    reasons = "; ".join(f"{member.traits.name}: {exc}" for member, exc in refusals)
    causes = {exc.cause for _, exc in refusals}
    waits = [exc.retry_after for _, exc in refusals if exc.retry_after is not None]
    return SpawnFailed(
        f"worker {worker_id}: every engine refused: {reasons}",
        cause=next((cause for cause in _CURABLE_FIRST if cause in causes), SpawnCause.TRANSIENT),
        retry_after=min(waits) if waits and len(waits) == len(refusals) else None,
    )
