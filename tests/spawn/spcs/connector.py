"""Stands in for the connection of Snowflake's connector: below it is the simulated account."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from snowflake.connector import DictCursor, errors

from drumbeat.spawn.spcs.session import Connect, ConnectorSession, SpcsSession, credentials
from drumbeat.spawn.spcs.settings import SpcsSettings
from spawn.spcs.account import Rows, SpcsAccount, _failure
from spawn.spcs.faults import Answers, Loses


class SimulatedCursor:
    """What the spawner uses of a cursor."""

    def __init__(self, account: SpcsAccount) -> None:
        self._account = account
        self._rows: Rows = []

    def execute(self, statement: str) -> Self:
        self._rows = self._account.execute(statement)
        return self

    def fetchall(self) -> Rows:
        return self._rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class SimulatedConnection:
    """What the spawner uses of a connection."""

    def __init__(self, account: SpcsAccount) -> None:
        self._account = account
        self.is_closed = False

    def cursor(self, kind: object) -> SimulatedCursor:
        assert kind is DictCursor
        if self.is_closed:
            raise errors.InterfaceError(msg="the connection is closed", errno=252006)
        return SimulatedCursor(self._account)

    def close(self) -> None:
        self.is_closed = True


def connect_to(account: SpcsAccount, environment: Mapping[str, str]) -> Connect:
    """Return what signs in at the simulated account, with the secrets in an environment."""

    def connect(settings: SpcsSettings) -> SpcsSession:
        options: Mapping[str, Any] = credentials(settings, environment)
        with account.lock:
            account.sign_ins.append(options)
        fault = account.taken("sign in")
        if isinstance(fault, Answers):
            raise errors.DatabaseError(msg=fault.message, errno=fault.errno, sqlstate=fault.sqlstate)
        if isinstance(fault, Loses):
            raise _failure(fault)
        return ConnectorSession(SimulatedConnection(account), DictCursor)

    return connect
