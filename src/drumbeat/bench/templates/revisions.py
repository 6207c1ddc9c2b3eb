"""Saves templates in the store. A revision (a hash of the content) shows whether someone else has changed a template."""

import hashlib
import json
from typing import Any

from drumbeat.bench.templates import TemplateDocument
from drumbeat.core.errors import StaleWrite
from drumbeat.core.run import Template
from drumbeat.store.interface import Store


def as_document(template: Template) -> dict[str, Any]:
    """Return a stored template as one document: its settings together with name, description and tags."""
    about = {"name": template.name, "description": template.description, "tags": list(template.tags)}
    return {**template.config, **{name: value for name, value in about.items() if value}}


def row_of(template_id: str, name: str, document: TemplateDocument) -> Template:
    """Convert a document to a row of the store. Raises InvalidInput if the target's URL contains a password."""
    return Template(
        template_id=template_id,
        name=name,
        config={field: value for field, value in document.to_json().items() if field not in ("name", "description", "tags")},
        description=document.description,
        tags=tuple(document.tags),
    )


def revision(template: Template) -> str:
    """Return a hash of the template's content. It changes when the template is edited, but not when a run uses it."""
    return hashlib.sha256(json.dumps(as_document(template), sort_keys=True).encode()).hexdigest()[:32]


async def save_if(store: Store, template: Template, seen: str) -> Template:
    """Save a template, but raise StaleWrite if its stored revision is no longer ``seen``. The store checks it again while it
    saves, so that of several callers with the same revision only one succeeds."""
    stored = await store.templates.get(template.template_id)
    if revision(stored) != seen:
        raise StaleWrite(f"template {stored.name!r} was changed by someone else meanwhile; reload it and try again")
    return await store.templates.save(template, seen=stored)
