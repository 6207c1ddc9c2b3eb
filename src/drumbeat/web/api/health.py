"""Health and readiness probes, and information about the server."""

import asyncio
import logging
from datetime import timedelta

from fastapi import HTTPException
from pydantic import Field

from drumbeat import __version__
from drumbeat.core.errors import DrumbeatError
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import PREFIX, CalledBy, Plane, State
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import Shape
from drumbeat.web.roles import Role

router = checked("health")

ANSWERS_WITHIN = timedelta(seconds=5)

log = logging.getLogger(__name__)


class Alive(Shape):
    """Response of the health probe: the server process answers."""

    status: str = "alive"


class Ready(Shape):
    """Response of the readiness probe: the store (Drumbeat's database) answers."""

    status: str = "ready"


class Info(Shape):
    """Version and features of this server, and the caller's role."""

    name: str = "drumbeat"
    version: str = __version__
    role: Role
    store: str
    conducts: bool = Field(description="Whether this server orchestrates runs.")
    seals_passwords: bool = Field(description="Whether this server can encrypt passwords (DRUMBEAT_KEY is set).")


@router.get("/health", operation_id="health")
async def health() -> Alive:
    """Check that the server process answers. The store is not checked. Needs no token."""
    return Alive()


@router.get("/ready", operation_id="ready", responses=problems(503))
async def ready(plane: Plane) -> Ready:
    """Check that the store (Drumbeat's database) answers within 5 s; if not, return 503. Needs no token."""
    try:
        async with asyncio.timeout(ANSWERS_WITHIN.total_seconds()):
            await plane.store.now()
    except (DrumbeatError, TimeoutError) as exc:
        log.warning("not ready: the store does not answer: %s", exc or f"timeout after {ANSWERS_WITHIN.total_seconds():g} s")
        raise HTTPException(503, "the store does not answer") from None
    return Ready()


@router.get(f"{PREFIX}/info", operation_id="info")
async def info(state: State, caller: CalledBy) -> Info:
    """Return version and features of this server, and the caller's role."""
    plane = state.plane
    return Info(
        role=caller.role,
        store=plane.store.traits.name,
        conducts=state.settings.conduct,
        seals_passwords=plane.vault().is_open,
    )
