"""The first failures of each class, as examples: SQL, never parameters."""

import re
from collections.abc import Callable, Sequence
from threading import Lock

from drumbeat.bench.driver.interface import ErrorSample
from drumbeat.bench.driver.records import OK, Records
from drumbeat.bench.driver.session_kinds import OperationFailure, Values
from drumbeat.bench.model import ErrorClass, Load

_EACH = 10
_ABOUT_VALUES = ("22", "P0")  #: data exceptions, and what PL/pgSQL raises
_QUOTED = re.compile(r'"[^"]*("|$)')

Classify = Callable[[int, str], ErrorClass | None]


class ErrorSamples:
    """Keeps ten of each class. Any thread may add."""

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
        """An operation that failed."""
        operation = self._operations[kind]
        sql = operation.statements[failure.statement].sql
        self._keep(operation.kind, failure, without_values(str(failure), values), sql)

    def add_connect(self, failure: OperationFailure) -> None:
        """A connection that could not be made."""
        self._keep("", failure, str(failure), "")

    def _keep(self, kind: str, failure: OperationFailure, message: str, sql: str) -> None:
        error_class = self._classify(failure.outcome, failure.code)
        if error_class is None:
            return
        with self._lock:
            kept = self._samples.setdefault(error_class, [])
            if len(kept) < _EACH:
                kept.append(ErrorSample(kind=kind, error_class=error_class, sqlstate=failure.code, message=message, sql=sql))


class RecordSamples:
    """Keeps ten of each class and code, from records alone. For one thread to add."""

    def __init__(self, load: Load, sql: Sequence[str], classify: Classify) -> None:
        self._kinds = [operation.kind for operation in load.used]
        self._sql = sql
        self._classify = classify
        self._samples: dict[tuple[ErrorClass, str], list[ErrorSample]] = {}

    @property
    def all(self) -> Sequence[ErrorSample]:
        return [sample for samples in list(self._samples.values()) for sample in samples]

    def add(self, records: Records, said: Callable[[str], str]) -> None:
        """``said`` tells the words that came with an SQLSTATE."""
        for record in records[records["outcome"] != OK][:_EACH]:
            sqlstate = bytes(record["sqlstate"]).decode()
            self._keep(int(record["kind"]), int(record["outcome"]), sqlstate, unquoted(sqlstate, said(sqlstate)))

    def _keep(self, kind: int, outcome: int, sqlstate: str, words: str) -> None:
        error_class = self._classify(outcome, sqlstate) or ErrorClass.FATAL
        kept = self._samples.setdefault((error_class, sqlstate), [])
        if len(kept) < _EACH:
            sample = ErrorSample(
                kind=self._kinds[kind],
                error_class=error_class,
                sqlstate=sqlstate,
                message=f"{words} (SQLSTATE {sqlstate})" if words else sqlstate or error_class,
                sql=self._sql[kind],
            )
            kept.append(sample)


def unquoted(sqlstate: str, words: str) -> str:
    """PostgreSQL quotes names and values alike; in complaints about data, and in a function's own, they may be values."""
    return _QUOTED.sub("?", words) if sqlstate.startswith(_ABOUT_VALUES) else words


def without_values(message: str, values: Values) -> str:
    """A database may repeat what it was given; here it becomes a question mark."""
    given = {str(value) for statement in values for value in statement} - {""}
    for text in sorted(given, key=len, reverse=True):
        message = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", "?", message)
    return message
