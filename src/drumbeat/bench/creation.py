"""From a template to a run that can be started: its database looked at once, everything refused that cannot work."""

from dataclasses import dataclass
from typing import Any

from drumbeat.bench.config import load_of
from drumbeat.bench.modes.capacity import HostCapacity
from drumbeat.bench.new_keys import highest_keys
from drumbeat.bench.preflight import Preflight, preflight
from drumbeat.bench.targets.open import open_target
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


async def look_ahead(document: TemplateDocument, host: HostCapacity) -> Preflight:
    """What would be started, and what to beware of. Nothing is."""
    check_no_password(document)
    plan = plan_of(document, host)
    if not document.target.url:
        return await preflight(document, plan)
    async with open_target(document.target.url) as target:
        return await preflight(document, plan, target)


async def prepared(document: TemplateDocument, host: HostCapacity) -> Prepared:
    """A run's configuration, with its statements settled on its database. Raises InvalidInput naming what is wrong."""
    check_no_password(document)
    check_complete(document)
    plan = plan_of(document, host)
    async with open_target(document.target.url or "") as target:
        ahead = await preflight(document, plan, target)
        if not ahead.can_proceed:
            raise InvalidInput("; ".join(ahead.errors))
        config = run_config(await resolved(document, target), plan)
        load = load_of(config["workload"])
        await target.check(load)
        highest = await highest_keys(target, load) if "standard" in config["workload"] else {}
    kept = {"document": document.to_json(), "config_hash": document.config_hash, "highest_keys": highest}
    return Prepared(config={**config, **kept}, preflight=ahead)
