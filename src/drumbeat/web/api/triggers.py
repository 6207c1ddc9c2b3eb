"""API for triggers (list and fire) and for webhooks, which are authenticated by their signature."""

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request, Response
from pydantic import Field

from drumbeat.core.errors import InvalidSettings, NotFound
from drumbeat.triggers.model import BeatKind, TriggerType
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import PREFIX, State
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import Id, Shape
from drumbeat.web.app_state import AppState
from drumbeat.web.problems import problem

if TYPE_CHECKING:
    from drumbeat.composition.plane import TriggerService

router = checked("triggers")

log = logging.getLogger(__name__)

_NOT_SIGNED = (
    "expected a request to a webhook of this server, signed with its secret within the last minutes; "
    "see the server's log for the reason"
)


class LastFiredShape(Shape):
    """When a trigger last fired, and what the outcome was."""

    at: datetime
    ok: bool
    outcome: str


class TriggerShape(Shape):
    """A trigger, when it last fired, and (if it has a schedule) when it fires next."""

    name: str
    type: TriggerType
    machine: BeatKind
    pool_id: str | None
    schedule: str | None
    timezone: str | None
    due: datetime | None
    last_fired: LastFiredShape | None = Field(description="Null if the trigger has never fired.")


class Fired(Shape):
    """The results of the beats (passes of a control loop) that the trigger started, by pool."""

    beats: dict[str, dict[str, Any]]


class Delivered(Shape):
    """The result of a webhook request. A repeated request starts no further beats (passes of a control loop)."""

    trigger: str
    repeated: bool
    beats: dict[str, dict[str, Any]] = Field(default_factory=dict)


@router.get(f"{PREFIX}/triggers", operation_id="list_triggers")
async def list_triggers(state: State) -> list[TriggerShape]:
    """List the triggers of this server's trigger file; empty if the server has no trigger file."""
    service = state.triggers
    if service is None:
        return []
    last = await service.last_fired()
    return [_shape(service, each, last.get(each.name)) for each in service.triggers]


def _shape(service: "TriggerService", trigger: Any, last: Any) -> TriggerShape:
    names = [name for name in TriggerShape.model_fields if name not in ("due", "last_fired")]
    values = {name: getattr(trigger, name) for name in names}
    return TriggerShape.model_validate({**values, "due": service.due(trigger), "last_fired": last}, from_attributes=True)


@router.post(f"{PREFIX}/triggers/{{name}}/fire", operation_id="fire_trigger", responses=problems(404, 409, 502))
async def fire_trigger(
    name: Id,
    state: State,
    pool: Annotated[str | None, Query(max_length=200, description="The pool to act on, if the trigger names none.")] = None,
) -> Fired:
    """Fire a trigger now, without waiting for its event or schedule."""
    if state.triggers is None:
        raise NotFound(f"no trigger {name!r}: this server has no trigger file; start it with --triggers FILE")
    return Fired.model_validate({"beats": await state.triggers.fire(name, pool)})


@router.post("/hooks/{name}", operation_id="deliver_webhook", response_model=Delivered)
async def deliver_webhook(name: Id, state: State, request: Request) -> Any:
    """Deliver a webhook, signed with its secret (see docs/triggers.md). Without a valid signature the status is always 401."""
    return await _deliver(state, name, request)


async def _deliver(state: AppState, name: str, request: Request) -> Response | Delivered:
    if state.triggers is None:
        return problem(401, _NOT_SIGNED)
    try:
        answer = await state.triggers.answer_webhook(name, dict(request.headers), await request.body())
    except InvalidSettings as exc:
        log.error("cannot accept a request to the webhook %s: %s", name, exc)
        return problem(401, _NOT_SIGNED)
    if answer.status in (401, 404):
        return problem(401, _NOT_SIGNED)
    if answer.status >= 400:
        again = {"Retry-After": "5"} if answer.status == 503 else None
        return problem(int(answer.status), str(answer.body.get("error", "")), again)
    return Delivered.model_validate(answer.body)
