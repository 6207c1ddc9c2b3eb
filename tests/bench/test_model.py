"""What a load is made of: wrong ones are refused where they are made, by the name of what is wrong."""

from collections.abc import Callable

import pytest

from drumbeat.bench.model import (
    Either,
    KeyValue,
    Kind,
    Load,
    NewKey,
    NonUniform,
    Operation,
    Pick,
    PoolValue,
    RandomNumber,
    RandomText,
    SameAs,
    Statement,
    Value,
    ValueType,
    parts,
)
from drumbeat.core.errors import InvalidInput

KEY = KeyValue(high=10)


def lookup(weight: int = 100, sql: str = "SELECT 1 FROM t WHERE k = $1", *values: Value) -> Operation:
    return Operation(kind=Kind.POINT_LOOKUP, weight=weight, statements=(Statement(sql=sql, values=values or (KEY,)),))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Load(name="l", operations=(lookup(60),)), "weights that total 100, got 60 .POINT_LOOKUP 60"),
        (lambda: Load(name="l", operations=()), "weights that total 100, got 0"),
        (
            lambda: Load(name="l", operations=(lookup(50), lookup(50))),
            "each kind of operation once, got POINT_LOOKUP, POINT_LOOKUP",
        ),
        (lambda: lookup(-1), "weight of POINT_LOOKUP to be 0 or more, got -1"),
        (lambda: Operation(kind="REPORT", weight=5, statements=()), "REPORT has a weight of 5 but no SQL"),
        (lambda: lookup(100, "SELECT $1, $2"), r"POINT_LOOKUP: the placeholder \$2 has no value; got only 1 values"),
        (lambda: lookup(100, "SELECT 1"), r"POINT_LOOKUP: value 1 has no placeholder \$1"),
        (lambda: lookup(100, "SELECT '$1'"), r"POINT_LOOKUP: value 1 has no placeholder \$1"),
        (
            lambda: lookup(100, "SELECT $1", SameAs(index=0)),
            "POINT_LOOKUP: value 1 refers to value 1, expected an earlier one",
        ),
        (lambda: lookup(100, "SELECT $1, $2", KEY, SameAs(index=2)), "value 2 refers to value 3, expected an earlier one"),
        (lambda: lookup(100, "SELECT $1", Either(usual=SameAs(index=0), other=KEY, share=0.5)), "refers to value 1"),
        (lambda: lookup(100, "SELECT $1", Pick(values=[1], by=SameAs(index=4))), "refers to value 5"),
        (lambda: PoolValue(values=[]), "at least one value, got an empty list"),
        (lambda: Pick(values=(), by=KEY), "at least one value, got an empty list"),
        (lambda: KeyValue(low=2, high=1), "keys with low ≤ high, got low 2 and high 1"),
        (lambda: KeyValue(high=2**31, type=ValueType.INT), "high to be at most 2147483647, the largest int, got 2147483648"),
        (lambda: KeyValue(theta=1), "theta between 0 and 1, got 1"),
        (lambda: KeyValue(theta=0), "theta between 0 and 1, got 0"),
        (lambda: KeyValue(hot_share=0), "hot_share above 0 and at most 1, got 0"),
        (lambda: KeyValue(hot_load=1.5), "hot_load above 0 and at most 1, got 1.5"),
        (lambda: NewKey(first=1, span=0), "span to be 1 or more, got 0"),
        (lambda: RandomNumber(low=5, high=4), "low ≤ high, got low 5 and high 4"),
        (lambda: RandomNumber(high=2**40), "high to be at most 2147483647, the largest int"),
        (lambda: RandomNumber(scale=2), r"expected type float for a number with scale 2 \(decimal places\), got int"),
        (lambda: NonUniform(a=255, low=9, high=8), "low ≤ high"),
        (lambda: RandomText(length=0), "length to be 1 or more, got 0"),
        (lambda: Either(usual=KEY, other=KEY, share=1.1), "share between 0 and 1, got 1.1"),
    ],
)
def test_what_makes_no_sense_is_refused_and_named(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        wrong()


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("SELECT $1", 1),
        ("SELECT $1 + $1, $2", 2),
        ("SELECT $2, $1", 2),
        ("SELECT $1, 'it''s $7 a piece'", 1),
        ('SELECT "$3" FROM t WHERE k = $1', 1),
        ("SELECT 1", 0),
    ],
)
def test_placeholders_may_come_in_any_order_and_those_in_quotes_do_not_count(sql: str, values: int) -> None:
    assert len(Statement(sql=sql, values=(KEY,) * values).values) == values
    Operation(kind="ANY", weight=100, statements=(Statement(sql=sql, values=(KEY,) * values),))


def test_a_value_may_be_that_of_an_earlier_statement() -> None:
    first, second = Statement(sql="SELECT $1", values=(KEY,)), Statement(sql="SELECT $1", values=(SameAs(index=0),))

    assert Operation(kind="TWO", weight=100, statements=(first, second)).statements == (first, second)


def test_operations_without_a_weight_need_no_sql_and_are_not_used() -> None:
    load = Load(name="l", operations=(Operation(kind=Kind.DELETE, weight=0, statements=()), lookup()))

    assert [operation.kind for operation in load.used] == [Kind.POINT_LOOKUP]


def test_a_value_is_itself_and_all_it_is_made_of() -> None:
    inner = Pick(values=[1, 2], by=SameAs(index=0))
    value = Either(usual=inner, other=KEY, share=0.5)

    assert parts(value) == (value, inner, SameAs(index=0), KEY)
