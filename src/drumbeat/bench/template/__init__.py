"""Templates: validated documents that runs are made from."""

from drumbeat.bench.template.document import TemplateDocument, check_no_password, holds_password
from drumbeat.bench.template.parse import json_schema, parse, with_settings
from drumbeat.bench.template.plan import most_connections, plan_of, plan_warnings
from drumbeat.bench.template.resolve import resolved
from drumbeat.bench.template.run_config import (
    check_complete,
    missing_fields,
    run_config,
    with_url,
)

__all__ = [
    "TemplateDocument",
    "check_complete",
    "check_no_password",
    "holds_password",
    "json_schema",
    "missing_fields",
    "most_connections",
    "parse",
    "plan_of",
    "plan_warnings",
    "resolved",
    "run_config",
    "with_settings",
    "with_url",
]
