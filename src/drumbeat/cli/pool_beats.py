"""drumbeat pool check and reap: start missing workers, or release the jobs of silent workers, once."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from drumbeat.cli.options import JsonOption, StoreOption, parse_age, with_control_plane
from drumbeat.cli.pool_forks import forkserver
from drumbeat.cli.render import say, sentence, show_json
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import SpawnCause
from drumbeat.core.pool import PoolId
from drumbeat.triggers.model import BeatKind, Firing

app = typer.Typer()
app.command()(forkserver)


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="POOL", help="Pool name.")],
    max_workers: Annotated[
        int | None,
        typer.Option("--max-workers", min=0, help="Maximum number of workers; saved in the pool. Default: 10"),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until no worker of the pool runs on this machine (for containers).")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Release the jobs of dead workers, then start workers for the queued jobs, once.

    Several checks can run at the same time: they take turns, and never start more workers than the maximum. Exit code 1 when
    an action failed. A full engine is not a failure as long as workers of the pool run: later checks try again.
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
    name: Annotated[str | None, typer.Argument(metavar="[POOL]", help="Pool name. Default: all pools of jobs")] = None,
    lost_after: Annotated[
        str | None,
        typer.Option(
            "--lost-after",
            help="Time without a heartbeat after which a worker is lost, such as 90s. Default: that of each pool",
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Mark silent workers as lost and release their jobs, once. No workers are started.

    Exit code 1 when an action failed.
    """
    silent = parse_age(lost_after, "--lost-after") if lost_after else None
    pool_id = None if name == "all" else name
    firing = Firing(trigger="pool reap", machine=BeatKind.REAPER, pool_id=pool_id, lost_after=silent)
    finish(with_control_plane(store, lambda plane: plane.run_trigger(firing)), as_json=as_json)


def finish(beats: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the reports of beats, by pool. Raises Exit with code 1 if an action failed, but not if it failed
    only because the engine is full."""
    if as_json:
        show_json(beats)
    else:
        for pool_id, beat in beats.items():
            _print(pool_id, beat)
        if not beats:
            say("no pool of jobs yet; create one with: drumbeat pool create NAME")
    if not all(beat["ok"] for beat in beats.values()):
        raise typer.Exit(1)


def _print(pool_id: str, beat: Mapping[str, Any]) -> None:
    summary, actions = dict(beat["summary"]), beat["actions"]
    wanted, why = summary.pop("wanted", None), summary.pop("not_started", None)
    alarms, fleet_counts = summary.get("alarms", ()), summary.get("status")
    shown = summary if fleet_counts is None else {"wanted": wanted, **fleet_counts}
    counts = ", ".join(f"{name} {value}" for name, value in shown.items())
    say(f"{pool_id}: {counts}" if counts else f"{pool_id}: no summary")
    for action in actions:
        if action.get("cause") != SpawnCause.NO_CAPACITY:
            say(f"  did: {sentence(action)}")
    if why is not None:
        workers = "1 worker" if wanted == 1 else f"{wanted} workers"
        say(f"  started {summary['spawned']} of {workers}: {why}", style="yellow")
    for alarm in alarms:
        say(f"  alarm: {alarm}", style="yellow")
    if beat["why_not"]:
        say(f"  did nothing: {beat['why_not']}")
    if beat["error"]:
        say(f"  failed: {beat['error']}", style="red")
