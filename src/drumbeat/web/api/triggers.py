"""Triggers: listed and pulled; and webhooks, which are let in by their signature."""

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request, Response
from pydantic import Field

from drumbeat.core.errors import InvalidSettings, NotFound
from drumbeat.triggers.model import BeatKind, TriggerType
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import PREFIX, InHouse
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import Id, Shape
from drumbeat.web.app_state import AppState
from drumbeat.web.problems import problem

if TYPE_CHECKING:
    from drumbeat.composition.plane import TriggerService

router = checked("triggers")

log = logging.getLogger(__name__)

_STRANGER = (
    "expected a request to a webhook of this server, signed with its secret within the last minutes; "
    "this server's log says what was wrong"
)


class LastFiredShape(Shape):
    """The last time a trigger was pulled, by whomever, and what came of it."""

    at: datetime
    ok: bool
    outcome: str


class TriggerShape(Shape):
    """A trigger, when it last fired, and when it comes due next if it has a schedule."""

    name: str
    type: TriggerType
    machine: BeatKind
    pool_id: str | None
    schedule: str | None
    timezone: str | None
    due: datetime | None
    last_fired: LastFiredShape | None = Field(description="Null: it never fired.")


class Fired(Shape):
    """What the beats it woke came to, by pool."""

    beats: dict[str, dict[str, Any]]


class Delivered(Shape):
    """What became of a delivery. A repeated one wakes nothing again."""

    trigger: str
    repeated: bool
    beats: dict[str, dict[str, Any]] = Field(default_factory=dict)


@router.get(f"{PREFIX}/triggers", operation_id="list_triggers")
async def list_triggers(house: InHouse) -> list[TriggerShape]:
    """The triggers of this server's file; none where it has no file."""
    desk = house.triggers
    if desk is None:
        return []
    last = await desk.last_fired()
    return [_shape(desk, each, last.get(each.name)) for each in desk.triggers]


def _shape(desk: "TriggerService", trigger: Any, last: Any) -> TriggerShape:
    names = [name for name in TriggerShape.model_fields if name not in ("due", "last_fired")]
    told = {name: getattr(trigger, name) for name in names}
    return TriggerShape.model_validate({**told, "due": desk.due(trigger), "last_fired": last}, from_attributes=True)


@router.post(f"{PREFIX}/triggers/{{name}}/fire", operation_id="fire_trigger", responses=problems(404, 409, 502))
async def fire(
    name: Id,
    house: InHouse,
    pool: Annotated[str | None, Query(max_length=200, description="The pool, where the trigger names none.")] = None,
) -> Fired:
    """Pull a trigger now, whatever it waits for."""
    if house.triggers is None:
        raise NotFound(f"no trigger {name!r}; this server was started without a file of triggers")
    return Fired.model_validate({"beats": await house.triggers.fire(name, pool)})


@router.post("/hooks/{name}", operation_id="deliver_webhook", response_model=Delivered)
async def deliver(name: Id, house: InHouse, request: Request) -> Any:
    """A webhook's delivery, signed with its secret (see docs/triggers.md). Whoever signs nothing learns nothing."""
    return await _heard(house, name, request)


async def _heard(house: AppState, name: str, request: Request) -> Response | Delivered:
    if house.triggers is None:
        return problem(401, _STRANGER)
    try:
        answer = await house.triggers.hear(name, dict(request.headers), await request.body())
    except InvalidSettings as exc:
        log.error("no webhook is heard: %s", exc)
        return problem(401, _STRANGER)
    if answer.status in (401, 404):
        return problem(401, _STRANGER)
    if answer.status >= 400:
        return problem(int(answer.status), str(answer.body.get("error", "")))
    return Delivered.model_validate(answer.body)
