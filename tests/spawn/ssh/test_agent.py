"""The agent's program fits old Pythons, and needs nothing but their standard library."""

import ast
import sys
from pathlib import Path

from drumbeat.spawn.ssh import agent

SOURCE = ast.parse(Path(agent.__file__).read_text(), feature_version=(3, 8))


def test_the_agent_is_written_in_python_3_8() -> None:
    assert any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in SOURCE.body)


def test_the_agent_imports_only_the_standard_library() -> None:
    imported = {alias.name for node in ast.walk(SOURCE) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(SOURCE) if isinstance(node, ast.ImportFrom)}

    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
