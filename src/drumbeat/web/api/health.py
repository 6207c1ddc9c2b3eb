"""Whether the server lives, whether it can work, and what it is."""

from drumbeat import __version__
from drumbeat.core.errors import StoreNotReady
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import PREFIX, CalledBy, InHouse, Plane
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import Shape
from drumbeat.web.roles import Role

router = checked("health")


class Alive(Shape):
    """The process answers."""

    status: str = "alive"


class Ready(Shape):
    """The store answers."""

    status: str = "ready"
    store: str
    schema_version: int


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
    """The process answers; the store is not asked."""
    return Alive()


@router.get("/ready", operation_id="ready", responses=problems(409))
async def ready(plane: Plane) -> Ready:
    """The store answers, and its tables are as this version expects them."""
    report = await plane.store.upkeep.check()
    if report.schema_version != report.latest_version:
        raise StoreNotReady(f"the store has schema version {report.schema_version}, expected {report.latest_version}")
    return Ready(store=report.backend, schema_version=report.schema_version)


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
