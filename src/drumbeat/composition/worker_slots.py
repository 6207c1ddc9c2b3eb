"""How many workers engines can run at once, by their settings."""

from typing import Any

from drumbeat.composition.engine_kinds import NamedEngine
from drumbeat.composition.engines import Engines
from drumbeat.core.engine import EngineCapacity
from drumbeat.core.errors import DrumbeatError


def engine_capacity(engines: Engines, names: str) -> EngineCapacity:
    """Return the slots of one engine, or of several together. Raises InvalidSettings for an unknown name."""
    found = [_slots(each) for each in engines.find(names)]
    known = [slots for slots in found if slots is not None]
    total = sum(known) if len(known) == len(found) else None
    return EngineCapacity(engines=names, slots=total, elsewhere=engines.run_elsewhere(names))


def _slots(engine: NamedEngine) -> int | None:
    """Return how many workers an engine's settings allow at once; None without a limit, or if they cannot be read here."""
    try:
        settings: Any = engine.settings
    except DrumbeatError:
        return None
    hosts = getattr(settings, "chosen_hosts", None)
    slots: int | None = getattr(settings, "slots", None) if hosts is None else sum(host.slots for host in hosts)
    return slots
