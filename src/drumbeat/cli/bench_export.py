"""drumbeat bench export: sends ended runs to another store, such as Snowflake."""

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from drumbeat.cli.copying import CopyProgress
from drumbeat.cli.options import JsonOption, StoreOption, run, settings_for
from drumbeat.cli.render import say, show_json, status_line
from drumbeat.composition.copying import export_to_named_store
from drumbeat.core.run import RunId
from drumbeat.store.interface import ExportedRun

app = typer.Typer()

_TARGET = (
    "URL of a SQLite, PostgreSQL or Snowflake store, or the name of an environment variable that holds one. Created if it "
    "has no tables."
)


@app.command("export")
def export(
    to: Annotated[str, typer.Option("--to", metavar="STORE", help=_TARGET)],
    run_ids: Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="Run ids. Default: all ended runs.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export ended runs with their results, steps, samples and logs to another store. Other rows of that store stay.

    Runs that the other store has already are skipped, unless they have changed since. Connections and jobs are not exported.
    """
    with status_line("exported 0 rows") as update:
        chosen = [RunId(run_id) for run_id in run_ids or ()]
        exported = run(export_to_named_store(settings_for(store).store, to, os.environ, chosen, CopyProgress(update)))
    if as_json:
        show_json([{"run_id": each.run_id, "rows": each.rows} for each in exported])
    else:
        _print(exported)


def _print(exported: Sequence[ExportedRun]) -> None:
    for each in exported:
        say(f"{each.run_id}: {f'{each.rows:,} rows' if each.rows else 'exported before'}")
    sent = [each for each in exported if each.rows]
    say(f"exported {len(sent)} of {len(exported)} runs" if exported else "no run has ended yet; nothing to export")
