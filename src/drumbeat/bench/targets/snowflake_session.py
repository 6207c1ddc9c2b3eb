"""Opens connections to Snowflake for a load: one session each, tagged, with its own statement timeout."""

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from drumbeat.bench.driver.driver_thread import CallThread
from drumbeat.bench.driver.records import FAILED, LOST, TIMED_OUT
from drumbeat.bench.driver.session_kinds import OperationFailure, Values
from drumbeat.bench.model import ErrorClass, Load, ValueType
from drumbeat.bench.targets.placeholders import OperationScript, OperationStep
from drumbeat.bench.targets.snowflake_address import SnowflakeAddress, identifier
from drumbeat.bench.targets.terms import CLASSES, EPOCH
from drumbeat.core.errors import InvalidInput, InvalidSettings, MissingExtra

log = logging.getLogger(__name__)

APPLICATION = "drumbeat"
_LONGEST_TAG = 2000
_LOGOUT_SECONDS = 3
#: Sign-in refused: wrong user, password, key or token; user locked; no such account or role.
_REFUSED = frozenset({390100, 390101, 390102, 390144, 390189, 390191, 390303, 390318, 390422, 394400, 394304, 250001})
_TIMED_OUT = frozenset({604, 630})  #: cancelled, or the statement timeout was reached
#: The session or its token has expired, or was closed.
_GONE = frozenset({390104, 390110, 390111, 390112, 390114, 250002, 250003, 251005, 251009})
#: Errors that a retry cannot fix: invalid SQL, no such object or column, no privilege, no warehouse or database.
_PERMANENT = frozenset(
    {"000606", "000904", "001003", "001044", "002003", "002043", "002140", "003001", "090105", "090106", "391402", "391420"}
)
_SAMPLES: Mapping[ValueType, object] = {
    ValueType.INT: 1,
    ValueType.BIGINT: 1,
    ValueType.FLOAT: 1.5,
    ValueType.TEXT: "1",
    ValueType.TIMESTAMP: EPOCH,
}


def driver() -> Any:
    try:
        import snowflake.connector
    except ImportError as exc:
        raise MissingExtra("a Snowflake database under test", "snowflake") from exc
    return snowflake.connector


def connect(address: SnowflakeAddress, limit: timedelta, parameters: Mapping[str, Any], warehouse: str | None = None) -> Any:
    """Open a session with autocommit. Blocks. Raises InvalidSettings if the sign-in is refused, OperationFailure on other
    errors."""
    options = address.connect_options()
    if warehouse:
        options["warehouse"] = identifier(warehouse)
    connector = driver()
    seconds = max(1, math.ceil(limit.total_seconds()))
    try:
        return connector.connect(
            **options,
            application=APPLICATION,
            paramstyle="qmark",
            autocommit=True,
            login_timeout=seconds,
            session_parameters={"TIMEZONE": "UTC", **parameters},
            client_session_keep_alive=True,
            enable_server_session_keep_alive_auto_detection=False,
            logout_max_attempts=1,  # a server that is gone must not hold up the end of a run
            logout_total_timeout_seconds=_LOGOUT_SECONDS,
            log_query_text=False,
            log_query_parameters=False,
        )
    except connector.Error as exc:
        message = message_of(exc)
        if exc.errno in _REFUSED and not is_unreachable(exc):
            raise InvalidSettings(f"{address.location} refused user {address.user!r}: {message}") from None
        raise OperationFailure(LOST, code_of(exc), f"cannot connect to {address.location}: {message}") from None
    except (TypeError, ValueError) as exc:
        raise InvalidSettings(f"cannot connect to {address.location}: {type(exc).__name__}") from None


def is_unreachable(error: Any) -> bool:
    """Whether a sign-in failed because Snowflake did not answer; False if Snowflake refused it."""
    said = str(error.raw_msg).lower()
    return not any(code in said for code in ("3901", "3902", "3903", "3904", "3943", "3944")) and error.errno == 250001


IfRunning = Callable[[Callable[[], None]], None]
Cancel = Callable[[int, IfRunning], None]


class TaggedSession:
    """One Snowflake session that runs a load's operations, each with the query tag of its kind."""

    def __init__(self, connection: Any, scripts: Sequence[OperationScript], tag: str, cancel: Cancel) -> None:
        self._connection = connection
        self._scripts = scripts
        self._tags = [{"QUERY_TAG": tag_of(tag, script.kind)} for script in scripts]
        self._cancel = cancel
        self._id = int(connection.session_id)
        self._turn = 0  #: counts operations
        self._between = threading.Lock()  #: held while an operation begins, and while one is being cancelled
        self._error = driver().Error

    def execute(self, operation: int, values: Values) -> int:
        with self._between:
            self._turn += 1
        script, tag = self._scripts[operation], self._tags[operation]
        if script.is_transaction:
            return self._transact(script, tag, values)
        return self._run(script.steps[0], tag, values)

    def interrupt(self) -> None:
        turn = self._turn
        self._cancel(self._id, lambda send: self._if_running(turn, send))

    def _if_running(self, turn: int, send: Callable[[], None]) -> None:
        """Call ``send`` if operation number ``turn`` is still the latest. No operation can begin during the call, so that a
        late cancellation never stops the next operation."""
        with self._between:
            if self._turn == turn:
                send()

    def close(self) -> None:
        self._connection.close()

    def _run(self, step: OperationStep, tag: Mapping[str, str], values: Values) -> int:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(step.sql, tuple(step.arguments(values[step.index])) or None, _statement_params=tag)
                return rows_of(cursor)
        except self._error as exc:
            raise failure_of(exc, step.index) from exc

    def _transact(self, script: OperationScript, tag: Mapping[str, str], values: Values) -> int:
        try:
            self._command("BEGIN", tag)
            rows = sum(self._run(step, tag, values) for step in script.steps)
            self._command("COMMIT", tag)
        except OperationFailure as failure:
            raise self._rolled_back(failure, tag) from failure.__cause__
        return rows

    def _command(self, sql: str, tag: Mapping[str, str]) -> None:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql, _statement_params=tag)
        except self._error as exc:
            raise failure_of(exc, 0) from exc

    def _rolled_back(self, failure: OperationFailure, tag: Mapping[str, str]) -> OperationFailure:
        if not failure.lost:
            try:
                self._command("ROLLBACK", tag)
            except OperationFailure:
                failure.lost = True
        return failure


