"""Whether the server lives, whether it can work, and what it is."""

import asyncio
import logging
from datetime import timedelta

from fastapi import HTTPException

from drumbeat import __version__
from drumbeat.core.errors import DrumbeatError
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import PREFIX, CalledBy, InHouse, Plane
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import Shape
from drumbeat.web.roles import Role

router = checked("health")

ANSWERS_WITHIN = timedelta(seconds=5)

log = logging.getLogger(__name__)


class Alive(Shape):
    """The process answers."""

    status: str = "alive"


class Ready(Shape):
    """The store answers."""

    status: str = "ready"


class Info(Shape):
    """What this server is, and who asks."""

    name: str = "drumbeat"
    version: str = __version__
    role: Role
    store: str
    conducts: bool
    seals_passwords: bool


@router.get("/health", operation_id="health")
async def health() -> Alive:
    """The process answers; the store is not asked. Needs no token."""
    return Alive()


@router.get("/ready", operation_id="ready", responses=problems(503))
async def ready(plane: Plane) -> Ready:
    """The store answers within 5 s; else 503. Needs no token, and says no more than that."""
    try:
        async with asyncio.timeout(ANSWERS_WITHIN.total_seconds()):
            await plane.store.now()
    except (DrumbeatError, TimeoutError) as exc:
        log.warning("not ready: the store does not answer: %s", exc or f"nothing within {ANSWERS_WITHIN.total_seconds():g} s")
        raise HTTPException(503, "the store does not answer") from None
    return Ready()


@router.get(f"{PREFIX}/info", operation_id="info")
async def info(house: InHouse, caller: CalledBy) -> Info:
    """What this server is, and what you may do."""
    plane = house.plane
    return Info(
        role=caller.role,
        store=plane.store.traits.name,
        conducts=house.settings.conduct,
        seals_passwords=plane.vault().is_open,
    )
