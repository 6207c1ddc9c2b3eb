"""The page on templates knows every field and is right in its examples."""

import re
from typing import Any

import pytest

from docs.pages import page, rows, section
from docs.template_page import MARK, fields, reference
from drumbeat.bench.model.capacity import HostCapacity
from drumbeat.bench.templates import parse, plan_of
from drumbeat.bench.workloads.value_sources import SOURCES

EXAMPLES = re.findall(r"```yaml\n(.*?)```", page("templates"), re.DOTALL)
HOST = HostCapacity(cpu_cores=4, memory_gb=16)


def test_the_fields_are_written_as_they_are() -> None:
    _, mark, written = page("templates").partition(MARK)

    assert mark
    assert written.strip() == reference().strip(), "run: .venv/bin/python tests/docs/template_page.py"


def test_the_list_of_fields_goes_into_every_block() -> None:
    found = {path for path, _ in fields()}

    assert {"target.url", "slo.KIND.p95_ms", "workload.operations.N.statements.N.sql", "find_max.bisect", "seed"} <= found


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_is_a_template(example: str) -> None:
    assert plan_of(parse(example), HOST).duration


def test_every_way_to_say_a_workload_is_there() -> None:
    told = {row[0].split("`")[1] for row in rows(section(page("templates"), "## Workload"))}

    assert told == {"standard", "preset", "custom_*_query", "operations"}


def test_every_source_of_values_is_there() -> None:
    told = section(page("templates"), "## Workload")

    assert all(f"`{name}`" in told for name in SOURCES)


@pytest.mark.parametrize(
    ("spelled", "canonical"),
    [
        ({"load_mode": "find_max"}, {"load_mode": "FIND_MAX_CONCURRENCY"}),
        ({"timing": {"duration": "5m"}}, {"timing": {"duration_seconds": 300}}),
        ({"start_concurrency": 3}, {"find_max": {"start_connections": 3}}),
        ({"concurrency_increment": 3}, {"find_max": {"connections_increment": 3}}),
        ({"mix_preset": "mixed"}, {"workload": {"preset": "mixed"}}),
        ({"autoscale_enabled": True}, {"scaling": {"mode": "AUTO"}, "guardrails": {"mode": "soft"}}),
        ({"scaling": {"max_workers": -1}}, {"scaling": {"max_workers": None}}),
    ],
)
def test_what_the_page_says_of_spellings_is_so(spelled: dict[str, Any], canonical: dict[str, Any]) -> None:
    assert parse(spelled) == parse(canonical)
