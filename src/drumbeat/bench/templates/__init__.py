"""Templates: validated documents from which runs are created."""

from drumbeat.bench.templates.document import TemplateDocument, check_no_password
from drumbeat.bench.templates.parse import json_schema, parse, with_settings
from drumbeat.bench.templates.plan import most_connections, plan_of, plan_warnings
from drumbeat.bench.templates.resolve import resolved
from drumbeat.bench.templates.run_config import check_complete, missing_fields, run_config, with_url

__all__ = [
    "TemplateDocument",
    "check_complete",
    "check_no_password",
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
