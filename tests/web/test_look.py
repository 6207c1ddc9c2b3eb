"""No style is compiled in the browser: a name that no stylesheet knows would do nothing, and say nothing."""

import ast
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import drumbeat.web.pages

PAGES = Path(drumbeat.web.pages.__file__).parent
_NAME = re.compile(r"\.(-?[a-zA-Z_][\w-]*)")


def used() -> Iterator[tuple[str, str]]:
    """Each name that a page gives to an element, and the file that does."""
    for file, node in nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "classes":
            given = [each.value for each in node.args if isinstance(each, ast.Constant)]
            yield from ((name, file) for names in given for name in str(names).split())


def known() -> set[str]:
    """Every name in a stylesheet of NiceGUI's or ours, or in a string of ours that reads like one."""
    theirs = [each for each in files("nicegui").joinpath("static").iterdir() if each.name.endswith(".css")]
    sheets = [each.read_text(encoding="utf-8") for each in (*theirs, *PAGES.rglob("*.css"))]
    written = [node.value for _, node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return {name for text in (*sheets, *(each for each in written if "{" in each)) for name in _NAME.findall(text)}


def nodes() -> Iterator[tuple[str, ast.AST]]:
    for file in PAGES.rglob("*.py"):
        yield from ((file.name, node) for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


def test_every_name_a_page_uses_is_in_a_stylesheet() -> None:
    there, given = known(), set(used())

    assert len(given) > 50
    assert sorted((name, file) for name, file in given if name not in there) == []
