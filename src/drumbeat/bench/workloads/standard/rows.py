"""Generates rows from row numbers: a row number always gives the same row."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from drumbeat.bench.values.draw import letters
from drumbeat.bench.workloads.standard.table import Rows
from drumbeat.core.errors import InvalidInput

Numbers = NDArray[np.int64]  #: row numbers, from 0
Chance = np.random.Generator
Made = Sequence[Sequence[Any]]  #: columns, each with one value per row

BLOCK = 1_000  #: rows are always generated in whole blocks, so that a row is the same wherever a chunk begins
LOADED_AT = datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None)


def row_generator(table: str, make: Callable[[Chance, Numbers], Made]) -> Rows:
    """Return a row generator for a table; ``make`` gets a random generator and row numbers, and returns the columns."""

    def rows(begin: int, end: int) -> Iterator[Sequence[Any]]:
        for first in range(begin // BLOCK * BLOCK, end, BLOCK):
            chance = np.random.default_rng([crc32(table.encode()), first])
            columns = make(chance, np.arange(first, first + BLOCK))
            block = list(zip(*columns, strict=True))
            yield from block[max(begin - first, 0) : end - first]

    return rows


def same(value: object) -> list[Any]:
    """Make a column with the same value in every row."""
    return [value] * BLOCK


def texts(chance: Chance, low: int, high: int) -> list[str]:
    """Make a column of random texts (letters and digits) with lengths from ``low`` to ``high``."""
    full = [each.decode() for each in letters(chance, high, BLOCK)]
    if low == high:
        return full
    return [text[:length] for text, length in zip(full, chance.integers(low, high + 1, BLOCK).tolist(), strict=True)]


def numbers(chance: Chance, low: int, high: int) -> list[int]:
    """Make a column of random whole numbers from ``low`` to ``high``."""
    return [int(each) for each in chance.integers(low, high + 1, BLOCK)]


def hundredths(chance: Chance, low: int, high: int) -> list[float]:
    """Make a column of random amounts with two decimal places; ``low`` and ``high`` are in hundredths."""
    return [float(each) for each in chance.integers(low, high + 1, BLOCK) / 100]


def scaled_count(name: str, scale: float, each: int) -> int:
    """Return how many rows a table has at a scale: ``each`` times the scale, at least one."""
    if not 0 < scale < inf:
        raise InvalidInput(f"expected a scale above 0 for {name}, got {scale}")
    return max(1, round(each * scale))
