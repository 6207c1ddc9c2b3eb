"""drumbeat fleet: autoscaling of a pool's workers."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drumbeat.cli import fleet_beats, fleet_reasons, fleet_simulate, fleet_watch, fleet_workers
from drumbeat.cli.engine_options import refuse_local_store, tidy_names, warn_of_store
from drumbeat.cli.fleet_beats import INTERNAL_FIELDS
from drumbeat.cli.fleet_options import ExpectedServiceOption, FileOption, PoolArgument, SetOption, parse_settings
from drumbeat.cli.options import JsonOption, StoreOption, with_control_plane
from drumbeat.cli.pool_work import HandlerOption
from drumbeat.cli.render import Columns, say, sentence, show, show_json, text
from drumbeat.cli.run_worker import plan_changes
from drumbeat.cli.worker_columns import place_columns, problem
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.engine import ENGINE_IN_POLICY
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import CAPACITY_EXEMPT, Worker, shown_health

if TYPE_CHECKING:
    from drumbeat.composition.plane import FleetConfigured, FleetStatus

app = typer.Typer(
    no_args_is_help=True,
    help="Autoscale the workers of a pool: create, run, explain, simulate, drain and kill workers, show costs.",
)
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
            help="Scaling policy: lag_aware, queue_cover, queue_ratio, or fixed with --set workers=N (no job queue unless "
            "--handler is given). Default: the policy in the file, or lag_aware",
        ),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(
            "--engine",
            "--provider",
            metavar="NAME[,NAME…]",
            callback=tidy_names,
            help="The engine that runs the workers; with several, the first is preferred. Default: local (this machine)",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="Timeouts: jobs or gpu. Default: gpu with runpod, else those of the pool"),
    ] = None,
    file: FileOption = None,
    settings: SetOption = None,
    expected_service: ExpectedServiceOption = None,
    handler: HandlerOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create or change a fleet: scale an existing pool of jobs, or a new pool, by a policy.

    For a new fleet, options override environment variables such as MAX_ACTIVE_GPUS, which override the file. For an existing
    fleet, only the given fields change, and the changes are printed; with --file, the file replaces the policy. Handlers are
    added to those of an existing pool; to remove one, use drumbeat pool create POOL --update --remove-handler TYPE. The engine
    cannot change while workers of the old engine run, and a spending limit needs a price. In fleet run, beat and plan,
    environment variables override the stored policy.
    """
    options = (("policy", policy), ("provider", provider), ("expected_service", expected_service))
    chosen = {name: value for name, value in options if value is not None}
    handlers = plan_changes({"handlers": handler}).get("handlers")
    given = chosen | parse_settings(settings)
    refuse_local_store(store, provider)

    async def configure(plane: ControlPlane) -> "FleetConfigured":
        found = await plane.fleets.configure(pool, given, file=file, preset=preset, handlers=handlers)
        warn_of_store(plane, found.pool.policy.get("provider"))
        return found

    configured = with_control_plane(store, configure, create=True)
    if as_json:
        show_json(configured.pool)
    else:
        _print_configured(configured)


def _print_configured(configured: "FleetConfigured") -> None:
    row = configured.pool
    if configured.is_new:
        policy = {"engine" if name == ENGINE_IN_POLICY else name: value for name, value in row.policy.items()}
        say(f"pool {row.pool_id}: " + ", ".join(f"{name} {value}" for name, value in policy.items()))
    else:
        say(f"pool {row.pool_id}, changed: {', '.join(configured.changed) or 'nothing'}")
    if configured.overruled:
        say(f"in fleet run, beat and plan, environment variables override: {', '.join(configured.overruled)}")


