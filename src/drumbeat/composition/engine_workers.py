"""Reads the workers of engines, as the engines themselves list them, and the output of a worker."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from drumbeat.composition.base import ControlPlaneBase
from drumbeat.core.errors import DrumbeatError, InvalidInput
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Instance, InstanceState, ListsPools, ListsReachable, ReadsLogs, Spawner


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWorker:
    """An instance of a worker as its engine lists it, and the worker's status in the store."""

    engine: str
    pool_id: str
    worker_id: str
    ref: str
    state: InstanceState
    age: timedelta | None
    price_per_hour: float | None
    status: str | None  #: the status of the worker's row; None: the store has no such worker


async def list_workers(base: ControlPlaneBase, name: str | None) -> tuple[list[EngineWorker], Mapping[str, str]]:
    """Return the running workers of all pools at one engine, or at all engines if ``name`` is None. Also returns, by
    engine, why not all its workers could be listed, for example because a host does not answer.

    Raises InvalidSettings for an unknown engine."""
    engines = [base.engines.get(name)] if name else base.engines.list()
    found: list[EngineWorker] = []
    problems: dict[str, str] = {} if name else dict(base.engines.refused)
    for engine in engines:
        try:
            async with base.spawner(engine.name) as spawner:
                workers, problem = await _of_engine(base, spawner)
        except DrumbeatError as exc:
            problems[engine.name] = str(exc)
            continue
        found += workers
        if problem:
            problems[engine.name] = problem
    return found, problems


async def _of_engine(base: ControlPlaneBase, spawner: Spawner) -> tuple[list[EngineWorker], str]:
    """Return the running workers at an engine, and the errors of its hosts that do not answer; empty if all answer."""
    known = {row.pool_id for row in await base.store.pools.list()}
    if isinstance(spawner, ListsReachable):
        found = await spawner.list_reachable(None)
        instances, problem = found.instances, found.problem
    else:
        pools = await spawner.pools() if isinstance(spawner, ListsPools) else known
        instances, problem = [one for pool_id in sorted(pools) for one in await spawner.list(pool_id)], ""
    running = [one for one in instances if one.state is not InstanceState.EXITED]
    rows = {pool_id: await base.store.workers.list(pool_id) for pool_id in {one.pool_id for one in running} & known}
    status = {(row.pool_id, row.worker_id): row.status.value for found_rows in rows.values() for row in found_rows}
    return [_worker(base, spawner, one, status.get((one.pool_id, one.worker_id))) for one in running], problem


def _worker(base: ControlPlaneBase, spawner: Spawner, one: Instance, status: str | None) -> EngineWorker:
    traits = spawner.traits
    return EngineWorker(
        engine=traits.name,
        pool_id=one.pool_id,
        worker_id=one.worker_id,
        ref=one.ref,
        state=one.state,
        age=None if one.started_at is None else max(base.clock.now() - one.started_at, timedelta()),
        price_per_hour=traits.price_per_hour if one.price_per_hour is None else one.price_per_hour,
        status=status,
    )


async def read_logs(base: ControlPlaneBase, name: str, pool: str, worker: str, lines: int) -> str:
    """Return the last lines of a worker's output, from its engine. Raises NotFound, InvalidInput, SpawnError."""
    async with base.spawner(base.engines.get(name).name) as spawner:
        if not isinstance(spawner, ReadsLogs):
            raise InvalidInput(
                f"expected an engine that keeps its workers' output, got {name}, which does not; see: drumbeat logs"
            )
        return await spawner.logs(PoolId(pool), WorkerId(worker), lines=lines)
