"""Messages ahead of time: operations drawn in the mix's order and encoded by the thousand, ready to be sent as they are."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drumbeat.bench.driver import pgwire
from drumbeat.bench.mix import cycle
from drumbeat.bench.model import Load, Operation, Statement, ValueType
from drumbeat.bench.values import Draw, Drawn, Source

OIDS = {
    ValueType.INT: 23,
    ValueType.BIGINT: 20,
    ValueType.FLOAT: 701,
    ValueType.TEXT: 25,
    ValueType.TIMESTAMP: 1114,
}
_FIXED = {ValueType.INT: ">i4", ValueType.BIGINT: ">i8", ValueType.FLOAT: ">f8", ValueType.TIMESTAMP: ">i8"}
_POSTGRES_EPOCH_US = 946_684_800_000_000  #: 2000-01-01, from where PostgreSQL counts


@dataclass(frozen=True, slots=True)
class Block:
    """Encoded messages in the order they shall be sent."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.uint32]
    kinds: NDArray[np.int16]
    more: NDArray[np.uint8]  #: 1: the next message belongs to the same operation

    @property
    def messages(self) -> int:
        return len(self.kinds)


def statement_name(operation: int, statement: int) -> str:
    return f"s{operation}_{statement}"


class BlockMaker:
    """Draws and encodes one worker's operations. The mix is exact over every hundred of them."""

    def __init__(self, load: Load, draw: Draw) -> None:
        self._round = np.asarray(cycle([each.weight for each in load.used]), dtype=np.int16)
        self._operations = [_OperationMaker(index, each, draw) for index, each in enumerate(load.used)]

    def make(self, operations: int) -> Block:
        """The next block, of about so many operations: whole rounds of the mix."""
        order = np.tile(self._round, max(1, operations // len(self._round)))
        counts = np.bincount(order, minlength=len(self._operations))
        made = [maker.make(int(count)) for maker, count in zip(self._operations, counts, strict=True)]
        return _interleaved(order, made)


@dataclass(frozen=True, slots=True)
class _Made:
    """Messages of one operation, operation after operation, ``steps`` of them each."""

    data: bytes
    lengths: NDArray[np.uint32]
    steps: int


class _OperationMaker:
    def __init__(self, index: int, operation: Operation, draw: Draw) -> None:
        self._sources = [[Source(value, draw) for value in statement.values] for statement in operation.statements]
        self._encoders = [_encoder(statement_name(index, n), each) for n, each in enumerate(operation.statements)]

    def make(self, count: int) -> _Made:
        earlier: list[Drawn] = []
        columns = []
        for sources, encoder in zip(self._sources, self._encoders, strict=True):
            first = len(earlier)
            for source in sources:
                earlier.append(source.next(count, earlier))
            columns.append(encoder.encode(count, earlier[first:]))
        return _woven(columns, count)


class _FixedEncoder:
    """All values of fixed size: one template, its holes filled for a thousand messages at once."""

    def __init__(self, name: str, statement: Statement) -> None:
        sizes = [np.dtype(_FIXED[value.type]).itemsize for value in statement.values]
        body = pgwire.bind_head(name, len(sizes))
        self._holes: list[tuple[int, str, ValueType]] = []
        for value, size in zip(statement.values, sizes, strict=True):
            body += struct.pack("!i", size)
            self._holes.append((5 + len(body), _FIXED[value.type], value.type))
            body += bytes(size)
        text = pgwire.message(b"B", body + pgwire.BIND_TAIL) + pgwire.execute() + pgwire.SYNC
        self._template = np.frombuffer(text, dtype=np.uint8)

    def encode(self, count: int, values: Sequence[Drawn]) -> list[bytes] | NDArray[np.uint8]:
        filled = np.tile(self._template, (count, 1))
        for (hole, layout, kind), drawn in zip(self._holes, values, strict=True):
            numbers = drawn - _POSTGRES_EPOCH_US if kind is ValueType.TIMESTAMP else drawn
            raw = numbers.astype(layout).view(np.uint8).reshape(count, -1)
            filled[:, hole : hole + raw.shape[1]] = raw
        return filled


class _FreeEncoder:
    """Values of any size: message by message."""

    def __init__(self, name: str, statement: Statement) -> None:
        self._head = pgwire.bind_head(name, len(statement.values))
        self._types = [value.type for value in statement.values]
        self._tail = pgwire.execute() + pgwire.SYNC

    def encode(self, count: int, values: Sequence[Drawn]) -> list[bytes] | NDArray[np.uint8]:
        columns = [_column(kind, drawn) for kind, drawn in zip(self._types, values, strict=True)]
        return [self._message(row) for row in zip(*columns, strict=True)]

    def _message(self, row: Sequence[bytes]) -> bytes:
        body = self._head + b"".join(struct.pack("!i", len(each)) + each for each in row) + pgwire.BIND_TAIL
        return pgwire.message(b"B", body) + self._tail


def _column(kind: ValueType, drawn: Drawn) -> list[bytes]:
    if kind is ValueType.TEXT:
        return [each if isinstance(each, bytes) else str(each).encode() for each in drawn]
    numbers = drawn - _POSTGRES_EPOCH_US if kind is ValueType.TIMESTAMP else drawn
    raw = np.asarray(numbers).astype(_FIXED[kind])
    return [bytes(each) for each in raw.view(np.uint8).reshape(len(raw), -1)]


def _encoder(name: str, statement: Statement) -> _FixedEncoder | _FreeEncoder:
    fixed = all(value.type in _FIXED for value in statement.values)
    return _FixedEncoder(name, statement) if fixed else _FreeEncoder(name, statement)


def _woven(columns: Sequence[list[bytes] | NDArray[np.uint8]], count: int) -> _Made:
    """The statements of each operation one after the other."""
    if len(columns) == 1 and isinstance(columns[0], np.ndarray):
        return _Made(columns[0].tobytes(), np.full(count, columns[0].shape[1], dtype=np.uint32), 1)
    listed = [[each.tobytes() for each in column] if isinstance(column, np.ndarray) else column for column in columns]
    messages = [each for row in zip(*listed, strict=True) for each in row]
    return _Made(b"".join(messages), np.fromiter(map(len, messages), np.uint32, len(messages)), len(columns))


def _interleaved(order: NDArray[np.int16], made: Sequence[_Made]) -> Block:
    """The operations' messages in the mix's order."""
    if len(made) == 1 and made[0].steps == 1:
        offsets = np.concatenate(([0], np.cumsum(made[0].lengths))).astype(np.uint32)
        return Block(np.frombuffer(made[0].data, dtype=np.uint8), offsets, order, np.zeros(len(order), dtype=np.uint8))
    return _gathered(order, made)


def _gathered(order: NDArray[np.int16], made: Sequence[_Made]) -> Block:
    steps = np.asarray([each.steps for each in made])[order]
    kinds = np.repeat(order, steps)
    turn = np.concatenate([np.arange(n) for n in steps]) if steps.max() > 1 else np.zeros(len(kinds), dtype=np.int64)
    more = (turn < np.repeat(steps, steps) - 1).astype(np.uint8)
    cursors = [iter(_pieces(each)) for each in made]
    data = b"".join([next(cursors[kind]) for kind in kinds.tolist()])
    lengths = np.empty(len(kinds), dtype=np.uint32)
    for kind, each in enumerate(made):
        lengths[kinds == kind] = each.lengths
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.uint32)
    return Block(np.frombuffer(data, dtype=np.uint8), offsets, kinds.astype(np.int16), more)


def _pieces(made: _Made) -> list[bytes]:
    ends = np.cumsum(made.lengths).tolist()
    begins = [0, *ends[:-1]]
    return [made.data[begin:end] for begin, end in zip(begins, ends, strict=True)]
