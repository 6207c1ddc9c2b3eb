"""The guides for moving from other queues: their code compiles, and what they say of Drumbeat is so."""

import ast
import re
from pathlib import Path

import pytest

import drumbeat
from docs.pages import ROOT, page, rows, section

GUIDES = ("from-celery", "from-rq", "from-huey", "operations")
SECTIONS = ("The same app", "A chain", "Tests", "Terms", "What differs", "Move without losing jobs")


def blocks(name: str) -> list[str]:
    """The Python code of a page."""
    return re.findall(r"```python\n(.*?)```", page(name), re.DOTALL)


@pytest.mark.parametrize("name", GUIDES)
def test_the_code_of_a_guide_compiles(name: str) -> None:
    assert blocks(name)
    for number, block in enumerate(blocks(name), 1):
        compile(block, f"{name}, block {number}", "exec")


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_uses_only_names_that_drumbeat_has(name: str) -> None:
    names = {
        node.attr
        for block in blocks(name)
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "drumbeat"
    }
    planned = {"task"} - set(drumbeat.__all__)  # the decorator comes from another branch

    assert names - planned <= set(drumbeat.__all__)


@pytest.mark.parametrize("name", GUIDES[:3])
def test_a_guide_has_every_part(name: str) -> None:
    for heading in SECTIONS:
        assert section(page(name), f"## {heading}").strip()
    assert len(rows(section(page(name), "## Terms"))) >= 12


@pytest.mark.parametrize("name", GUIDES[:3])
def test_a_move_gives_each_job_an_id_so_that_it_can_be_repeated(name: str) -> None:
    [script] = [block for block in blocks(name) if "connect_blocking" in block]

    assert f'job_id=f"{name.removeprefix("from-")}-' in script
    removed = re.search(r"message\.ack\(\)|job\.delete\(\)|flush_queue\(\)", script)
    assert removed is not None
    assert script.index(".push(") < removed.start()


def test_every_option_of_the_operations_is_told() -> None:
    told = page("operations")
    source = Path(ROOT, "src/drumbeat/cli/pool_operations.py").read_text(encoding="utf-8")

    assert {spelt for spelt in re.findall(r'"(--[a-z-]+)"', source) if spelt not in ("--all",)} <= set(
        re.findall(r"--[a-z-]+", told)
    )
