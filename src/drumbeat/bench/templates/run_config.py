"""The configuration stored in a run's row: the template, its plan, and the workload for the workers."""

from typing import Any

import msgspec

from drumbeat.bench.model import RunPlan
from drumbeat.bench.templates.document import TemplateDocument
from drumbeat.bench.workloads.config import load_of
from drumbeat.core.errors import InvalidInput


def run_config(document: TemplateDocument, plan: RunPlan) -> dict[str, Any]:
    """Return the configuration of a run, as stored in ``runs.config``. Raises InvalidInput, which names every missing field.

    A template whose SQL depends on its table (preset, custom_*_query, {table}) must go through ``resolved`` first.
    """
    config = document.to_json()
    check_complete(document)
    scaling = {**config["scaling"], "max_connections": plan.scaling.cap}
    return {
        **config,
        "workload": workload_block(document),
        "scaling": scaling,
        "plan": msgspec.to_builtins(plan),
        "config_hash": document.config_hash,
    }


def missing_fields(document: TemplateDocument) -> tuple[str, ...]:
    """Return one message for each field that a run needs and the template lacks."""
    found = []
    if not document.target.url:
        named = document.target.connection
        found.append(
            f"target.url: expected the URL of the connection {named!r}, got none; look up the connection first"
            if named
            else "target.url: expected the URL of the database under test (or target.connection, a stored one)"
        )
    if not document.workload.ways:
        found.append("workload: expected one of standard, operations, preset (with table) or custom_*_query")
    return tuple(found)


def check_complete(document: TemplateDocument) -> None:
    """Raise InvalidInput if the template lacks a field that a run needs; the message names all missing fields."""
    if missing := missing_fields(document):
        raise InvalidInput("\n  ".join(["this template cannot be run yet:", *missing]))


def with_url(document: TemplateDocument, url: str) -> TemplateDocument:
    """Return a copy of the template with this target URL, for example the URL of a stored connection."""
    return document.model_copy(update={"target": document.target.model_copy(update={"url": url})})


def workload_block(document: TemplateDocument) -> dict[str, Any]:
    """Return the workload as plain data for ``load_of``. Raises InvalidInput if its SQL is not generated yet."""
    workload = document.workload
    block = workload.model_dump(mode="json", exclude_none=True)
    if not workload.standard and not workload.operations:
        raise InvalidInput("workload: its SQL is not generated yet; call resolved() with the open target first")
    if any("{table}" in statement.sql for each in load_of(block).operations for statement in each.statements):
        raise InvalidInput("workload.operations: {table} has not been replaced yet; call resolved() with the open target first")
    return block
