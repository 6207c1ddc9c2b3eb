"""Reads SQL that users write: finds placeholders and code outside quotes and comments, and splits quoted names.

The same rules serve every database. Where databases differ, SQL that is valid in one is never read as something else: comments
can be nested if they are closed as often as opened (PostgreSQL, DuckDB), and $tag$…$tag$ quotes text (PostgreSQL, Snowflake).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

_TOKENS = re.compile(
    r"""
    (?P<escaped>\b[eE]'(?:[^'\\]|\\.|'')*')             # PostgreSQL's E'it\'s'
    | (?P<text>'(?:[^']|'')*')
    | (?P<name>"(?:[^"]|"")*" | `(?:[^`]|``)*`)
    | (?P<line>--[^\n]*)
    | (?P<block>/\*)
    | (?<![\w$]) (?P<dollar>\$(?:[^\W\d]\w*)?\$)        # begins a text if the same follows once more
    | (?<![\w$]) \$(?P<number>\d+)
    | (?P<mark>\?)
    """,
    re.VERBOSE | re.DOTALL,
)
_TAGS = re.compile(r"(?=(\$(?:[^\W\d]\w*)?\$))")
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_PART = re.compile(r'"(?P<double>(?:[^"]|"")*)"(?=\.|\Z)|`(?P<back>(?:[^`]|``)*)`(?=\.|\Z)|(?P<plain>[^.]*)', re.DOTALL)

IDENTIFIER = r'(?:"(?:[^"]|"")+"|`(?:[^`]|``)+`|[\w$]+)'  #: matches one part of a name in SQL, with or without quotes


class _Kind(Enum):
    CODE = "code"  #: also names in quotes
    TEXT = "text"
    COMMENT = "comment"
    NUMBER = "number"  #: a placeholder such as $1
    MARK = "mark"  #: a placeholder ?


@dataclass(frozen=True, slots=True)
class NamePart:
    """One part of a name such as SCHEMA.TABLE, without its quotes."""

    text: str
    is_quoted: bool = False


def name_parts(name: str) -> tuple[NamePart, ...]:
    """Split a name such as SCHEMA.TABLE at its dots, except at dots in quotes: ``"a.b"`` is one part, named a.b."""
    parts: list[NamePart] = []
    at = 0
    while at <= len(name):
        found = _PART.match(name, at)
        if found is None:
            break
        parts.append(_part(found))
        at = found.end() + 1
    return tuple(parts)


def _part(found: re.Match[str]) -> NamePart:
    if found["double"] is not None:
        return NamePart(found["double"].replace('""', '"'), is_quoted=True)
    if found["back"] is not None:
        return NamePart(found["back"].replace("``", "`"), is_quoted=True)
    return NamePart(found["plain"])


def schema_and_name(name: str) -> tuple[str, str]:
    """Split the name of a table into its schema (empty if it names none) and the table's own name, without quotes."""
    *schema, last = (part.text for part in name_parts(name))
    return ".".join(schema), last


def placeholders(sql: str) -> list[str]:
    """Return the numbers of the placeholders $1, $2 … in SQL, in the order of the text. Quotes and comments contain none."""
    return [text[1:] for kind, text in _pieces(sql) if kind is _Kind.NUMBER]


def replace_numbers(sql: str, replace: Callable[[str], str]) -> str:
    """Replace each placeholder $1, $2 … by ``replace(number)``."""
    return "".join(replace(text[1:]) if kind is _Kind.NUMBER else text for kind, text in _pieces(sql))


def replace_marks(sql: str, replace: Callable[[], str]) -> str:
    """Replace each placeholder ? by ``replace()``."""
    return "".join(replace() if kind is _Kind.MARK else text for kind, text in _pieces(sql))


def without_comments(sql: str) -> str:
    """Return SQL with a space in place of each comment."""
    return "".join(" " if kind is _Kind.COMMENT else text for kind, text in _pieces(sql))


def code_of(sql: str) -> str:
    """Return SQL with a space in place of each comment, and ``''`` in place of each text in quotes. Names keep their quotes."""
    return "".join({_Kind.COMMENT: " ", _Kind.TEXT: "''"}.get(kind, text) for kind, text in _pieces(sql))


def _pieces(sql: str) -> Iterator[tuple[_Kind, str]]:
    """Yield SQL in pieces: code, texts, comments and placeholders. Joined, they are the SQL again."""
    at = done = 0
    last: dict[str, int] | None = None  # where each dollar tag is found last
    while found := _TOKENS.search(sql, at):
        kind, end = _kind(found), found.end()
        if found["block"]:
            end = _block_end(sql, found.end())
        if tag := found["dollar"]:
            last = {each[1]: each.start() for each in _TAGS.finditer(sql)} if last is None else last
            if last[tag] < end:
                at = found.start() + 1
                continue
            end = sql.find(tag, end) + len(tag)
        if found.start() > done:
            yield _Kind.CODE, sql[done : found.start()]
        yield kind, sql[found.start() : end]
        at = done = end
    if done < len(sql):
        yield _Kind.CODE, sql[done:]


def _kind(found: re.Match[str]) -> _Kind:
    if found["line"] is not None or found["block"]:
        return _Kind.COMMENT
    if found["text"] is not None or found["escaped"] is not None or found["dollar"] is not None:
        return _Kind.TEXT
    if found["number"] is not None:
        return _Kind.NUMBER
    return _Kind.MARK if found["mark"] else _Kind.CODE


def _block_end(sql: str, begin: int) -> int:
    """Return where a comment ends; ``begin``: the position after its opening /*. It ends at the */ that closes it and all
    comments nested in it.

    If some are not closed, comments do not nest in this database, and it ends at the first */; without a */, at the end of
    the text."""
    depth, first = 1, None
    for found in _BLOCK_EDGE.finditer(sql, begin):
        depth += 1 if found[0] == "/*" else -1
        if found[0] == "*/":
            first = first or found.end()
        if not depth:
            return found.end()
    return first or len(sql)
