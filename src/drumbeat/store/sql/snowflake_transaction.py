"""Transactions of a store in Snowflake. If a process is killed, other sessions abort its transaction.

A process that is killed leaves its transaction open, and the transaction keeps its locks. Snowflake itself aborts such a
transaction only after it has blocked others for 5 minutes. So all transactions of a store have the same name, and a session
that has waited too long for a lock aborts the transactions with this name that are older than ``ABANDONED``.

A process that was only slow or paused must not commit the rest of an aborted transaction. So sessions do not commit after each
statement: the statements that follow an abort form a new transaction, and a transaction that took longer than ``GIVE_UP`` is
never committed. If the reply to a COMMIT came late, the session asks Snowflake whether the transaction was committed.
"""

import hashlib
import time
from collections.abc import Callable
from typing import Any

from drumbeat.store.sql.database import TransactionTooLong

LOCK_WAIT = 10  #: seconds that a statement waits for a lock
GIVE_UP = 20  #: seconds after which a transaction is no longer committed
ABANDONED = 30  #: seconds after which others may abort a transaction

_DEFINES = ("CREATE", "DROP", "ALTER")


class SnowflakeTransaction:
    """A transaction of one session, used like a cursor."""

    def __init__(self, session: Any, name: str) -> None:
        self._cursor = session.cursor()
        self._name = name
        self._began = time.monotonic()
        self._has_ended = False  #: whether the last statement ended the transaction
        self.lock: Callable[[Any], None] | None = None  #: takes the transaction's locks again after such a statement

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def begin(self) -> None:
        self._began = time.monotonic()
        self._cursor.execute(f"BEGIN NAME {self._name}")

    def execute(self, sql: str, values: Any = None) -> Any:
        """Run a statement. A statement that creates, alters or drops a table ends the transaction, and the statement after it
        begins a new transaction, which first takes the locks of the old one: another process may have taken them meanwhile."""
        defines = sql.lstrip().upper().startswith(_DEFINES)
        if self._has_ended and not defines and self.lock is not None:
            self.lock(self._cursor)
            self._began = time.monotonic()
        result = self._cursor.execute(sql, values)
        self._has_ended = defines
        if defines:
            self._began = time.monotonic()
        return result

    def commit(self) -> None:
        """Commit. Raises TransactionTooLong if the transaction took too long, or if it was aborted before it was committed."""
        if (seconds := self._seconds()) > GIVE_UP:
            raise TransactionTooLong(f"a transaction in Snowflake took {seconds:.0f} s and was rolled back; try again")
        self._cursor.execute("COMMIT")
        if self._seconds() > ABANDONED and not self._was_committed():
            raise TransactionTooLong("a transaction in Snowflake was aborted before it could be committed; try again")

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _was_committed(self) -> bool:
        [(last,)] = self._cursor.execute("SELECT LAST_TRANSACTION()").fetchall()
        [row] = _rows(self._cursor.execute(f"DESCRIBE TRANSACTION {int(last)}"))
        return str(row["state"]).lower() == "committed"


def transaction_name(location: str) -> str:
    """Return the name of all transactions of the store at this address."""
    return f"drumbeat_{hashlib.sha256(location.encode()).hexdigest()[:16]}"


def abort_abandoned(session: Any, name: str) -> int:
    """Abort this user's transactions of this name that are older than ``ABANDONED`` by Snowflake's clock. Returns how many."""
    cursor = session.cursor()
    [(now,)] = cursor.execute("SELECT CURRENT_TIMESTAMP()").fetchall()
    found = [row for row in _rows(cursor.execute("SHOW TRANSACTIONS")) if str(row["name"]).lower() == name]
    old = [row for row in found if (now - row["started_on"]).total_seconds() > ABANDONED]
    for row in old:
        cursor.execute("SELECT SYSTEM$ABORT_TRANSACTION(?)", [int(row["id"])])
    return len(old)


def _rows(cursor: Any) -> list[dict[str, Any]]:
    names = [str(column[0]).lower() for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
