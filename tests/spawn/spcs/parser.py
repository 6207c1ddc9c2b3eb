"""Parses the statements about services that the simulated Snowflake knows, as strictly: parameters in their order."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_TOKENS = re.compile(
    r"""\s*(?:(?P<block>\$\$.*?\$\$)|(?P<text>'(?:[^'\\]|''|\\.)*')|(?P<quoted>"(?:[^"]|"")+")"""
    r"""|(?P<word>[A-Za-z_][A-Za-z0-9_$]*)|(?P<number>\d+)|(?P<sign>[=(),.]))""",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "f": "\f"}


class SyntaxRefused(Exception):
    """The statement is not one that Snowflake takes."""


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str

    @property
    def is_name(self) -> bool:
        return self.kind in {"word", "quoted"}

    @property
    def name(self) -> str:
        return self.text[1:-1].replace('""', '"') if self.kind == "quoted" else self.text.upper()

    @property
    def value(self) -> str:
        """The value of a string."""
        if self.kind == "block":
            return self.text[2:-2]
        inner = self.text[1:-1].replace("''", "\0quote\0")
        inner = re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), inner, flags=re.DOTALL)
        return inner.replace("\0quote\0", "'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement that was understood."""

    operation: str  #: such as ``EXECUTE JOB SERVICE``
    name: tuple[str, ...] = ()
    compute_pool: str = ""
    specification: str = ""
    is_async: bool = False
    replicas: int = 1
    warehouse: str = ""
    comment: str = ""
    integrations: Sequence[str] = field(default_factory=list)
    like: str | None = None
    schema: tuple[str, ...] = ()
    container: str = ""
    lines: int | None = None
    if_exists: bool = False


def parse(text: str) -> Statement:
    """Read a statement. Raises SyntaxRefused."""
    return _Reader(_tokens(text)).statement()


def _tokens(text: str) -> list[Token]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None or match.lastgroup is None:
            raise SyntaxRefused(f"unexpected {text[at : at + 20]!r}")
        found.append(Token(match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


class _Reader:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def statement(self) -> Statement:
        for words, read in (
            ("EXECUTE JOB SERVICE", self._execute),
            ("SHOW SERVICE CONTAINERS IN SERVICE", self._containers),
            ("SHOW JOB SERVICES", self._show),
            ("SHOW SERVICES", self._show),
            ("DESCRIBE SERVICE", self._describe),
            ("DESC SERVICE", self._describe),
            ("SELECT SYSTEM$GET_SERVICE_LOGS", self._logs),
            ("DROP SERVICE", self._drop),
        ):
            if self._has(words):
                made = read(words)
                if self._at != len(self._tokens):
                    raise SyntaxRefused(f"unexpected '{self._tokens[self._at].text[:40]}'")
                return made
        raise SyntaxRefused(f"unexpected '{self._tokens[0].text[:40] if self._tokens else '<EOF>'}'")

    def _execute(self, words: str) -> Statement:
        self._must("IN COMPUTE POOL")
        pool = self._one_name()
        self._must("FROM SPECIFICATION")
        specification = self._string()
        values: dict[str, object] = {}
        if self._has("NAME ="):
            values["name"] = self._service()
        if self._has("ASYNC ="):
            values["is_async"] = self._word({"TRUE", "FALSE"}) == "TRUE"
        if self._has("REPLICAS ="):
            values["replicas"] = self._number()
        if self._has("QUERY_WAREHOUSE ="):
            values["warehouse"] = self._one_name()
        if self._has("COMMENT ="):
            values["comment"] = self._string()
        if self._has("EXTERNAL_ACCESS_INTEGRATIONS = ("):
            values["integrations"] = [self._one_name()]
            while self._has(","):
                values["integrations"] = [*values["integrations"], self._one_name()]  # type: ignore[misc]
            self._must(")")
        return Statement(operation=words, compute_pool=pool, specification=specification, **values)  # type: ignore[arg-type]

    def _show(self, words: str) -> Statement:
        like = self._string() if self._has("LIKE") else None
        self._must("IN SCHEMA")
        return Statement(operation=words, like=like, schema=self._names())

    def _describe(self, words: str) -> Statement:
        return Statement(operation="DESCRIBE SERVICE", name=self._service())

    def _containers(self, words: str) -> Statement:
        return Statement(operation="SHOW SERVICE CONTAINERS", name=self._service())

    def _logs(self, words: str) -> Statement:
        self._must("(")
        name = _Reader(_tokens(self._string()))._service()
        self._must(",")
        self._number()
        self._must(",")
        container = self._string()
        lines = self._number() if self._has(",") else None
        self._must(")")
        if self._has("AS"):
            self._one_name()
        return Statement(operation="SYSTEM$GET_SERVICE_LOGS", name=name, container=container, lines=lines)

    def _drop(self, words: str) -> Statement:
        if_exists = self._has("IF EXISTS")
        name = self._service()
        self._has("FORCE")
        return Statement(operation=words, name=name, if_exists=if_exists)

    # Parts

    def _has(self, words: str) -> bool:
        """Whether these words come next; then they are read."""
        wanted = words.split()
        next_ones = [token.text.upper() for token in self._tokens[self._at : self._at + len(wanted)]]
        if next_ones != wanted:
            return False
        self._at += len(wanted)
        return True

    def _must(self, words: str) -> None:
        if not self._has(words):
            found = self._tokens[self._at].text[:40] if self._at < len(self._tokens) else "<EOF>"
            raise SyntaxRefused(f"unexpected '{found}', expected {words}")

    def _next(self, *kinds: str) -> Token:
        if self._at >= len(self._tokens) or self._tokens[self._at].kind not in kinds:
            found = self._tokens[self._at].text[:40] if self._at < len(self._tokens) else "<EOF>"
            raise SyntaxRefused(f"unexpected '{found}'")
        self._at += 1
        return self._tokens[self._at - 1]

    def _string(self) -> str:
        return self._next("text", "block").value

    def _number(self) -> int:
        return int(self._next("number").text)

    def _word(self, allowed: set[str]) -> str:
        word = self._next("word").text.upper()
        if word not in allowed:
            raise SyntaxRefused(f"unexpected '{word}'")
        return word

    def _one_name(self) -> str:
        return self._next("word", "quoted").name

    def _names(self) -> tuple[str, ...]:
        names = [self._one_name()]
        while self._has("."):
            names.append(self._one_name())
        return tuple(names)

    def _service(self) -> tuple[str, ...]:
        """A service's full name. Snowflake takes no quoted names of services."""
        names = self._names()
        if len(names) != 3:
            raise SyntaxRefused(f"expected database, schema and name here, got {'.'.join(names)}")
        if self._tokens[self._at - 1].kind == "quoted":
            raise SyntaxRefused("quoted names of services are not supported")
        if len(names[2]) > 63:
            raise SyntaxRefused(f"the name of a service is too long: {names[2]}")
        return names
