"""The form that pushes a job."""

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
class PushFormResult:
    """The job that the form has pushed."""

    pool_id: PoolId
    job_id: JobId


async def push_form(app: AppState, pool_id: str | None) -> PushFormResult | None:
    """Show the form and push the job; without ``pool_id`` the form also asks for the pool. None if the user cancels."""
    form = Form("Push a job", "Push")
    with form.card:
        pool = form.field("pool", ui.input("Pool", value=pool_id or ""))
        payload = form.field("payload", ui.textarea("Payload (JSON)", value="{}"))
        job_type = form.field("type", ui.input("Type", placeholder="Selects the handler"))
        with ui.row().classes("w-full no-wrap"):
            priority = form.field("priority", ui.number("Priority (higher first)", value=0, precision=0))
            attempts = form.field("max_attempts", ui.number("Max attempts", value=3, min=1, precision=0))
    pool.set_visibility(pool_id is None)

    async def push() -> PushFormResult:
        name = text_of(pool)
        if not name:
            raise InvalidInput("pool: expected the name of a pool, got none")
        options: dict[str, Any] = {
            "type": text_of(job_type),
            "priority": whole_number("priority", priority),
            "max_attempts": whole_number("max_attempts", attempts),
        }
        job_id = await app.pool(name).push(parse_payload(text_of(payload)), **options)
        return PushFormResult(pool_id=PoolId(name), job_id=job_id)

    return await form.ask(push)


def parse_payload(text: str, name: str = "payload") -> Any:
    """Parse the JSON that was typed into a field. Raises InvalidInput, whose message names the field."""
    try:
        return read_json(text, f"the {name}")
    except InvalidInput as exc:
        raise InvalidInput(f"{name}: {exc}") from exc


def whole_number(name: str, element: Any) -> int:
    """Return the typed whole number. Raises InvalidInput."""
    if element.value is None or element.value != int(element.value):
        raise InvalidInput(f"{name}: expected a whole number, got {element.value}")
    return int(element.value)
