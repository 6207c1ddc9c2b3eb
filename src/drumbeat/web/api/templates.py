"""API for templates (documents that runs are created from), for plans of runs and for previews of the generated SQL."""

from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Header, HTTPException, Query, Response
from pydantic import ConfigDict, Field

from drumbeat.bench.model import LoadMode
from drumbeat.composition.offline import template_schema
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import InvalidInput, StaleWrite
from drumbeat.core.run import Template
from drumbeat.web.api.answers import created, problems, set_location
from drumbeat.web.api.entry import OPERATORS, PREFIX, Plane
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.settings import settings_of, text_of
from drumbeat.web.api.shapes import Id, RequestBody, Shape, Text
from drumbeat.web.api.shapes_runs import Document, PreflightShape, Settings
from drumbeat.web.databases import DatabaseType, matching_templates

router = checked("templates")

TEMPLATES = f"{PREFIX}/templates"
_TEMPLATE = f"{TEMPLATES}/{{template_id}}"
_ETAG = {"ETag": {"description": "Revision of the template.", "schema": {"type": "string"}}}
_TAGGED: dict[int | str, dict[str, Any]] = {200: {"description": "The template", "headers": _ETAG}}
IfMatch = Annotated[
    str | None,
    Header(max_length=1000, description="ETag of the revision to change; 412 if the template has changed since."),
]
_LINKS = {name: f"{name}_template" for name in ("show", "change", "copy", "plan", "remove")}


EXAMPLE: Any = {
    "name": "nightly",
    "target": {"url": "sqlite:///target.db"},
    "workload": {"standard": "read-only", "scale": 0.01},
    "concurrent_connections": 8,
    "timing": {"warmup_seconds": 5, "duration_seconds": 60},
}


class NewTemplate(RequestBody):
    """A template to store."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"document": EXAMPLE}]})

    document: Document
    name: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        default=None, description="Name to use instead of the document's."
    )


class TemplateChange(RequestBody):
    """Changes of a template: a new document, or single settings."""

    document: Document | None = None
    settings: Settings = Field(default_factory=dict)


class TemplateCopy(RequestBody):
    """The name of a copy of a template, and settings to change in it."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    settings: Settings = Field(default_factory=dict)


class Draft(RequestBody):
    """A document or a stored template to plan or preview, with settings to change."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"document": EXAMPLE}, {"template": "kept"}]})

    template: Text | None = None
    document: Document | None = None
    settings: Settings = Field(default_factory=dict)


class TemplateShape(Shape):
    """A stored template: a document that runs are created from, and how often it was used."""

    template_id: str
    name: str
    description: str | None
    tags: list[str]
    config: dict[str, Any]
    usage_count: int
    last_used_at: datetime | None
    created_at: datetime | None
    updated_at: datetime | None


class OperationShape(Shape):
    """One kind of operation with its weight (%) and its SQL. Values are bound as parameters."""

    kind: str
    weight: float
    statements: list[str]


class Preview(Shape):
    """The operations that the workers of a run would run."""

    operations: list[OperationShape]


@router.post(
    TEMPLATES,
    status_code=201,
    operation_id="make_template",
    responses={**created(_LINKS, "template_id", "template_id"), **problems(409)},
)
async def create_template(body: NewTemplate, plane: Plane, response: Response) -> TemplateShape:
    """Validate and store a template."""
    return _created(plane, response, await plane.bench().add_template(text_of(body.document), body.name))


def _created(plane: ControlPlane, response: Response, template: Template) -> TemplateShape:
    set_location(response, f"{TEMPLATES}/{quote(template.template_id)}")
    return _tagged(plane, response, template)


@router.get(TEMPLATES, operation_id="list_templates", responses=problems(409))
async def list_templates(
    plane: Plane,
    search: Annotated[str | None, Query(max_length=200, description="Only if name or description contain this text.")] = None,
    tag: Annotated[str | None, Query(max_length=200, description="Only templates with this tag.")] = None,
    database: Annotated[DatabaseType | None, Query(description="Only templates for this type of database.")] = None,
    load_mode: LoadMode | None = None,
) -> list[TemplateShape]:
    """List the templates that match every filter, sorted by name."""
    found = await matching_templates(plane, search, tag, database or "", load_mode or "")
    return [TemplateShape.model_validate(each) for each in found]


@router.get(f"{PREFIX}/template-schema", operation_id="template_schema")
async def show_schema() -> dict[str, Any]:
    """Return the JSON Schema of template documents."""
    return dict(template_schema())


@router.post(f"{TEMPLATES}/plan", operation_id="plan_draft", responses=problems(404, 409))
async def plan_draft(body: Draft, plane: Plane) -> PreflightShape:
    """Show what a run of a document would start, with warnings. Nothing is stored or started."""
    return PreflightShape.model_validate(await plane.bench().plan(await _drafted(plane, body)))


@router.post(f"{TEMPLATES}/preview", operation_id="preview_draft", responses=problems(404, 409))
async def preview_draft(body: Draft, plane: Plane) -> Preview:
    """Show the SQL that a run of a document would send, generated for the document's table. Nothing is executed."""
    found = await plane.bench().preview(await _drafted(plane, body))
    return Preview(
        operations=[
            OperationShape(kind=str(each.kind), weight=each.weight, statements=[statement.sql for statement in each.statements])
            for each in found
        ]
    )


