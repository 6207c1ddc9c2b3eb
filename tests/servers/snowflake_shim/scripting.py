"""Snowflake Scripting blocks, as far as stores need them: variables, IF, loops, result sets, transactions, exceptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from servers.snowflake_shim.failures import Refusal, syntax_error
from servers.snowflake_shim.session import Answer, Session
from servers.snowflake_shim.sql_text import Token, closing, literal, replaced, text_of, tokens

if TYPE_CHECKING:
    from servers.snowflake_shim.account import Running
    from servers.snowflake_shim.executor import Executor

# fmt: off
_TYPES = (
    "INTEGER", "INT", "NUMBER", "VARCHAR", "STRING", "TEXT", "BOOLEAN", "FLOAT", "DOUBLE", "VARIANT", "TIMESTAMP_NTZ",
    "TIMESTAMP_TZ", "TIMESTAMP_LTZ", "TIMESTAMP", "DATE", "ARRAY", "OBJECT",
)
# fmt: on
_DML = ("INSERT", "UPDATE", "DELETE", "MERGE")


@dataclass
class _Returned(Exception):
    """RETURN was reached."""

    answer: Answer


class _Left(Exception):
    """BREAK or CONTINUE was reached."""


@dataclass(slots=True)
class _Cursor:
    """Tokens of a block, read from left to right."""

    sql: str
    found: list[Token]
    at: int = 0

    @property
    def word(self) -> str:
        return self.found[self.at].upper if self.at < len(self.found) else ""

    def ahead(self, count: int = 1) -> str:
        return self.found[self.at + count].upper if self.at + count < len(self.found) else ""

    def take(self, *expected: str) -> Token:
        if self.at >= len(self.found) or (expected and self.word not in expected):
            got = self.found[self.at].text if self.at < len(self.found) else "<EOF>"
            raise syntax_error(got, self.found[min(self.at, len(self.found) - 1)].start)
        self.at += 1
        return self.found[self.at - 1]

    def until(self, *stops: str) -> str:
        """The text up to a stop word outside parentheses, which is not taken."""
        start, depth, cases = self.at, 0, 0
        while self.at < len(self.found):
            word = self.word
            if depth == 0 and cases == 0 and word in stops:
                break
            depth += {"(": 1, ")": -1}.get(word, 0)
            cases += {"CASE": 1, "END": -1 if cases else 0}.get(word, 0)
            self.at += 1
        if self.at == start:
            raise syntax_error(self.word or "<EOF>")
        return self.sql[self.found[start].start : self.found[self.at - 1].end]

    def parenthesised(self) -> str:
        end = closing(self.found, self.at)
        text = self.sql[self.found[self.at].start : self.found[end].end]
        self.at = end + 1
        return text

    def skip_body(self, *ends: str) -> None:
        """Go to the word that ends a body at this level."""
        depth = 0
        while self.at < len(self.found):
            word, following = self.word, self.ahead()
            if depth == 0 and word in ends:
                return
            opens = word in ("IF", "FOR", "WHILE", "LOOP", "REPEAT", "CASE") or (
                word == "BEGIN" and following not in ("TRANSACTION", "WORK", ";")
            )
            if word == "END":
                depth -= 1
                if following in ("IF", "FOR", "WHILE", "LOOP", "REPEAT", "CASE"):
                    self.at += 1
            elif (
                opens
                and not (word == "IF" and following in ("EXISTS", "NOT"))
                and not (word == "FOR" and following == "UPDATE")
            ):
                depth += 1
            self.at += 1
        raise syntax_error("<EOF>")


@dataclass
class _Interpreter:
    executor: Executor
    session: Session
    running: Running
    variables: dict[str, Any] = field(default_factory=dict)
    sets: dict[str, Answer] = field(default_factory=dict)
    exceptions: dict[str, tuple[int, str]] = field(default_factory=dict)
    handling: Refusal | None = None

    async def block(self, code: _Cursor) -> None:
        if code.word == "DECLARE":
            code.take()
            while code.word != "BEGIN":
                await self._declaration(code)
        code.take("BEGIN")
        start = code.at
        try:
            await self.body(code, "END", "EXCEPTION")
            if code.word == "EXCEPTION":
                code.skip_body("END")
        except Refusal as refusal:
            code.at = start
            code.skip_body("END", "EXCEPTION")
            if code.word != "EXCEPTION":
                raise
            code.take()
            await self._handle(code, refusal)
        code.take("END")

    async def body(self, code: _Cursor, *ends: str) -> None:
        while code.word not in ends:
            await self.statement(code)

    async def statement(self, code: _Cursor) -> None:
        match code.word:
            case "LET":
                code.take()
                await self._declaration(code)
                return
            case "IF":
                await self._if(code)
            case "FOR":
                await self._for(code)
            case "WHILE" | "LOOP":
                await self._while(code)
            case "BREAK" | "EXIT" | "CONTINUE":
                raise _Left
            case "RETURN":
                await self._return(code)
            case "RAISE":
                self._raise(code)
            case "NULL":
                code.take()
            case "BEGIN" if code.ahead() not in ("TRANSACTION", "WORK", ";"):
                await self.block(code)
            case "EXECUTE" if code.ahead() == "IMMEDIATE":
                code.take()
                code.take()
                text = code.until(";", "USING")
                if code.found[code.at].upper == "USING":
                    raise Refusal(2049, "0A000", "EXECUTE IMMEDIATE … USING is not emulated.")
                await self._run(str(await self.value(text)))
            case _ if code.ahead() == ":=":
                name = code.take().name
                code.take(":=")
                await self._assign(name, code)
            case _:
                await self._sql(code.until(";"))
        code.take(";")

    async def _declaration(self, code: _Cursor) -> None:
        name = code.take().name
        is_set = False
        if code.word in ("RESULTSET", "CURSOR"):
            is_set = True
            code.take()
        elif code.word == "EXCEPTION":
            code.take()
            inside = tokens(code.parenthesised())
            self.exceptions[name] = (-int(inside[2].text), text_of(inside[4])) if len(inside) > 4 else (-20000, "")
            code.take(";")
            return
        elif code.word in _TYPES:
            code.take()
            if code.word == "(":
                code.parenthesised()
        if code.word in (":=", "DEFAULT", "FOR"):
            code.take()
            if is_set:
                self.sets[name] = await self._run(_inner(code.until(";")))
            else:
                self.variables[name] = await self.value(code.until(";"))
        else:
            self.variables[name] = None
        code.take(";")

    async def _assign(self, name: str, code: _Cursor) -> None:
        text = code.until(";")
        if name in self.sets:
            self.sets[name] = await self._run(_inner(text))
        else:
            self.variables[name] = await self.value(text)

    async def _if(self, code: _Cursor) -> None:
        done = False
        code.take("IF")
        while True:
            condition = code.parenthesised()
            code.take("THEN")
            if not done and await self.value(condition):
                done = True
                await self.body(code, "ELSEIF", "ELSE", "END")
            else:
                code.skip_body("ELSEIF", "ELSE", "END")
            if code.word != "ELSEIF":
                break
            code.take()
        if code.word == "ELSE":
            code.take()
            if done:
                code.skip_body("END")
            else:
                await self.body(code, "END")
        code.take("END")
        code.take("IF")

    async def _for(self, code: _Cursor) -> None:
        code.take("FOR")
        name = code.take().name
        code.take("IN")
        if code.ahead() == "DO":
            answer = self.sets[code.take().name]
            rows: list[Any] = [{key.upper(): value for key, value in row.items()} for row in answer.table.to_pylist()]
        else:
            low = int(await self.value(code.until("TO")))
            code.take("TO")
            rows = list(range(low, int(await self.value(code.until("DO"))) + 1))
        code.take("DO")
        await self._repeat(code, "FOR", iter(rows), name)

    async def _repeat(self, code: _Cursor, word: str, rows: Any, name: str) -> None:
        start = code.at
        for row in rows:
            self.variables[name] = row
            code.at = start
            try:
                await self.body(code, "END")
            except _Left:
                break
        code.at = start
        code.skip_body("END")
        code.take("END")
        code.take(word)

    async def _while(self, code: _Cursor) -> None:
        word = code.take().upper
        condition = "TRUE"
        if word == "WHILE":
            condition = code.parenthesised()
            code.take("DO", "LOOP")
        start = code.at
        while await self.value(condition):
            code.at = start
            try:
                await self.body(code, "END")
            except _Left:
                break
        code.at = start
        code.skip_body("END")
        code.take("END")
        code.take(word)

    async def _return(self, code: _Cursor) -> None:
        code.take("RETURN")
        if code.word == ";":
            raise _Returned(self.session.answer_with(["anonymous block"], [[None]]))
        if code.word == "TABLE":
            code.take()
            text = _inner(code.parenthesised())
            name = text.strip().upper()
            raise _Returned(self.sets[name] if name in self.sets else await self._run(text))
        text = code.until(";")
        if (name := text.strip().upper()) in self.sets:
            raise _Returned(self.sets[name])
        raise _Returned(self.session.answer_with(["anonymous block"], [[await self.value(text)]]))

    def _raise(self, code: _Cursor) -> None:
        code.take("RAISE")
        if code.word == ";":
            raise self.handling or Refusal(-20000, "P0001", "Uncaught exception")
        name = code.take().name
        number, message = self.exceptions.get(name, (-20000, f"Uncaught exception of type '{name}'"))
        raise Refusal(abs(number), "P0001", message)

    async def _handle(self, code: _Cursor, refusal: Refusal) -> None:
        """Run the first handler; only WHEN OTHER and WHEN STATEMENT_ERROR are told apart from named exceptions."""
        while code.word == "WHEN":
            code.take()
            names = code.until("THEN").upper().split(" OR ")
            code.take("THEN")
            numbers = [abs(self.exceptions[name.strip()][0]) for name in names if name.strip() in self.exceptions]
            general = any(name.strip() in ("OTHER", "STATEMENT_ERROR") for name in names)
            if general or refusal.number in numbers:
                self.variables.update(SQLCODE=refusal.number, SQLERRM=refusal.message, SQLSTATE=refusal.sqlstate)
                self.handling = refusal
                await self.body(code, "WHEN", "END")
                code.skip_body("END")
                return
            code.skip_body("WHEN", "END")
        raise refusal

    async def _sql(self, text: str) -> None:
        found = tokens(text)
        names = list[str]()
        if found[0].upper == "SELECT" and "INTO" in (upper := [token.upper for token in found]):
            at = last = upper.index("INTO")
            while last + 2 < len(found) and found[last + 1].text == ":":
                names.append(found[last + 2].name)
                last += 3 if last + 3 < len(found) and found[last + 3].text == "," else 2
            text = text[: found[at].start] + text[found[last].end :]
        answer = await self._run(text)
        if names:
            rows = answer.table.to_pylist()
            if not rows:
                raise Refusal(2151, "02000", "NO_DATA_FOUND: the SELECT INTO statement returned no row.")
            self.variables.update(zip(names, rows[0].values(), strict=True))

    async def _run(self, text: str) -> Answer:
        found = tokens(text)
        answer = await self.executor.run(self.session, self._bound(text, bare=False), None, self.running)
        if found and found[0].upper in _DML:
            self.variables.update(SQLROWCOUNT=answer.rows, SQLFOUND=answer.rows > 0, SQLNOTFOUND=answer.rows == 0)
        return answer

    async def value(self, text: str) -> Any:
        """An expression's value."""
        answer = await self.executor.run(self.session, f"SELECT {self._bound(text, bare=True)} AS V", None, self.running)
        return answer.table.column(0)[0].as_py()

    def _bound(self, text: str, *, bare: bool) -> str:
        """The text with variables as literals: ``:name`` anywhere, plain ``name`` in expressions outside of a query."""
        found, changes = tokens(text), list[tuple[int, int, str]]()
        in_query = 0
        for index, token in enumerate(found):
            if token.upper == "SELECT" and index:
                in_query = 1
            if token.kind != "word" or token.name not in self.variables:
                continue
            before = found[index - 1] if index else None
            after = found[index + 1] if index + 1 < len(found) else None
            colon = before is not None and before.text == ":" and before.end == token.start
            if not colon and (not bare or in_query or (before and before.text == ".") or (after and after.text == "(")):
                continue
            start = before.start if colon and before is not None else token.start
            value, end = self.variables[token.name], token.end
            if isinstance(value, dict) and after is not None and after.text == ".":
                value, end = value[found[index + 2].name], found[index + 2].end
            changes.append((start, end, _literal(value)))
        return replaced(text, changes)


def _literal(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return f"'{value.isoformat()}'::{'TIMESTAMP_TZ' if getattr(value, 'tzinfo', None) else 'TIMESTAMP_NTZ'}"
    return str(value) if type(value).__name__ == "Decimal" else literal(value)


def _inner(text: str) -> str:
    """Without one pair of parentheses around it."""
    found = tokens(text)
    if found and found[0].text == "(" and closing(found, 0) == len(found) - 1:
        return text[found[0].end - found[0].start : text.rindex(")")].strip()
    return text


async def run_script(executor: Executor, session: Session, sql: str, running: Running) -> Answer:
    """Run a block and answer with what it returns. Raises Refusal."""
    interpreter = _Interpreter(executor, session, running)
    interpreter.variables.update(SQLROWCOUNT=None, SQLFOUND=None, SQLNOTFOUND=None, SQLCODE=None, SQLERRM=None, SQLSTATE=None)
    try:
        await interpreter.block(_Cursor(sql, tokens(sql)))
    except _Returned as returned:
        return returned.answer
    return session.answer_with(["anonymous block"], [[None]])
