"""Checks requests and answers against an OpenAPI 3.1 file: the part of JSON Schema that RunPod's uses."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

SCHEMA_VARIABLE = "DRUMBEAT_RUNPOD_SCHEMA"
SCHEMA_FILE = Path(
    os.environ.get(SCHEMA_VARIABLE, Path(__file__).parents[4] / "shared" / "data" / "runpod" / "openapi-v2.json")
)
_WORDS = """
    $ref type properties required additionalProperties unevaluatedProperties items maxItems minItems minLength minimum maximum
    minProperties pattern enum format allOf anyOf oneOf not if then else default description examples example title deprecated
"""
KNOWN = frozenset(_WORDS.split())
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


class OpenApi:
    """One file. Every check yields sentences; none means that all is well."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def check_request(self, method: str, template: str, query: str, body: bytes) -> Iterator[str]:
        """What is wrong with a call of an operation."""
        operation = self._document["paths"][template][method.lower()]
        parameters = [self._resolved(each) for each in operation.get("parameters", ())]
        yield from self._check_query({each["name"]: each for each in parameters if each["in"] == "query"}, query)
        wanted = operation.get("requestBody")
        if wanted is None:
            yield from ["body: none expected"] if body else []
            return
        yield from self._check_json(wanted["content"]["application/json"]["schema"], body)

    def check_answer(self, method: str, template: str, status: int, body: bytes) -> Iterator[str]:
        """What is wrong with an answer."""
        answers = self._document["paths"][template][method.lower()]["responses"]
        answer = self._resolved(answers.get(str(status), answers["default"]))
        content = next(iter(answer.get("content", {}).values()), None)
        if content is None:
            yield from ["body: none expected"] if body else []
            return
        yield from self._check_json(content["schema"], body)

    def check(self, schema: Mapping[str, Any], value: Any, at: str = "$") -> Iterator[str]:
        """What is wrong with a value."""
        if unknown := {word for word in schema if not word.startswith("x-")} - KNOWN:
            yield f"{at}: this validator does not know {sorted(unknown)}"
        if "$ref" in schema:
            yield from self.check(self._target(schema["$ref"]), value, at)
        yield from _check_plain(schema, value, at)
        yield from self._check_combined(schema, value, at)
        if isinstance(value, dict):
            yield from self._check_object(schema, value, at)
        if isinstance(value, list):
            yield from self._check_array(schema, value, at)

    def _check_query(self, parameters: Mapping[str, Any], query: str) -> Iterator[str]:
        given = dict(parse_qsl(query, keep_blank_values=True))
        yield from (f"query: unknown parameter {name!r}" for name in given if name not in parameters)
        yield from (
            f"query: {name!r} is required" for name, each in parameters.items() if each.get("required") and name not in given
        )
        for name in given.keys() & parameters.keys():
            schema = self._resolved(parameters[name]["schema"])
            yield from self.check(schema, _query_value(schema, given[name]), f"query.{name}")

    def _check_json(self, schema: Mapping[str, Any], body: bytes) -> Iterator[str]:
        try:
            value = json.loads(body)
        except ValueError:
            yield "$: not JSON"
            return
        yield from self.check(schema, value)

    def _check_combined(self, schema: Mapping[str, Any], value: Any, at: str) -> Iterator[str]:
        for part in schema.get("allOf", ()):
            yield from self.check(part, value, at)
        if "anyOf" in schema and not any(self._fits(part, value) for part in schema["anyOf"]):
            yield f"{at}: fits none of the choices"
        if "oneOf" in schema and sum(self._fits(part, value) for part in schema["oneOf"]) != 1:
            yield f"{at}: fits not exactly one of the choices"
        if "not" in schema and self._fits(schema["not"], value):
            yield f"{at}: is what it must not be"
        if "if" in schema:
            yield from self.check(schema.get("then" if self._fits(schema["if"], value) else "else", {}), value, at)

    def _check_object(self, schema: Mapping[str, Any], value: Mapping[str, Any], at: str) -> Iterator[str]:
        yield from (f"{at}: {name!r} is required" for name in schema.get("required", ()) if name not in value)
        if len(value) < schema.get("minProperties", 0):
            yield f"{at}: has {len(value)} properties"
        named = schema.get("properties", {})
        for name in value.keys() & named.keys():
            yield from self.check(named[name], value[name], f"{at}.{name}")
        others = sorted(value.keys() - named.keys())
        if schema.get("additionalProperties") is False:
            yield from (f"{at}: additional properties {name!r} not allowed" for name in others)
        elif isinstance(schema.get("additionalProperties"), dict):
            for name in others:
                yield from self.check(schema["additionalProperties"], value[name], f"{at}.{name}")
        if schema.get("unevaluatedProperties") is False:
            unexpected = sorted(value.keys() - self._evaluated(schema, value))
            yield from (f"{at}: additional properties {name!r} not allowed" for name in unexpected)

    def _check_array(self, schema: Mapping[str, Any], value: list[Any], at: str) -> Iterator[str]:
        if len(value) > schema.get("maxItems", len(value)) or len(value) < schema.get("minItems", 0):
            yield f"{at}: has {len(value)} items"
        for index, item in enumerate(value if "items" in schema else ()):
            yield from self.check(schema["items"], item, f"{at}[{index}]")

    def _evaluated(self, schema: Mapping[str, Any], value: Mapping[str, Any]) -> set[str]:
        """The properties that the schema or one of its parts speaks of."""
        found = set(schema.get("properties", ()))
        if schema.get("additionalProperties", False) is not False:
            found |= set(value)
        choices = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        parts = [*schema.get("allOf", ()), *(part for part in choices if self._fits(part, value))]
        parts += [self._target(schema["$ref"])] if "$ref" in schema else []
        return found.union(*(self._evaluated(part, value) for part in parts))

    def _fits(self, schema: Mapping[str, Any], value: Any) -> bool:
        return next(self.check(schema, value), None) is None

    def _resolved(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._target(part["$ref"]) if set(part) == {"$ref"} else part

    def _target(self, reference: str) -> Mapping[str, Any]:
        found: Any = self._document
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
        assert isinstance(found, dict)
        return found


@cache
def find_schema(file: Path = SCHEMA_FILE) -> OpenApi | None:
    """RunPod's; None where its file is not."""
    return OpenApi(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def _check_plain(schema: Mapping[str, Any], value: Any, at: str) -> Iterator[str]:
    if "type" in schema and not _is_of(schema["type"], value):
        yield f"{at}: expected {schema['type']}, got {type(value).__name__}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: expected one of {schema['enum']}"
    if isinstance(value, str):
        yield from _check_text(schema, value, at)
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(schema, value, at)


def _check_number(schema: Mapping[str, Any], value: float, at: str) -> Iterator[str]:
    if value < schema.get("minimum", value):
        yield f"{at}: below {schema['minimum']}"
    if value > schema.get("maximum", value):
        yield f"{at}: above {schema['maximum']}"


def _check_text(schema: Mapping[str, Any], value: str, at: str) -> Iterator[str]:
    if len(value) < schema.get("minLength", 0):
        yield f"{at}: too short"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{at}: does not match {schema['pattern']}"
    if schema.get("format") == "date-time" and not _is_moment(value):
        yield f"{at}: not a moment with its offset"


def _is_of(kinds: str | list[str], value: Any) -> bool:
    names = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES[name]) for name in names)


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _query_value(schema: Mapping[str, Any], text: str) -> Any:
    """What a query's text stands for, if it can stand for it."""
    kind = schema.get("type")
    if kind == "array":
        return text.split(",")
    if kind == "integer" and text.lstrip("-").isdecimal():
        return int(text)
    return text == "true" if kind == "boolean" and text in {"true", "false"} else text
