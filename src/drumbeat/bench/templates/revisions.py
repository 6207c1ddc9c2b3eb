"""Kept templates and their revisions: of two who change the same one, the second is told."""

import hashlib
import json
from datetime import timedelta
from typing import Any

from drumbeat.bench.templates import TemplateDocument
from drumbeat.core.errors import StaleWrite
from drumbeat.core.run import Template
from drumbeat.store.interface import Store

_SAVED_WITHIN = timedelta(seconds=10)


def whole(template: Template) -> dict[str, Any]:
    """A kept template as one document."""
    about = {"name": template.name, "description": template.description, "tags": list(template.tags)}
    return {**template.config, **{name: value for name, value in about.items() if value}}


def row_of(template_id: str, name: str, document: TemplateDocument) -> Template:
    """A document as a template to be kept. Raises InvalidInput when it holds a password."""
    return Template(
        template_id=template_id,
        name=name,
        config={field: value for field, value in document.to_json().items() if field not in ("name", "description", "tags")},
        description=document.description,
        tags=tuple(document.tags),
    )


def revision(template: Template) -> str:
    """The same as long as nobody has changed a template; being used is no change."""
    return hashlib.sha256(json.dumps(whole(template), sort_keys=True).encode()).hexdigest()[:32]


async def save_if(store: Store, owner: str, template: Template, seen: str) -> Template:
    """Save a change of the revision that was seen. Raises StaleWrite when it is no longer the last, or is being changed.

    One at a time: the lease keeps another who has seen the same from saving between the look and the save.
    """
    lease = await store.leases.acquire(f"template/{template.template_id}", owner, _SAVED_WITHIN)
    if lease is None:
        raise StaleWrite(f"template {template.name!r} is being changed by somebody else; look at it again in a moment")
    try:
        kept = await store.templates.get(template.template_id)
        if revision(kept) != seen:
            raise StaleWrite(f"template {kept.name!r} was changed by somebody else meanwhile; look at it again, then change it")
        return await store.templates.save(template)
    finally:
        await store.leases.release(lease)
