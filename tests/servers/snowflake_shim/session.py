"""One client's session: what it set, its transaction, and how it reaches fakesnow."""

import asyncio
import itertools
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import fakesnow.info_schema
import fakesnow.rowtype
import fakesnow.transforms as transforms
import sqlglot
from fakesnow.conn import FakeSnowflakeConnection
from fakesnow.rowtype import describe_as_rowtype
from sqlglot.dialects.duckdb import DuckDB

from servers.snowflake_shim.failures import refusal_of
from servers.snowflake_shim.history import utc_now
from servers.snowflake_shim.sql_text import literal

DuckDB.Generator.RESERVED_KEYWORDS = {
    *DuckDB.Generator.RESERVED_KEYWORDS,
    "at",
    "cluster",
    "collation",
    "end",
    "offset",
    "user",
}


def _only_real_tables(note: Callable[..., str]) -> Callable[..., str]:
    """A MERGE fills a temporary table; noting that in another database would break a transaction."""

    def noted(catalog: str, schema: str, table: str, fact: Any) -> str:
        return "SELECT 1" if table.upper() == "MERGE_CANDIDATES" else note(catalog, schema, table, fact)

    return noted


for _name in ("insert_table_comment_sql", "insert_text_lengths_sql"):
    setattr(fakesnow.info_schema, _name, _only_real_tables(getattr(fakesnow.info_schema, _name)))

_KEPT_RESULTS = 500
_NUMBERS = itertools.count(1001)

fakesnow.rowtype.duckdb_to_sf_type.update(
    {
        "TINYINT": "fixed",
        "SMALLINT": "fixed",
        "UINTEGER": "fixed",
        "FLOAT": "real",
        "UUID": "text",
        "TIMESTAMP_S": "timestamp_ntz",
    }
)


class RecentResults(OrderedDict[str, Any]):
    """The results of the last statements, for RESULT_SCAN; older ones are let go."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        while len(self) > _KEPT_RESULTS:
            self.popitem(last=False)


@dataclass(slots=True, kw_only=True)
class Answer:
    """The result of one statement: an Arrow table, its columns as Snowflake names their types, and a row count."""

    table: Any
    rowtype: Sequence[Any]
    query_id: str
    rows: int  #: changed by DML, else returned
    type_id: int = 0


@dataclass(slots=True)
class Transaction:
    """A transaction. Nothing is held until its first change."""

    user: str
    session: int
    name: str
    id: int = field(default_factory=time.monotonic_ns)
    started_on: datetime = field(default_factory=utc_now)
    ended_on: datetime | None = None
    state: str = "running"
    changes: list[tuple[str, Any]] = field(default_factory=list)
    writing: bool = False


@dataclass(eq=False, slots=True, kw_only=True)
class Session:
    """A signed-in client."""

    connection: FakeSnowflakeConnection
    user: str
    token: str
    master_token: str
    role: str = "PUBLIC"
    warehouse: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    autocommit: bool = True
    id: int = field(default_factory=lambda: next(_NUMBERS))
    transaction: Transaction | None = None
    last_transaction: int | None = None
    last_query: str | None = None
    used_at: float = field(default_factory=time.monotonic)
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    closed: bool = False

    @property
    def tag(self) -> str:
        return self.parameters.get("QUERY_TAG", "")

    @property
    def place(self) -> tuple[str | None, str | None]:
        return self.connection.database, self.connection.schema

    # Called in a thread

    def native(self, sql: str, params: Any = None) -> Answer:
        """Run one statement by fakesnow. ``params`` is a list of rows for an array binding. Raises Refusal."""
        cursor = self.connection.cursor()
        try:
            if isinstance(params, list):
                changed = self._many(sql, params[:-1])
                cursor.execute(sql, binding_params=params[-1], server=True)
                changed += cursor.rowcount or 0
            else:
                cursor.execute(sql, binding_params=params, server=True)
                changed = cursor.rowcount or 0
            rowtype = describe_as_rowtype(cursor._describe_last_sql())
        except Exception as exc:
            raise refusal_of(exc) from exc
        return Answer(table=cursor._arrow_table, rowtype=rowtype, query_id=cursor.sfqid or str(uuid.uuid4()), rows=changed)

    def _many(self, sql: str, rows: list[tuple[Any, ...]]) -> int:
        """Insert many rows by one statement, translated once."""
        if rows:
            cursor = self.connection.cursor()
            translated = cursor._transform(sqlglot.parse_one(sql, read="snowflake"), list(rows[0]))
            self.connection._duck_conn.executemany(translated.sql(dialect="duckdb"), rows)
        return len(rows)

    def described(self, sql: str) -> Any:
        """The columns of a statement that does not run. Raises Refusal."""
        try:
            columns = self.connection.cursor()._describe_only(sql)
            self._explain(sql)
        except Exception as exc:
            raise refusal_of(exc) from exc
        return describe_as_rowtype(columns or [])

    def _explain(self, sql: str) -> None:
        """Let DuckDB bind a change, so that a missing table or column is noticed."""
        tree = sqlglot.parse_one(sql, read="snowflake")
        if isinstance(tree, (sqlglot.exp.Insert, sqlglot.exp.Update, sqlglot.exp.Delete)):
            plain = tree.transform(lambda each: sqlglot.exp.Null() if isinstance(each, sqlglot.exp.Placeholder) else each)
            plain = plain.transform(transforms.upper_case_unquoted_identifiers)
            self.connection._duck_conn.execute(f"EXPLAIN {plain.sql(dialect='duckdb')}")

    def answer_with(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Answer:
        """An answer of our own, kept like any other, so that RESULT_SCAN finds it."""
        named = ['"' + name.replace('"', '""') + '"' for name in columns]
        kinds = [next((_kind(row[n]) for row in rows if row[n] is not None), "VARCHAR") for n in range(len(columns))]
        selects = [
            ", ".join(f"CAST({_plain(value)} AS {kind}) AS {name}" for value, kind, name in zip(row, kinds, named, strict=True))
            for row in (rows or [[None] * len(columns)])
        ]
        sql = " UNION ALL ".join(f"SELECT {each}" for each in selects) + ("" if rows else " LIMIT 0")
        cursor = self.connection.cursor()
        cursor._execute(sqlglot.parse_one(sql, read="duckdb"))
        rowtype = describe_as_rowtype(cursor._describe_last_sql())
        return Answer(table=cursor._arrow_table, rowtype=rowtype, query_id=cursor.sfqid or "", rows=len(rows))

    def begin(self) -> None:
        self.connection._duck_conn.begin()

    def commit(self) -> None:
        self.connection._duck_conn.commit()

    def rollback(self) -> None:
        self.connection._duck_conn.rollback()

    def replay(self, changes: Sequence[tuple[str, Any]]) -> None:
        """Undo a failed statement alone: DuckDB gives up the whole transaction, Snowflake only the statement."""
        self.rollback()
        self.begin()
        for sql, params in changes:
            self.native(sql, params)


def _plain(value: object) -> str:
    return literal(value).replace("\\\\", "\\")


def _kind(value: object) -> str:
    return {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", datetime: "TIMESTAMPTZ"}.get(type(value), "VARCHAR")
