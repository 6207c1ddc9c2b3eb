"""The initial rows of TPC-C's tables, generated from row numbers as in clause 4.3.3 of the standard."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from drumbeat.bench.values.key_distributions import stride
from drumbeat.bench.workloads.standard.rows import BLOCK, LOADED_AT, Chance, Made, Numbers, hundredths, numbers, same, texts
from drumbeat.bench.workloads.standard.tpcc.names import LAST_NAMES
from drumbeat.bench.workloads.standard.tpcc.size import DISTRICTS, Size

_FEWEST, _MOST = 5, 15  #: fewest and most lines (items) of an order
_CYCLE = _MOST - _FEWEST + 1  #: the line counts repeat after this many orders; among those, each count occurs once
_LINES = np.asarray([_FEWEST + number * 7 % _CYCLE for number in range(_CYCLE)])
_BEFORE = np.concatenate(([0], np.cumsum(_LINES)))
PAID = 10.0  #: what every customer has paid before the load starts


def lines_before(order: int) -> int:
    """Return how many order lines all orders before this one have together; orders are numbered from 0 over all districts."""
    return int(order // _CYCLE * _BEFORE[-1] + _BEFORE[order % _CYCLE])


class RowsOf:
    """Generates the initial rows of TPC-C's tables, with one method per table."""

    def __init__(self, size: Size) -> None:
        self._size = size

    def item(self, chance: Chance, rows: Numbers) -> Made:
        return [
            (rows + 1).tolist(),
            numbers(chance, 1, 10_000),
            texts(chance, 14, 24),
            hundredths(chance, 100, 10_000),
            _original(chance),
        ]

    def warehouse(self, chance: Chance, rows: Numbers) -> Made:
        paid = PAID * self._size.customers * DISTRICTS
        return [(rows + 1).tolist(), texts(chance, 6, 10), *_address(chance), _shares(chance, 2_000), same(paid)]

    def delivery(self, chance: Chance, rows: Numbers) -> Made:
        return [(rows + 1).tolist(), same(0)]

    def district(self, chance: Chance, rows: Numbers) -> Made:
        size = self._size
        taxed = [_shares(chance, 2_000), same(PAID * size.customers), same(size.customers + 1)]
        return [*_split(rows, DISTRICTS), texts(chance, 6, 10), *_address(chance), *taxed]

    def customer(self, chance: Chance, rows: Numbers) -> Made:
        credit = ["BC" if chosen else "GC" for chosen in (chance.random(BLOCK) < 0.1).tolist()]
        return [
            *_split(rows, DISTRICTS, self._size.customers),
            texts(chance, 8, 16),
            same("OE"),
            self._last_names(chance, rows),
            *_address(chance),
            [f"{number:016}" for number in numbers(chance, 0, 10**16 - 1)],
            same(LOADED_AT),
            credit,
            same(50_000.0),
            _shares(chance, 5_000),
            same(-PAID),
            same(PAID),
            same(1),
            same(0),
            texts(chance, 300, 500),
        ]

    def _last_names(self, chance: Chance, rows: Numbers) -> list[str]:
        """Choose last names: a district's first customers get each name once, later ones get non-uniformly random names."""
        position, names = rows % self._size.customers, self._size.names
        mixed = (chance.integers(0, 256, BLOCK) | chance.integers(0, names, BLOCK)) % names
        return [LAST_NAMES[number] for number in np.where(position < names, position % names, mixed).tolist()]

    def history(self, chance: Chance, rows: Numbers) -> Made:
        warehouse, district, customer = _split(rows, DISTRICTS, self._size.customers)
        rest = [same(LOADED_AT), same(PAID), texts(chance, 12, 24)]
        return [warehouse, district, customer, warehouse, district, *rest]

    def orders(self, chance: Chance, rows: Numbers) -> Made:
        warehouse, district, order = _split(rows, DISTRICTS, self._size.customers)
        customers = self._size.customers
        customer = (rows % customers * stride(customers) + rows // customers) % customers + 1
        carrier = [drawn if is_old else None for drawn, is_old in zip(numbers(chance, 1, 10), self._old(rows), strict=True)]
        lines = _LINES[rows % _CYCLE].tolist()
        return [warehouse, district, order, customer.tolist(), same(LOADED_AT), carrier, lines, same(1)]

    def new_order(self, chance: Chance, rows: Numbers) -> Made:
        size = self._size
        warehouse, district, position = _split(rows, DISTRICTS, size.customers - size.delivered)
        return [warehouse, district, [size.delivered + number for number in position]]

    def order_line(self, chance: Chance, rows: Numbers) -> Made:
        rest = rows % _BEFORE[-1]
        turn = np.searchsorted(_BEFORE, rest, side="right") - 1
        orders = rows // _BEFORE[-1] * _CYCLE + turn
        warehouse, district, order = _split(orders, DISTRICTS, self._size.customers)
        old, amounts = self._old(orders), hundredths(chance, 1, 999_999)
        return [
            warehouse,
            district,
            order,
            (rest - _BEFORE[turn] + 1).tolist(),
            numbers(chance, 1, self._size.items),
            warehouse,
            [LOADED_AT if is_old else None for is_old in old],
            same(5),
            [0.0 if is_old else amount for is_old, amount in zip(old, amounts, strict=True)],
            texts(chance, 24, 24),
        ]

    def stock(self, chance: Chance, rows: Numbers) -> Made:
        all_districts = texts(chance, 24 * DISTRICTS, 24 * DISTRICTS)
        districts = [[text[at : at + 24] for text in all_districts] for at in range(0, 24 * DISTRICTS, 24)]
        counts = [same(0), same(0), same(0)]
        return [*_split(rows, self._size.items), numbers(chance, 10, 100), *districts, *counts, _original(chance)]

    def _old(self, orders: Numbers) -> list[bool]:
        """Return for each order whether it counts as delivered before the benchmark starts."""
        return [bool(each) for each in orders % self._size.customers < self._size.delivered]


def _split(rows: Numbers, *sizes: int) -> list[list[int]]:
    """Split row numbers into keys of several columns, each counted from 1; the last column counts fastest."""
    keys: list[NDArray[Any]] = []
    for size in reversed(sizes):
        keys.insert(0, rows % size + 1)
        rows = rows // size
    return [key.tolist() for key in (rows + 1, *keys)]


def _address(chance: Chance) -> Made:
    codes = [f"{number:04}11111" for number in numbers(chance, 0, 9_999)]
    return [texts(chance, 10, 20), texts(chance, 10, 20), texts(chance, 10, 20), texts(chance, 2, 2), codes]


def _shares(chance: Chance, most: int) -> list[float]:
    """Make a column of taxes or discounts from 0 to ``most`` ten-thousandths."""
    return [number / 10_000 for number in numbers(chance, 0, most)]


def _original(chance: Chance) -> list[str]:
    """Make a column of random texts; one in ten begins with ORIGINAL."""
    data, original = texts(chance, 26, 50), (chance.random(BLOCK) < 0.1).tolist()
    return [f"ORIGINAL{text[8:]}" if chosen else text for text, chosen in zip(data, original, strict=True)]
