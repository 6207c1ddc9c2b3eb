"""Encodes PostgreSQL messages in advance, in blocks of thousands of operations, ordered so that each kind has its share."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drumbeat.bench.driver import pgwire
from drumbeat.bench.model import Load, Operation, RandomText, RandomUuid, Statement, Value, ValueType
from drumbeat.bench.values.draw import Draw, Drawn, ValueStream
from drumbeat.bench.values.mix import cycle

OIDS = {
    ValueType.INT: 23,
    ValueType.BIGINT: 20,
    ValueType.FLOAT: 701,
    ValueType.TEXT: 25,
    ValueType.TIMESTAMP: 1114,
}
_FIXED = {ValueType.INT: ">i4", ValueType.BIGINT: ">i8", ValueType.FLOAT: ">f8", ValueType.TIMESTAMP: ">i8"}
_UUID_LENGTH = 36
_POSTGRES_EPOCH_US = 946_684_800_000_000  #: 2000-01-01, from which PostgreSQL counts timestamps


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """Many encoded messages, in the order in which they are sent. One message runs one statement."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.uint32]
    kinds: NDArray[np.int16]
    more: NDArray[np.uint8]  #: for each message, 1 if the next message belongs to the same operation, else 0

    @property
    def messages(self) -> int:
        return len(self.kinds)

    def operations(self) -> list[tuple[int, list[bytes]]]:
        """Return the kind and the messages of each operation in the block."""
        data = self.data.tobytes()
        offsets, kinds, more = self.offsets.tolist(), self.kinds.tolist(), self.more.tolist()
        found: list[tuple[int, list[bytes]]] = []
        continued = False
        for n, kind in enumerate(kinds):
            piece = data[offsets[n] : offsets[n + 1]]
            if continued:
                found[-1][1].append(piece)
            else:
                found.append((kind, [piece]))
            continued = bool(more[n])
        return found


def statement_name(operation: int, statement: int) -> str:
    return f"s{operation}_{statement}"


