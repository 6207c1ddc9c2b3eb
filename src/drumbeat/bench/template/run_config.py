"""What a run's row keeps: the template as it was, the plan made from it, and the workload as workers read it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from drumbeat.bench.config import load_of
from drumbeat.bench.model import RunPlan, ScalingMode
from drumbeat.bench.template.document import TemplateDocument
from drumbeat.bench.template.parse import parse
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


def document_from_config(config: Mapping[str, Any]) -> TemplateDocument:
    """The template a run was made from, to run it again: without what was found out for that run alone."""
    bounds = plan_from_config(config).scaling
    given = {name: value for name, value in config["scaling"].items() if name != "max_connections"}
    if given.get("mode") != ScalingMode.FIXED and bounds.max_connections is not None:
        given["max_connections"] = bounds.max_connections
    fields = {name: value for name, value in config.items() if name not in ("plan", "config_hash")}
    return parse({**fields, "scaling": given})


def plan_from_config(config: Mapping[str, Any]) -> RunPlan:
    """The plan a run was made with. Raises InvalidInput when there is none, or it cannot be read."""
    if "plan" not in config:
        raise InvalidInput("expected the run's configuration to have a 'plan'; it was not made by this version's create_run")
    try:
        return msgspec.convert(config["plan"], RunPlan)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"plan: {exc}") from exc


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
