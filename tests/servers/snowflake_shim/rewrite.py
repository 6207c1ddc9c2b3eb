"""Rewrites statements that fakesnow would not read, or would read wrongly, and refuses those Snowflake refuses."""

import re
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp

from servers.snowflake_shim.failures import Refusal, syntax_error
from servers.snowflake_shim.history import SCHEMA
from servers.snowflake_shim.session import Session
from servers.snowflake_shim.sql_text import Token, closing, literal, replaced, text_of, tokens

Name = tuple[str | None, str | None, str]  #: database, schema, table


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A CREATE TABLE that fakesnow can run, and what kind of table it was meant to be."""

    sql: str
    kind: str
    name: list[str]
    keys: list[str]


def refuse_returning(found: list[Token]) -> None:
    """Snowflake has no RETURNING, though DuckDB does."""
    for token in found:
        if token.upper == "RETURNING" and token.kind == "word":
            raise syntax_error("RETURNING", token.start)


def name_at(found: list[Token], start: int) -> tuple[list[str], int]:
    """The parts of a dotted name, and the index after it."""
    parts = [found[start].name]
    while start + 2 < len(found) and found[start + 1].text == ".":
        start += 2
        parts.append(found[start].name)
    return parts, start + 1


def create_table(sql: str) -> TableDefinition:
    """Keys are enforced in hybrid tables and only noted in others; indexes are dropped; options of interactive tables too."""
    found = tokens(sql)
    upper = [token.upper for token in found]
    at = upper.index("TABLE")
    changes = []
    kind = "standard"
    for token in found[1:at]:
        if token.upper in ("HYBRID", "INTERACTIVE"):
            kind = token.upper.lower()
            changes.append((token.start, token.end, ""))
    start = at + 1
    if upper[start : start + 3] == ["IF", "NOT", "EXISTS"]:
        start += 3
    name, after = name_at(found, start)
    if after < len(found) and found[after].text == "(":
        end = closing(found, after)
        changes += _without_indexes(sql, found, after, end)
        if kind == "interactive":
            changes += _without_options(found, end + 1)
    elif kind == "interactive":
        changes += _without_options(found, after)
    text = re.sub(r",\s*\)", ")", replaced(sql, changes)) if changes else sql
    if kind == "hybrid":
        if not re.search(r"\bPRIMARY\s+KEY\b", text, re.IGNORECASE):
            raise Refusal(391402, "42601", "SQL compilation error:\nHybrid table creation requires a primary key.")
        return TableDefinition(text, kind, name, _keys(text))
    keys = list[str]()
    if re.search(r"\b(PRIMARY|UNIQUE|FOREIGN|REFERENCES)\b", text, re.IGNORECASE):
        keys = _keys(text)
        text = _without_keys(text)
    return TableDefinition(text, kind, name, keys)


def _without_indexes(sql: str, found: list[Token], start: int, end: int) -> list[tuple[int, int, str]]:
    changes, depth, fresh = [], 0, True
    for index in range(start, end):
        token = found[index]
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 1 and fresh and token.upper in ("INDEX", "UNIQUE") and "INDEX" in (token.upper, found[index + 1].upper):
            last = next((n for n in range(index, end) if found[n].text == "," and _depth(found, start, n) == 1), end)
            before = found[index - 1]
            changes.append((before.start if before.text == "," else token.start, found[last].start, ""))
        fresh = depth == 1 and token.text in ("(", ",")
    return changes


def _depth(found: list[Token], start: int, index: int) -> int:
    return sum({"(": 1, ")": -1}.get(token.text, 0) for token in found[start:index])


def _without_options(found: list[Token], start: int) -> list[tuple[int, int, str]]:
    """Everything between the columns and AS: CLUSTER BY, TARGET_LAG, WAREHOUSE."""
    end = next((n for n in range(start, len(found)) if found[n].upper == "AS"), len(found))
    return [(found[start].start, found[end - 1].end, "")] if end > start else []


def _keys(sql: str) -> list[str]:
    """The columns of the primary key."""
    tree = sqlglot.parse_one(sql, read="snowflake")
    if (key := tree.find(exp.PrimaryKey)) is not None:
        return [_plain_name(each.find(exp.Identifier)) for each in key.expressions]
    columns = tree.find_all(exp.ColumnDef)
    return [_plain_name(each.this) for each in columns if each.find(exp.PrimaryKeyColumnConstraint)]


def _plain_name(identifier: Any) -> str:
    return str(identifier.name) if identifier.args.get("quoted") else str(identifier.name).upper()


def _without_keys(sql: str) -> str:
    """A standard table enforces NOT NULL and nothing else."""
    tree = sqlglot.parse_one(sql, read="snowflake")
    schema = tree.find(exp.Schema)
    if schema is None:
        return sql
    for column in schema.find_all(exp.ColumnDef):
        rules = column.args.get("constraints") or []
        kept = [rule for rule in rules if not isinstance(rule.kind, (exp.UniqueColumnConstraint, exp.Reference))]
        plain = [rule for rule in kept if not isinstance(rule.kind, exp.PrimaryKeyColumnConstraint)]
        had_not_null = any(isinstance(rule.kind, exp.NotNullColumnConstraint) for rule in plain)
        if len(plain) < len(kept) and not had_not_null:
            plain.append(exp.ColumnConstraint(kind=exp.NotNullColumnConstraint()))
        column.set("constraints", plain)
    keys = (exp.PrimaryKey, exp.ForeignKey, exp.UniqueColumnConstraint, exp.Constraint)
    schema.set("expressions", [each for each in schema.expressions if not isinstance(each, keys)])
    return str(tree.sql(dialect="snowflake"))


def create_sequence(sql: str) -> str:
    """Without ORDER and NOORDER, which fakesnow does not know."""
    return replaced(sql, [(each.start, each.end, "") for each in tokens(sql) if each.upper in ("ORDER", "NOORDER")])


@dataclass(frozen=True, slots=True)
class LockingSelect:
    """A SELECT … FOR UPDATE without that clause, and for how long it may wait."""

    sql: str
    wait_seconds: float
    table: list[str]


def locking_select(sql: str, found: list[Token]) -> LockingSelect | None:
    """Read FOR UPDATE [NOWAIT | WAIT n]: the last clause, one table, no joins and no subqueries."""
    upper = [token.upper for token in found]
    for index in range(len(upper) - 1):
        if upper[index] != "FOR" or upper[index + 1] != "UPDATE":
            continue
        rest = upper[index + 2 :]
        if rest not in ([], ["NOWAIT"]) and not (len(rest) == 2 and rest[0] == "WAIT" and rest[1].isdigit()):
            raise syntax_error(rest[0], found[index + 2].start)
        if "JOIN" in upper or upper.count("SELECT") > 1 or "FROM" not in upper:
            raise Refusal(2093, "0A000", "SQL compilation error:\nFOR UPDATE supports one table, without joins or subqueries.")
        table, _ = name_at(found, upper.index("FROM") + 1)
        wait = float(rest[1]) if len(rest) == 2 else 0.0
        return LockingSelect(sql[: found[index].start].rstrip(), wait, table)
    return None


_TABLE_FUNCTIONS = {
    "QUERY_HISTORY": "LIVE_QUERY_HISTORY",
    "QUERY_HISTORY_BY_SESSION": "LIVE_QUERY_HISTORY",
    "QUERY_HISTORY_BY_USER": "LIVE_QUERY_HISTORY",
    "QUERY_HISTORY_BY_WAREHOUSE": "LIVE_QUERY_HISTORY",
    "WAREHOUSE_METERING_HISTORY": "WAREHOUSE_METERING_HISTORY",
    "WAREHOUSE_LOAD_HISTORY": "WAREHOUSE_LOAD_HISTORY",
}
_CONDITIONS = {
    "END_TIME_RANGE_START": "END_TIME >= {}",
    "END_TIME_RANGE_END": "(END_TIME IS NULL OR END_TIME <= {})",
    "SESSION_ID": "SESSION_ID = {}",
    "USER_NAME": "USER_NAME = {}",
    "WAREHOUSE_NAME": """WAREHOUSE_NAME = CASE WHEN {0} LIKE '"%' THEN REPLACE({0}, '"', '') ELSE UPPER({0}) END""",
    "DATE_RANGE_START": "END_TIME >= {}",
    "DATE_RANGE_END": "START_TIME <= {}",
}


def history_functions(sql: str) -> str:
    """TABLE(INFORMATION_SCHEMA.QUERY_HISTORY(…)) as a subquery: the newest rows first, 100 unless asked for more."""
    found = tokens(sql)
    changes = []
    for index, token in enumerate(found):
        if token.upper != "TABLE" or index + 2 >= len(found) or found[index + 1].text != "(":
            continue
        parts, after = name_at(found, index + 2)
        source = _TABLE_FUNCTIONS.get(parts[-1])
        if source is None or "INFORMATION_SCHEMA" not in parts:
            continue
        end, inner = closing(found, index + 1), closing(found, after)
        changes.append((token.start, found[end].end, _subquery(sql, found[after + 1 : inner], parts[-1], source)))
    return replaced(sql, changes)


def _subquery(sql: str, arguments: list[Token], function: str, source: str) -> str:
    pieces, current, depth = [], list[Token](), 0
    for token in arguments:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if token.text == "," and depth == 0:
            pieces.append(current)
            current = []
        else:
            current.append(token)
    pieces = [piece for piece in [*pieces, current] if piece]
    order = ("DATE_RANGE_START", "DATE_RANGE_END", "WAREHOUSE_NAME") if "WAREHOUSE_" in function[:10] else ()
    conditions, limit = [], 100 if source == "LIVE_QUERY_HISTORY" else 10_000
    for number, piece in enumerate(pieces):
        is_named = len(piece) > 2 and piece[1].text == "=>"
        name = piece[0].upper if is_named else order[number] if number < len(order) else ""
        value = sql[(piece[2] if is_named else piece[0]).start : piece[-1].end]
        if name == "RESULT_LIMIT":
            limit = int(value)
            if limit > 10_000:
                raise Refusal(1006, "22023", "SQL compilation error:\nRESULT_LIMIT must be between 1 and 10000.")
        elif name in _CONDITIONS:
            conditions.append(_CONDITIONS[name].format(f"({value})"))
        else:
            raise Refusal(1006, "22023", f"SQL compilation error:\ninvalid argument [{name or value}] for {function}")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"(SELECT * FROM {SCHEMA}.{source}{where} ORDER BY START_TIME DESC LIMIT {limit})"


def result_scan(sql: str, session: Session) -> str:
    """TABLE(RESULT_SCAN('id')) as a table that holds that result, so that any query may read it."""
    found, changes = tokens(sql), list[tuple[int, int, str]]()
    for index, token in enumerate(found):
        if token.upper != "RESULT_SCAN" or found[index + 2].kind != "string":
            continue
        query_id = text_of(found[index + 2])
        kept = session.connection.results_cache.get(query_id)
        if kept is None:
            raise Refusal(709, "02000", f"Statement {query_id} not found")
        name = f"RESULT_{query_id.replace('-', '_').upper()}"
        session.connection._duck_conn.register(name, kept[0])
        changes.append((found[index - 2].start, found[index + 4].end, name))
    return replaced(sql, changes)


def session_functions(sql: str, values: dict[str, object]) -> str:
    """CURRENT_WAREHOUSE() and the like as literals."""
    found = tokens(sql)
    changes = []
    for index, token in enumerate(found[:-2]):
        if token.upper in values and found[index + 1].text == "(" and found[index + 2].text == ")":
            changes.append((token.start, found[index + 2].end, literal(values[token.upper])))
    return replaced(sql, changes)