class BlockMaker:
    """Draws and encodes one worker's operations. Every hundred operations have exactly the percentages of the mix."""

    def __init__(self, load: Load, draw: Draw) -> None:
        self._round = np.asarray(cycle([each.weight for each in load.used]), dtype=np.int16)
        self._operations = [_OperationMaker(index, each, draw) for index, each in enumerate(load.used)]

    def make(self, operations: int) -> MessageBlock:
        """Make the next block: about this many operations, with exactly the percentages of the mix."""
        order = np.tile(self._round, max(1, operations // len(self._round)))
        counts = np.bincount(order, minlength=len(self._operations))
        made = [maker.make(int(count)) for maker, count in zip(self._operations, counts, strict=True)]
        return _interleaved(order, made)


@dataclass(frozen=True, slots=True)
class _Made:
    """The encoded messages of many operations of one kind, in order."""

    data: bytes
    lengths: NDArray[np.uint32]  #: message lengths: one row per operation, one column per statement

    @property
    def steps(self) -> int:
        return int(self.lengths.shape[1])

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of one operation after the other, each with all its messages joined."""
        ends = np.cumsum(self.lengths.sum(axis=1, dtype=np.int64)).tolist()
        return map(self.data.__getitem__, map(slice, [0, *ends[:-1]], ends))


class _OperationMaker:
    def __init__(self, index: int, operation: Operation, draw: Draw) -> None:
        self._sources = [[ValueStream(value, draw) for value in statement.values] for statement in operation.statements]
        self._encoders = [_encoder(statement_name(index, n), each) for n, each in enumerate(operation.statements)]

    def make(self, count: int) -> _Made:
        earlier: list[Drawn] = []
        columns = []
        for sources, encoder in zip(self._sources, self._encoders, strict=True):
            first = len(earlier)
            for source in sources:
                earlier.append(source.next(count, earlier))
            columns.append(encoder.encode(count, earlier[first:]))
        return _by_operation(columns, count)


def _size(value: Value) -> int | None:
    """Return how many bytes each value drawn from this source takes; None if the size varies."""
    match value:
        case RandomText(length=length):
            return length
        case RandomUuid():
            return _UUID_LENGTH
        case _:
            return np.dtype(_FIXED[value.type]).itemsize if value.type in _FIXED else None


class _FixedEncoder:
    """Encodes statements whose values have fixed sizes: copies a template message many times and fills in the values."""

    def __init__(self, name: str, statement: Statement, sizes: Sequence[int]) -> None:
        body = pgwire.bind_head(name, len(sizes))
        self._gaps: list[tuple[slice, ValueType]] = []
        for value, size in zip(statement.values, sizes, strict=True):
            body += struct.pack("!i", size)
            begin = 5 + len(body)
            self._gaps.append((slice(begin, begin + size), value.type))
            body += bytes(size)
        text = pgwire.message(b"B", body + pgwire.BIND_TAIL) + pgwire.execute() + pgwire.SYNC
        self._template = np.frombuffer(text, dtype=np.uint8)

    def encode(self, count: int, values: Sequence[Drawn]) -> list[bytes] | NDArray[np.uint8]:
        filled = np.tile(self._template, (count, 1))
        for (gap, kind), drawn in zip(self._gaps, values, strict=True):
            filled[:, gap] = _raw(kind, drawn, gap.stop - gap.start)
        return filled


def _raw(kind: ValueType, drawn: Drawn, size: int) -> NDArray[np.uint8]:
    """Convert values of fixed size to PostgreSQL's binary format, one row of bytes per value."""
    if kind is ValueType.TEXT:
        return np.asarray(drawn.tolist(), dtype=f"S{size}").view(np.uint8).reshape(len(drawn), size)
    numbers = drawn - _POSTGRES_EPOCH_US if kind is ValueType.TIMESTAMP else drawn
    return np.asarray(numbers).astype(_FIXED[kind]).view(np.uint8).reshape(len(drawn), size)


class _FreeEncoder:
    """Encodes statements with values of varying size, one message at a time."""

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
    size = np.dtype(_FIXED[kind]).itemsize
    raw = _raw(kind, drawn, size).tobytes()
    return [raw[begin : begin + size] for begin in range(0, len(raw), size)]


def _encoder(name: str, statement: Statement) -> _FixedEncoder | _FreeEncoder:
    sizes = [size for value in statement.values if (size := _size(value)) is not None]
    return _FixedEncoder(name, statement, sizes) if len(sizes) == len(statement.values) else _FreeEncoder(name, statement)


def _by_operation(columns: Sequence[list[bytes] | NDArray[np.uint8]], count: int) -> _Made:
    """Join the messages of all statements, so that the messages of one operation follow each other."""
    fixed = [column for column in columns if isinstance(column, np.ndarray)]
    if len(fixed) == len(columns):
        lengths = np.asarray([column.shape[1] for column in fixed], dtype=np.uint32)
        return _Made(np.concatenate(fixed, axis=1).tobytes(), np.tile(lengths, (count, 1)))
    listed = [[each.tobytes() for each in column] if isinstance(column, np.ndarray) else column for column in columns]
    lengths = np.stack([np.fromiter(map(len, column), np.uint32, count) for column in listed], axis=1)
    return _Made(b"".join(each for row in zip(*listed, strict=True) for each in row), lengths)


def _interleaved(order: NDArray[np.int16], made: Sequence[_Made]) -> MessageBlock:
    """Combine the operations of all kinds into one block, in the order of the mix."""
    data = made[0].data if len(made) == 1 else _in_order(order, made)
    steps = np.asarray([each.steps for each in made])[order]
    kinds = np.repeat(order, steps)
    more = np.ones(len(kinds), dtype=np.uint8)
    more[np.cumsum(steps) - 1] = 0
    lengths = np.empty(len(kinds), dtype=np.int64)
    for kind, each in enumerate(made):
        lengths[kinds == kind] = each.lengths.ravel()
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.uint32)
    return MessageBlock(np.frombuffer(data, dtype=np.uint8), offsets, kinds.astype(np.int16), more)


def _in_order(order: NDArray[np.int16], made: Sequence[_Made]) -> bytes:
    pieces = [each.pieces() for each in made]
    return b"".join([next(pieces[kind]) for kind in order.tolist()])
