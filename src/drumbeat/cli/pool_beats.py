"""drumbeat pool check and reap: the checker's and the reaper's beat, once."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from drumbeat.cli.options import JsonOption, StoreOption, parse_age, with_control_plane
from drumbeat.cli.pool_forks import forkserver
from drumbeat.cli.render import say, sentence, show_json
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.pool import PoolId
from drumbeat.triggers.model import BeatKind, Firing

app = typer.Typer()
app.command()(forkserver)


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="POOL", help="A pool of jobs.")],
    max_workers: Annotated[
        int | None,
        typer.Option("--max-workers", min=0, help="How many workers there may be; kept with the pool. At first: 10"),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until no worker of the pool runs on this machine: for containers.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take back what the dead hold, then start as many workers as the queue is worth, once.

    Any number may check at a time: they go one after the other, and there are never more workers than the cap. Exit code 1 when
    something could not be done.
    """
    firing = Firing(trigger="pool check", pool_id=name, max_workers=max_workers)

    async def work(plane: ControlPlane) -> Mapping[str, Any]:
        beats = await plane.run_trigger(firing)
        if wait:
            await plane.checker().stay(PoolId(name))
        return beats

    finish(with_control_plane(store, work), as_json=as_json)


@app.command()
def reap(
    name: Annotated[str | None, typer.Argument(metavar="[POOL]", help="A pool of jobs; all of them if left out.")] = None,
    lost_after: Annotated[
        str | None,
        typer.Option("--lost-after", help="How long a silence means death, such as 90s; if left out, as each pool says."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Close the rows of lost workers and take back their jobs, once; nobody is started.

    Exit code 1 when something could not be done.
    """
    silent = parse_age(lost_after) if lost_after else None
    pool_id = None if name == "all" else name
    firing = Firing(trigger="pool reap", machine=BeatKind.REAPER, pool_id=pool_id, lost_after=silent)
    finish(with_control_plane(store, lambda plane: plane.run_trigger(firing)), as_json=as_json)


def finish(beats: Mapping[str, Any], *, as_json: bool) -> None:
    """Tell what beats came to, and leave with exit code 1 if one of them failed at something."""
    if as_json:
        show_json(beats)
    else:
        for pool_id, beat in beats.items():
            _print(pool_id, beat)
        if not beats:
            say("no pool of jobs yet; make one with: drumbeat pool create NAME")
    if any(beat["error"] or any(action.get("error") for action in beat["actions"]) for beat in beats.values()):
        raise typer.Exit(1)


def _print(pool_id: str, beat: Mapping[str, Any]) -> None:
    stands = ", ".join(f"{name} {value}" for name, value in beat["summary"].items())
    say(f"{pool_id}: {stands}" if stands else f"{pool_id}: nothing was seen")
    for action in beat["actions"]:
        say(f"  did: {sentence(action)}")
    if beat["why_not"]:
        say(f"  did nothing: {beat['why_not']}")
    if beat["error"]:
        say(f"  failed: {beat['error']}", style="red")
