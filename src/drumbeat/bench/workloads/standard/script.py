"""Builds operations with named values: all statements of an operation get the same value for ``:name``."""

import re
from collections.abc import Callable, Mapping

from drumbeat.bench.model import Operation, SameAs, Statement, Value
from drumbeat.core.errors import InvalidInput

Places = Mapping[str, int]  #: the index of each name's value among all values of the operation
Named = Mapping[str, Value | Callable[[Places], Value]]  #: sources by name; a function if a value depends on an earlier one

_NAME = re.compile(r":([a-z]\w*)")


def operation(kind: str, weight: int, values: Named, *sql: str, reads: bool = False) -> Operation:
    """Build an operation from SQL with ``:name`` placeholders. A name has the same value in all statements."""
    places: dict[str, int] = {}
    count = 0
    statements = []
    for text in sql:
        names = list(dict.fromkeys(_NAME.findall(text)))
        drawn = []
        for name in names:
            drawn.append(_value(kind, name, values, places))
            places.setdefault(name, count)
            count += 1
        statements.append(Statement(sql=_numbered(text, names), values=tuple(drawn)))
    return Operation(kind=kind, weight=weight, statements=tuple(statements), reads=reads)


def transaction(kind: str, weight: int, values: Named, *sql: str, reads: bool = False) -> Operation:
    """Build an operation that runs its statements between BEGIN and COMMIT."""
    return operation(kind, weight, values, "BEGIN", *sql, "COMMIT", reads=reads)


def _value(kind: str, name: str, values: Named, places: Places) -> Value:
    if name not in values:
        raise InvalidInput(f"{kind}: there is no value for the placeholder :{name}; there are values for {', '.join(values)}")
    given = values[name]
    value = given(places) if callable(given) else given
    return SameAs(index=places[name], type=value.type) if name in places else value


def _numbered(text: str, names: list[str]) -> str:
    return _NAME.sub(lambda found: f"${names.index(found[1]) + 1}", text)
