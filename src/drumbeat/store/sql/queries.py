"""Named queries: SQL from text files, translated to the dialect of a database.

A query has the heading ``-- name: find_worker`` and one statement, or several that run in one transaction. Values are bound
as ``:name``. ``drumbeat.`` stands for the schema; ``@now``, ``@json`` and others for SQL that differs between databases.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

W = TypeVar("W")

_HERE = Path(__file__).parent

_HEADER = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")
_CALL = re.compile(r"@(\w+)\(")
_WORD = re.compile(r"@(\w+)")
_TABLE_CHANGE = re.compile(r"(CREATE|ALTER|DROP) TABLE drumbeat\.(\w+)")
_JSON_COLUMN = re.compile(r"(\w+)\s+@json\b")


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """One SQL statement, and the names of its values in the order in which the driver binds them."""

    text: str
    parameters: tuple[str, ...]

    def in_order(self, columns: tuple[str, ...]) -> str:
        """Return the SQL with ``?`` for each named value. Raises ValueError unless ``columns`` are the names of
        these values, in the same order."""
        if columns != self.parameters:
            raise ValueError(f"expected the columns {', '.join(self.parameters)}, got {', '.join(columns)}")
        return _with_question_marks(self.text)


@cache
def _with_question_marks(text: str) -> str:
    return _PARAMETER.sub("?", text)


@dataclass(frozen=True, slots=True)
class Query:
    """A named query of one or several statements. Its result is the rows of the last statement."""

    name: str
    statements: tuple[SqlStatement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlTable:
    """One table as the database describes it: its columns in order, and the columns of its primary key."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    json_columns: frozenset[str]  #: columns that are compared by the value of their JSON, and not by its text


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dialect:
    """How one database writes the SQL that differs between databases. Two dialects are equal if they are the same object."""

    name: str
    words: Mapping[str, str]  #: SQL for ``@now`` and other words
    calls: Mapping[str, Callable[..., str]]  #: SQL for ``@time(x)`` and other words with arguments
    schema: str  #: SQL for ``drumbeat.``
    numbered: bool  #: whether values are bound as $1, $2 instead of :name
    rewrites: Mapping[str, str] = field(default_factory=dict)  #: patterns to replace in the translated text, with replacements
    quoted: Callable[[str], str] = '"{}"'.format  #: how the name of a column is quoted

    def translate(self, text: str) -> str:
        """Return the text in this dialect. Raises ValueError for an unknown ``@word``."""
        while found := _CALL.search(text):
            end, arguments = _arguments(text, found.end())
            text = text[: found.start()] + self._known(self.calls, found.group(1))(*arguments) + text[end:]
        text = _WORD.sub(lambda word: self._known(self.words, word.group(1)), text).replace("drumbeat.", self.schema)
        for pattern, replacement in self.rewrites.items():
            text = re.sub(pattern, replacement, text)
        return text

    def _known(self, words: Mapping[str, W], name: str) -> W:
        if name not in words:
            raise ValueError(f"the {self.name} dialect does not define @{name}; expected one of {', '.join(sorted(words))}")
        return words[name]


@cache
def load_queries(dialect: Dialect) -> Mapping[str, Query]:
    """Load all named queries, once for each dialect: portable ones, those of the dialect (which replace portable ones), views
    and migrations."""
    texts = dict(_sections("portable.sql")) | dict(_sections("views.sql")) | dict(_sections(f"{dialect.name}.sql"))
    migrations = {f"migration_{number}": text for number, text in migrations_of(dialect.name).items()}
    queries = {name: _query(name, text, dialect) for name, text in (texts | migrations).items()}
    drops = {f"drop_{name}": Query(f"drop_{name}", queries[name].statements[:1]) for name in view_names()}
    return queries | drops


@cache
def jobs_of_pool() -> str:
    """Return a query for ``seq`` and ``has_children`` of a pool's jobs, which does not read the other pools' finished jobs."""
    return dict(_sections("parts.sql"))["jobs_of_pool"]


