"""Pushing a job by hand."""

from dataclasses import dataclass
from typing import Any

from nicegui import ui

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import JobId
from drumbeat.core.plain import read_json
from drumbeat.core.pool import PoolId
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.forms import Form, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedJob:
    """A job that is in its pool now."""

    pool_id: PoolId
    job_id: JobId


async def push_form(house: AppState, pool_id: str | None) -> PushedJob | None:
    """Ask for a job and push it; without ``pool_id`` the form asks for that too. None: nothing was pushed."""
    form = Form("Push a job", "Push")
    with form.card:
        pool = form.field("pool", ui.input("Pool", value=pool_id or ""))
        payload = form.field("payload", ui.textarea("Payload (JSON)", value="{}"))
        kind = form.field("type", ui.input("Type", placeholder="Which handler it is for"))
        with ui.row().classes("w-full no-wrap"):
            priority = form.field("priority", ui.number("Priority", value=0, precision=0))
            attempts = form.field("max_attempts", ui.number("Attempts", value=3, min=1, precision=0))
    pool.set_visibility(pool_id is None)

    async def push() -> PushedJob:
        name = text_of(pool)
        if not name:
            raise InvalidInput("pool: expected a name")
        options: dict[str, Any] = {
            "type": text_of(kind),
            "priority": whole("priority", priority),
            "max_attempts": whole("max_attempts", attempts),
        }
        job_id = await house.plane.pool(name).push(parsed(text_of(payload)), **options)
        await house.work_added(name)
        return PushedJob(pool_id=PoolId(name), job_id=job_id)

    return await form.ask(push)


def parsed(text: str) -> Any:
    """JSON somebody typed. Raises InvalidInput, which names the field."""
    try:
        return read_json(text, "the payload")
    except InvalidInput as exc:
        raise InvalidInput(f"payload: {exc}") from exc


def whole(name: str, element: Any) -> int:
    """A whole number somebody typed. Raises InvalidInput."""
    if element.value is None or element.value != int(element.value):
        raise InvalidInput(f"{name}: expected a whole number")
    return int(element.value)
