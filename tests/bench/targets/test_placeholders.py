"""Statements in a driver's words: placeholders are found where they are, and only there."""

import pytest

from drumbeat.bench.model import KeyValue, Load, Operation, Statement
from drumbeat.bench.targets.placeholders import insert_sql, positional, quoted, scripts
from drumbeat.core.errors import InvalidInput

KEY = KeyValue(low=1, high=9)


@pytest.mark.parametrize(
    ("sql", "expected", "order"),
    [
        ("SELECT 1", "SELECT 1", ()),
        ("SELECT $1, $2", "SELECT ?, ?", (0, 1)),
        ("UPDATE t SET a = $2 WHERE b = $1", "UPDATE t SET a = ? WHERE b = ?", (1, 0)),
        ("SELECT $1 WHERE x BETWEEN $1 AND $1 + $2", "SELECT ? WHERE x BETWEEN ? AND ? + ?", (0, 0, 0, 1)),
        ("SELECT $10, $1", "SELECT ?, ?", (9, 0)),
        ("SELECT '$1', 'it''s $2', $1", "SELECT '$1', 'it''s $2', ?", (0,)),
        ('SELECT "$1", `$2`, $1', 'SELECT "$1", `$2`, ?', (0,)),
        ("SELECT $1 -- not $2\n, $2", "SELECT ? -- not $2\n, ?", (0, 1)),
        ("SELECT /* $1\n $2 */ $1", "SELECT /* $1\n $2 */ ?", (0,)),
        ("SELECT /* a /* $1 */ $2 */ $1", "SELECT /* a /* $1 */ $2 */ ?", (0,)),
        ("SELECT /* a /* $1 */ $2", "SELECT /* a /* $1 */ ?", (1,)),
        ("SELECT $1 /* $2", "SELECT ? /* $2", (0,)),
        ("SELECT $1 -- it's $2\n, $2, 'a'", "SELECT ? -- it's $2\n, ?, 'a'", (0, 1)),
        ("SELECT $1 /* it's \" $2; */, $2, 'a -- $3'", "SELECT ? /* it's \" $2; */, ?, 'a -- $3'", (0, 1)),
        ("SELECT E'it\\'s $2', $1", "SELECT E'it\\'s $2', ?", (0,)),
        ("SELECT 'C:\\', $1", "SELECT 'C:\\', ?", (0,)),
        ("SELECT $$it's $2$$, $q$ $3 $$ $q$, $1", "SELECT $$it's $2$$, $q$ $3 $$ $q$, ?", (0,)),
        ("SELECT a$1, $1 FROM t$2", "SELECT a$1, ? FROM t$2", (0,)),
        ("SELECT '%s', 100 % $1", "SELECT '%s', 100 % ?", (0,)),
    ],
)
def test_placeholders_become_question_marks(sql: str, expected: str, order: tuple[int, ...]) -> None:
    assert positional(sql) == (expected, order)


@pytest.mark.parametrize(
    ("sql", "numbered", "arguments"),
    [
        ("SELECT $1, $2", False, [7, 8]),
        ("SELECT $2, $1", False, [8, 7]),
        ("SELECT $2, $1, $2", False, [8, 7, 8]),
        ("SELECT $2, $1, $2", True, [7, 8]),
    ],
)
def test_values_are_put_into_the_placeholders_order(sql: str, numbered: bool, arguments: list[int]) -> None:
    load = Load(
        name="x",
        operations=(Operation(kind="A", weight=100, statements=(Statement(sql=sql, values=(KEY, KEY)),)),),
    )

    [script] = scripts(load, numbered=numbered)

    assert list(script.steps[0].arguments([7, 8])) == arguments
    assert (script.steps[0].sql == sql) is numbered


@pytest.mark.parametrize(
    ("statements", "steps", "is_transaction"),
    [
        (["SELECT 1"], [(0, "SELECT 1")], False),
        (["SELECT 1", "SELECT 2"], [(0, "SELECT 1"), (1, "SELECT 2")], True),
        (["BEGIN", "SELECT 1", "COMMIT"], [(1, "SELECT 1")], True),
        (["begin transaction;", "SELECT 1", " end "], [(1, "SELECT 1")], True),
        (["START  TRANSACTION", "SELECT 1", "SELECT 2", "COMMIT WORK"], [(1, "SELECT 1"), (2, "SELECT 2")], True),
        (["BEGINNING"], [(0, "BEGINNING")], False),
        (["BEGIN -- it's; one", "SELECT 1 -- COMMIT", "/* done */ COMMIT;"], [(1, "SELECT 1 -- COMMIT")], True),
    ],
)
def test_transactions_are_found(statements: list[str], steps: list[tuple[int, str]], is_transaction: bool) -> None:
    made = Operation(kind="A", weight=100, statements=tuple(Statement(sql=sql) for sql in statements))

    [script] = scripts(Load(name="x", operations=(made,)))

    assert [(step.index, step.sql) for step in script.steps] == steps
    assert script.is_transaction is is_transaction


@pytest.mark.parametrize(
    ("name", "mark", "expected"),
    [
        ("items", '"', '"items"'),
        ("main.items", '"', '"main"."items"'),
        ('a"b', '"', '"a""b"'),
        ("a`b", "`", "`a``b`"),
        ('"a.b"', '"', '"a.b"'),
        ('main."a.""b"', "`", '`main`.`a."b`'),
        ("`a.b`.c", '"', '"a.b"."c"'),
        ('"a.b', '"', '"""a"."b"'),
    ],
)
def test_names_are_quoted_part_by_part(name: str, mark: str, expected: str) -> None:
    assert quoted(name, mark) == expected


def test_an_insert_names_its_columns() -> None:
    assert insert_sql("s.t", ["a", "b.c"], "`", "%s") == "INSERT INTO `s`.`t` (`a`, `b.c`) VALUES (%s, %s)"


@pytest.mark.parametrize(
    "sql", ["SELECT $1 -- not $2", "SELECT /* $2 */ $1", "SELECT $1 -- it's\n, '$2'", "SELECT $1, E'\\'$2'"]
)
def test_only_what_the_database_takes_for_a_placeholder_needs_a_value(sql: str) -> None:
    Operation(kind="A", weight=100, statements=(Statement(sql=sql, values=(KEY,)),))

    with pytest.raises(InvalidInput, match=r"value 2 has no placeholder \$2"):
        Operation(kind="A", weight=100, statements=(Statement(sql=sql, values=(KEY, KEY)),))


def test_many_dollar_signs_that_begin_no_text_are_read_in_linear_time() -> None:
    """Each would search the rest of the SQL for its end, which took minutes for so many."""
    sql = " ".join(f"$tag{n}$" for n in range(20_000))

    assert positional(f"{sql} $2 $x$ $3 $x$ $1")[1] == (1, 0)
