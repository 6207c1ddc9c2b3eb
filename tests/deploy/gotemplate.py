"""Renders the templates of the Helm chart: only the part of Go templates that they use. Helm itself is not needed.

Known: fields of ``.Values``, ``.Release`` and variables; ``if``, ``else``, ``end``, ``range $x := LIST``; ``not``, ``quote``,
``indent``, ``toYaml``, ``required``, ``int64``. Anything else is an error, so that the chart stays within it. Numbers are
floats in Helm, which writes 1000000 as 1e+06: they need ``int64``.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

_ACTION = re.compile(r"(\s*)\{\{(-?)\s*(.*?)\s*\}\}", re.DOTALL)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')


class Unsupported(Exception):
    """The template uses something that this renderer does not know."""


class Missing(Exception):
    """A value that the template requires is empty."""


def render(template: str, values: Mapping[str, Any], release: Mapping[str, Any]) -> str:
    """Render one file of the chart."""
    root = {"Values": values, "Release": release}
    pieces = [*_pieces(template)]
    text, rest = _block(pieces, root, {"$": root})
    if rest:
        raise Unsupported(f"expected the end of the file, got {rest[0]}")
    return text


def _pieces(template: str) -> Iterator[tuple[str, str]]:
    at = 0
    for found in _ACTION.finditer(template):
        yield "text", template[at : found.start()] + ("" if found[2] else found[1])
        yield "action", found[3]
        at = found.end()
    yield "text", template[at:]


def _block(pieces: Sequence[tuple[str, str]], dot: Any, names: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """Render until the end of the block. Returns the text, and the pieces from its ``end`` or ``else`` on."""
    text, left = "", [*pieces]
    while left:
        kind, content = left[0]
        if kind == "action" and content in {"end", "else"}:
            return text, left
        left = left[1:]
        if kind == "text":
            text += content
        elif content.startswith("if "):
            more, left = _if(content.removeprefix("if "), left, dot, names)
            text += more
        elif content.startswith("range "):
            more, left = _range(content.removeprefix("range "), left, dot, names)
            text += more
        else:
            text += _spelt(_pipeline(content, dot, names))
    return text, left


def _if(
    condition: str, pieces: Sequence[tuple[str, str]], dot: Any, names: Mapping[str, Any]
) -> tuple[str, list[tuple[str, str]]]:
    holds = bool(_pipeline(condition, dot, names))
    first, left = _block(pieces, dot, names) if holds else ("", _skipped(pieces))
    if left[0][1] == "else":
        second, left = _block(left[1:], dot, names) if not holds else ("", _skipped(left[1:]))
        return first + second, left[1:]
    return first, left[1:]


def _range(
    header: str, pieces: Sequence[tuple[str, str]], dot: Any, names: Mapping[str, Any]
) -> tuple[str, list[tuple[str, str]]]:
    name, assigned, source = header.partition(" := ")
    if not assigned:
        raise Unsupported(f"range without a variable: {header}")
    text = "".join(_block(pieces, each, {**names, name: each})[0] for each in _pipeline(source, dot, names))
    return text, _skipped(pieces)[1:]


def _skipped(pieces: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    depth = 0
    for at, (kind, content) in enumerate(pieces):
        if kind == "action" and content.startswith(("if ", "range ")):
            depth += 1
        elif kind == "action" and content in {"end", "else"}:
            if depth == 0:
                return [*pieces[at:]]
            depth -= content == "end"
    raise Unsupported("a block without its end")


def _pipeline(source: str, dot: Any, names: Mapping[str, Any]) -> Any:
    value: Any = None
    for n, part in enumerate(source.split(" | ")):
        words = _WORD.findall(part)
        given = [] if n == 0 else [value]
        value = (
            _call(words[0], [*(_value(word, dot, names) for word in words[1:]), *given])
            if _is_call(words, n)
            else _value(words[0], dot, names)
        )
    return value


def _is_call(words: Sequence[str], position: int) -> bool:
    return position > 0 or len(words) > 1


def _call(function: str, given: Sequence[Any]) -> Any:
    match function, given:
        case "not", [value]:
            return not value
        case "int64", [value]:
            return str(int(value))
        case "quote", [value]:
            return json.dumps(str(value))
        case "indent", [width, text]:
            return "\n".join(" " * int(width) + line for line in str(text).split("\n"))
        case "toYaml", [value]:
            return yaml.safe_dump(value, sort_keys=True).rstrip("\n")
        case "required", [message, value]:
            if not value:
                raise Missing(message)
            return value
    raise Unsupported(f"{function} with {len(given)} arguments")


def _value(word: str, dot: Any, names: Mapping[str, Any]) -> Any:
    if word.startswith('"'):
        return json.loads(word)
    if word.isdecimal():
        return int(word)
    head, *steps = word.split(".")
    if head not in names and head:
        raise Unsupported(f"the word {word}")
    found = names[head] if head else dot
    for step in steps:
        found = found[step]
    return found


def _spelt(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        raise Unsupported(f"the number {value} without int64")
    return str(value)
