"""PostgreSQL's own words: what its SQLSTATEs mean, and where a transaction begins and ends."""

from dataclasses import replace

from drumbeat.bench.driver.records import FAILED, LOST, OK, TIMED_OUT
from drumbeat.bench.model import ErrorClass, Load, Operation, Statement

_OPENINGS = ("BEGIN", "START TRANSACTION")
_CLASSES = {FAILED: ErrorClass.DATABASE_ERROR, TIMED_OUT: ErrorClass.QUERY_TIMEOUT, LOST: ErrorClass.CONNECTION}
_CANCELLED = "57014"  #: query_canceled: what a statement_timeout of the server's own says
_SHUT_DOWN = frozenset({"57P01", "57P02", "57P03", "08006", "08003", "08000"})


def classify(outcome: int, sqlstate: str) -> ErrorClass | None:
    """What went wrong; None when nothing did."""
    if outcome == OK:
        return None
    if sqlstate == _CANCELLED:
        return ErrorClass.QUERY_TIMEOUT
    return ErrorClass.CONNECTION if sqlstate in _SHUT_DOWN else _CLASSES[outcome]


def together(load: Load) -> Load:
    """The load, its operations of several statements each in a transaction, where they do not say so themselves."""
    return replace(load, operations=tuple(_in_transaction(operation) for operation in load.operations))


def _in_transaction(operation: Operation) -> Operation:
    statements = operation.statements
    if len(statements) < 2 or statements[0].sql.strip().upper().startswith(_OPENINGS):
        return operation
    return replace(operation, statements=(Statement(sql="BEGIN"), *statements, Statement(sql="COMMIT")))
