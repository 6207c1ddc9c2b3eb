"""What PostgreSQL's SQLSTATEs mean, and how operations are wrapped in transactions."""

from dataclasses import replace

from drumbeat.bench.driver.records import FAILED, LOST, OK, TIMED_OUT
from drumbeat.bench.model import ErrorClass, Load, Operation, Statement

_BEGINS = ("BEGIN", "START TRANSACTION")
_CLASSES = {FAILED: ErrorClass.DATABASE_ERROR, TIMED_OUT: ErrorClass.QUERY_TIMEOUT, LOST: ErrorClass.CONNECTION}
_CANCELLED = "57014"  #: query_canceled, also sent for the server's statement_timeout
_SHUT_DOWN = frozenset({"57P01", "57P02", "57P03", "08006", "08003", "08000"})


def classify(outcome: int, sqlstate: str) -> ErrorClass | None:
    """The class of an error; None for a successful operation."""
    if outcome == OK:
        return None
    if sqlstate == _CANCELLED:
        return ErrorClass.QUERY_TIMEOUT
    return ErrorClass.CONNECTION if sqlstate in _SHUT_DOWN else _CLASSES[outcome]


def in_transactions(load: Load) -> Load:
    """Wrap each operation of several statements in a transaction, unless it begins one itself."""
    return replace(load, operations=tuple(_in_transaction(operation) for operation in load.operations))


def _in_transaction(operation: Operation) -> Operation:
    statements = operation.statements
    if len(statements) < 2 or statements[0].sql.strip().upper().startswith(_BEGINS):
        return operation
    return replace(operation, statements=(Statement(sql="BEGIN"), *statements, Statement(sql="COMMIT")))
