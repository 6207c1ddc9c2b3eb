"""From a template to a run that can be started: its database looked at once, everything refused that cannot work."""

from dataclasses import dataclass
from typing import Any

from drumbeat.bench.config import load_of
from drumbeat.bench.connections import ConnectionDesk
from drumbeat.bench.model import Load, Prices
from drumbeat.bench.modes.capacity import HostCapacity
from drumbeat.bench.new_keys import highest_keys
from drumbeat.bench.preflight import Preflight, preflight
from drumbeat.bench.prices import with_usual
from drumbeat.bench.template import TemplateDocument, check_complete, check_no_password, plan_of, resolved, run_config
from drumbeat.core.errors import InvalidInput

_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A run's configuration, and what it would start."""

    config: dict[str, Any]
    preflight: Preflight


def capacity(cores: float, memory: int) -> HostCapacity:
    """What a worker's host has; workers are taken to be alike."""
    return HostCapacity(cpu_cores=cores, memory_gb=memory / _GIB)


async def look_ahead(document: TemplateDocument, host: HostCapacity, connections: ConnectionDesk, usual: Prices) -> Preflight:
    """What would be started, and what to beware of. Nothing is."""
    check_no_password(document)
    settled = await connections.settled(document)
    plan = with_usual(plan_of(settled, host), usual)
    if not settled.target.url:
        return await preflight(settled, plan)
    async with connections.open(settled.target.model_dump()) as target:
        return await preflight(settled, plan, target)


async def prepared(document: TemplateDocument, host: HostCapacity, connections: ConnectionDesk, usual: Prices) -> Prepared:
    """A run's configuration, with its statements settled on its database. Raises InvalidInput naming what is wrong.

    A connection's name stays in it beside the URL it stands for; its password is looked up by whoever opens the database.
    The ``usual`` prices are in it where its template gives none: another price afterwards does not change what it cost.
    """
    check_no_password(document)
    settled = await connections.settled(document)
    check_complete(settled)
    plan = with_usual(plan_of(settled, host), usual)
    async with connections.open(settled.target.model_dump()) as target:
        ahead = await preflight(settled, plan, target)
        if not ahead.can_proceed:
            raise InvalidInput("; ".join(ahead.errors))
        config = run_config(await resolved(settled, target), plan)
        load = load_of(config["workload"])
        await target.check(load)
        highest = await highest_keys(target, load) if "standard" in config["workload"] else {}
    kept = {"document": document.to_json(), "config_hash": document.config_hash, "highest_keys": highest}
    return Prepared(config={**config, **kept}, preflight=ahead)


async def statements(document: TemplateDocument, connections: ConnectionDesk) -> Load:
    """What the workers of a run would be given to do, made for its table. Raises InvalidInput naming what is wrong."""
    check_no_password(document)
    settled = await connections.settled(document)
    check_complete(settled)
    async with connections.open(settled.target.model_dump()) as target:
        return load_of((await resolved(settled, target)).workload.model_dump(mode="json", exclude_none=True))