class Canceller:
    """Cancels running statements of other sessions. Uses a session of its own, which it opens at the first cancellation."""

    def __init__(self, open_session: Callable[[], Any]) -> None:
        self._open = open_session
        self._lane: CallThread | None = None
        self._connection: Any = None
        self._lock = threading.Lock()

    def cancel(self, session_id: int, if_running: IfRunning) -> None:
        """Cancel the session's statement in the background; returns at once. ``if_running(f)`` calls ``f`` only if the session
        has not begun another operation meanwhile."""
        with self._lock:
            if self._lane is None:
                self._lane = CallThread("drumbeat-snowflake-cancel")
            self._lane.post(lambda: if_running(lambda: self._cancel(session_id)))

    def close(self) -> None:
        with self._lock:
            lane, self._lane = self._lane, None
        if lane is not None:
            lane.post(self._close)
            lane.end()

    def _cancel(self, session_id: int) -> None:
        try:
            if self._connection is None:
                self._connection = self._open()
            with self._connection.cursor() as cursor:
                cursor.execute(f"SELECT SYSTEM$CANCEL_ALL_QUERIES({session_id})")
        except Exception as exc:
            log.info("could not cancel the statement of session %d: %s; its own timeout will end it", session_id, exc)
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def session_parameters(tag: str, limit: timedelta, *, cached_results: bool) -> dict[str, Any]:
    """Return the settings of a session: query tag, statement timeout in whole seconds, whether cached results may be used."""
    return {
        "QUERY_TAG": tag_of(tag, ""),
        "STATEMENT_TIMEOUT_IN_SECONDS": max(1, math.ceil(limit.total_seconds())),
        "USE_CACHED_RESULT": cached_results,
    }


def tag_of(tag: str, kind: str) -> str:
    """Return the query tag of an operation: drumbeat:RUN:WORKER:KIND. It never holds SQL or values."""
    return f"{APPLICATION}:{tag or ':'}:{kind}"[:_LONGEST_TAG]


def check_statements(connection: Any, load: Load, scripts: Sequence[OperationScript]) -> None:
    """Let Snowflake compile every statement, without running any. Raises InvalidInput, which names the invalid operation."""
    for operation, script in zip(load.used, scripts, strict=True):
        for step in script.steps:
            given = [_SAMPLES[value.type] for value in operation.statements[step.index].values]
            _check(connection, script.kind, step, tuple(step.arguments(given)))


def _check(connection: Any, kind: str, step: OperationStep, samples: tuple[object, ...]) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.describe(step.sql, samples or None)
    except driver().Error as exc:
        failure = failure_of(exc, step.index)
        if failure.lost:
            raise failure from exc
        raise InvalidInput(f"operation {kind}: {message_of(exc)} in the SQL: {step.sql}") from exc


def rows_of(cursor: Any) -> int:
    """Return how many rows a statement read or changed. Fetches all rows, as a client would."""
    rows, description = cursor.fetchall(), cursor.description
    is_change = description and str(description[0][0]).startswith("number of rows")
    return int(cursor.rowcount) if is_change else len(rows)


def failure_of(error: Any, index: int) -> OperationFailure:
    """Return an error as OperationFailure. Its code is Snowflake's error number or, if there is none, the SQLSTATE.

    An error without a SQLSTATE comes from the connector, because Snowflake did not answer: it counts as a lost connection."""
    number, sqlstate = error.errno or 0, error.sqlstate or ""
    lost = not sqlstate or sqlstate.startswith("08") or number in _GONE or 250_000 <= number < 253_000
    outcome = TIMED_OUT if number in _TIMED_OUT else LOST if lost else FAILED
    return OperationFailure(outcome, code_of(error), message_of(error), statement=index)


def code_of(error: Any) -> str:
    """Return the error's number with six digits, as Snowflake's messages show it; if it has no number, its SQLSTATE."""
    number = error.errno
    return f"{number:06d}" if isinstance(number, int) and number > 0 else error.sqlstate or ""


def message_of(error: Any) -> str:
    """Return the error's text in one line, without the ids of request and query, which differ each time."""
    return " ".join(str(error.raw_msg or type(error).__name__).split())


def classify(outcome: int, code: str) -> ErrorClass | None:
    """Return an operation's error class, from its outcome and error number; None if it succeeded."""
    return ErrorClass.CONFIGURATION if outcome == FAILED and code in _PERMANENT else CLASSES[outcome]
