"""Where values come from: many at a time, each worker's apart from every other's by its slot."""

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drumbeat.bench.model import Distribution, KeyValue, NewKey, Now, PoolValue, RandomNumber, RandomText, SameAs, Value
from drumbeat.core.errors import InvalidInput

Drawn = NDArray[Any]  #: one value per operation

VIRTUAL_SLOTS = 64  #: fixed for a run, so that a worker's share does not depend on how many others there are, or will be
_LETTERS = np.frombuffer((string.ascii_letters + string.digits).encode(), dtype="S1")
_SCRAMBLE = 0x9E3779B97F4A7C15


@dataclass(slots=True)
class Draw:
    """One worker's chance and place: what its values are drawn by."""

    slot: int
    chance: np.random.Generator
    now_us: Callable[[], int]
    slots: int = VIRTUAL_SLOTS

    def __post_init__(self) -> None:
        if not 0 <= self.slot < self.slots:
            raise InvalidInput(f"expected a slot from 0 to {self.slots - 1}, got {self.slot}")

    def places(self, size: int, begin: int, count: int) -> Drawn:
        """This slot's own places among ``size``, in turn: every ``slots``-th one, so that no other slot ever uses them."""
        if size <= self.slot:
            raise InvalidInput(f"expected at least {self.slots} values to share among {self.slots} slots, got {size}")
        own = (size - self.slot + self.slots - 1) // self.slots
        return self.slot + (begin + np.arange(count)) % own * self.slots


class Source:
    """Values of one placeholder, drawn in order; what was drawn is not drawn again where that matters."""

    def __init__(self, value: Value, draw: Draw) -> None:
        self._value = value
        self._draw = draw
        self._drawn = 0
        self._zipf = _Zipf(value) if isinstance(value, KeyValue) and _is_skewed(value) else None

    def next(self, count: int, earlier: Sequence[Drawn]) -> Drawn:
        """The next values; ``earlier`` are those of the same operations' placeholders before this one."""
        begin, self._drawn = self._drawn, self._drawn + count
        match self._value:
            case KeyValue():
                return self._keys(self._value, begin, count)
            case NewKey():
                return self._new_keys(self._value, begin, count)
            case PoolValue():
                return self._from_pool(self._value, begin, count)
            case RandomNumber(low=low, high=high):
                return self._draw.chance.integers(low, high + 1, count)
            case RandomText(length=length):
                return self._letters(length, count)
            case Now():
                return np.full(count, self._draw.now_us(), dtype=np.int64)
            case SameAs(index=index, plus=plus):
                return earlier[index] + plus if plus else earlier[index]

    def _keys(self, value: KeyValue, begin: int, count: int) -> Drawn:
        keys = value.high - value.low + 1
        match value.distribution:
            case Distribution.UNIFORM:
                return self._draw.chance.integers(value.low, value.high + 1, count)
            case Distribution.SEQUENTIAL:
                return value.low + self._draw.places(keys, begin, count)
            case Distribution.HOTSPOT:
                return value.low + self._hot(value, keys, count)
            case Distribution.ZIPFIAN:
                return value.low + _scrambled(self._ranks(count), keys)
            case Distribution.LATEST:
                return value.high - self._ranks(count)

    def _hot(self, value: KeyValue, keys: int, count: int) -> Drawn:
        hot = max(1, floor(keys * value.hot_share))
        is_hot = self._draw.chance.random(count) < value.hot_load
        cold = self._draw.chance.integers(min(hot, keys - 1), keys, count)
        return np.where(is_hot, self._draw.chance.integers(0, hot, count), cold)

    def _ranks(self, count: int) -> Drawn:
        if self._zipf is None:
            raise InvalidInput(f"expected a skewed distribution, got {self._value}")
        return self._zipf.ranks(self._draw.chance.random(count))

    def _new_keys(self, value: NewKey, begin: int, count: int) -> Drawn:
        if begin + count > value.span:
            raise InvalidInput(f"expected at most {value.span} new keys a worker, more were asked for; raise the span")
        first = value.first + self._draw.slot * value.span + begin
        return np.arange(first, first + count, dtype=np.int64)

    def _from_pool(self, value: PoolValue, begin: int, count: int) -> Drawn:
        pool = np.asarray(value.values, dtype=object)
        return pool[self._draw.places(len(pool), begin, count)]

    def _letters(self, length: int, count: int) -> Drawn:
        return self._draw.chance.choice(_LETTERS, (count, length)).view(f"S{length}").reshape(count).astype(object)


class _Zipf:
    """Ranks by Zipf's law, by the quick method of Gray and others: no table, a few operations a value."""

    def __init__(self, value: KeyValue) -> None:
        self._keys = value.high - value.low + 1
        self._theta = value.theta
        self._zeta = _zeta(self._keys, value.theta)
        self._alpha = 1 / (1 - value.theta)
        two = min(2, self._keys)
        self._eta = (1 - (2 / self._keys) ** (1 - value.theta)) / (1 - _zeta(two, value.theta) / self._zeta) if two == 2 else 0

    def ranks(self, chance: NDArray[np.float64]) -> Drawn:
        share = chance * self._zeta
        ranks = (self._keys * (self._eta * chance - self._eta + 1) ** self._alpha).astype(np.int64)
        ranks = np.where(share < 1 + 0.5**self._theta, 1, ranks)
        return np.minimum(np.where(share < 1, 0, ranks), self._keys - 1)


def _is_skewed(value: KeyValue) -> bool:
    return value.distribution in (Distribution.ZIPFIAN, Distribution.LATEST)


def _zeta(keys: int, theta: float) -> float:
    """The sum of 1/i^theta; beyond a million terms by its integral, which is then within a millionth."""
    exact = min(keys, 1_000_000)
    total = float(np.sum(1 / np.arange(1, exact + 1, dtype=np.float64) ** theta))
    if keys > exact:
        total += (keys ** (1 - theta) - exact ** (1 - theta)) / (1 - theta)
    return total


def _scrambled(ranks: Drawn, keys: int) -> Drawn:
    """Each rank somewhere among the keys, always at the same place, neighbours far apart."""
    mixed = ranks.astype(np.uint64) * np.uint64(_SCRAMBLE)
    mixed ^= mixed >> np.uint64(29)
    return (mixed % np.uint64(keys)).astype(np.int64)


def check_values(values: Mapping[str, Sequence[Value]]) -> None:
    """Raise InvalidInput when a value refers to one that does not come before it."""
    for kind, listed in values.items():
        for place, value in enumerate(listed):
            if isinstance(value, SameAs) and not 0 <= value.index < place:
                raise InvalidInput(f"{kind}: value {place + 1} is the same as value {value.index + 1}, which is not before it")
