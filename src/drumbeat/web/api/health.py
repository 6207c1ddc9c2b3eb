"""Whether the server lives, whether it can work, and what it is."""

from fastapi import APIRouter
from pydantic import BaseModel

from drumbeat import __version__
from drumbeat.web.api.entry import PREFIX, Plane

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """The process answers."""

    status: str = "alive"


class Ready(BaseModel):
    """The store answers."""

    status: str = "ready"
    store: str
    schema_version: int


class Info(BaseModel):
    """What this server is."""

    name: str = "drumbeat"
    version: str = __version__


@router.get("/health")
async def health() -> Alive:
    """The process answers; the store is not asked."""
    return Alive()


@router.get("/ready", responses={503: {"description": "The store does not answer"}})
async def ready(plane: Plane) -> Ready:
    """The store answers, and its tables are as this version expects them."""
    report = await plane.store.upkeep.check()
    return Ready(store=report.backend, schema_version=report.schema_version)


@router.get(f"{PREFIX}/info")
async def info() -> Info:
    return Info()
