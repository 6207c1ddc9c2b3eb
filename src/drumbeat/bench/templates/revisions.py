"""Saves templates in the store. A revision (a hash of the content) shows whether someone else has changed a template."""

import hashlib
import json
from datetime import timedelta
from typing import Any

from drumbeat.bench.templates import TemplateDocument
from drumbeat.core.errors import StaleWrite
from drumbeat.core.run import Template
from drumbeat.store.interface import Store

_SAVED_WITHIN = timedelta(seconds=10)


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


async def save_if(store: Store, owner: str, template: Template, seen: str) -> Template:
    """Save a template, but raise StaleWrite if its stored revision is no longer ``seen``, or if someone else is saving it.

    A lease prevents other saves between the check and the save.
    """
    lease = await store.leases.acquire(f"template/{template.template_id}", owner, _SAVED_WITHIN)
    if lease is None:
        raise StaleWrite(f"template {template.name!r} is being changed by someone else; reload it in a moment")
    try:
        stored = await store.templates.get(template.template_id)
        if revision(stored) != seen:
            raise StaleWrite(f"template {stored.name!r} was changed by someone else meanwhile; reload it and try again")
        return await store.templates.save(template)
    finally:
        await store.leases.release(lease)
