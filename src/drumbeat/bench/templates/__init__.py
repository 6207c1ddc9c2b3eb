"""Benchmark templates: documents with all settings of a benchmark, validated before a run is created from one."""

from drumbeat.bench.templates.document import TemplateDocument as TemplateDocument, check_no_password as check_no_password
from drumbeat.bench.templates.parse import json_schema as json_schema, parse as parse, with_settings as with_settings
from drumbeat.bench.templates.plan import (
    most_connections as most_connections,
    plan_of as plan_of,
    plan_warnings as plan_warnings,
)
from drumbeat.bench.templates.resolve import resolved as resolved
from drumbeat.bench.templates.run_config import (
    check_complete as check_complete,
    missing_fields as missing_fields,
    run_config as run_config,
    with_url as with_url,
)
