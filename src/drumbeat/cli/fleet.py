"""drumbeat fleet: how many workers a pool has, why, and what they cost."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drumbeat.cli import fleet_beats, fleet_reasons, fleet_simulate, fleet_watch, fleet_workers
from drumbeat.cli.fleet_beats import UNSEEN
from drumbeat.cli.fleet_options import ExpectedServiceOption, FileOption, PoolArgument, SetOption, parse_settings
from drumbeat.cli.options import JsonOption, StoreOption, with_control_plane
from drumbeat.cli.pool_work import HandlerOption
from drumbeat.cli.render import Columns, say, sentence, show, show_json, text
from drumbeat.cli.run_worker import plan_changes
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import CAPACITY_EXEMPT, Worker, judge

if TYPE_CHECKING:
    from drumbeat.composition.plane import FleetConfigured, FleetStatus

app = typer.Typer(no_args_is_help=True, help="Workers of a pool: the right number, and why.")
app.add_typer(fleet_beats.app)
app.add_typer(fleet_workers.app)
app.add_typer(fleet_reasons.app)
app.add_typer(fleet_simulate.app)
app.add_typer(fleet_watch.app)


@app.command()
def create(
    pool: PoolArgument,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            help="lag_aware, queue_cover, queue_ratio (seed 004), or fixed: --set workers=N, without a queue unless there is "
            "a --handler. At first: the file's, or lag_aware",
        ),
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", help="Where its workers run: local (this machine) or runpod. At first: local")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="How patient it is: jobs or gpu. At first: gpu with runpod, else as the pool is"),
    ] = None,
    file: FileOption = None,
    settings: SetOption = None,
    expected_service: ExpectedServiceOption = None,
    handler: HandlerOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a pool scaled by a policy: a pool of jobs that is there, or a new one. A fleet that is there is changed.

    A new fleet heeds seed 004's variables; what is set here counts more than they, they more than the file. A fleet that is
    there changes only in what is given, and says in what; with --file the file is the whole. Another provider is refused
    while workers of the old one are there, a money ceiling while nothing has a price. In fleet run, beat and plan variables
    count more than what is kept.
    """
    options = (("policy", policy), ("provider", provider), ("expected_service", expected_service))
    chosen = {name: value for name, value in options if value is not None}
    told = plan_changes({"handlers": handler})
    given = chosen | parse_settings(settings)

    async def keep(plane: ControlPlane) -> "FleetConfigured":
        return await plane.fleets.configure(pool, given, file=file, preset=preset, handlers=told.get("handlers"))

    kept = with_control_plane(store, keep, create=True)
    if as_json:
        show_json(kept.pool)
    else:
        _print_kept(kept)


def _print_kept(kept: "FleetConfigured") -> None:
    made = kept.pool
    if kept.is_new:
        say(f"pool {made.pool_id}: " + ", ".join(f"{name} {value}" for name, value in made.policy.items()))
    else:
        say(f"pool {made.pool_id}, changed: {', '.join(kept.changed) or 'nothing'}")
    if kept.overruled:
        say(f"variables of this environment count more in fleet run, beat and plan: {', '.join(kept.overruled)}")


@app.command()
def status(pool: PoolArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """How a fleet stands: its workers, and what the last beat saw, wanted and did."""
    found = with_control_plane(store, lambda plane: plane.fleet(pool).status())
    if as_json:
        show_json(_status_json(found))
    else:
        _print_status(found)


def _status_json(found: "FleetStatus") -> dict[str, Any]:
    last = found.last
    beat = None if last is None else {"n": last.n, "at": last.at, "why_not": last.why_not, "error": last.error}
    summary = {name: value for name, value in (last.summary if last else {}).items() if name not in UNSEEN}
    workers = [_worker_json(each, judge(each, found.now, found.pool.thresholds)) for each in found.workers]
    return {"pool_id": found.pool.pool_id, "policy": found.pool.policy, "workers": workers, "beat": beat, "summary": summary}


def _worker_json(worker: Worker, health: str | None) -> dict[str, Any]:
    return asdict(worker) | {"health": health, "terminating": worker.is_terminating}


def _print_status(found: "FleetStatus") -> None:
    leaving = sum(each.is_terminating for each in found.workers)
    live = f"{len(found.workers)} live workers" + (f", {leaving} of them terminating" if leaving else "")
    say(f"pool {found.pool.pool_id}: {found.pool.policy.get('policy', 'fixed')}, {live}")
    for each in found.workers:
        by = f", leaves by {text(each.drain_deadline)} UTC" if each.is_terminating and each.drain_deadline else ""
        counts = ", exempt from capacity" if each.meta.get(CAPACITY_EXEMPT) else ""
        health = judge(each, found.now, found.pool.thresholds)
        say(f"  {each.worker_id} {each.standing} ({health}, {each.active} jobs{by}{counts})")
    last = found.last
    if last is None:
        say(f"no beat yet; make one with: drumbeat fleet beat {found.pool.pool_id}")
        return
    say(f"last beat {last.n} at {text(last.at)} UTC wanted {last.summary.get('wanted', '–')}")
    for alarm in last.summary.get("alarms", ()):
        say(f"  alarm: {alarm}")
    for action in last.actions:
        say(f"  did: {sentence(action)}")
    if last.why_not or last.error:
        say(f"  failed: {last.error}" if last.error else f"  did nothing: {last.why_not}")


_WORKER: Columns = {
    "worker": lambda row: row[0].worker_id,
    "status": lambda row: row[0].standing,
    "health": lambda row: row[1],
    "made": lambda row: row[0].created_at,
    "ready": lambda row: row[0].ready_at,
    "jobs": lambda row: row[0].active,
    "leaves by": lambda row: row[0].drain_deadline,
    "ended": lambda row: row[0].ended_at,
    "error": lambda row: row[0].error,
}


@app.command("workers")
def list_workers(
    pool: PoolArgument,
    everyone: Annotated[bool, typer.Option("--all", help="Those that have ended too.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Each worker: since when it is there, whether it is well, what it does."""

    async def read(plane: ControlPlane) -> Sequence[tuple[Worker, str | None]]:
        home, now = await plane.store.pools.get(PoolId(pool)), await plane.store.now()
        rows = await plane.store.workers.list(home.pool_id, live=not everyone)
        return [(each, judge(each, now, home.thresholds) if each.is_live else None) for each in rows]

    rows = with_control_plane(store, read)
    if as_json:
        show_json([_worker_json(worker, health) for worker, health in rows])
    else:
        show(rows, _WORKER, as_json=False, nothing=f"pool {pool} has no workers; see: drumbeat fleet explain {pool}")


@app.command()
def events(
    pool: PoolArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many of the last beats that did something.")] = 50,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """What beats of the last day did, newest last."""
    rows = with_control_plane(store, lambda plane: plane.fleet(pool).deeds())
    latest = rows[-limit:]
    if as_json:
        show_json([{"n": each.n, "at": each.at, "actions": each.actions} for each in latest])
    for each in () if as_json else latest:
        for action in each.actions:
            say(f"{text(each.at)}  {sentence(action)}")
    if not latest and not as_json:
        say(f"no beat of {pool} did anything in the last day")
