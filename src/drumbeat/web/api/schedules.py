"""API for the schedules of a pool: add, list, show, pause, resume and remove."""

from datetime import datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Response
from pydantic import Field, JsonValue

from drumbeat.client import JobSchedule, MissedTicks, ScheduleStatus
from drumbeat.web.api.answers import created, problems, set_location
from drumbeat.web.api.entry import PREFIX, Plane
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import Id, RequestBody, Seconds, Shape
from drumbeat.web.api.shapes_pools import BackoffBody, Count, Duration, Key, Positive, Rate

router = checked("schedules")

_SCHEDULES = f"{PREFIX}/pools/{{pool_id}}/schedules"
_SCHEDULE = f"{_SCHEDULES}/{{name}}"


class NewSchedule(RequestBody):
    """A schedule to add, with the payload and the options of the jobs that it pushes. It has either `cron` or `every`."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    payload: JsonValue = None
    cron: Annotated[str, Field(max_length=200, description="Cron expression with five fields.")] | None = None
    every: Annotated[float, Field(ge=1, le=3_153_600_000, description="Seconds between ticks.")] | None = None
    tz: Annotated[str, Field(max_length=100, description="Time zone of `cron`. Default: UTC")] | None = None
    missed: MissedTicks = Field(default=MissedTicks.ONCE, description="What to do with ticks that no process pushed in time.")
    update: bool = Field(default=False, description="Change the schedule if it exists.")
    type: Annotated[str, Field(max_length=200)] | None = None
    priority: Annotated[int, Field(ge=-(2**31) + 1, le=2**31 - 1)] | None = None
    delay: Duration | None = None
    max_attempts: Count | None = None
    max_crashes: Count | None = None
    backoff: BackoffBody | None = None
    timeout: Positive | None = Field(default=None, description="Time limit of an attempt, in seconds.")
    unique_key: Key | None = Field(default=None, description="While a job with this key is unfinished, a tick pushes none.")
    group: Key | None = None
    group_limit: Count | None = None
    group_rate: Rate | None = None
    capability: Key | None = None


class ScheduleShape(Shape):
    """A schedule, when it was last due, and when it is due next."""

    name: str
    cron: str | None
    every: Seconds | None
    tz: str | None
    missed: MissedTicks
    payload: Any
    options: dict[str, Any]
    paused: bool
    module: str | None = Field(description="The Python module that defines the schedule.")
    since: datetime = Field(description="Only ticks after this time count.")
    last: datetime | None = Field(description="The last tick that was pushed or dropped.")
    next: list[datetime] = Field(description="The next five ticks; empty while the schedule is paused.")
    problem: str | None = Field(description="Why no jobs are pushed at the moment.")


def _shape(status: ScheduleStatus) -> ScheduleShape:
    names = [name for name in ScheduleShape.model_fields if name not in ("last", "next", "problem")]
    values = {name: getattr(status.schedule, name) for name in names}
    more = {"last": status.last, "next": list(status.upcoming), "problem": status.problem}
    return ScheduleShape.model_validate({**values, **more})


def _links() -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI links to a new schedule: the pool id comes from the request's path, the name from the response."""
    found = created({"show": "show_schedule", "pause": "pause_schedule", "remove": "remove_schedule"}, "name", "name")
    for link in found[201]["links"].values():
        link["parameters"]["pool_id"] = "$request.path.pool_id"
    return found


@router.post(_SCHEDULES, status_code=201, operation_id="add_schedule", responses={**_links(), **problems(404, 409)})
async def add_schedule(pool_id: Id, body: NewSchedule, plane: Plane, response: Response) -> ScheduleShape:
    """Add a schedule: at each of its ticks one job is pushed. The pool is created if it does not exist."""
    given = body.model_dump(exclude={"name", "payload", "update", "every"}, exclude_none=True)
    every = None if body.every is None else timedelta(seconds=body.every)
    schedules = plane.pool(pool_id).schedules
    await schedules.add(body.name, body.payload, every=every, exist_ok=body.update, **given)
    set_location(response, f"{PREFIX}/pools/{quote(pool_id, safe='')}/schedules/{quote(body.name, safe='')}")
    return _shape(await schedules.get(body.name))


@router.get(_SCHEDULES, operation_id="list_schedules", responses=problems(404))
async def list_schedules(pool_id: Id, plane: Plane) -> list[ScheduleShape]:
    """List the schedules of a pool, with their next ticks."""
    return [_shape(each) for each in await plane.pool(pool_id).schedules.list()]


@router.get(_SCHEDULE, operation_id="show_schedule", responses=problems(404))
async def show_schedule(pool_id: Id, name: Id, plane: Plane) -> ScheduleShape:
    """Return a schedule with its next ticks."""
    return _shape(await plane.pool(pool_id).schedules.get(name))


@router.post(f"{_SCHEDULE}/pause", operation_id="pause_schedule", responses=problems(404))
async def pause_schedule(pool_id: Id, name: Id, plane: Plane) -> ScheduleShape:
    """Pause a schedule: it pushes no jobs until it is resumed."""
    return await _changed(plane, pool_id, await plane.pool(pool_id).schedules.pause(name))


@router.post(f"{_SCHEDULE}/resume", operation_id="resume_schedule", responses=problems(404))
async def resume_schedule(pool_id: Id, name: Id, plane: Plane) -> ScheduleShape:
    """Resume a paused schedule. Ticks during the pause were missed: its field `missed` says what happens to them."""
    return await _changed(plane, pool_id, await plane.pool(pool_id).schedules.resume(name))


async def _changed(plane: Plane, pool_id: str, schedule: JobSchedule) -> ScheduleShape:
    return _shape(await plane.pool(pool_id).schedules.get(schedule.name))


@router.delete(_SCHEDULE, status_code=204, operation_id="remove_schedule", responses=problems(404))
async def remove_schedule(pool_id: Id, name: Id, plane: Plane) -> None:
    """Remove a schedule. Jobs that it has pushed stay."""
    await plane.pool(pool_id).schedules.remove(name)
