"""Templates: documents that runs are made from; what they would start, and the SQL they would run."""

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
from drumbeat.web.api.answers import located, made, problems
from drumbeat.web.api.entry import OPERATORS, PREFIX, Plane
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.settings import settings_of, text_of
from drumbeat.web.api.shapes import Id, RequestBody, Shape, Text
from drumbeat.web.api.shapes_runs import Document, PreflightShape, Settings
from drumbeat.web.databases import DatabaseType, matching_templates

router = checked("templates")

TEMPLATES = f"{PREFIX}/templates"
_TEMPLATE = f"{TEMPLATES}/{{template_id}}"
_ETAG = {"ETag": {"description": "The same until it is changed.", "schema": {"type": "string"}}}
_TAGGED: dict[int | str, dict[str, Any]] = {200: {"description": "The template", "headers": _ETAG}}
IfMatch = Annotated[
    str | None,
    Header(max_length=1000, description="The ETag the change was made on: one that somebody has changed since is left alone."),
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
    """A template to be kept."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"document": EXAMPLE}]})

    document: Document
    name: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        default=None, description="Instead of the document's own name."
    )


class TemplateChange(RequestBody):
    """Another document, or single settings of the one there is."""

    document: Document | None = None
    settings: Settings = Field(default_factory=dict)


class TemplateCopy(RequestBody):
    """A new template like another."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    settings: Settings = Field(default_factory=dict)


class Draft(RequestBody):
    """A document that is not kept yet, or a kept one with settings put in."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"document": EXAMPLE}, {"template": "kept"}]})

    template: Text | None = None
    document: Document | None = None
    settings: Settings = Field(default_factory=dict)


class TemplateShape(Shape):
    """A template."""

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
    """One kind of operation, and the SQL it would run; values are bound, never written in."""

    kind: str
    weight: float
    statements: list[str]


class Preview(Shape):
    """What a document would have its workers run."""

    operations: list[OperationShape]


@router.post(
    TEMPLATES,
    status_code=201,
    operation_id="make_template",
    responses={**made(_LINKS, "template_id", "template_id"), **problems(409)},
)
async def make(body: NewTemplate, plane: Plane, response: Response) -> TemplateShape:
    """Keep a template, checked whole."""
    return _told(plane, response, await plane.bench().add_template(text_of(body.document), body.name))


def _told(plane: ControlPlane, response: Response, template: Template) -> TemplateShape:
    located(response, f"{TEMPLATES}/{quote(template.template_id)}")
    return _tagged(plane, response, template)


@router.get(TEMPLATES, operation_id="list_templates", responses=problems(409))
async def list_templates(
    plane: Plane,
    search: Annotated[str | None, Query(max_length=200, description="Part of a name or description.")] = None,
    tag: Annotated[str | None, Query(max_length=200)] = None,
    database: Annotated[DatabaseType | None, Query(description="Only those that load this type of database.")] = None,
    load_mode: LoadMode | None = None,
) -> list[TemplateShape]:
    """Templates that match every filter, by name."""
    found = await matching_templates(plane, search, tag, database or "", load_mode or "")
    return [TemplateShape.model_validate(each) for each in found]


@router.get(f"{TEMPLATES}/schema", operation_id="template_schema")
async def schema() -> dict[str, Any]:
    """The JSON Schema of documents."""
    return dict(template_schema())


@router.post(f"{TEMPLATES}/plan", operation_id="plan_draft", responses=problems(404, 409))
async def plan_draft(body: Draft, plane: Plane) -> PreflightShape:
    """What a run of a document would start, and what to beware of. Nothing is kept or started."""
    desk = plane.bench()
    return PreflightShape.model_validate(await desk.plan(await _drafted(plane, body)))


@router.post(f"{TEMPLATES}/preview", operation_id="preview_draft", responses=problems(404, 409))
async def preview_draft(body: Draft, plane: Plane) -> Preview:
    """The SQL a document would have its workers run, made for its table. Nothing is run."""
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
async def show(template_id: Id, plane: Plane, response: Response) -> TemplateShape:
    """A template by its id or name; its ETag is for If-Match when it is changed."""
    return _tagged(plane, response, await plane.store.templates.get(template_id))


@router.put(_TEMPLATE, operation_id="change_template", responses={**_TAGGED, **problems(404, 409, 412)})
async def change(
    template_id: Id, body: TemplateChange, plane: Plane, response: Response, if_match: IfMatch = None
) -> TemplateShape:
    """Change a template. One that has been used is read-only: copy it."""
    if body.document is None and not body.settings:
        raise InvalidInput("document: expected another document, or settings, got neither")
    text = text_of(body.document) if body.document is not None else None
    seen = await _seen(plane, template_id, if_match)
    try:
        changed = await plane.bench().change_template(template_id, text, settings_of(body.settings), seen=seen)
    except StaleWrite as exc:
        raise HTTPException(412, str(exc)) from exc
    return _tagged(plane, response, changed)


async def _seen(plane: ControlPlane, template_id: str, if_match: str | None) -> str | None:
    """The revision a change was made on; None: whatever there is may be changed. Raises HTTPException 412."""
    if if_match is None or if_match.strip() == "*":
        return None
    now = plane.bench().revision(await plane.store.templates.get(template_id))
    if f'"{now}"' not in [each.strip() for each in if_match.split(",")]:
        raise HTTPException(412, f'If-Match: the template\'s ETag is "{now}": it was changed meanwhile; look at it again')
    return now


def _tagged(plane: ControlPlane, response: Response, template: Template) -> TemplateShape:
    response.headers["ETag"] = f'"{plane.bench().revision(template)}"'
    return TemplateShape.model_validate(template)


@router.post(
    f"{_TEMPLATE}/copy",
    status_code=201,
    operation_id="copy_template",
    responses={**made(_LINKS, "template_id", "template_id"), **problems(404, 409)},
)
async def copy(template_id: Id, body: TemplateCopy, plane: Plane, response: Response) -> TemplateShape:
    """A new template like another, never used."""
    return _told(plane, response, await plane.bench().copy_template(template_id, body.name, settings_of(body.settings)))


@router.get(f"{_TEMPLATE}/plan", operation_id="plan_template", dependencies=OPERATORS, responses=problems(404, 409))
async def plan(template_id: Id, plane: Plane) -> PreflightShape:
    """What a run of a template would start, and what to beware of."""
    desk = plane.bench()
    return PreflightShape.model_validate(await desk.plan(await desk.document(template_id)))


@router.delete(_TEMPLATE, status_code=204, operation_id="remove_template", responses=problems(404, 409))
async def remove(template_id: Id, plane: Plane) -> None:
    """Remove a template; runs made from it stay."""
    await plane.bench().remove_template(template_id)
