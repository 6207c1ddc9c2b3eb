"""Named queries on Snowflake: what is bound, what is skipped, and what a query returns although there is no RETURNING."""

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from drumbeat.store.sql.database import Bulk
from drumbeat.store.sql.queries import Query, SqlStatement, load_queries, split
from drumbeat.store.sql.snowflake_dialect import dialect
from drumbeat.store.sql.snowflake_statements import flat_json, plain, render, run_query


class Cursor:
    """Answers each statement with the next of the given results: a list of rows, or a number of changed rows."""

    def __init__(self, *results: list[tuple[Any, ...]] | int) -> None:
        self._results = list(results)
        self.sent: list[tuple[str, Sequence[Any]]] = []
        self.rowcount = 0
        self.description = [("A",), ("B",)]
        self._rows: list[tuple[Any, ...]] = []

    def execute(self, sql: str, bound: Sequence[Any] | None = None) -> None:
        self.sent.append((sql, list(bound or ())))
        result = self._results.pop(0)
        self.rowcount, self._rows = (result, []) if isinstance(result, int) else (len(result), result)

    def executemany(self, sql: str, records: Sequence[Sequence[Any]]) -> None:
        self.execute(sql, records)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows


def query(text: str) -> Query:
    words = text.replace("@if_any", "/*if any*/").replace("@if_none", "/*if none*/").replace("@if_given(:n)", "/*if :n*/")
    return Query("q", tuple(SqlStatement(each, ()) for each in split(words)))


@pytest.mark.parametrize(
    ("text", "values", "sql", "bound"),
    [
        ("SELECT :a, :b, :a", {"a": 1, "b": "x"}, "SELECT ?, ?, ?", [1, "x", 1]),
        ("WHERE x IN (:a...)", {"a": "[1, 2]"}, "WHERE x IN (?, ?)", [1, 2]),
        ("WHERE x IN (:a...)", {"a": []}, "WHERE x IN (NULL)", []),
        ("LIMIT :most OFFSET :after", {"most": 5, "after": 2}, "LIMIT 5 OFFSET 2", []),
        ("v:a::VARCHAR = :a", {"a": "x"}, "v:a::VARCHAR = ?", ["x"]),
        ("PARSE_JSON(:a{})", {"a": '[{"p":{"k":1},"n":2}]'}, "PARSE_JSON(?)", ['[{"p":"{\\"k\\":1}","n":2}]']),
    ],
)
def test_values_are_bound_in_their_order(text: str, values: dict[str, Any], sql: str, bound: list[Any]) -> None:
    assert render(text, values) == (sql, bound)


def test_a_limit_is_a_number_whatever_is_given() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        render("LIMIT :most", {"most": "1; DROP TABLE jobs"})


def test_a_query_reads_what_it_has_changed() -> None:
    cursor = Cursor(1, [(7, "x")])

    [row] = run_query(cursor, query("UPDATE t SET a = :a;\n@if_any SELECT * FROM t"), {"a": 7})

    assert (row["a"], row["b"], row[0]) == (7, "x", 7)


def test_a_query_that_changes_nothing_reads_nothing() -> None:
    cursor = Cursor(0)

    assert run_query(cursor, query("UPDATE t SET a = :a;\n@if_any SELECT * FROM t"), {"a": 7}) == ()
    assert len(cursor.sent) == 1


@pytest.mark.parametrize(("changed", "sent"), [(1, ["UPDATE", "SELECT"]), (0, ["UPDATE", "INSERT", "SELECT"])])
def test_a_row_is_inserted_where_none_was_changed(changed: int, sent: list[str]) -> None:
    cursor = Cursor(*([1] if changed else [0, 1]), [(1, 2)])

    run_query(cursor, query("UPDATE t SET a = 1;\n@if_none INSERT INTO t SELECT 1;\n@if_any SELECT * FROM t"), {})

    assert [sql.split()[0] for sql, _ in cursor.sent] == sent


def test_a_statement_without_its_value_is_skipped() -> None:
    cursor = Cursor(1, [(1, 2)])

    rows = run_query(cursor, query("UPDATE t SET a = 1;\nSELECT * FROM t;\n@if_given(:n) INSERT INTO s SELECT :n"), {"n": None})

    assert len(rows) == 1
    assert len(cursor.sent) == 2


def test_what_was_chosen_is_changed_and_is_the_result() -> None:
    cursor = Cursor([(3, "a"), (4, "b")], 2)

    rows = run_query(cursor, query("SELECT seq, x FROM t;\n@if_any DELETE FROM t WHERE seq IN (:chosen...)"), {})

    assert [row["a"] for row in rows] == [3, 4]
    assert cursor.sent[1] == ("DELETE FROM t WHERE seq IN (?, ?)", [3, 4])


def test_a_change_alone_returns_as_many_rows_as_it_changed() -> None:
    assert len(run_query(Cursor(3), query("DELETE FROM t"), {})) == 3


def test_many_rows_go_in_one_statement_each_time() -> None:
    cursor = Cursor(2)
    bulk = Bulk(table="t", columns=("a", "b"), records=[(1, "x"), (2, None)])

    rows = run_query(
        cursor, query("INSERT INTO t SELECT e.value[0] FROM TABLE(FLATTEN(INPUT => PARSE_JSON(:records{}))) e"), bulk
    )

    assert rows[0]["new"] == 2
    assert json.loads(cursor.sent[0][1][0]) == [[1, "x"], [2, None]]


def test_no_statement_has_so_many_values_that_the_connector_would_upload_them() -> None:
    cursor = Cursor(1250, 750)
    names = tuple(f"c{n}" for n in range(48))
    insert = Query("q", (SqlStatement(f"INSERT INTO t VALUES ({', '.join(f':{name}' for name in names)})", names),))

    rows = run_query(cursor, insert, Bulk(table="t", columns=names, records=[(n,) * 48 for n in range(2000)]))

    assert [len(records) for _, records in cursor.sent] == [1250, 750]
    assert [records[0][0] for _, records in cursor.sent] == [0, 1250]
    assert rows[0]["new"] == 2000


def test_values_come_back_as_from_other_stores() -> None:
    assert plain((Decimal("12"), Decimal("0.5"), bytearray(b"x"), None, "t")) == (12, 0.5, b"x", None, "t")


def test_nested_json_keeps_its_text() -> None:
    assert json.loads(flat_json('[[1, null, "x"], [2, [1.0], "y"]]')) == [[1, None, "x"], [2, "[1.0]", "y"]]


@pytest.mark.parametrize("hybrid", [True, False])
def test_no_query_uses_what_snowflake_does_not_have(hybrid: bool) -> None:
    queries = load_queries(dialect(hybrid=hybrid))
    texts = {name: "; ".join(each.text for each in found.statements) for name, found in queries.items()}
    forbidden = r"\bRETURNING\b|\bON CONFLICT\b|\bFOR (UPDATE|SHARE)\b|\bINDEXED BY\b|\bWINDOW\b|\$\d|(LIMIT|OFFSET) CAST|json_"

    assert {name: text for name, text in texts.items() if re.search(forbidden, text)} == {}
    assert {name for name, text in texts.items() if "HYBRID" in text} == (
        {"migration_9", "migration_10", "migration_11", "make_version_table"} if hybrid else set()
    )


def test_every_query_of_sqlite_exists() -> None:
    from drumbeat.store.sql.sqlite import DIALECT

    own_transactions = {"list_files", "begin_writing", "lock_file"}  #: of callers with a SQLite file
    assert set(load_queries(DIALECT)) - own_transactions <= set(load_queries(dialect(hybrid=True)))
    assert own_transactions <= set(load_queries(DIALECT))
