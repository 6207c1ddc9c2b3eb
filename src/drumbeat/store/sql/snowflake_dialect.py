"""Snowflake's dialect: the SQL that replaces the ``@words`` of portable queries, such as ``@now``."""

import re
from functools import cache

from drumbeat.store.sql.queries import Dialect, migrations_of

_TABLE = re.compile(r"TABLE IF NOT EXISTS (\w+) \(.*?PRIMARY KEY \(([^)]*)\)", re.DOTALL)

#: Patterns to replace in every translated text. ``at`` and ``rows`` are words of SQL, so as names they are quoted; a LIMIT is
#: a number and no expression.
_REWRITES = {
    r'(?<![:\w"@])(?:at)(?![\w"(])': '"AT"',
    r'(?<![:\w"@])(?:rows)(?![\w"(])': '"ROWS"',
    r"\b(LIMIT|OFFSET) CAST\((:\w+) AS INTEGER\)": r"\1 \2",
}


@cache
def dialect(*, hybrid: bool) -> Dialect:
    """Return Snowflake's dialect for hybrid tables, which lock rows and enforce keys, or for standard tables, which do not."""
    return Dialect(
        name="snowflake",
        schema="",
        numbered=False,
        rewrites=_REWRITES,
        quoted=lambda name: f'"{name.upper()}"',
        words={
            "now": "CAST(DATE_PART(EPOCH_MICROSECOND, SYSDATE()) AS BIGINT)",
            "json": "VARCHAR",
            "bytes": "BINARY",
            "real": "FLOAT",
            "kind": "HYBRID" if hybrid else "",
            "empty": "DELETE FROM",
            "for_share": "",
            "for_update": "",
            "for_change": "",
            "if_any": "/*if any*/",
            "if_none": "/*if none*/",
            "keys": _key_rows(),
        },
        calls={
            "time": lambda us: f"TO_TIMESTAMP_NTZ(CAST({us} AS BIGINT), 6)",
            "json_object": lambda *parts: f"OBJECT_CONSTRUCT_KEEP_NULL({', '.join(parts)})",
            "json_filled": _filled,
            "json_part": lambda document, key: f"(GET(PARSE_JSON({document}), {key}))",
            "json_text": lambda document, *keys: f"GET_PATH(PARSE_JSON({document}), {_path(*keys)})::VARCHAR",
            "json_number": lambda document, key: f"(GET(PARSE_JSON({document}), {key}))::FLOAT",
            "json_collect": lambda key, value: f"OBJECT_AGG({key}, {value}::VARIANT)",
            "job_id": lambda given, number: f"COALESCE({given}, 'j' || LPAD(TO_VARCHAR({number}), 12, '0'))",
            "listed": _among,
            "among": _among,
            "of_pool": _of_pool,
            "by": lambda index: "",  # Snowflake finds the index itself
            "if_given": lambda value: f"/*if {value}*/",
            "index": lambda name, *columns: f", INDEX {name} ({', '.join(columns)})" if hybrid else "",
            "unique": lambda *columns: f", UNIQUE ({', '.join(columns)})" if hybrid else "",
        },
    )


def _among(column: str, values: str) -> str:
    """Return the condition that a column has one of the listed values; ``...`` later becomes one ``?`` for each value."""
    return f"{column} IN ({values}...)"


def _of_pool(column: str, condition: str = "TRUE") -> str:
    """Return the SQL condition that a column holds the number of one of the pool's jobs, one that meets ``condition``."""
    return f"{column} IN (SELECT j.seq FROM drumbeat.jobs j WHERE j.pool_id = :pool_id AND {condition})"  # noqa: S608 - of our own texts


def _path(*keys: str) -> str:
    return "'" + ".".join(key.strip("'") for key in keys) + "'"


def _filled(document: str, *pairs: str) -> str:
    """Return SQL that adds keys with their values to the text of a JSON object; a key that the object has keeps its value."""
    added = " || ".join(
        f"IFF((GET(PARSE_JSON({document}), {key})) IS NULL, "
        f"',\"' || {key} || '\":' || COALESCE(TO_JSON(TO_VARIANT({value})), 'null'), '')"
        for key, value in zip(pairs[::2], pairs[1::2], strict=True)
    )
    bare = f"SUBSTR({document}, 1, LENGTH({document}) - 1)"
    return f"({bare} || IFF({document} = '{{}}', SUBSTR({added}, 2), {added}) || '}}')"


def _key_rows() -> str:
    """Return the columns of all primary keys as SQL rows of table, column and position in the key. They are read from the
    migrations, since no view in Snowflake lists them."""
    return ", ".join(
        f"('{table}', '{column.strip()}', {place})"
        for text in migrations_of("snowflake").values()
        for table, columns in _TABLE.findall(text)
        for place, column in enumerate(columns.split(","), 1)
    )
