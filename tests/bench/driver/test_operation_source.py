"""Operations drawn ahead of time: the exact mix, each value once, as drivers take them."""

import threading
from collections import Counter

import pytest

from drumbeat.bench.driver.operation_source import OperationSource
from drumbeat.bench.driver.samples import mask_values
from drumbeat.bench.model import (
    KeyValue,
    Load,
    NewKey,
    Now,
    Operation,
    PoolValue,
    RandomNumber,
    RandomText,
    SameAs,
    Statement,
    Value,
    ValueType,
)
from drumbeat.bench.values.draw import Draw
from drumbeat.core.errors import InvalidInput


def supply(*operations: Operation) -> OperationSource:
    return OperationSource(Load(name="x", operations=operations), Draw.seeded(0, 1, lambda: 77), lambda us: f"at {us}")


def operation(kind: str, weight: int, *statements: tuple[Value, ...]) -> Operation:
    made = [Statement(sql=" ".join(f"${n}" for n in range(1, len(values) + 1)), values=values) for values in statements]
    return Operation(kind=kind, weight=weight, statements=tuple(made))


def test_the_mix_is_exact_over_every_hundred() -> None:
    source = supply(operation("A", 25, ()), operation("B", 35, ()), operation("C", 0), operation("D", 40, ()))

    for _ in range(20):
        assert Counter(source.next()[0] for _ in range(100)) == {0: 25, 1: 35, 2: 40}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (KeyValue(low=5, high=5), 5),
        (NewKey(first=9), 9),
        (Now(), "at 77"),
        (KeyValue(low=3, high=3, type=ValueType.TEXT), "3"),
        (KeyValue(low=3, high=3, type=ValueType.FLOAT), 3.0),
        (KeyValue(low=3, high=3, type=ValueType.TIMESTAMP), "at 3"),
        (RandomNumber(low=125, high=125, scale=2, type=ValueType.FLOAT), 1.25),
        (PoolValue(values=["é"] * 64), "é"),
        (PoolValue(values=["2026-01-01"] * 64, type=ValueType.TIMESTAMP), "2026-01-01"),
    ],
)
def test_values_are_plain(value: Value, expected: object) -> None:
    _, values = supply(operation("A", 100, (value,))).next()

    assert values == ((expected,),)
    assert type(values[0][0]) is type(expected)


def test_a_text_is_text() -> None:
    _, values = supply(operation("A", 100, (RandomText(length=8),))).next()

    assert isinstance(values[0][0], str)
    assert len(values[0][0]) == 8


def test_statements_without_values_and_values_of_earlier_statements() -> None:
    source = supply(operation("A", 100, (), (KeyValue(low=1, high=99),), (SameAs(index=0, plus=1000),)))

    for _ in range(1000):
        _, (nothing, (key,), (same,)) = source.next()
        assert (nothing, same) == ((), key + 1000)


def test_what_is_put_back_comes_next() -> None:
    source = supply(operation("A", 100, (NewKey(first=1),)))
    first = source.next()

    source.put_back(first)

    assert source.next() == first
    assert source.next()[1] == ((2,),)


def test_many_threads_share_it_and_none_gets_what_another_got() -> None:
    source = supply(operation("A", 100, (NewKey(first=0),)))
    given: list[int] = []
    threads = [threading.Thread(target=lambda: given.extend(source.next()[1][0][0] for _ in range(5000))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(given) == list(range(20_000))


def test_running_out_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(InvalidInput, match="raise span"):
        supply(operation("A", 100, (NewKey(first=1, span=10),))).next()


@pytest.mark.parametrize(
    ("message", "values", "expected"),
    [
        ("Duplicate entry '17' for key 'PRIMARY'", [(17,)], "Duplicate entry '?' for key 'PRIMARY'"),
        ('Duplicate key "id: 17" in 171', [(17,)], 'Duplicate key "id: ?" in 171'),
        ("bad value 'ann smith (x)'", [(3,), ("ann smith (x)", "ann")], "bad value '?'"),
        ("no value at all", [("",), (None,)], "no value at all"),
    ],
)
def test_values_are_taken_out_of_what_a_database_says(message: str, values: list[tuple[object]], expected: str) -> None:
    assert mask_values(message, values) == expected
