"""Everything the emulator keeps: sessions, users, warehouses, table kinds, history, faults and what it was sent."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from fakesnow.instance import FakeSnow

from servers.snowflake_shim.failures import Refusal
from servers.snowflake_shim.faults import Faults
from servers.snowflake_shim.history import History
from servers.snowflake_shim.session import RecentResults, Session, Transaction
from servers.snowflake_shim.sign_in import Users
from servers.snowflake_shim.warehouses import Warehouse, Warehouses
from servers.snowflake_shim.write_lock import WriteLock

_KEPT_STATEMENTS = 200_000


@dataclass(slots=True, kw_only=True)
class Sent:
    """One request as a client sent it, for tests that search everything a client ever said."""

    sql: str
    bindings: Any
    tag: str
    session: int
    user: str
    query_id: str | None = None
    error: str | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class Running:
    """A request under way; ``cancelled`` is set when its client asks for that."""

    session: int = 0
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    answer: Any = None


class Account:
    """One Snowflake account in memory."""

    def __init__(self) -> None:
        self.fakesnow = FakeSnow()
        self.fakesnow.results_cache = RecentResults()
        self.fakesnow.connect("SNOWFLAKE", "ACCOUNT_USAGE").close()
        self.sessions: dict[str, Session] = {}
        self.users = Users()
        self.warehouses = Warehouses()
        self.warehouses.by_name["COMPUTE_WH"] = Warehouse(name="COMPUTE_WH", state="STARTED")
        self.table_kinds: dict[tuple[str, ...], str] = {}
        self.table_keys: dict[tuple[str, ...], list[str]] = {}  #: primary keys, also where they are not enforced
        self.history = History(self.fakesnow.duck_conn)
        self.faults = Faults()
        self.sent: list[Sent] = []
        self.requests: dict[str, Running] = {}
        self.results: dict[str, Any] = RecentResults()  #: answers by query id, for clients that come back for them
        self.transactions: dict[str, Transaction] = {}  #: by id, also those that ended
        self.lock = WriteLock()
        self.abandoned_after = 300.0  #: seconds that an idle transaction may keep others waiting
        self.hybrid_tables = True  #: whether this account may have them
        self.hides_short_hybrid_queries = False  #: Snowflake leaves most of them out of QUERY_HISTORY

    def note(self, sent: Sent) -> None:
        self.sent.append(sent)
        if len(self.sent) > _KEPT_STATEMENTS:
            del self.sent[: _KEPT_STATEMENTS // 2]

    def full_name(self, session: Session, name: list[str]) -> tuple[str, ...]:
        database, schema = session.place
        return (*[part or "" for part in (database, schema)][: 3 - len(name)], *name)

    def require(self, name: tuple[str, ...]) -> None:
        """Raise Refusal unless there is such a table."""
        if name not in self.table_kinds:
            shown = ".".join(name)
            raise Refusal(2003, "42S02", f"SQL compilation error:\nTable '{shown}' does not exist or not authorized.")

    def cancel_all(self, session_id: int) -> int:
        """Cancel every statement that a session runs."""
        found = [each for each in self.requests.values() if each.session == session_id and not each.done.is_set()]
        for each in found:
            each.cancelled.set()
        return len(found)

    def show_transactions(self, user: str) -> tuple[list[str], list[list[object]]]:
        """A user's open transactions, as SHOW TRANSACTIONS lists them."""
        found = [each for each in self.transactions.values() if each.user == user and each.ended_on is None]
        rows = [[each.id, each.user, each.session, each.name, each.started_on, each.state, 0] for each in found]
        return ["id", "user", "session", "name", "started_on", "state", "scope"], rows

    def describe_transaction(self, transaction_id: str) -> tuple[list[str], list[list[object]]]:
        found = self.transactions.get(transaction_id)
        if found is None:
            raise Refusal(2003, "02000", f"Transaction '{transaction_id}' does not exist or not authorized.")
        row = [found.id, found.user, found.session, found.name, found.started_on, found.state, found.ended_on]
        return ["id", "user", "session", "name", "started_on", "state", "ended_on"], [row]

    def kind_of(self, session: Session, name: list[str]) -> str | None:
        return self.table_kinds.get(self.full_name(session, name))

    def abandoned(self) -> Session | None:
        """The session that holds the write lock although nothing has come from it for long."""
        holder = self.lock.holder
        if not isinstance(holder, Session) or holder.one_at_a_time.locked() or not self.lock.waiting:
            return None
        return holder if time.monotonic() - holder.used_at > self.abandoned_after else None
