"""Makes a run's configuration from a template: resolves the connection, inspects the database, plans, and checks the plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drumbeat.bench.control.inspect import Inspection, build_load, inspect, inspect_offline
from drumbeat.bench.control.preflight import EnginePlan, Preflight, preflight, within_slots
from drumbeat.bench.control.prices import with_default_prices
from drumbeat.bench.model import Load, Prices, RunPlan
from drumbeat.bench.model.capacity import HostCapacity
from drumbeat.bench.targets.connections import ConnectionService
from drumbeat.bench.templates import TemplateDocument, check_complete, check_no_password, plan_of, run_config, with_url
from drumbeat.bench.templates.plan import check_reachable
from drumbeat.core.engine import EngineCapacity
from drumbeat.core.errors import InvalidInput

_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A checked run: the configuration to store in its row, and a summary of what it would start."""

    config: dict[str, Any]
    preflight: Preflight


def capacity(cores: float, memory: int) -> HostCapacity:
    """Make a HostCapacity for the hosts of workers, which are assumed to be equal. ``memory`` is given in bytes."""
    return HostCapacity(cpu_cores=cores, memory_gb=memory / _GIB)


async def preview_run(
    document: TemplateDocument,
    host: HostCapacity,
    connections: ConnectionService,
    usual: Prices,
    capacity: EngineCapacity | None = None,
) -> Preflight:
    """Return what a run of the template would start, without starting it. ``capacity``: how many workers the engines
    can run."""
    capacity = capacity or EngineCapacity()
    resolved = await with_connection(document, connections)
    plan = with_default_prices(_plan(resolved, host, capacity), usual)
    inspection = await _inspect(resolved, connections) if resolved.target.url else inspect_offline(resolved)
    return preflight(resolved, plan, inspection, EnginePlan(capacity=capacity, model=host))


async def prepare_run(
    document: TemplateDocument,
    host: HostCapacity,
    connections: ConnectionService,
    usual: Prices,
    capacity: EngineCapacity | None = None,
) -> PreparedRun:
    """Return the configuration of a run of the template. Raises InvalidInput with every error found in the template.

    The configuration contains no password; passwords are looked up when the database is opened. If the template sets no price,
    the default prices (``usual``) are copied, so that a later change of the defaults does not alter this run's cost.
    """
    capacity = capacity or EngineCapacity()
    resolved = await with_connection(document, connections)
    check_complete(resolved)
    plan = with_default_prices(_plan(resolved, host, capacity), usual)
    inspection = await _inspect(resolved, connections)
    checked = preflight(resolved, plan, inspection, EnginePlan(capacity=capacity, model=host))
    if not checked.can_proceed:
        raise InvalidInput("; ".join(checked.errors))
    return PreparedRun(config={**run_config(inspection.document, plan), **_origin(document, inspection)}, preflight=checked)


def _plan(document: TemplateDocument, host: HostCapacity, capacity: EngineCapacity) -> RunPlan:
    """Return the plan of a run that starts no more workers than its engine has slots for. Raises InvalidInput."""
    plan = within_slots(plan_of(document, host), capacity.slots)
    check_reachable(plan, document.expected_latency_ms)
    return plan


async def preview_operations(document: TemplateDocument, connections: ConnectionService) -> Load:
    """Return the operations that a run of the template would send, with their SQL. Raises InvalidInput for a wrong template."""
    resolved = await with_connection(document, connections)
    check_complete(resolved)
    async with connections.open(resolved.target.model_dump()) as target:
        return (await build_load(resolved, target))[1]


async def with_connection(document: TemplateDocument, connections: ConnectionService) -> TemplateDocument:
    """Return the template with the URL of the stored connection that it names, if any. Raises NotFound, InvalidInput."""
    check_no_password(document)
    named = document.target.connection
    if named is None:
        return document
    if document.target.url:
        raise InvalidInput(f"target: expected either url or connection, got both; remove url to use connection {named!r}")
    return with_url(document, await connections.url_of(named))


async def _inspect(document: TemplateDocument, connections: ConnectionService) -> Inspection:
    async with connections.open(document.target.model_dump()) as target:
        return await inspect(document, target)


def _origin(document: TemplateDocument, inspection: Inspection) -> Mapping[str, Any]:
    """Return the origin of a configuration: the template as given, the template's hash, and the highest key that each table of
    the workload has already."""
    return {"document": document.to_json(), "config_hash": document.config_hash, "highest_keys": dict(inspection.highest_keys)}