@app.command()
def status(pool: PoolArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show the status of a fleet: its workers, and the last beat (pass of the autoscaler)."""
    found = with_control_plane(store, lambda plane: plane.fleet(pool).status())
    if as_json:
        show_json(_status_json(found))
    else:
        _print_status(found)


def _status_json(found: "FleetStatus") -> dict[str, Any]:
    last = found.last
    beat = None if last is None else {"n": last.n, "at": last.at, "why_not": last.why_not, "error": last.error}
    summary = {name: value for name, value in (last.summary if last else {}).items() if name not in INTERNAL_FIELDS}
    workers = [_worker_json(each, shown_health(each, found.now, found.pool.thresholds)) for each in found.workers]
    return {"pool_id": found.pool.pool_id, "policy": found.pool.policy, "workers": workers, "beat": beat, "summary": summary}


def _worker_json(worker: Worker, health: str | None) -> dict[str, Any]:
    return asdict(worker) | {"health": health, "terminating": worker.is_terminating, "not_started": worker.not_started}


def _print_status(found: "FleetStatus") -> None:
    leaving = sum(each.is_terminating for each in found.workers)
    live = f"{sum(not each.was_refused for each in found.workers)} live workers"
    live += f", {leaving} of them terminating" if leaving else ""
    say(f"pool {found.pool.pool_id}: {found.pool.policy.get('policy', 'fixed')}, {live}")
    for each in found.workers:
        deadline = f", leaves by {text(each.drain_deadline)} UTC" if each.is_terminating and each.drain_deadline else ""
        exempt = ", exempt from capacity" if each.meta.get(CAPACITY_EXEMPT) else ""
        health = shown_health(each, found.now, found.pool.thresholds)
        details = each.not_started or f"{health}, {each.active} jobs{deadline}{exempt}"
        say(f"  {each.worker_id} {each.fleet_status} ({details})")
    last = found.last
    if last is None:
        say(f"no beat yet; run one with: drumbeat fleet beat {found.pool.pool_id}")
        return
    say(f"last beat {last.n} at {text(last.at)} UTC wanted {last.summary.get('wanted', '–')} workers")
    for alarm in last.summary.get("alarms", ()):
        say(f"  alarm: {alarm}")
    for action in last.actions:
        say(f"  did: {sentence(action)}")
    if last.why_not or last.error:
        say(f"  failed: {last.error}" if last.error else f"  did nothing: {last.why_not}")


def _columns(rows: Sequence[tuple[Worker, str | None]]) -> Columns:
    health = {worker.worker_id: each for worker, each in rows}
    return {
        "worker": lambda worker: worker.worker_id,
        "status": lambda worker: worker.fleet_status,
        "health": lambda worker: health[worker.worker_id],
        **place_columns([worker for worker, _ in rows]),
        "created": lambda worker: worker.created_at,
        "ready": lambda worker: worker.ready_at,
        "jobs": lambda worker: worker.active,
        "leaves by": lambda worker: worker.drain_deadline,
        "ended": lambda worker: worker.ended_at,
        "error": problem,
    }


@app.command("workers")
def list_workers(
    pool: PoolArgument,
    everyone: Annotated[bool, typer.Option("--all", help="Include workers that have ended.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the workers of a fleet with their status, health and jobs."""

    async def read(plane: ControlPlane) -> Sequence[tuple[Worker, str | None]]:
        row, now = await plane.store.pools.get(PoolId(pool)), await plane.store.now()
        workers = await plane.store.workers.list(row.pool_id, live=not everyone)
        return [(each, shown_health(each, now, row.thresholds)) for each in workers]

    rows = with_control_plane(store, read)
    if as_json:
        show_json([_worker_json(worker, health) for worker, health in rows])
    else:
        workers = [worker for worker, _ in rows]
        show(workers, _columns(rows), as_json=False, nothing=f"pool {pool} has no workers; see: drumbeat fleet explain {pool}")


@app.command()
def events(
    pool: PoolArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of beats that took an action.")] = 50,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the actions that the fleet's controller took in the last day (at most in its last 5000 beats), newest last."""
    latest = with_control_plane(store, lambda plane: plane.fleet(pool).beats_with_actions(limit))
    if as_json:
        show_json([{"n": each.n, "at": each.at, "actions": each.actions} for each in latest])
    for each in () if as_json else latest:
        for action in each.actions:
            say(f"{text(each.at)}  {sentence(action)}")
    if not latest and not as_json:
        say(f"pool {pool} had no actions in the last day")
