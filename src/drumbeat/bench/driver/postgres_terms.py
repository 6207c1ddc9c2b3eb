"""Maps PostgreSQL's SQLSTATEs to error classes, and wraps operations in transactions."""

from dataclasses import replace

from drumbeat.bench.driver.records import FAILED, LOST, OK, TIMED_OUT
from drumbeat.bench.model import ErrorClass, Load, Operation, Statement

_BEGINS = ("BEGIN", "START TRANSACTION")
_CLASSES = {FAILED: ErrorClass.DATABASE_ERROR, TIMED_OUT: ErrorClass.QUERY_TIMEOUT, LOST: ErrorClass.CONNECTION}
_CANCELLED = "57014"  #: query_canceled; the server also sends it after a statement_timeout
_SHUT_DOWN = frozenset({"57P01", "57P02", "57P03", "08006", "08003", "08000"})


def classify(outcome: int, sqlstate: str) -> ErrorClass | None:
    """Return the error class for an operation's outcome and SQLSTATE; None if the operation succeeded."""
    if outcome == OK:
        return None
    if sqlstate == _CANCELLED:
        return ErrorClass.QUERY_TIMEOUT
    return ErrorClass.CONNECTION if sqlstate in _SHUT_DOWN else _CLASSES[outcome]


def in_transactions(load: Load) -> Load:
    """Add BEGIN and COMMIT to each operation that has several statements and does not begin a transaction itself."""
    return replace(load, operations=tuple(_in_transaction(operation) for operation in load.operations))


def _in_transaction(operation: Operation) -> Operation:
    statements = operation.statements
    if len(statements) < 2 or statements[0].sql.strip().upper().startswith(_BEGINS):
        return operation
    return replace(operation, statements=(Statement(sql="BEGIN"), *statements, Statement(sql="COMMIT")))
