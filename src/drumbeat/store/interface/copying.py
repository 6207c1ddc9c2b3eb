"""The options, the progress reports and the result of copying a whole store to another database."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from drumbeat.core.run import RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """How to copy a store."""

    live: bool = False  #: copy although workers or controllers use the source
    verify_only: bool = False  #: compare the stores, and write nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTable:
    """One table in both stores: its number of rows and their checksum."""

    table: str
    rows: int  #: in the source
    target_rows: int
    checksum: str  #: of the source
    target_checksum: str

    @property
    def ok(self) -> bool:
        return (self.rows, self.checksum) == (self.target_rows, self.target_checksum)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """The result of copying a store, or of comparing two stores."""

    source: str  #: without secrets
    target: str  #: without secrets
    taken_at: datetime  #: the copy holds the state of the source at this time, by the source's clock
    kept_rows: int  #: rows that an interrupted copy had copied already
    restarted: Sequence[str]  #: tables that were copied again, because the source had changed since an interrupted copy
    changed: bool  #: the source was changed while it was copied; the copy does not hold these changes
    tables: Sequence[CopiedTable]

    @property
    def different(self) -> Sequence[str]:
        """The names of the tables that differ."""
        return [table.table for table in self.tables if not table.ok]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRun:
    """A run that was exported to another store."""

    run_id: RunId
    rows: int  #: how many rows were written; 0 if the other store already had the same run, unchanged


class CopyObserver(Protocol):
    """Receives messages and progress while a store is copied."""

    def say(self, line: str) -> None:
        """Show a message, for example that an interrupted copy is continued or that a table is copied again."""
        ...

    def progress(self, verb: str, rows: int) -> None:
        """Show how many rows have been processed so far; ``verb`` says how, such as ``copied`` or ``verified``."""
        ...
