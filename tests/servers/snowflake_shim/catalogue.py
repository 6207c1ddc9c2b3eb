"""What SHOW TABLES and SHOW PRIMARY KEYS answer: also keys that are noted and not enforced, and what kind each table is."""

from fnmatch import fnmatchcase

from servers.snowflake_shim.account import Account
from servers.snowflake_shim.rewrite import name_at
from servers.snowflake_shim.session import Session
from servers.snowflake_shim.sql_text import Token, text_of

Rows = tuple[list[str], list[list[object]]]

_TABLES = """
SELECT database_name, schema_name, table_name, estimated_size FROM duckdb_tables()
 WHERE NOT internal AND schema_name <> '_fs_information_schema' ORDER BY 1, 2, 3
"""


def show_tables(account: Account, session: Session, found: list[Token]) -> Rows:
    """SHOW TABLES [LIKE 'pattern'] [IN SCHEMA name | IN DATABASE name | IN ACCOUNT]."""
    columns = ["created_on", "name", "database_name", "schema_name", "kind", "comment", "cluster_by", "rows", "bytes"]
    columns += ["owner", "retention_time", "is_external", "is_hybrid", "is_dynamic", "is_iceberg", "is_interactive"]
    database, schema = _place(session, found)
    pattern = _pattern(found)
    rows: list[list[object]] = []
    for in_database, in_schema, name, size in session.connection._duck_conn.cursor().execute(_TABLES).fetchall():
        if database not in (None, in_database) or schema not in (None, in_schema) or not fnmatchcase(name.upper(), pattern):
            continue
        kind = account.table_kinds.get((in_database, in_schema, name), "standard")
        marks: list[object] = ["N", _yes(kind == "hybrid"), "N", "N", _yes(kind == "interactive")]
        rows.append(["2026-01-01", name, in_database, in_schema, "TABLE", "", "", size, 0, "SYSADMIN", "1", *marks])
    return columns, rows


def show_keys(account: Account, session: Session, found: list[Token]) -> Rows:
    """SHOW PRIMARY KEYS [IN [TABLE] name]."""
    columns = ["created_on", "database_name", "schema_name", "table_name", "column_name", "key_sequence", "constraint_name"]
    upper = [token.upper for token in found]
    wanted = None
    if "IN" in upper:
        start = upper.index("IN") + 1
        start += upper[start] == "TABLE"
        wanted = account.full_name(session, name_at(found, start)[0])
        account.require(wanted)
    rows: list[list[object]] = []
    for table, keys in account.table_keys.items():
        if wanted in (None, table):
            rows += [["2026-01-01", *table, key, number, f"PK_{table[-1]}"] for number, key in enumerate(keys, 1)]
    return columns, rows


def _place(session: Session, found: list[Token]) -> tuple[str | None, str | None]:
    upper = [token.upper for token in found]
    if "IN" not in upper:
        return session.place
    start = upper.index("IN") + 1
    if upper[start] == "ACCOUNT":
        return None, None
    if upper[start] == "DATABASE":
        return (found[start + 1].name if start + 1 < len(found) else session.place[0]), None
    start += upper[start] == "SCHEMA"
    parts, _ = name_at(found, start)
    return (parts[0], parts[1]) if len(parts) > 1 else (session.place[0], parts[0])


def _pattern(found: list[Token]) -> str:
    like = next((text_of(found[n + 1]) for n, token in enumerate(found[:-1]) if token.upper == "LIKE"), "%")
    plain = like.upper().replace("[", "[[]").replace("*", "[*]").replace("?", "[?]")
    return (
        plain.replace("\\_", "\0")
        .replace("\\%", "\1")
        .replace("%", "*")
        .replace("_", "?")
        .replace("\0", "_")
        .replace("\1", "%")
    )


def _yes(is_true: bool) -> str:
    return "Y" if is_true else "N"
