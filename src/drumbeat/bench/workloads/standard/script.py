"""Operations written as people write them: values by name, drawn once, used in as many statements as say them."""

import re
from collections.abc import Callable, Mapping

from drumbeat.bench.model import Operation, SameAs, Statement, Value
from drumbeat.core.errors import InvalidInput

Places = Mapping[str, int]  #: where in the operation a name's value was drawn
Named = Mapping[str, Value | Callable[[Places], Value]]  #: a function, for a value made of another one

_NAME = re.compile(r":([a-z]\w*)")


def operation(kind: str, weight: int, values: Named, *sql: str, reads: bool = False) -> Operation:
    """An operation of statements with ``:name`` where a value shall be. A name means the same value in all of them."""
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
    """The statements between BEGIN and COMMIT."""
    return operation(kind, weight, values, "BEGIN", *sql, "COMMIT", reads=reads)


def _value(kind: str, name: str, values: Named, places: Places) -> Value:
    if name not in values:
        raise InvalidInput(f"{kind}: :{name} has no value; there are {', '.join(values)}")
    given = values[name]
    value = given(places) if callable(given) else given
    return SameAs(index=places[name], type=value.type) if name in places else value


def _numbered(text: str, names: list[str]) -> str:
    return _NAME.sub(lambda found: f"${names.index(found[1]) + 1}", text)
