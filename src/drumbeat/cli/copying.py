"""drumbeat store copy: copies a whole store to another database and verifies the copy."""

import os
from collections.abc import Callable
from typing import Annotated

import typer

from drumbeat.cli.options import JsonOption, run
from drumbeat.cli.render import Columns, console, errors, say, show_json, status_line, table, text
from drumbeat.composition.copying import copy_named_stores
from drumbeat.core.errors import Refused
from drumbeat.store.interface import CopyOptions, CopyReport

_STORE = "URL of a SQLite, PostgreSQL or Snowflake store, or the name of an environment variable that holds one."

_COLUMNS: Columns = {
    "table": lambda row: row.table,
    "rows": lambda row: f"{row.rows:,}",
    "ok": lambda row: "yes" if row.ok else f"no: {row.target_rows:,} rows in the target",
}


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help=f"Store to copy: {_STORE}")],
    target: Annotated[str, typer.Argument(metavar="TO", help=f"Empty store to copy to: {_STORE}")],
    live: Annotated[
        bool, typer.Option("--live", help="Copy a store that workers or controllers use. Later changes are not copied.")
    ] = False,
    verify_only: Annotated[bool, typer.Option("--verify-only", help="Compare both stores, and copy nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy a whole store between SQLite, PostgreSQL and Snowflake, and verify the copy by row counts and checksums.

    The copy has the content of FROM when the command starts (in Snowflake: when it begins to copy each table). TO is created;
    it must not contain anything else. If the command is interrupted, run it again: it continues. Until the copy is verified,
    only store check accepts TO. In the copy no lease is held, and a claimed job is taken back as if its worker were lost.
    Exit code 1 if the copy differs.
    """
    with status_line("copied 0 rows") as update:
        options = CopyOptions(live=live, verify_only=verify_only)
        report = run(copy_named_stores(source, target, os.environ, options, CopyProgress(update)))
    if as_json:
        show_json(_document(report))
    else:
        console.print(table(report.tables, _COLUMNS))
    if report.different:
        verb = "run the same command again" if not verify_only else "if the copy is not in use, copy to an empty store again"
        raise Refused(f"{report.target} is not equal to {report.source}: the table {report.different[0]} differs; {verb}")
    if report.changed:
        errors.print(
            f"warning: {report.source} was changed while it was copied; the copy is of {text(report.taken_at)} UTC",
            style="yellow",
            soft_wrap=True,
        )
    if not as_json:
        rows, verb = sum(each.rows for each in report.tables), "compared" if verify_only else "copied"
        say(f"{verb} {rows:,} rows of {len(report.tables)} tables from {report.source} to {report.target}: equal")


class CopyProgress:
    """Shows messages and progress on standard error."""

    def __init__(self, update: Callable[[str], None]) -> None:
        self._update = update

    def say(self, line: str) -> None:
        errors.print(line, soft_wrap=True)

    def progress(self, verb: str, rows: int) -> None:
        self._update(f"{verb} {rows:,} rows")


def _document(report: CopyReport) -> dict[str, object]:
    """Return the report as a JSON object."""
    return {
        "source": report.source,
        "target": report.target,
        "taken_at": report.taken_at,
        "ok": not report.different,
        "changed": report.changed,
        "kept_rows": report.kept_rows,
        "restarted": list(report.restarted),
        "tables": [
            {
                "table": each.table,
                "rows": each.rows,
                "target_rows": each.target_rows,
                "checksum": each.checksum,
                "target_checksum": each.target_checksum,
                "ok": each.ok,
            }
            for each in report.tables
        ],
    }
