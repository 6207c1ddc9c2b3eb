"""Reads YAML that users wrote. It refuses texts that would take too much time or memory to read."""

import re
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.events import AliasEvent

from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import DEEPEST, MOST_VALUES

LARGEST = 256 * 1024  #: the longest text that is read, in characters; a longer one would take seconds
_LONGEST_NUMBER = 100  #: the longest number, in characters; YAML reads 1:1:1:… in base 60, which is slow
_EXPONENT = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+")
_INVALID = (ValueError, OverflowError, AttributeError, LookupError, TypeError)  #: errors that PyYAML raises for invalid values
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _Loader(yaml.SafeLoader):
    """Loads plain data, with 1e3 as a number. Refuses aliases, duplicate keys, too many values, and values too deep or long."""

    depth = 0
    values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, AliasEvent) or event.anchor is not None:
            raise _refusal(f"the alias or anchor {event.anchor!r}; write its value out", event)
        if self.depth > DEEPEST:
            raise _refusal(f"values nested more than {DEEPEST} deep; flatten them", event)
        self.values += 1
        if self.values > MOST_VALUES:
            raise _refusal(f"more than {MOST_VALUES} values; leave out what is not needed", event)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise _refusal(f"a number that is {len(node.value)} characters long; put quotes around it if it is text", node)
        return super().construct_object(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if name in seen:
                raise _refusal(f"the field {name!r} is there twice", key)
            seen |= {name} if name else set()
        super().flatten_mapping(node)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def read_yaml(text: str, what: str) -> Any:
    """Parse YAML; ``what`` names the text in errors, such as "a template". Raises InvalidInput that says where it is wrong."""
    if len(text) > LARGEST:
        raise InvalidInput(f"expected {what} of at most {LARGEST} characters, got {len(text)}; leave out what is not needed")
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506
    except yaml.YAMLError as exc:
        raise InvalidInput(f"expected {what}, got {_where(exc)}") from None
    except _INVALID as exc:
        raise InvalidInput(f"expected {what}, got a value that cannot be read ({exc}); put quotes around text") from None


def _refusal(problem: str, place: Any) -> ConstructorError:
    return ConstructorError(None, None, problem, place.start_mark)


def _where(error: yaml.YAMLError) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{place}{problem or 'something else'}"
