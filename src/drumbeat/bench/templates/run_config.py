"""What a run's row keeps: the template as it was, the plan made from it, and the workload as workers read it."""

from typing import Any

import msgspec

from drumbeat.bench.model import RunPlan
from drumbeat.bench.templates.document import TemplateDocument
from drumbeat.bench.workloads.config import load_of
from drumbeat.core.errors import InvalidInput


def run_config(document: TemplateDocument, plan: RunPlan) -> dict[str, Any]:
    """The configuration of a run, for ``runs.config``. Raises InvalidInput naming every field a run needs and has not.

    A template whose SQL depends on its table (preset, custom_*_query, {table}) is settled by ``resolved`` before.
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
    """What a run needs and a template may lack."""
    found = []
    if not document.target.url:
        named = document.target.connection
        found.append(
            f"target.url: expected the URL of the connection {named!r}; look it up first"
            if named
            else "target.url: expected the URL of the database under test (or target.connection, a stored one)"
        )
    if not document.workload.ways:
        found.append("workload: expected one of standard, operations, preset (with table) or custom_*_query")
    return tuple(found)


def check_complete(document: TemplateDocument) -> None:
    """Raise InvalidInput naming what a run needs and the template lacks."""
    if missing := missing_fields(document):
        raise InvalidInput("\n  ".join(["this template cannot be run yet:", *missing]))


def with_url(document: TemplateDocument, url: str) -> TemplateDocument:
    """The template on the database at a URL: what a stored connection's name stands for."""
    return document.model_copy(update={"target": document.target.model_copy(update={"url": url})})


def workload_block(document: TemplateDocument) -> dict[str, Any]:
    """The workload as ``load_of`` takes it."""
    workload = document.workload
    block = workload.model_dump(mode="json", exclude_none=True)
    if not workload.standard and not workload.operations:
        raise InvalidInput("workload: its SQL is made for its table and has not been yet; call resolved() with the target open")
    if any("{table}" in statement.sql for each in load_of(block).operations for statement in each.statements):
        raise InvalidInput("workload.operations: {table} has not been replaced yet; call resolved() with the target open")
    return block
