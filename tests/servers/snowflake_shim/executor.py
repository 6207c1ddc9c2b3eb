"""Runs statements: decides which need the write lock, which fakesnow runs, and which are answered here."""

import asyncio
import random
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, TypeVar

from fakesnow.rowtype import describe_as_rowtype

from servers.snowflake_shim import rewrite
from servers.snowflake_shim.account import Account, Running
from servers.snowflake_shim.catalogue import show_keys, show_tables
from servers.snowflake_shim.failures import Refusal, refusal_of, syntax_error
from servers.snowflake_shim.history import QueryRow, utc_now
from servers.snowflake_shim.scripting import run_script
from servers.snowflake_shim.session import Answer, Session, Transaction
from servers.snowflake_shim.sql_text import Token, split, text_of, tokens

T = TypeVar("T")

_DML = {"INSERT": 0x3100, "UPDATE": 0x3200, "DELETE": 0x3300, "MERGE": 0x3400, "TRUNCATE": 0x6000}
_DDL = ("CREATE", "DROP", "ALTER", "UNDROP", "COMMENT", "GRANT", "REVOKE")
_READS = ("SELECT", "WITH", "VALUES", "(")
_DEFAULT_LOCK_SECONDS = 43_200.0
_DEFAULT_STATEMENT_SECONDS = 172_800.0


