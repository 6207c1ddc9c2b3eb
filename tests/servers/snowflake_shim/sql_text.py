"""Reads SQL text far enough to tell statements apart, without parsing it: words, strings, quoted names, signs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"(?P<space>\s+|--[^\n]*|//[^\n]*|/\*.*?\*/)"
    r"|(?P<string>'(?:[^'\\]|''|\\.)*'|\$\$.*?\$\$)"
    r'|(?P<quoted>"(?:[^"]|"")*")'
    r"|(?P<word>[A-Za-z_][\w$]*)"
    r"|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<sign>:=|::|=>|<>|!=|<=|>=|\|\||.)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """One word, string or sign of a statement, and where it lies in the text."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == "word" else self.text

    @property
    def name(self) -> str:
        """The identifier as Snowflake keeps it: upper case unless quoted."""
        return self.text[1:-1].replace('""', '"') if self.kind == "quoted" else self.text.upper()


def tokens(sql: str) -> list[Token]:
    """All tokens but white space and comments."""
    found = _TOKEN.finditer(sql)
    return [Token(each.lastgroup or "", each[0], each.start(), each.end()) for each in found if each.lastgroup != "space"]


def words(sql: str, count: int = 8) -> list[str]:
    """The first few tokens in upper case."""
    return [token.upper for token in tokens(sql)[:count]]


def split(sql: str) -> list[str]:
    """The statements between semicolons. Blocks of Snowflake Scripting are not recognised here."""
    parts, start = [], 0
    for token in tokens(sql):
        if token.text == ";":
            parts.append(sql[start : token.start].strip())
            start = token.end
    return [part for part in [*parts, sql[start:].strip()] if tokens(part)]


def replaced(sql: str, changes: Sequence[tuple[int, int, str]]) -> str:
    """The text with pieces from start to end replaced; the pieces may not overlap."""
    for start, end, text in sorted(changes, reverse=True):
        sql = sql[:start] + text + sql[end:]
    return sql


def closing(found: Sequence[Token], opening: int) -> int:
    """The index of the parenthesis that closes the one at ``opening``."""
    depth = 0
    for index in range(opening, len(found)):
        depth += {"(": 1, ")": -1}.get(found[index].text, 0)
        if depth == 0:
            return index
    return len(found) - 1


def text_of(token: Token) -> str:
    """The value of a string token."""
    if token.text.startswith("$$"):
        return token.text[2:-2]
    inner = token.text[1:-1].replace("''", "'")
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), inner, flags=re.DOTALL)


def literal(value: object) -> str:
    """A Python value as SQL that Snowflake and DuckDB read alike."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (int, float)):
        return repr(value)
    return "'" + str(value).replace("\\", "\\\\").replace("'", "''") + "'"
