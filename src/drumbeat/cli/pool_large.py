"""drumbeat pool sweep: delete large payloads and results that no job needs."""

from typing import Annotated

import typer

from drumbeat.cli.options import JsonOption, StoreOption, parse_age, with_control_plane
from drumbeat.cli.render import say, show_json
from drumbeat.composition.plane import ControlPlane
from drumbeat.composition.plugins import SweepResult, sweep_now

app = typer.Typer()


@app.command()
def sweep(
    older_than: Annotated[str, typer.Option("--older-than", help="Minimum age, such as 12h or 30d; at least 10m.")] = "1d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be deleted.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete stored large payloads and results that no job needs: their job was deleted or never pushed, or they expired."""
    age = parse_age(older_than, "--older-than")

    async def run(plane: ControlPlane) -> SweepResult:
        return await sweep_now(plane.plugins.large, age, dry_run=dry_run)

    found = with_control_plane(store, run)
    if as_json:
        show_json({"checked": found.checked, "deleted": found.deleted, "dry_run": dry_run})
    else:
        say(f"{'would delete' if dry_run else 'deleted'} {found.deleted} of {found.checked} large values")
