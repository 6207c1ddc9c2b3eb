"""Error messages for invalid templates: which field, what was expected, what was found."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from drumbeat.bench.templates.document import TemplateDocument
from drumbeat.bench.templates.spellings import SPELLINGS
from drumbeat.core.plain import short_repr

_NAMED = re.compile(r"[a-z_]+(\[\d+\])?( \(.*?\))?[\w.\[\]]*: ")
_SECRET = ("url", "password")  #: fields that errors never show

_EXPECTED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "int_type": lambda _: "a whole number",
    "int_parsing": lambda _: "a whole number",
    "int_from_float": lambda _: "a whole number",
    "float_type": lambda _: "a number",
    "float_parsing": lambda _: "a number",
    "finite_number": lambda _: "a finite number",
    "bool_type": lambda _: "true or false",
    "bool_parsing": lambda _: "true or false",
    "string_type": lambda _: "text",
    "list_type": lambda _: "a list",
    "tuple_type": lambda _: "a list of two numbers",
    "too_long": lambda given: f"at most {given['max_length']} items",
    "dict_type": lambda _: "an object",
    "model_type": lambda _: "an object",
    "enum": lambda given: f"one of {given['expected']}",
    "missing": lambda _: "a value (required)",
    "greater_than_equal": lambda given: f"{_number(given['ge'])} or more",
    "greater_than": lambda given: f"more than {_number(given['gt'])}",
    "less_than_equal": lambda given: f"{_number(given['le'])} or less",
    "less_than": lambda given: f"less than {_number(given['lt'])}",
    "string_too_short": lambda _: "some text",
    "string_too_long": lambda given: f"at most {given['max_length']} characters",
}


def _number(bound: float) -> str:
    return f"{int(bound):,}" if float(bound).is_integer() else f"{bound:g}"


def problems_of(error: ValidationError, most: int) -> list[str]:
    """Return at most ``most`` errors as text: field, expected value, found value. Possible secrets are not shown."""
    return [_problem(each) for each in error.errors(include_url=False)[:most]]


def _problem(error: Mapping[str, Any]) -> str:
    path = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"{path}: {unknown(tuple(map(str, error['loc'])))}"
    if error["type"] == "value_error":
        return _check_message(path, str(error["ctx"]["error"]), error["input"])
    expected = _EXPECTED.get(error["type"])
    description = expected(error.get("ctx", {})) if expected else str(error["msg"])
    return f"{path or 'the template'}: expected {description}{_got(path, error['input'])}"


def _check_message(path: str, message: str, given: Any) -> str:
    """Put a block's path before an error message: ``path.field: …`` if the message begins with a field, else ``path: …``."""
    if not path or _NAMED.match(message):
        return f"{path}.{message}".lstrip(".")
    return f"{path}: {message}{_got(path, given)}"


def _got(path: str, given: Any) -> str:
    if isinstance(given, Mapping | BaseModel) or path.rpartition(".")[2] in _SECRET:
        return ""
    return f", got {short_repr(given)}"


def unknown(path: tuple[str, ...]) -> str:
    """Return the message for an unknown field, with the field that was probably meant."""
    if "passw" in path[-1].lower():
        return "passwords are not stored in templates; set DRUMBEAT_TARGET_PASSWORD"
    meant = near(path)
    if meant:
        return f"there is no such field; did you mean {meant}?"
    return f"there is no such field; expected one of {', '.join(_siblings(path))}"


def near(path: tuple[str, ...]) -> str | None:
    """Return the field that an unknown path probably means: the same name in another block, else a similar name."""
    name = path[-1].lower()
    if elsewhere := [field for field in FIELDS if field.rpartition(".")[2] == name]:
        return elsewhere[0]
    prefix = ".".join(path[:-1])
    for names in (_siblings(path), [field.rpartition(".")[2] for field in FIELDS]):
        if found := get_close_matches(name, names, n=1, cutoff=0.6):
            same_place = f"{prefix}.{found[0]}" if prefix else found[0]
            return same_place if found[0] in _siblings(path) else next(f for f in FIELDS if f.rpartition(".")[2] == found[0])
    return None


def _siblings(path: Sequence[str]) -> list[str]:
    model: type[BaseModel] | None = TemplateDocument
    for step in path[:-1]:
        if model is not None and step in model.model_fields:
            model = _model_in(model.model_fields[step].annotation)
    if model is None:
        return []
    other = [old[-1] for old in SPELLINGS if old[:-1] == tuple(path[:-1])]
    return [*model.model_fields, *other] if len(path) > 1 else list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the class of the block that a field, list or mapping of this type contains; None if it contains no block."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner))), None)


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields(inner, f"{prefix}{name}.")


FIELDS: tuple[str, ...] = tuple(_fields(TemplateDocument))  #: the paths of all fields, except inside lists and mappings
