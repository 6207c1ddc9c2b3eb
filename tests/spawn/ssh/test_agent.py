"""The agent's modules fit old Pythons, and need nothing but their standard library and each other."""

import ast
import json
import sys

import pytest

from drumbeat.spawn.ssh import session

MODULES = {name: ast.parse(source, feature_version=(3, 8)) for name, source in json.loads(session._PROGRAM).items()}


@pytest.mark.parametrize("name", MODULES)
def test_the_agent_is_written_in_python_3_8(name: str) -> None:
    assert any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in MODULES[name].body)


@pytest.mark.parametrize("name", MODULES)
def test_the_agent_imports_only_the_standard_library_and_what_is_sent_before_it(name: str) -> None:
    imported = {alias.name for node in ast.walk(MODULES[name]) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(MODULES[name]) if isinstance(node, ast.ImportFrom)}
    before = list(MODULES)[: list(MODULES).index(name)]

    assert {each for each in imported if each.partition(".")[0] not in sys.stdlib_module_names} <= set(before)