class Executor:
    """Runs what clients send, against one account."""

    def __init__(self, account: Account) -> None:
        self.account = account

    async def execute(
        self, session: Session, sql: str, params: Any, running: Running, *, query_id: str | None = None
    ) -> Answer:
        """Run a client's statement and keep it in the history. Raises Refusal."""
        found = tokens(sql)
        row = self._row(session, sql, found)
        self.account.history.begin(row)
        try:
            async with asyncio.timeout(self._limit(session)):
                answer = await self._faulty(session, sql, params, running, row, found)
        except TimeoutError:
            refusal = Refusal(630, "57014", "Statement reached its statement or warehouse timeout and was canceled.")
            raise self._failed(row, refusal) from None
        except Exception as exc:
            raise self._failed(row, refusal_of(exc)) from exc
        row.query_id = session.last_query = query_id or answer.query_id
        row.execution_status, row.rows_produced = "SUCCESS", answer.rows
        self.account.history.end(row)
        return replace(answer, query_id=row.query_id)

    def _limit(self, session: Session) -> float:
        return float(session.parameters.get("STATEMENT_TIMEOUT_IN_SECONDS", 0)) or _DEFAULT_STATEMENT_SECONDS

    def _failed(self, row: QueryRow, refusal: Refusal) -> Refusal:
        row.execution_status, row.error_code, row.error_message = "FAIL", f"{refusal.number:06d}", refusal.message
        self.account.history.end(row)
        refusal.query_id = row.query_id
        return refusal

    def _row(self, session: Session, sql: str, found: list[Token]) -> QueryRow:
        warehouse = self.account.warehouses.by_name.get(session.warehouse or "")
        kind = found[0].upper if found else "UNKNOWN"
        return QueryRow(
            query_id=str(uuid.uuid4()),
            query_text=sql,
            database_name=session.place[0],
            schema_name=session.place[1],
            query_type={"WITH": "SELECT", "BEGIN": "BEGIN_TRANSACTION"}.get(kind, kind),
            session_id=session.id,
            user_name=session.user,
            role_name=session.role,
            warehouse_name=session.warehouse,
            warehouse_size=warehouse.size if warehouse else None,
            warehouse_type=warehouse.kind if warehouse else None,
            cluster_number=random.randint(1, warehouse.max_cluster_count) if warehouse else None,
            query_tag=session.tag,
            compilation_time=1,
            bytes_scanned=1024 if kind in _READS else 0,
            credits_used_cloud_services=0.000001,
        )

    async def _faulty(
        self, session: Session, sql: str, params: Any, running: Running, row: QueryRow, found: list[Token]
    ) -> Answer:
        fault = self.account.faults.take(sql, session.tag)
        if fault is not None:
            row.queued_overload_time = fault.queued_overload_ms or 0
            row.queued_provisioning_time = fault.queued_provisioning_ms or 0
            if fault.seconds:
                await pause(running, fault.seconds)
            if fault.action == "fail":
                raise Refusal(fault.number, fault.sqlstate, fault.message)
            if fault.action == "lie":
                return await threaded(lambda: session.answer_with(fault.columns, fault.rows))
        if found and found[0].upper in (*_READS, *_DML):
            return await self._on_warehouse(session, sql, params, running, row, found)
        return await self.run(session, sql, params, running, found)

    async def _on_warehouse(
        self, session: Session, sql: str, params: Any, running: Running, row: QueryRow, found: list[Token]
    ) -> Answer:
        warehouse = self.account.warehouses.by_name.get(session.warehouse or "")
        if warehouse is None:
            if session.warehouse is None and any(token.upper == "FROM" for token in found):
                message = "No active warehouse selected in the current session. Select one with the 'use warehouse' command."
                raise Refusal(606, "57P03", message)
            return await self.run(session, sql, params, running, found)
        warehouse.resume()
        async with AsyncExitStack() as held:
            waited = await held.enter_async_context(warehouse.slot())
            row.queued_overload_time += round(waited * 1000)
            row.warehouse_size = warehouse.size
            if warehouse.service_seconds:
                await pause(running, warehouse.service_seconds)
            return await self.run(session, sql, params, running, found)

    async def describe(self, session: Session, sql: str) -> tuple[Any, int, int]:
        """The columns, the kind and the number of placeholders of a statement, without running it. Raises Refusal."""
        found = tokens(sql)
        rewrite.refuse_returning(found)
        first = found[0].upper
        if any(token.upper.startswith("SYSTEM$") for token in found):
            return describe_as_rowtype([("SYSTEM", "VARCHAR", None, None, None, None)]), 0x1000, 0
        sql = rewrite.session_functions(rewrite.history_functions(sql), self._values(session))
        rowtype = await threaded(lambda: session.described(sql))
        kind = _DML.get(first, 0x1000 if first in _READS else 0)
        return rowtype, kind, sum(token.text == "?" for token in found)

    # One statement, also one inside a script

    async def run(self, session: Session, sql: str, params: Any, running: Running, found: list[Token] | None = None) -> Answer:
        """Run one statement. Raises Refusal."""
        found = tokens(sql) if found is None else found
        if not found:
            raise Refusal(900, "42000", "SQL compilation error: Empty SQL statement.")
        while found[-1].text == ";":
            found = found[:-1]
        sql, first = sql[: found[-1].end], found[0].upper
        second = found[1].upper if len(found) > 1 else ""
        if first == "DECLARE" or (first == "BEGIN" and second not in ("", "TRANSACTION", "WORK", "NAME")):
            return await self._script(session, sql, params, running)
        if first == "EXECUTE" and second == "IMMEDIATE" and found[2].kind == "string":
            return await self._immediate(session, text_of(found[2]), params, running)
        if len(split(sql)) > 1:
            return await self._several(session, split(sql), running)
        if first in ("BEGIN", "START", "COMMIT", "ROLLBACK"):
            return await self._transaction_statement(session, first, found)
        if first in _DML:
            return await self._change(session, sql, params, found)
        if (own := self._answered_here(session, sql, found, first, second)) is not None:
            return await threaded(lambda: session.answer_with(*own))
        if first in _DDL:
            return await self._define(session, sql, found, second)
        return await self._read(session, sql, params, found, running)

    def _answered_here(
        self, session: Session, sql: str, found: list[Token], first: str, second: str
    ) -> tuple[list[str], list[list[object]]] | None:
        warehouses = self.account.warehouses
        status = None
        match first, second:
            case "ALTER", "SESSION":
                self._alter_session(session, found[2:])
                status = "Statement executed successfully."
            case "USE", "WAREHOUSE":
                session.warehouse = warehouses.named(found[2].name).name
                status = "Statement executed successfully."
            case "USE", "ROLE":
                session.role = found[2].name
                status = "Statement executed successfully."
            case "USE", "SECONDARY":
                status = "Statement executed successfully."
            case "SHOW", "WAREHOUSES":
                return warehouses.show(sql)
            case "SHOW", "TABLES":
                return show_tables(self.account, session, found)
            case "SHOW", "PRIMARY":
                return show_keys(self.account, session, found)
            case "SHOW", "TRANSACTIONS":
                return self.account.show_transactions(session.user)
            case "DESCRIBE" | "DESC", "TRANSACTION":
                return self.account.describe_transaction(found[2].text)
            case "ALTER", "WAREHOUSE":
                status = warehouses.alter(sql)
            case "DROP", "WAREHOUSE":
                status = warehouses.drop(found)
            case "CREATE", _ if "WAREHOUSE" in [token.upper for token in found[1:5]]:
                status = warehouses.create(found)
            case "CREATE", _ if "INDEX" in [token.upper for token in found[1:4]]:
                status = "Statement executed successfully."
            case "GRANT" | "REVOKE", _:
                status = "Statement executed successfully."
            case _:
                pass
        return None if status is None else (["status"], [[status]])

    def _alter_session(self, session: Session, found: list[Token]) -> None:
        verb, rest = found[0].upper, found[1:]
        if verb == "UNSET":
            for token in rest:
                session.parameters.pop(token.name, None)
            return
        if verb != "SET":
            raise syntax_error(found[0].text, found[0].start)
        for index, token in enumerate(rest[:-2]):
            if rest[index + 1].text == "=":
                value = rest[index + 2]
                session.parameters[token.name] = text_of(value) if value.kind == "string" else value.text
                if token.name == "AUTOCOMMIT":
                    session.autocommit = value.upper == "TRUE"

    async def _script(self, session: Session, sql: str, params: Any, running: Running) -> Answer:
        if params:
            raise Refusal(
                2049, "42601", "SQL compilation error: bind variables are not supported in a Snowflake Scripting block."
            )
        before = session.transaction
        try:
            return await run_script(self, session, sql, running)
        finally:
            if session.transaction is not None and before is None:  # a block may not leave its transaction open
                await self.end_transaction(session, commit=False)

    async def _immediate(self, session: Session, sql: str, params: Any, running: Running) -> Answer:
        if params:
            raise Refusal(2049, "42601", "SQL compilation error: Bind variable ? not set.")
        return await self.run(session, sql, None, running)

    async def _several(self, session: Session, statements: list[str], running: Running) -> Answer:
        wanted = session.parameters.get("MULTI_STATEMENT_COUNT", "1")
        if wanted not in ("0", str(len(statements))):
            message = f"Actual statement count {len(statements)} did not match the desired statement count {wanted}."
            raise Refusal(8, "0A000", message)
        answer = None
        for statement in statements:
            answer = await self.run(session, statement, None, running)
        assert answer is not None
        return answer

    # Transactions

    async def _transaction_statement(self, session: Session, first: str, found: list[Token]) -> Answer:
        if first in ("BEGIN", "START"):
            if session.transaction is None:
                self._begin(session, found[-1].name if "NAME" in (each.upper for each in found[:-1]) else None)
        else:
            await self.end_transaction(session, commit=first == "COMMIT")
        return await threaded(lambda: session.answer_with(["status"], [["Statement executed successfully."]]))

    def _begin(self, session: Session, name: str | None = None) -> None:
        session.transaction = Transaction(session.user, session.id, name or str(uuid.uuid4()))
        self.account.transactions[str(session.transaction.id)] = session.transaction

    async def abort(self, session: Session, transaction_id: str) -> str:
        """Roll back another session's transaction. What that session sends next is not part of it. Raises Refusal."""
        for other in self.account.sessions.values():
            if other.transaction is not None and str(other.transaction.id) == transaction_id:
                if other.user != session.user:
                    raise Refusal(3001, "42501", "Insufficient privileges to operate on transaction.")
                await self.end_transaction(other, commit=False)
        return f"Transaction {transaction_id} aborted."

    async def end_transaction(self, session: Session, *, commit: bool) -> None:
        transaction, session.transaction = session.transaction, None
        if transaction is None:
            return
        session.last_transaction = transaction.id
        transaction.state, transaction.ended_on = "committed" if commit else "rolled back", utc_now()
        if not transaction.writing:
            return
        try:
            await threaded(session.commit if commit else session.rollback)
        except Exception as exc:
            raise refusal_of(exc) from exc
        finally:
            self.account.lock.release(session)

    async def _start_writing(self, session: Session, seconds: float | None = None) -> Transaction | None:
        """Take the write lock, and begin DuckDB's transaction where Snowflake's has its first change."""
        if session.transaction is None and not session.autocommit:
            self._begin(session)
        limit = float(session.parameters.get("LOCK_TIMEOUT", _DEFAULT_LOCK_SECONDS)) if seconds is None else seconds
        await self.account.lock.acquire(session, limit)
        transaction = session.transaction
        if transaction is not None and not transaction.writing:
            await threaded(session.begin)
            transaction.writing = True
        return transaction

    async def _change(self, session: Session, sql: str, params: Any, found: list[Token]) -> Answer:
        rewrite.refuse_returning(found)
        self._refuse_interactive(session, found)
        sql = rewrite.session_functions(sql, self._values(session))
        transaction = await self._start_writing(session)
        if transaction is None:
            try:
                return await threaded(lambda: _alone(session, sql, params))
            finally:
                self.account.lock.release(session)
        try:
            answer = await threaded(lambda: session.native(sql, params))
        except Refusal:
            await threaded(lambda: session.replay(transaction.changes))
            raise
        transaction.changes.append((sql, params))
        return replace(answer, type_id=_DML[found[0].upper])

    def _refuse_interactive(self, session: Session, found: list[Token]) -> None:
        skip = {"UPDATE": 1, "DELETE": 2, "MERGE": 2}.get(found[0].upper)
        if skip is None or skip >= len(found):
            return
        name, _ = rewrite.name_at(found, skip)
        if self.account.kind_of(session, name) == "interactive":
            raise Refusal(
                2026, "0A000", f"SQL compilation error:\n{found[0].upper} is not supported on interactive table {name[-1]}."
            )

    async def _define(self, session: Session, sql: str, found: list[Token], second: str) -> Answer:
        await self.end_transaction(session, commit=True)
        kind, name, keys = None, list[str](), list[str]()
        words = [token.upper for token in found[:8]]
        if "STAGE" in words:
            raise Refusal(3001, "42501", "SQL access control error:\nInsufficient privileges to operate on schema.")
        if found[0].upper == "CREATE" and "TABLE" in words[:6]:
            definition = rewrite.create_table(sql)
            sql, kind, name, keys = definition.sql, definition.kind, definition.name, definition.keys
            if kind == "hybrid" and not self.account.hybrid_tables:
                raise Refusal(391420, "0A000", "Unsupported feature 'HYBRID TABLE': not enabled for this account.")
        elif found[0].upper == "CREATE" and "SEQUENCE" in words[:4]:
            sql = rewrite.create_sequence(sql)
        await self.account.lock.acquire(session, _DEFAULT_LOCK_SECONDS)
        try:
            answer = await threaded(lambda: session.native(sql))
        finally:
            self.account.lock.release(session)
        if kind is not None:
            full = self.account.full_name(session, name)
            if "EXISTS" not in words or full not in self.account.table_kinds:
                self.account.table_kinds[full], self.account.table_keys[full] = kind, keys
        elif found[0].upper == "DROP" and second == "TABLE":
            at = 4 if words[2:4] == ["IF", "EXISTS"] else 2
            full = self.account.full_name(session, rewrite.name_at(found, at)[0])
            self.account.table_kinds.pop(full, None)
            self.account.table_keys.pop(full, None)
        return replace(answer, type_id=0x6000)

    # Reads

    async def _read(self, session: Session, sql: str, params: Any, found: list[Token], running: Running) -> Answer:
        locking = rewrite.locking_select(sql, found)
        if locking is not None:
            if session.transaction is None and session.autocommit:
                raise Refusal(2094, "0A000", "SELECT FOR UPDATE must be in a transaction that was begun explicitly.")
            if self.account.kind_of(session, locking.table) != "hybrid":
                raise Refusal(2095, "0A000", "SELECT FOR UPDATE is supported on hybrid tables only.")
            await self._start_writing(session, locking.wait_seconds)
            sql = locking.sql
        upper = {token.upper for token in found}
        if cancel := next((n for n, token in enumerate(found) if token.upper == "SYSTEM$CANCEL_ALL_QUERIES"), None):
            count = self.account.cancel_all(int(found[cancel + 2].text.strip("'")))
            return await threaded(lambda: session.answer_with(["SYSTEM$CANCEL_ALL_QUERIES"], [[f"{count} queries cancelled."]]))
        if abort := next((n for n, token in enumerate(found) if token.upper == "SYSTEM$ABORT_TRANSACTION"), None):
            given = found[abort + 2].text
            status = await self.abort(session, str(params[0]) if given == "?" else given.strip("'"))
            return await threaded(lambda: session.answer_with(["SYSTEM$ABORT_TRANSACTION"], [[status]]))
        if wait := next((n for n, token in enumerate(found) if token.upper == "SYSTEM$WAIT"), None):
            seconds = float(found[wait + 2].text)
            await pause(running, seconds)
            return await threaded(lambda: session.answer_with(["SYSTEM$WAIT"], [[f"waited {seconds:g} seconds"]]))
        if upper & {"QUERY_HISTORY", "WAREHOUSE_METERING_HISTORY", "QUERY_HISTORY_BY_SESSION", "QUERY_HISTORY_BY_WAREHOUSE"}:
            await threaded(self.account.history.write)
            sql = rewrite.history_functions(sql)
        sql = rewrite.session_functions(sql, self._values(session))
        if "RESULT_SCAN" in upper:
            sql = rewrite.result_scan(sql, session)
        kind = 0x1000 if found[0].upper in _READS else 0
        return replace(await threaded(lambda: session.native(sql, params)), type_id=kind)

    def _values(self, session: Session) -> dict[str, object]:
        database, schema = session.place
        transaction = session.transaction
        return {
            "CURRENT_WAREHOUSE": session.warehouse,
            "CURRENT_SESSION": str(session.id),
            "CURRENT_USER": session.user,
            "CURRENT_ROLE": session.role,
            "CURRENT_ACCOUNT": "EMULATOR",
            "CURRENT_REGION": "AWS_EU_CENTRAL_1",
            "CURRENT_DATABASE": database,
            "CURRENT_SCHEMA": schema,
            "CURRENT_TRANSACTION": str(transaction.id) if transaction else None,
            "LAST_TRANSACTION": str(session.last_transaction) if session.last_transaction else None,
            "LAST_QUERY_ID": session.last_query,
        }


def _alone(session: Session, sql: str, params: Any) -> Answer:
    """A change outside any transaction: all of it or nothing, also where it is many rows."""
    session.begin()
    try:
        answer = session.native(sql, params)
    except BaseException:
        session.rollback()
        raise
    session.commit()
    return replace(answer, type_id=_DML[tokens(sql)[0].upper])


async def pause(running: Running, seconds: float) -> None:
    """Wait, unless the client cancels the statement. Raises Refusal."""
    try:
        async with asyncio.timeout(seconds):
            await running.cancelled.wait()
    except TimeoutError:
        return
    raise Refusal(604, "57014", "SQL execution canceled")


async def threaded(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)
