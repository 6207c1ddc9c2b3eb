"""Named queries are read, split, put into a dialect's words, and understood by its database."""

import ast
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

import drumbeat.store.sql as package
from drumbeat.core.errors import InvalidSettings
from drumbeat.store import open_store
from drumbeat.store.sql.postgres_dialect import dialect as postgres_dialect
from drumbeat.store.sql.queries import (
    Dialect,
    Query,
    SqlStatement,
    _query as query_of,
    load_queries,
    migration_texts,
    split,
    view_names,
)
from drumbeat.store.sql.sqlite import DIALECT as SQLITE
from drumbeat.store.sql.upkeep import TABLES

POSTGRES = postgres_dialect("drumbeat")
FOLDER = Path(package.__path__[0])
DDL = re.compile(r"CREATE|DROP|ALTER", re.IGNORECASE)
STATEMENT = re.compile(
    r"^\s*(SELECT\b|INSERT\s+INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM|CREATE\s|DROP\s|ALTER\s|WITH\s+\S+\s+AS)", re.IGNORECASE
)

TOY = Dialect(
    name="toy",
    words={"now": "NOW()", "json": "JSON"},
    calls={
        "time": lambda us: f"TIME({us})",
        "pair": lambda left, right: f"<{left}|{right}>",
        "many": lambda *all_: f"[{len(all_)}]",
    },
    schema="mine.",
    numbered=True,
)


def statements(text: str, dialect: Dialect = TOY) -> tuple[SqlStatement, ...]:
    return query_of("q", text, dialect).statements


def test_a_script_is_split_into_its_statements_without_comments() -> None:
    text = "-- why this is safe;\nSELECT 1;\n\n  -- and this\nSELECT\n  2;\nSELECT ';' AS mark"

    assert list(split(text)) == ["SELECT 1", "SELECT\n  2", "SELECT ';' AS mark"]


def test_nothing_but_comments_is_no_statement() -> None:
    assert list(split("-- nothing;\n\n;\n  -- at all\n")) == []


def test_values_are_numbered_once_each_in_the_order_they_come() -> None:
    (statement,) = statements("UPDATE x SET a = :a, b = :b WHERE a < :a AND c = :c;")

    assert statement == SqlStatement("UPDATE x SET a = $1, b = $2 WHERE a < $1 AND c = $3", ("a", "b", "c"))


def test_each_statement_of_a_query_is_numbered_anew() -> None:
    first, second = statements("DELETE FROM x WHERE a = :a;\nDELETE FROM y WHERE b = :b AND a = :a;")

    assert (first.parameters, second.parameters) == (("a",), ("b", "a"))
    assert second.text == "DELETE FROM y WHERE b = $1 AND a = $2"


def test_values_keep_their_names_where_the_driver_knows_names() -> None:
    (statement,) = statements("SELECT :a, :b, :a", SQLITE)

    assert statement == SqlStatement("SELECT :a, :b, :a", ("a", "b"))


def test_values_without_names_come_in_the_order_of_the_columns() -> None:
    (statement,) = statements("INSERT INTO x (a, b) VALUES (:a, :b)", SQLITE)

    assert statement.in_order(("a", "b")) == "INSERT INTO x (a, b) VALUES (?, ?)"
    with pytest.raises(ValueError, match="expected the columns a, b, got b, a"):
        statement.in_order(("b", "a"))


@pytest.mark.parametrize("text", ["SELECT 'x'::jsonb", "SELECT '12:30'", "SELECT a::text"])
def test_what_only_looks_like_a_value_is_left_alone(text: str) -> None:
    assert statements(text) == (SqlStatement(text, ()),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT @now", "SELECT NOW()"),
        ("SELECT @time(a)", "SELECT TIME(a)"),
        ("SELECT @time(@now)", "SELECT TIME(NOW())"),
        ("SELECT @pair(@time(a), @pair(b, c))", "SELECT <TIME(a)|<b|c>>"),
        ("SELECT @time(COALESCE(a, b))", "SELECT TIME(COALESCE(a, b))"),
        ("SELECT @time(\n  a\n)", "SELECT TIME(a)"),
        ("SELECT @many(a, f(b, c), d)", "SELECT [3]"),
        ("SELECT CAST(a AS @json) FROM drumbeat.pools", "SELECT CAST(a AS JSON) FROM mine.pools"),
    ],
)
def test_words_and_calls_are_put_in_even_within_each_other(text: str, expected: str) -> None:
    assert TOY.translate(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT @nonsense", "the toy dialect does not define @nonsense; expected one of json, now"),
        ("SELECT @nonsense(a)", "the toy dialect does not define @nonsense; expected one of many, pair, time"),
        ("SELECT @time(a", "never closed"),
    ],
)
def test_a_word_nobody_knows_is_an_error(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TOY.translate(text)


def test_both_dialects_have_the_same_words() -> None:
    assert set(POSTGRES.words) - set(SQLITE.words) == {"schema"}
    assert set(POSTGRES.calls) == set(SQLITE.calls)


def test_both_dialects_have_the_same_queries_but_for_how_jobs_are_pushed_claimed_and_ended() -> None:
    sqlite, postgres = set(load_queries(SQLITE)), set(load_queries(POSTGRES))

    own_transaction = {"begin_writing", "lock_file", "list_files"}
    assert sqlite - postgres == {"next_number", "push_job", "pass_on_done", *own_transaction}
    pushing = {"push_one", "push_alike", "push_jobs", "share_pool", "notify", "find_home", "find_unlocked"}
    assert postgres - sqlite == {*pushing, "settle_and_claim", "lock_groups", "list_held"}


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=lambda each: each.name)
def test_nothing_of_ours_is_left_in_a_query(dialect: Dialect) -> None:
    queries = load_queries(dialect)
    assert len(queries) > 100
    for query in queries.values():
        assert query.statements
        for statement in query.statements:
            assert not re.search(r"@\w", statement.text), query.name
            assert not re.search(r"(?<![\"\w])drumbeat\.", statement.text), query.name


