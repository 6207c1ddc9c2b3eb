"""Draws operations in advance, a few hundred at a time in the order of the mix, and returns them one by one."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from threading import Lock
from typing import Any

import numpy as np

from drumbeat.bench.driver.session_kinds import Values
from drumbeat.bench.model import Load, Operation, ValueType
from drumbeat.bench.values.draw import Draw, Drawn, ValueStream
from drumbeat.bench.values.mix import cycle

_AHEAD = 256  #: operations per batch: enough for numpy to be fast, few enough to take only 0.25 ms

Timestamp = Callable[[int], Any]  #: converts microseconds since 1970 to the type that the database driver expects


class OperationSource:
    """Supplies one worker's operations to any number of threads. The time to draw random values is not measured as latency."""

    def __init__(self, load: Load, draw: Draw, timestamp: Timestamp) -> None:
        order = cycle([operation.weight for operation in load.used])
        self._order = order * max(1, _AHEAD // len(order))
        self._counts = np.bincount(self._order, minlength=len(load.used)).tolist()
        self._makers = [_Maker(operation, draw, timestamp) for operation in load.used]
        self._ready: deque[tuple[int, Values]] = deque()
        self._lock = Lock()

    def next(self) -> tuple[int, Values]:
        """Return the next operation's index in ``load.used`` and its values. Raises InvalidInput if new keys have run out."""
        try:
            return self._ready.popleft()
        except IndexError:
            return self._drawn()

    def put_back(self, drawn: tuple[int, Values]) -> None:
        """Put back an operation that was not started; ``next`` returns it again."""
        self._ready.appendleft(drawn)

    def _drawn(self) -> tuple[int, Values]:
        with self._lock:
            while True:
                try:
                    return self._ready.popleft()
                except IndexError:
                    self._draw()

    def _draw(self) -> None:
        made = [maker.make(count) for maker, count in zip(self._makers, self._counts, strict=True)]
        self._ready.extend([(kind, next(made[kind])) for kind in self._order])


class _Maker:
    """Draws the values of all statements of one kind of operation."""

    def __init__(self, operation: Operation, draw: Draw, timestamp: Timestamp) -> None:
        self._timestamp = timestamp
        self._types = [[value.type for value in statement.values] for statement in operation.statements]
        self._sources = [[ValueStream(value, draw) for value in statement.values] for statement in operation.statements]

    def make(self, count: int) -> Iterator[Values]:
        earlier: list[Drawn] = []
        statements = []
        for sources, types in zip(self._sources, self._types, strict=True):
            first = len(earlier)
            for source in sources:
                earlier.append(source.next(count, earlier))
            columns = [self._column(kind, drawn) for kind, drawn in zip(types, earlier[first:], strict=True)]
            statements.append(zip(*columns, strict=True) if columns else repeat((), count))
        return zip(*statements, strict=True)

    def _column(self, kind: ValueType, drawn: Drawn) -> Sequence[Any]:
        """Convert drawn values to the types that database drivers expect."""
        values: list[Any] = drawn.tolist()
        match kind:
            case ValueType.TEXT:
                return [each.decode() if isinstance(each, bytes) else str(each) for each in values]
            case ValueType.TIMESTAMP:
                return [self._timestamp(each) if isinstance(each, int) else each for each in values]
            case ValueType.FLOAT:
                return [float(each) for each in values]
            case ValueType.INT | ValueType.BIGINT:
                return values