async def _drafted(plane: ControlPlane, body: Draft) -> Any:
    if (body.template is None) == (body.document is None):
        raise InvalidInput("template: expected a template or a document, got " + ("both" if body.template else "neither"))
    source = text_of(body.document) if body.document is not None else body.template or ""
    return await plane.bench().document(source, settings_of(body.settings), is_text=body.document is not None)


@router.get(_TEMPLATE, operation_id="show_template", responses={**_TAGGED, **problems(404, 409)})
async def show_template(template_id: Id, plane: Plane, response: Response) -> TemplateShape:
    """Return a template by its id or name. Send its ETag as If-Match to change exactly this revision."""
    return _tagged(plane, response, await plane.store.templates.get(template_id))


@router.put(_TEMPLATE, operation_id="change_template", responses={**_TAGGED, **problems(404, 409, 412)})
async def change_template(
    template_id: Id, body: TemplateChange, plane: Plane, response: Response, if_match: IfMatch = None
) -> TemplateShape:
    """Change a template. A template that was used by a run is read-only: copy it and change the copy."""
    if body.document is None and not body.settings:
        raise InvalidInput("document: expected a document or settings, got neither")
    text = text_of(body.document) if body.document is not None else None
    revision = await _expected_revision(plane, template_id, if_match)
    try:
        changed = await plane.bench().change_template(template_id, text, settings_of(body.settings), seen=revision)
    except StaleWrite as exc:
        raise HTTPException(412, str(exc)) from exc
    return _tagged(plane, response, changed)


async def _expected_revision(plane: ControlPlane, template_id: str, if_match: str | None) -> str | None:
    """Return the revision that If-Match requires; None if it allows any. Raises HTTPException 412 if the template changed."""
    if if_match is None or if_match.strip() == "*":
        return None
    now = plane.bench().revision(await plane.store.templates.get(template_id))
    if f'"{now}"' not in [each.strip() for each in if_match.split(",")]:
        raise HTTPException(412, f'If-Match: the template was changed meanwhile; its ETag is now "{now}"; read it again')
    return now


def _tagged(plane: ControlPlane, response: Response, template: Template) -> TemplateShape:
    response.headers["ETag"] = f'"{plane.bench().revision(template)}"'
    return TemplateShape.model_validate(template)


@router.post(
    f"{_TEMPLATE}/copy",
    status_code=201,
    operation_id="copy_template",
    responses={**created(_LINKS, "template_id", "template_id"), **problems(404, 409)},
)
async def copy_template(template_id: Id, body: TemplateCopy, plane: Plane, response: Response) -> TemplateShape:
    """Copy a template under a new name. The copy counts as unused, so it can be changed."""
    return _created(plane, response, await plane.bench().copy_template(template_id, body.name, settings_of(body.settings)))


@router.get(f"{_TEMPLATE}/plan", operation_id="plan_template", dependencies=OPERATORS, responses=problems(404, 409))
async def plan_template(template_id: Id, plane: Plane) -> PreflightShape:
    """Show what a run of a template would start, with warnings."""
    bench = plane.bench()
    return PreflightShape.model_validate(await bench.plan(await bench.document(template_id)))


@router.delete(_TEMPLATE, status_code=204, operation_id="remove_template", responses=problems(404, 409))
async def remove_template(template_id: Id, plane: Plane) -> None:
    """Delete a template. Runs that were created from it are kept."""
    await plane.bench().remove_template(template_id)
