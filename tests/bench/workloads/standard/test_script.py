"""Operations written with names."""

import pytest

from drumbeat.bench.model import Either, KeyValue, RandomNumber, SameAs, ValueType
from drumbeat.bench.workloads.standard.script import Named, operation, transaction
from drumbeat.core.errors import InvalidInput

KEY, DELTA = KeyValue(high=9, type=ValueType.INT), RandomNumber(low=-5, high=5)


def test_a_name_is_drawn_once_and_is_the_same_in_every_statement() -> None:
    made = operation(
        "MOVE", 100, {"k": KEY, "d": DELTA}, "UPDATE t SET v = v + :d WHERE k = :k", "SELECT v FROM t WHERE k = :k"
    )

    update, select = made.statements
    assert (update.sql, update.values) == ("UPDATE t SET v = v + $1 WHERE k = $2", (DELTA, KEY))
    assert (select.sql, select.values) == ("SELECT v FROM t WHERE k = $1", (SameAs(index=1, type=ValueType.INT),))


def test_a_name_twice_in_a_statement_is_one_placeholder() -> None:
    (statement,) = operation("ONE", 100, {"k": KEY}, "SELECT :k, :k").statements

    assert (statement.sql, statement.values) == ("SELECT $1, $1", (KEY,))


def test_a_value_may_be_made_of_another_names() -> None:
    values: Named = {"w": KEY, "s": lambda places: Either(usual=SameAs(index=places["w"]), other=DELTA, share=0.9)}

    made = operation("TWO", 100, values, "SELECT :w", "SELECT :s", "SELECT :s")

    assert made.statements[1].values == (Either(usual=SameAs(index=0), other=DELTA, share=0.9),)
    assert made.statements[2].values == (SameAs(index=1, type=ValueType.INT),)


def test_a_transaction_is_its_statements_between_begin_and_commit() -> None:
    made = transaction("T", 100, {"k": KEY}, "SELECT :k")

    assert [statement.sql for statement in made.statements] == ["BEGIN", "SELECT $1", "COMMIT"]


def test_a_name_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidInput, match="T: there is no value for the placeholder :x; there are values for k"):
        transaction("T", 100, {"k": KEY}, "SELECT :x")
