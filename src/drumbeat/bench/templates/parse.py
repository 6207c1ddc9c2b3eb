"""Reading templates: from YAML, JSON or plain data to a checked document, with settings of the command line put in."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from drumbeat.bench.templates.document import TemplateDocument
from drumbeat.bench.templates.problems import problems_of
from drumbeat.bench.templates.spellings import SPELLINGS, Path, canonical, canonical_path
from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import check_size, read_json, shown
from drumbeat.yaml_text import read_yaml

_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*"?)|//[^\n]*')  #: a text that is not closed ends with its line
_EXPECTED = "a template in YAML or JSON"
_MOST_SETTINGS = 1000
_MOST_PROBLEMS = 20  #: listed in one refusal


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise InvalidInput(f"expected a template in JSON, got the field {name!r} twice; keep one of them")
        fields[name] = value
    return fields


def parse(source: str | bytes | Mapping[str, Any]) -> TemplateDocument:
    """A template from YAML or JSON (comments allowed), or from plain data.

    Raises one InvalidInput that counts the fields that are wrong and lists the first 20: path, what was expected, what was got.
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
    """Plain data from YAML or JSON. Raises InvalidInput; what the text says is not repeated, for it may hold a password."""
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"expected a template in UTF-8, got a byte that is not at {exc.start}") from exc
    found = _json(decoded) if decoded.lstrip().startswith(("{", "//")) else read_yaml(decoded, _EXPECTED)
    if not isinstance(found, Mapping):
        raise InvalidInput(f"expected a template to be an object with fields, got {type(found).__name__}")
    return found


def _json(text: str) -> Any:
    """JSON; without quotes it is YAML (a flow mapping)."""
    bare = _COMMENT.sub(lambda found: found[1] or "", text)
    return read_json(bare, "a template", object_pairs_hook=_once) if '"' in bare else read_yaml(text, _EXPECTED)


def _refused(problems: Sequence[str], count: int) -> InvalidInput:
    """A refusal that names the first problems of so many."""
    if count == 1:
        return InvalidInput(f"the template is wrong at {problems[0]}")
    named = problems[:_MOST_PROBLEMS]
    others = [f"and in {count - len(named)} more"] if count > len(named) else []
    return InvalidInput("\n  ".join([f"the template is wrong in {count} places:", *named, *others]))


def with_settings(document: TemplateDocument, settings: Sequence[str]) -> TemplateDocument:
    """The document with ``path=value`` settings put in, in turn; a value is YAML, a path may be any spelling of a field's."""
    if len(settings) > _MOST_SETTINGS:
        raise InvalidInput(f"expected at most {_MOST_SETTINGS} settings, got {len(settings)}; write them into the template")
    tree = document.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    for setting in settings:
        path, value = _setting(setting)
        _assign(tree, path, value, setting.partition("=")[0])
    return parse(tree)


def _setting(text: str) -> tuple[Path, Any]:
    name, is_one, value = text.partition("=")
    path = tuple(part.strip() for part in name.strip().split("."))
    if not is_one or not all(path):
        raise InvalidInput(f"expected a setting such as scaling.max_workers=10, got {name!r} without a value or a name")
    try:
        return canonical_path(path), read_yaml(value, "a value in YAML") if value.strip() else ""
    except InvalidInput as exc:
        raise InvalidInput(f"{name}: {exc}") from None


def _assign(tree: dict[str, Any], path: Path, value: Any, said: str) -> None:
    place: Any = tree
    for step, following in pairwise(path):
        place = place[_index(place, step, said)] if isinstance(place, list) else place.setdefault(step, {})
        if not isinstance(place, dict | list):
            raise InvalidInput(f"{said}: {step} is {shown(place)} and has no field {following!r}")
    if isinstance(place, list):
        place[_index(place, path[-1], said)] = value
    else:
        place[path[-1]] = value


def _index(items: Sequence[Any], step: str, said: str) -> int:
    if not step.isdigit() or int(step) >= len(items):
        raise InvalidInput(f"{said}: expected a number from 0 to {len(items) - 1}, got {step!r}")
    return int(step)


def json_schema() -> dict[str, Any]:
    """The schema of templates, for editors; older spellings are in it as deprecated."""
    schema = TemplateDocument.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    _add(schema, schema, ("autoscale_enabled",), "true is scaling.mode AUTO, false is FIXED", {"type": "boolean"})
    for old, new in SPELLINGS.items():
        _add(schema, schema, old, f"the same as {'.'.join(new)}", _schema_at(schema, new))
    return schema


def _add(schema: dict[str, Any], place: dict[str, Any], path: Path, description: str, like: Mapping[str, Any]) -> None:
    for step in path[:-1]:
        place = _followed(schema, place["properties"][step])
    known = {name: value for name, value in like.items() if name not in ("default", "title", "description")}
    place.setdefault("properties", {})[path[-1]] = {**known, "description": description, "deprecated": True}


def _schema_at(schema: dict[str, Any], path: Path) -> Mapping[str, Any]:
    place: dict[str, Any] = schema
    for step in path:
        inner = place.get("properties", {}).get(step) or place["additionalProperties"]
        place = _followed(schema, inner)
    return place


def _followed(schema: dict[str, Any], place: dict[str, Any]) -> dict[str, Any]:
    """Where a reference leads."""
    name = str(place.get("$ref", "")).rpartition("/")[2]
    return schema["$defs"][name] if name else place
