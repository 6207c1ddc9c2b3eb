"""The value sources (key, new_key, pool …) that a template can use for placeholders: names, fields and JSON Schema."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any

import msgspec

from drumbeat.bench.model import KeyValue, NewKey, Now, PoolValue, RandomNumber, RandomText, RandomUuid, SameAs, Value
from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import short_repr

_TYPE = "the SQL type of the value: int, bigint, float, text or timestamp"
_SYNONYMS = {"min": "low", "minimum": "low", "from": "low", "max": "high", "maximum": "high", "to": "high", "start": "first"}
_CUTOFF = 0.6  #: how similar an unknown name must be to a known one to be suggested


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSource:
    """Describes one kind of value source, which supplies the values of a placeholder: its class, meaning and fields."""

    of: type[Any]
    meaning: str
    fields: Mapping[str, str]
    bounds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  #: limits by field, as JSON Schema keywords


_SHARE = {"exclusiveMinimum": 0, "maximum": 1}

SOURCES: Mapping[str, ValueSource] = {
    "key": ValueSource(
        of=KeyValue,
        meaning="an existing key between two bounds, chosen by a distribution",
        fields={
            "low": "the lowest key",
            "high": "the highest key",
            "distribution": "how keys are chosen: uniform, zipfian, hotspot, sequential or latest",
            "theta": "zipfian and latest: the skew, between 0 and 1",
            "hot_share": "hotspot: the share of the keys that are hot",
            "hot_load": "hotspot: the share of the operations that use the hot keys",
            "inserted": "latest: a `new_key` of the same load, whose keys are newer than `high`",
            "type": _TYPE,
        },
        bounds={"theta": {"exclusiveMinimum": 0, "exclusiveMaximum": 1}, "hot_share": _SHARE, "hot_load": _SHARE},
    ),
    "new_key": ValueSource(
        of=NewKey,
        meaning="a new key for inserts; each worker has its own range, so keys never collide",
        fields={
            "first": "the first new key; must be above all existing keys",
            "span": "how many keys one worker may use",
            "table": "the table that gets the keys: with `column`, `first` is moved above the existing keys when a run begins",
            "column": "the column of `table` that gets the keys",
            "type": _TYPE,
        },
        bounds={"span": {"minimum": 1}},
    ),
    "pool": ValueSource(
        of=PoolValue,
        meaning="a value from a list; no two workers use the same position of the list",
        fields={"values": "the list, with more values than the highest worker slot; 64 are always enough", "type": _TYPE},
    ),
    "number": ValueSource(
        of=RandomNumber,
        meaning="a random number between two bounds, uniformly distributed",
        fields={
            "low": "the lowest number",
            "high": "the highest number",
            "scale": "decimal places, with the type float: 12345 at scale 2 is 123.45",
            "type": _TYPE,
        },
        bounds={"scale": {"minimum": 0, "maximum": 18}},
    ),
    "text": ValueSource(
        of=RandomText,
        meaning="random letters and digits",
        fields={"length": "the number of characters", "type": _TYPE},
        bounds={"length": {"minimum": 1, "maximum": 65_536}},
    ),
    "uuid": ValueSource(of=RandomUuid, meaning="a random UUID (version 4)", fields={"type": _TYPE}),
    "now": ValueSource(of=Now, meaning="the time when the operation was generated", fields={"type": _TYPE}),
    "same_as": ValueSource(
        of=SameAs,
        meaning="an earlier value of the same operation, plus a number",
        fields={
            "index": "which value, counted from 0 over all statements of the operation",
            "plus": "the number to add",
            "type": _TYPE,
        },
        bounds={"index": {"minimum": 0}},
    ),
}


def value_of(where: str, given: Any) -> Value:
    """Create a value source from plain data such as ``{"key": {"high": 1000}}``. Raises InvalidInput."""
    if not isinstance(given, Mapping) or len(given) != 1:
        raise InvalidInput(f"{where}: expected one of {', '.join(SOURCES)} with its settings, got {short_repr(given)}")
    ((name, settings),) = given.items()
    if name not in SOURCES:
        meant = _nearest(str(name), SOURCES)
        hint = f"; did you mean {meant}?" if meant else ""
        raise InvalidInput(f"{where}: expected one of {', '.join(SOURCES)}, got {short_repr(name)}{hint}")
    fields_given = {} if settings is None else settings
    _check_known(f"{where}.{name}", SOURCES[name].of, fields_given)
    try:
        value: Value = msgspec.convert(fields_given, SOURCES[name].of)
    except (msgspec.ValidationError, InvalidInput) as exc:
        raise InvalidInput(f"{where}.{name}: {exc}") from exc
    return value


def check_names(where: str, given: Mapping[Any, Any], known: Mapping[str, Any] | tuple[str, ...]) -> None:
    """Raise InvalidInput if a field is not in ``known``; the message suggests the name that was probably meant."""
    for name in given:
        if name in known:
            continue
        meant = _nearest(str(name), known)
        hint = f"did you mean {meant}?" if meant else f"expected one of {', '.join(known)}"
        raise InvalidInput(f"{where}: there is no field {short_repr(name)}; {hint}")


def _check_known(where: str, of: type[Any], given: Any) -> None:
    """Raise InvalidInput for an unknown field of a value source or of a source nested in it."""
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where}: expected an object with its settings, got {short_repr(given)}")
    inner = {each.name: _within(each.type) for each in fields(of)}
    check_names(where, given, inner)
    for name, block in inner.items():
        if block is not None and given.get(name) is not None:
            _check_known(f"{where}.{name}", block, given[name])


def _within(annotation: Any) -> type[Any] | None:
    parts = (annotation, *getattr(annotation, "__args__", ()))
    return next((part for part in parts if is_dataclass(part) and isinstance(part, type)), None)


def _nearest(name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str | None:
    meant = _SYNONYMS.get(name.lower())
    if meant in known:
        return meant
    return next(iter(get_close_matches(name.lower(), list(known), n=1, cutoff=_CUTOFF)), None)


def values_schema() -> dict[str, Any]:
    """Return the JSON Schema of a list of value sources, one for each placeholder."""
    return {"type": "array", "items": {"oneOf": [_source_schema(name, source) for name, source in SOURCES.items()]}}


def _source_schema(name: str, source: ValueSource) -> dict[str, Any]:
    settings = _settings_schema(source)
    if not settings.get("required"):
        settings = {"anyOf": [settings, {"type": "null"}]}
    return {
        "type": "object",
        "title": name,
        "description": source.meaning,
        "properties": {name: settings},
        "required": [name],
        "additionalProperties": False,
    }


def _settings_schema(source: ValueSource) -> dict[str, Any]:
    plain = msgspec.json.schema(source.of, schema_hook=lambda _: {"title": "anything"})
    schema: dict[str, Any] = _inlined(plain["$defs"][source.of.__name__], plain["$defs"])
    for name, meaning in source.fields.items():
        schema["properties"][name] |= {"description": meaning, **source.bounds.get(name, {})}
    return schema


def _inlined(schema: Any, known: Mapping[str, Any]) -> Any:
    """Return a copy of a schema in which references are resolved and additional properties are not allowed."""
    if isinstance(schema, list):
        return [_inlined(each, known) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        rest = {name: value for name, value in schema.items() if name != "$ref"}
        return {**_inlined(known[str(schema["$ref"]).rpartition("/")[2]], known), **rest}
    found = {name: _inlined(value, known) for name, value in schema.items() if name not in ("title", "description")}
    return {**found, "additionalProperties": False} if "properties" in found else found


def documented() -> Iterator[tuple[str, str, str, str]]:
    """Yield rows for the documentation: value source, field, default (empty if there is none), description."""
    for name, source in SOURCES.items():
        yield name, "", "", source.meaning
        for each in fields(source.of):
            default = "" if each.default is MISSING else (str(each.default) or "None")
            yield name, each.name, default, source.fields[each.name]