def load_table_queries(dialect: Dialect, table: SqlTable) -> Mapping[str, Query]:
    """Load the queries that copy one table. Their names end with the table's name, such as ``copy_rows_jobs``."""
    words = {
        "table": table.name,
        "columns": ", ".join(map(dialect.quoted, table.columns)),
        "values": ", ".join(map(":{}".format, table.columns)),
        "key": ", ".join(map(dialect.quoted, table.key)),
        "run_id": dialect.quoted("run_id" if "run_id" in table.columns else table.key[0]),
    }
    named = replace(dialect, words={**dialect.words, **words})
    return {f"{name}_{table.name}": _query(name, text, named) for name, text in _sections("copy.sql")}


def json_columns() -> Mapping[str, frozenset[str]]:
    """Return the names of all tables, in the order in which the migrations create them, with the columns of type ``@json``.
    PostgreSQL stores the value of such a column, not its text, so the text can change."""
    columns: dict[str, frozenset[str]] = {}
    for statement in split("\n".join(migration_texts().values())):
        if found := _TABLE_CHANGE.match(statement):
            change, table = found.groups()
            before = columns.pop(table, frozenset()) if change != "ALTER" else columns[table]
            if change != "DROP":
                columns[table] = before | frozenset(_JSON_COLUMN.findall(statement))
    return columns


def migration_texts() -> Mapping[int, str]:
    """Return the SQL text of each migration by its number, in order."""
    return _numbered_files(_HERE / "migrations")


def migrations_of(dialect: str) -> Mapping[int, str]:
    """Return the SQL text of each migration in this dialect, by number. A dialect can replace portable migrations with its own.
    The first migration of its own creates all tables at once, like the portable migrations up to the same number, so the
    texts of earlier migrations are empty."""
    own = _numbered_files(_HERE / "migrations" / dialect)
    first = min(own, default=0)
    return {number: own.get(number, text if number > first else "") for number, text in migration_texts().items()}


def _numbered_files(folder: Path) -> Mapping[int, str]:
    return {int(file.name[:4]): file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.sql"))}


def view_names() -> list[str]:
    """Return the names of the views; the query that creates a view has the same name."""
    return [name for name, _ in _sections("views.sql")]


def split(text: str) -> Iterator[str]:
    """Yield the statements of a SQL text, without comments."""
    bare = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    for statement in re.split(r";\s*(?:\n|$)", bare):
        if statement.strip():
            yield statement.strip()


def _sections(name: str) -> Iterator[tuple[str, str]]:
    text = (_HERE / "text" / name).read_text(encoding="utf-8")
    headers = list(_HEADER.finditer(text))
    ends = [header.start() for header in headers[1:]] + [len(text)]
    for header, end in zip(headers, ends, strict=True):
        yield header.group(1), text[header.end() : end].strip()


def _query(name: str, text: str, dialect: Dialect) -> Query:
    return Query(name, tuple(_statement(each, dialect.numbered) for each in split(dialect.translate(text))))


def _statement(text: str, numbered: bool) -> SqlStatement:
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    if numbered:
        text = _PARAMETER.sub(lambda found: f"${names.index(found.group(1)) + 1}", text)
    return SqlStatement(text, names)


def _arguments(text: str, start: int) -> tuple[int, list[str]]:
    """Return where an ``@word(...)`` call ends, and its arguments, split at the top-level commas."""
    depth, begin = 1, start
    arguments: list[str] = []
    for position in range(start, len(text)):
        match text[position]:
            case "(":
                depth += 1
            case ")" if depth == 1:
                return position + 1, [*arguments, text[begin:position].strip()]
            case ")":
                depth -= 1
            case "," if depth == 1:
                arguments.append(text[begin:position].strip())
                begin = position + 1
    raise ValueError(f"expected ) at the end of an @ call, but it is never closed: {text[start - 20 : start + 40]!r}")
