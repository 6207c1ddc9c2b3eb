"""A hash of the code that a benchmark ran, which shows whether the figures of two runs come from the same code."""

import ast
import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_LENGTH = 12


def loaded_files() -> list[Path]:
    """Return the project's Python files that this process has loaded."""
    files = {Path(file).resolve() for module in [*sys.modules.values()] if (file := getattr(module, "__file__", None))}
    return sorted(file for file in files if file.suffix == ".py" and file.is_relative_to(ROOT) and ".venv" not in file.parts)


def fingerprint(files: Iterable[Path]) -> str:
    """Return a hash of these files that does not depend on comments, docstrings and layout."""
    found = hashlib.sha256()
    for file in files:
        found.update(f"{file.relative_to(ROOT)}\n{_code(file.read_text())}\n".encode())
    return found.hexdigest()[:_LENGTH]


def _code(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    return ast.dump(tree)
