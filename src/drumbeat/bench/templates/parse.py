"""Reads templates from YAML, JSON or plain data, validates them, and applies ``path=value`` settings."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from drumbeat.bench.templates.document import TemplateDocument
from drumbeat.bench.templates.problems import problems_of
from drumbeat.bench.templates.spellings import SPELLINGS, Path, canonical, canonical_path
from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import check_size, read_json, short_repr, whole_number
from drumbeat.yaml_text import read_yaml

_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*"?)|//[^\n]*')  #: a string or a // comment; an unclosed string ends with its line
_EXPECTED = "a template in YAML or JSON"
_MOST_SETTINGS = 1000
_MOST_PROBLEMS = 20  #: how many problems one error lists


def _without_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise InvalidInput(f"expected a template in JSON, got the field {name!r} twice; remove one of them")
        fields[name] = value
    return fields


def parse(source: str | bytes | Mapping[str, Any]) -> TemplateDocument:
    """Read and validate a template from YAML, from JSON (// comments allowed) or from plain data.

    Raises one InvalidInput that counts the invalid fields and lists the first 20: path, expected value, found value.
    """
    fields = source if isinstance(source, Mapping) else read(source)
    check_size(fields, "a template")
    tree, problems = canonical(fields)
    try:
        document = TemplateDocument.model_validate(tree)
    except ValidationError as exc:
        raise _refused([*problems, *problems_of(exc, _MOST_PROBLEMS)], len(problems) + exc.error_count()) from None
    if problems:
        raise _refused(problems, len(problems))
    return document


def read(text: str | bytes) -> Mapping[str, Any]:
    """Read plain data from YAML or JSON. Raises InvalidInput, without quoting the text: it could contain a password."""
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InvalidInput(
            f"expected a template in UTF-8, got an invalid byte at position {exc.start}; save it as UTF-8"
        ) from exc
    found = _json(decoded) if decoded.lstrip().startswith(("{", "//")) else read_yaml(decoded, _EXPECTED)
    if not isinstance(found, Mapping):
        raise InvalidInput(f"expected a template to be an object with fields, got {type(found).__name__}")
    return found


def _json(text: str) -> Any:
    """Parse JSON with // comments; text without double quotes, such as {a: 1}, is parsed as YAML."""
    bare = _COMMENT.sub(lambda found: found[1] or "", text)
    return read_json(bare, "a template", object_pairs_hook=_without_duplicates) if '"' in bare else read_yaml(text, _EXPECTED)


def _refused(problems: Sequence[str], count: int) -> InvalidInput:
    """Return the error for an invalid template; its message lists the first problems and says how many there are in all."""
    if count == 1:
        return InvalidInput(f"the template is wrong at {problems[0]}")
    named = problems[:_MOST_PROBLEMS]
    others = [f"and in {count - len(named)} more"] if count > len(named) else []
    return InvalidInput("\n  ".join([f"the template is wrong in {count} places:", *named, *others]))


def with_settings(document: TemplateDocument, settings: Sequence[str]) -> TemplateDocument:
    """Apply ``path=value`` settings to a document, in order. Values are read as YAML; paths can use older field names."""
    if len(settings) > _MOST_SETTINGS:
        raise InvalidInput(f"expected at most {_MOST_SETTINGS} settings, got {len(settings)}; put them in the template")
    tree = document.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    for setting in settings:
        path, value = _setting(setting)
        _assign(tree, path, value, setting.partition("=")[0])
    return parse(tree)


def _setting(text: str) -> tuple[Path, Any]:
    name, separator, value = text.partition("=")
    path = tuple(part.strip() for part in name.strip().split("."))
    if not separator or not all(path):
        raise InvalidInput(f"expected a setting such as scaling.max_workers=10, got {name!r}: a name or = is missing")
    try:
        return canonical_path(path), read_yaml(value, "a value in YAML") if value.strip() else ""
    except InvalidInput as exc:
        raise InvalidInput(f"{name}: {exc}") from None


def _assign(tree: dict[str, Any], path: Path, value: Any, name: str) -> None:
    node: Any = tree
    for step, following in pairwise(path):
        node = node[_index(node, step, name)] if isinstance(node, list) else node.setdefault(step, {})
        if not isinstance(node, dict | list):
            raise InvalidInput(f"{name}: {step} is {short_repr(node)} and has no field {following!r}")
    if isinstance(node, list):
        node[_index(node, path[-1], name)] = value
    else:
        node[path[-1]] = value


def _index(items: Sequence[Any], step: str, name: str) -> int:
    index = whole_number(step)
    if index is None or index >= len(items):
        raise InvalidInput(f"{name}: expected a list index from 0 to {len(items) - 1}, got {short_repr(step)}")
    return index


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of templates, for editors; older field names are marked as deprecated."""
    schema = TemplateDocument.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    _add(schema, schema, ("autoscale_enabled",), "true is scaling.mode AUTO, false is FIXED", {"type": "boolean"})
    for old, new in SPELLINGS.items():
        _add(schema, schema, old, f"the same as {'.'.join(new)}", _schema_at(schema, new))
    return schema


def _add(schema: dict[str, Any], node: dict[str, Any], path: Path, description: str, like: Mapping[str, Any]) -> None:
    for step in path[:-1]:
        node = _resolve(schema, node["properties"][step])
    known = {name: value for name, value in like.items() if name not in ("default", "title", "description")}
    node.setdefault("properties", {})[path[-1]] = {**known, "description": description, "deprecated": True}


def _schema_at(schema: dict[str, Any], path: Path) -> Mapping[str, Any]:
    node: dict[str, Any] = schema
    for step in path:
        inner = node.get("properties", {}).get(step) or node["additionalProperties"]
        node = _resolve(schema, inner)
    return node


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that the node's ``$ref`` refers to, also if the ``$ref`` is in its ``anyOf`` (as for a field that may
    be null). Without a ``$ref``, return the node itself."""
    referring: Mapping[str, Any] = next((each for each in (node, *node.get("anyOf", ())) if "$ref" in each), {})
    name = str(referring.get("$ref", "")).rpartition("/")[2]
    return schema["$defs"][name] if name else node
