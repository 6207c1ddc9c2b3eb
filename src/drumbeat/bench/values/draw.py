"""Draws random values for operations, many at a time. Each worker slot has its own range of new keys."""

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import floor
from typing import Any, Self
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from drumbeat.bench.model import (
    LARGEST,
    Distribution,
    Either,
    KeyValue,
    NewKey,
    NonUniform,
    Now,
    Pick,
    PoolValue,
    RandomNumber,
    RandomText,
    RandomUuid,
    SameAs,
    Value,
)
from drumbeat.bench.values.key_distributions import Zipf, scattered
from drumbeat.core.errors import InvalidInput

Drawn = NDArray[Any]  #: an array with one value per operation

VIRTUAL_SLOTS = 64  #: keys are always divided into 64 shares, however many workers there are
_LETTERS = np.frombuffer((string.ascii_letters + string.digits).encode(), dtype="S1")


@dataclass(slots=True)
class Draw:
    """One worker's random generator. The worker's slot (its number) decides which new keys and list positions it gets."""

    slot: int
    chance: np.random.Generator
    now_us: Callable[[], int]
    slots: int = VIRTUAL_SLOTS
    drawn_keys: dict[int, range] = field(default_factory=dict)  #: the last batch of new keys, counted from 0; by NewKey.first

    def __post_init__(self) -> None:
        _check_slot(self.slot, self.slots)

    @classmethod
    def seeded(cls, slot: int, seed: int, now_us: Callable[[], int], slots: int = VIRTUAL_SLOTS) -> Self:
        """Create a generator that draws the same values for the same seed and slot, and other values for other slots."""
        _check_slot(slot, slots)
        return cls(slot, np.random.default_rng([seed, slot]), now_us, slots)

    def positions(self, size: int, begin: int, count: int) -> Drawn:
        """Return ``count`` positions in a list of ``size`` items, from this worker's share: every ``slots``-th position.

        Begins at position number ``begin`` of the share, and continues at its first position after the last one. Workers in
        different slots never get the same position. Raises InvalidInput if the list is too short for a share."""
        if size <= self.slot:
            raise InvalidInput(f"expected a list of at least {self.slots} values, one for each worker slot, got {size}")
        own = (size - self.slot + self.slots - 1) // self.slots
        return self.slot + (begin + np.arange(count)) % own * self.slots

    def new_keys(self, value: NewKey, count: int) -> Drawn:
        """Return keys that were never drawn before. Raises InvalidInput when the worker's range of keys is used up."""
        begin = self.drawn_keys.get(value.first, range(0)).stop
        if begin + count > value.span:
            column = value.column or "inserts"
            raise InvalidInput(f"a worker needs more than {value.span} new keys for {column}; raise span (keys per worker)")
        self.drawn_keys[value.first] = range(begin, begin + count)
        first = value.first + self.slot * value.span + begin
        return np.arange(first, first + count, dtype=np.int64)

    def likely_inserted(self, value: NewKey | None) -> int:
        """Return how many drawn new keys are probably inserted: all but the last batch, whose keys might not be sent yet."""
        return self.drawn_keys.get(value.first, range(0)).start if value else 0


