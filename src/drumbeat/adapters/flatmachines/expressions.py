"""Evaluates Jinja expressions and keeps their types; FlatMachines renders every template to text."""

import ast
import re
from collections.abc import Mapping
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import SandboxedEnvironment

from drumbeat.core.errors import InvalidInput

_WHOLE = re.compile(r"\s*\{\{(.*)\}\}\s*", re.DOTALL)
_PATH = re.compile(r"(output|context|input)(\.[a-zA-Z_][a-zA-Z0-9_]*)*")
_KNOWN = frozenset({"context", "input", "output", "true", "false", "null", "True", "False", "None"})
_UNSUPPORTED = (ast.BitOr, ast.Call, ast.In, ast.NotIn, ast.Is, ast.IsNot)
_ENVIRONMENT = SandboxedEnvironment()
_ENVIRONMENT.globals["null"] = None


def whole_expression(template: Any) -> str | None:
    """Return the expression inside ``{{ }}`` if the template is exactly one expression; otherwise None."""
    found = _WHOLE.fullmatch(template) if isinstance(template, str) else None
    inner = found[1].strip() if found else ""
    return inner if inner and "{{" not in inner and "}}" not in inner else None


def bare(template: Any) -> Any:
    """Turn ``{{ context.x }}`` into ``context.x``, so that FlatMachines keeps the value's type. Others stay as they are."""
    inner = whole_expression(template)
    return inner if inner is not None and _PATH.fullmatch(inner) else template


def is_computed(template: Any) -> bool:
    """Whether a template is one expression, but not just a path (``context.x``); FlatMachines turns it into text."""
    inner = whole_expression(template)
    return inner is not None and not _PATH.fullmatch(inner)


def evaluate(template: Any, variables: Mapping[str, Any]) -> Any:
    """Compute a template. A single expression keeps its type; text with expressions in it becomes text.

    Raises InvalidInput if an expression is invalid or fails.
    """
    if isinstance(template, Mapping):
        return {key: evaluate(value, variables) for key, value in template.items()}
    if not isinstance(template, str):
        return template
    inner = whole_expression(template) or (template if _PATH.fullmatch(template) else None)
    return condition(inner, variables) if inner is not None else _text(template, variables)


def condition(expression: str, variables: Mapping[str, Any]) -> Any:
    """Compute an expression that has no braces. Raises InvalidInput if it is invalid or fails."""
    try:
        return _ENVIRONMENT.compile_expression(expression)(**variables)
    except (TemplateError, TypeError, ValueError, ArithmeticError) as exc:
        raise InvalidInput(f"failed to evaluate the expression {expression!r}: {exc}") from exc


def needs_jinja(expression: str) -> bool:
    """Whether a condition contains filters, calls, ``in``, ``is`` or unknown names, which only Jinja can evaluate."""
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError:
        return True
    return any(
        isinstance(node, _UNSUPPORTED) or (isinstance(node, ast.Name) and node.id not in _KNOWN) for node in ast.walk(tree)
    )


def _text(template: str, variables: Mapping[str, Any]) -> str:
    try:
        return _ENVIRONMENT.from_string(template).render(**variables)
    except (TemplateError, TypeError, ValueError, ArithmeticError) as exc:
        raise InvalidInput(f"failed to evaluate the template {template!r}: {exc}") from exc