def test_a_schema_is_a_name_and_nothing_else() -> None:
    assert 'FROM "other".pools' in load_queries(postgres_dialect("other"))["find_pool"].statements[0].text
    for bad in ("", "Other", 'x"; DROP SCHEMA public', "1st", "a" * 64):
        with pytest.raises(InvalidSettings, match="schema: expected a name"):
            postgres_dialect(bad)


def test_migrations_are_numbered_from_one_without_a_gap() -> None:
    assert list(migration_texts()) == list(range(1, len(migration_texts()) + 1))


def test_every_table_is_counted_by_check() -> None:
    made = re.findall(r"CREATE TABLE drumbeat\.(\w+)", "".join(migration_texts().values()))

    assert sorted(set(made)) == sorted(TABLES)


def _used() -> set[str]:
    """The names of queries that the code runs, and the beginnings of those it puts together."""
    source = "\n".join(path.read_text() for path in FOLDER.glob("*.py"))
    return set(re.findall(r'(?:\bread\(|\bwrite\(|\byield \(?)\s*f?"(\w+)', source))


def _named() -> set[str]:
    """Every word in quotes."""
    return set(re.findall(r'"(\w+)"', "\n".join(path.read_text() for path in FOLDER.glob("*.py"))))


def test_every_query_the_code_runs_is_there_and_every_one_there_is_run() -> None:
    queries, used = set(load_queries(SQLITE)) | set(load_queries(POSTGRES)), _used()
    composed = {name for name in used if name.endswith("_") and name not in queries}
    unused = queries - used - _named()

    assert len(queries & used) > 100
    assert {name for name in used - composed if name not in queries} == set()
    assert {name for name in unused if not name.startswith(tuple(composed)) and name not in view_names()} == set()


def _ordinary(dialect: Dialect) -> Iterator[tuple[Query, SqlStatement]]:
    """Statements that do not change the schema; those that do are run by every migration."""
    for query in load_queries(dialect).values():
        for statement in query.statements:
            if not DDL.match(statement.text):
                yield query, statement


def _tables_of_a_moment() -> dict[str, str]:
    """By query, the table it makes to load from, here to stay for as long as the connection."""
    queries = load_queries(POSTGRES).values()
    made = {query.name: query.statements[0].text for query in queries if "TEMPORARY" in query.statements[0].text}
    return {name: text.removesuffix(" ON COMMIT DROP") for name, text in made.items()}


def _copy_table(dialect: Dialect) -> str:
    """The statement that makes the table that is there while a store is copied."""
    return load_queries(dialect)["begin_copy"].statements[0].text


async def test_sqlite_understands_every_query(tmp_path: Path) -> None:
    path = tmp_path / "drumbeat.db"
    async with open_store(f"sqlite:///{path}", create=True):
        pass
    connection = sqlite3.connect(path)
    connection.execute(_copy_table(SQLITE))
    checked = 0
    for query, statement in _ordinary(SQLITE):
        try:
            connection.execute(f"EXPLAIN {statement.text}", dict.fromkeys(statement.parameters))
        except sqlite3.Error as exc:
            pytest.fail(f"{query.name}: {exc}\n{statement.text}")
        checked += 1
    connection.close()

    assert checked > 60


async def test_postgresql_understands_every_query(postgres_url: str) -> None:
    async with open_store(postgres_url, create=True):
        pass
    connection = await asyncpg.connect(postgres_url)
    checked = 0
    incoming = _tables_of_a_moment()
    await connection.execute(_copy_table(POSTGRES))
    for query, statement in _ordinary(POSTGRES):
        if query.name in incoming:
            await connection.execute(incoming[query.name])
        try:
            prepared = await connection.prepare(statement.text)
        except asyncpg.PostgresError as exc:
            pytest.fail(f"{query.name}: {exc}\n{statement.text}")
        assert len(prepared.get_parameters()) == len(statement.parameters), query.name
        checked += 1
    await connection.close()

    assert checked > 60


def _sources() -> Iterator[tuple[Path, ast.AST]]:
    for path in (FOLDER.parent).rglob("*.py"):
        if "contract" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text())):
                yield path, node


def _composed_text(node: ast.AST) -> str | None:
    """The beginning of a text that is put together, by whichever means."""
    match node:
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *rest]) if rest:
            return text
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Add() | ast.Mod()):
            return text
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format" | "replace" | "join")):
            return text
    return None


def test_no_sql_is_put_together_in_code() -> None:
    sources = list(_sources())
    found = [
        f"{path.name}:{getattr(node, 'lineno', '?')}: {text}"
        for path, node in sources
        if (text := _composed_text(node)) is not None and STATEMENT.match(text)
    ]

    assert len({path for path, _ in sources}) > 20
    assert found == []


@pytest.mark.parametrize(
    "code",
    ['f"SELECT {x}"', '"DELETE FROM " + table', '"INSERT INTO %s" % table', '"UPDATE t SET {}".format(x)', 'f"DROP TABLE {t}"'],
)
def test_sql_that_is_put_together_would_be_found(code: str) -> None:
    texts = [text for node in ast.walk(ast.parse(code)) if (text := _composed_text(node)) is not None]

    assert any(STATEMENT.match(text) for text in texts)
