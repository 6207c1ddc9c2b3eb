"""Errors as Snowflake answers them: number, SQLSTATE and words."""

import re

import duckdb
from snowflake.connector.errors import DatabaseError, Error as ConnectorError


class Refusal(Exception):
    """A statement that failed, with the number and SQLSTATE its client is told."""

    def __init__(self, number: int, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.number, self.sqlstate, self.message = number, sqlstate, message
        self.query_id: str | None = None


def syntax_error(word: str, position: int = 0) -> Refusal:
    return Refusal(1003, "42000", f"SQL compilation error:\nsyntax error line 1 at position {position} unexpected '{word}'.")


def refusal_of(error: Exception) -> Refusal:
    """What Snowflake would have said where DuckDB or fakesnow said this."""
    if isinstance(error, Refusal):
        return error
    if "Referenced " in str(error) and "column" in str(error) and "not found" in str(error):
        return Refusal(904, "42000", f"SQL compilation error:\ninvalid identifier: {str(error).splitlines()[0]}")
    if isinstance(error, ConnectorError):
        sqlstate = error.sqlstate if isinstance(error, DatabaseError) and error.sqlstate else "42000"
        return Refusal(error.errno if error.errno and error.errno > 0 else 1003, sqlstate, str(error.raw_msg or error.msg))
    first = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, duckdb.ConstraintException):
        if "foreign key" in first.lower():
            return Refusal(200009, "22000", f"Foreign key constraint was violated: {first}")
        if "NOT NULL" in first:
            column = re.search(r"(\w+)$", first)
            return Refusal(100072, "22000", f"NULL result in a non-nullable column {column[1] if column else ''}".strip())
        return Refusal(200001, "22000", f"A primary key already exists or a unique constraint is violated: {first}")
    if isinstance(error, duckdb.CatalogException):
        return Refusal(2003, "42S02", f"SQL compilation error:\n{first}")
    if isinstance(error, duckdb.DataError | duckdb.InvalidInputException):
        return Refusal(100038, "22018", first)
    if isinstance(error, duckdb.ProgrammingError):
        return Refusal(1003, "42000", f"SQL compilation error:\n{first}")
    return Refusal(300002, "XX000", f"Processing aborted by error 300002: {type(error).__name__}: {first}")
