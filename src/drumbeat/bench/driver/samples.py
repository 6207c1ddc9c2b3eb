"""Keeps samples of failed operations: the first few of each error class, with SQL but without parameter values."""

import re
from collections.abc import Callable, Sequence
from threading import Lock

from drumbeat.bench.driver.interface import ErrorSample
from drumbeat.bench.driver.records import OK, Records
from drumbeat.bench.driver.session_kinds import OperationFailure, Values
from drumbeat.bench.model import ErrorClass, Load

_EACH = 10
_ABOUT_VALUES = ("22", "P0")  #: first letters of SQLSTATEs: data exceptions, and errors raised by PL/pgSQL
_QUOTED = re.compile(r'"[^"]*("|$)')

Classify = Callable[[int, str], ErrorClass | None]


class ErrorSamples:
    """Keeps the first ten failed operations of each error class. Any thread can add one."""

    def __init__(self, load: Load, classify: Classify) -> None:
        self._operations = load.used
        self._classify = classify
        self._lock = Lock()
        self._samples: dict[ErrorClass, list[ErrorSample]] = {}

    @property
    def all(self) -> Sequence[ErrorSample]:
        with self._lock:
            return [sample for samples in self._samples.values() for sample in samples]

    def add(self, kind: int, failure: OperationFailure, values: Values) -> None:
        """Add a failed operation as a sample. Its parameter ``values`` are replaced by ? in the error message."""
        operation = self._operations[kind]
        sql = operation.statements[failure.statement].sql
        self._keep(operation.kind, failure, mask_values(str(failure), values), sql)

    def add_connect(self, failure: OperationFailure) -> None:
        """Add a failed attempt to connect."""
        self._keep("", failure, str(failure), "")

    def _keep(self, kind: str, failure: OperationFailure, message: str, sql: str) -> None:
        error_class = self._classify(failure.outcome, failure.code)
        if error_class is None:
            return
        with self._lock:
            samples = self._samples.setdefault(error_class, [])
            if len(samples) < _EACH:
                samples.append(ErrorSample(kind=kind, error_class=error_class, sqlstate=failure.code, message=message, sql=sql))


class RecordSamples:
    """Keeps the first ten failed operations of each error class and SQLSTATE. Only one thread is allowed to add records."""

    def __init__(self, load: Load, sql: Sequence[str], classify: Classify) -> None:
        self._kinds = [operation.kind for operation in load.used]
        self._sql = sql
        self._classify = classify
        self._samples: dict[tuple[ErrorClass, str], list[ErrorSample]] = {}

    @property
    def all(self) -> Sequence[ErrorSample]:
        return [sample for samples in list(self._samples.values()) for sample in samples]

    def add(self, records: Records, message_of: Callable[[str], str]) -> None:
        """Add the failed operations among these records; ``message_of`` returns the server's message for an SQLSTATE."""
        for record in records[records["outcome"] != OK][:_EACH]:
            sqlstate = bytes(record["sqlstate"]).decode()
            self._keep(int(record["kind"]), int(record["outcome"]), sqlstate, mask_quoted(sqlstate, message_of(sqlstate)))

    def _keep(self, kind: int, outcome: int, sqlstate: str, message: str) -> None:
        error_class = self._classify(outcome, sqlstate) or ErrorClass.FATAL
        samples = self._samples.setdefault((error_class, sqlstate), [])
        if len(samples) < _EACH:
            sample = ErrorSample(
                kind=self._kinds[kind],
                error_class=error_class,
                sqlstate=sqlstate,
                message=f"{message} (SQLSTATE {sqlstate})" if message else sqlstate or error_class,
                sql=self._sql[kind],
            )
            samples.append(sample)


def mask_quoted(sqlstate: str, message: str) -> str:
    """Replace quoted text in an error message by ? if it could be a parameter value: in errors about data or from PL/pgSQL."""
    return _QUOTED.sub("?", message) if sqlstate.startswith(_ABOUT_VALUES) else message


def mask_values(message: str, values: Values) -> str:
    """Replace parameter values in a database's error message by ? so that no sample contains data."""
    given = {str(value) for statement in values for value in statement} - {""}
    for text in sorted(given, key=len, reverse=True):
        message = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", "?", message)
    return message