class ValueStream:
    """Draws the values of one placeholder, batch after batch."""

    def __init__(self, value: Value, draw: Draw) -> None:
        self._value = value
        self._draw = draw
        self._drawn = 0
        self._zipf = (
            Zipf(value.high - value.low + 1, value.theta) if isinstance(value, KeyValue) and _is_skewed(value) else None
        )
        self._pool = _listed(value.values) if isinstance(value, PoolValue | Pick) else np.empty(0)
        self._inner = [ValueStream(each, draw) for each in _inner(value)]
        if isinstance(value, NewKey):
            _check_span(value, draw.slots)

    def next(self, count: int, earlier: Sequence[Drawn]) -> Drawn:
        """Return one value for each of ``count`` operations.

        ``earlier``: the values of the operations' earlier placeholders, which ``same_as`` repeats."""
        begin, self._drawn = self._drawn, self._drawn + count
        match self._value:
            case KeyValue():
                return self._keys(self._value, begin, count)
            case NewKey():
                return self._draw.new_keys(self._value, count)
            case PoolValue():
                return self._pool[self._draw.positions(len(self._pool), begin, count)]
            case SameAs(index=index, plus=plus):
                return earlier[index] + plus if plus else earlier[index]
            case Either(share=share):
                usual, other = (source.next(count, earlier) for source in self._inner)
                return np.where(self._draw.chance.random(count) < share, usual, other)
            case Pick():
                return self._pool[self._inner[0].next(count, earlier).astype(np.int64)]
            case _:
                return _random(self._value, self._draw, count)

    def _keys(self, value: KeyValue, begin: int, count: int) -> Drawn:
        keys = value.high - value.low + 1
        match value.distribution:
            case Distribution.UNIFORM:
                return self._draw.chance.integers(value.low, value.high + 1, count)
            case Distribution.SEQUENTIAL:
                return value.low + self._draw.positions(keys, begin, count)
            case Distribution.HOTSPOT:
                return value.low + _hot(value, keys, self._draw.chance, count)
            case Distribution.ZIPFIAN:
                return value.low + scattered(self._ranks(count), keys)
            case Distribution.LATEST:
                return self._newest(value, self._ranks(count))

    def _ranks(self, count: int) -> Drawn:
        if self._zipf is None:
            raise InvalidInput(f"expected a key with distribution zipfian or latest, got {self._value}")
        return self._zipf.ranks(self._draw.chance.random(count))

    def _newest(self, value: KeyValue, ranks: Drawn) -> Drawn:
        """Convert ranks to keys, newest first: the keys this worker inserted, then the older ones from ``value.high`` down."""
        own = self._draw.likely_inserted(value.inserted)
        keys = value.high - (ranks - own)
        if value.inserted is None or not own:
            return keys
        newest = value.inserted.first + self._draw.slot * value.inserted.span + own - 1
        return np.where(ranks < own, newest - ranks, keys)


def _random(value: Value, draw: Draw, count: int) -> Drawn:
    match value:
        case RandomNumber(low=low, high=high, scale=scale):
            numbers = draw.chance.integers(low, high + 1, count)
            return numbers / 10**scale if scale else numbers
        case NonUniform(a=a, low=low, high=high, c=c):
            mixed = draw.chance.integers(0, a + 1, count) | draw.chance.integers(low, high + 1, count)
            return (mixed + c) % (high - low + 1) + low
        case RandomText(length=length):
            return letters(draw.chance, length, count)
        case RandomUuid():
            return _listed([str(UUID(bytes=draw.chance.bytes(16), version=4)) for _ in range(count)])
        case Now():
            return np.full(count, draw.now_us(), dtype=np.int64)
        case _:
            raise InvalidInput(f"expected a value source that draws random values, got {value}")


def letters(chance: np.random.Generator, length: int, count: int) -> Drawn:
    """Return random texts of letters and digits, as bytes."""
    drawn = _LETTERS[chance.integers(0, len(_LETTERS), (count, length), dtype=np.uint8)]
    return drawn.view(f"S{length}").reshape(count).astype(object)


def _hot(value: KeyValue, keys: int, chance: np.random.Generator, count: int) -> Drawn:
    hot = max(1, floor(keys * value.hot_share))
    in_hot = chance.integers(0, hot, count)
    if hot == keys:
        return in_hot
    return np.where(chance.random(count) < value.hot_load, in_hot, chance.integers(hot, keys, count))


def _is_skewed(value: KeyValue) -> bool:
    return value.distribution in (Distribution.ZIPFIAN, Distribution.LATEST)


def _inner(value: Value) -> tuple[Value, ...]:
    match value:
        case Either(usual=usual, other=other):
            return (usual, other)
        case Pick(by=by):
            return (by,)
        case _:
            return ()


def _listed(values: Sequence[object]) -> Drawn:
    listed = np.empty(len(values), dtype=object)
    listed[:] = values
    return listed


def _check_slot(slot: int, slots: int) -> None:
    if not 0 <= slot < slots:
        raise InvalidInput(f"expected a worker slot from 0 to {slots - 1}, got {slot}")


def _check_span(value: NewKey, slots: int) -> None:
    last, largest = value.first + slots * value.span - 1, LARGEST.get(value.type)
    if largest is not None and last > largest:
        most = (largest - value.first + 1) // slots
        raise InvalidInput(
            f"new keys of {value.column or 'inserts'}: expected span to be at most {most}, got "
            f"{value.span}; with {slots} worker slots the keys would reach {last}, and {value.type} ends at {largest}"
        )
