"""drumbeat fleet: how many workers a pool has, why, and what they cost."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drumbeat.cli import fleet_reasons, fleet_simulate
from drumbeat.cli.fleet_options import FileOption, PoolArgument, SetOption, parse_settings
from drumbeat.cli.living import plan_changes
from drumbeat.cli.options import JsonOption, StoreOption, parse_age, with_control_plane
from drumbeat.cli.pool_work import HandlerOption
from drumbeat.cli.render import Columns, say, sentence, show, show_json, text
from drumbeat.client import Mode, WorkPlan
from drumbeat.control_plane import ControlPlane, fleet_policy, until_stopped
from drumbeat.core.pool import Pool, PoolId
from drumbeat.core.worker import Worker, WorkerId, judge

if TYPE_CHECKING:
    from drumbeat.control_plane import FleetStatus

app = typer.Typer(no_args_is_help=True, help="Workers of a pool: the right number, and why.")
app.add_typer(fleet_reasons.app)
app.add_typer(fleet_simulate.app)

_UNSEEN = frozenset({"state"})  #: of a beat's summary: what it leaves to the next, for no reader


@app.command()
def create(
    pool: PoolArgument,
    policy: Annotated[
        str,
        typer.Option("--policy", help="lag_aware, queue_cover, queue_ratio (seed 004), or fixed: no queue, --set workers=N"),
    ] = "lag_aware",
    file: FileOption = None,
    settings: SetOption = None,
    handler: HandlerOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a pool scaled by a policy: a pool of jobs that is there, or a new one. Variables of seed 004 are heeded.

    What is set here counts more than the environment, that more than the file. A fixed fleet is always a new one.
    """
    wanted = fleet_policy(file, {"policy": policy} | parse_settings(settings))

    async def make(plane: ControlPlane) -> Pool:
        if policy == "fixed":
            return await plane.create_fleet(pool, wanted)
        plan = WorkPlan(**plan_changes({"handlers": handler}), mode=Mode.LOOP) if handler else None
        return await plane.scale_pool(pool, wanted, plan)

    made = with_control_plane(store, make, create=True)
    if as_json:
        show_json(made)
    else:
        say(f"pool {made.pool_id}: " + ", ".join(f"{name} {value}" for name, value in made.policy.items()))


@app.command()
def run(
    pool: PoolArgument,
    every: Annotated[str | None, typer.Option("--every", help="Between two beats. At first: as the policy says, 30s")] = None,
    store: StoreOption = None,
) -> None:
    """Beat until told to stop, with workers on this machine. Any number may run: one leads. Workers outlive it."""

    async def work(plane: ControlPlane) -> None:
        span = parse_age(every) if every else (await plane.fleet(pool).policy()).every
        stop = asyncio.Event()
        async with plane.local_spawner(survive=True) as spawner:
            with until_stopped(stop):
                await plane.fleet_loop(PoolId(pool), spawner, span).run(stop)

    with_control_plane(store, work)


@app.command()
def beat(pool: PoolArgument, store: StoreOption = None) -> None:
    """Look, decide and act once, as ``run`` does each time; prints the cycle's summary as JSON (seed 004).

    Exit code 1 when something could not be done.
    """

    async def work(plane: ControlPlane) -> Mapping[str, Any]:
        span = (await plane.fleet(pool).policy()).every
        async with plane.local_spawner(survive=True) as spawner:
            loop = plane.fleet_loop(PoolId(pool), spawner, span)
            report = await loop.beat()
            await loop.resign()
        told = {name: value for name, value in report.summary.items() if name not in _UNSEEN}
        return {**told, "led": report.led, "done": report.actions, "why_not": report.why_not, "failed": report.error}

    told = with_control_plane(store, work)
    show_json(told)
    if told["failed"] or any(action.get("error") for action in told["done"]):
        raise typer.Exit(1)


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
    summary = {name: value for name, value in (last.summary if last else {}).items() if name not in _UNSEEN}
    workers = [asdict(each) | {"health": judge(each, found.now, found.pool.thresholds)} for each in found.workers]
    return {"pool_id": found.pool.pool_id, "policy": found.pool.policy, "workers": workers, "beat": beat, "summary": summary}


def _print_status(found: "FleetStatus") -> None:
    say(f"pool {found.pool.pool_id}: {found.pool.policy.get('policy', 'fixed')}, {len(found.workers)} live workers")
    for each in found.workers:
        say(f"  {each.worker_id} {each.status} ({judge(each, found.now, found.pool.thresholds)}, {each.active} jobs)")
    last = found.last
    if last is None:
        say(f"no beat yet; make one with: drumbeat fleet beat {found.pool.pool_id}")
        return
    say(f"last beat {last.n} at {text(last.at)} UTC wanted {last.summary.get('wanted', '–')}")
    for action in last.actions:
        say(f"  did: {sentence(action)}")
    if last.why_not or last.error:
        say(f"  failed: {last.error}" if last.error else f"  did nothing: {last.why_not}")


@app.command()
def drain(
    pool: PoolArgument,
    workers: Annotated[list[str] | None, typer.Argument(metavar="[WORKER]…", help="Who; left out, everyone.")] = None,
    within: Annotated[
        str | None, typer.Option("--within", help="Ended if not gone by then. At first: as the pool says")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask workers to finish what they hold and leave. Whoever the policy wants is replaced: pause the pool to prevent it."""
    limit = parse_age(within) if within else None
    asked = with_control_plane(store, lambda plane: plane.fleet(pool).drain(workers or (), limit))
    _tell_names(asked, "asked to drain", as_json=as_json)


@app.command()
def kill(
    pool: PoolArgument,
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="A worker's name.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a worker of this machine now; its jobs go back to the queue."""

    async def work(plane: ControlPlane) -> Worker:
        async with plane.local_spawner(survive=True) as spawner:
            return await plane.fleet(pool).kill(worker, spawner)

    _tell_names([with_control_plane(store, work).worker_id], "killed", as_json=as_json)


def _tell_names(names: Sequence[WorkerId], done: str, *, as_json: bool) -> None:
    if as_json:
        show_json(list(names))
    else:
        say(f"{done}: {', '.join(names)}" if names else f"nobody was newly {done}")


_WORKER: Columns = {
    "worker": lambda row: row[0].worker_id,
    "status": lambda row: row[0].status,
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
        show_json([asdict(worker) | {"health": health} for worker, health in rows])
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


@app.command()
def spend(pool: PoolArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """What the workers have cost in this hour, day and month, and what they may."""

    async def read(plane: ControlPlane) -> Any:
        async with plane.local_spawner(survive=True) as spawner:
            return await plane.fleet(pool).spend(spawner)

    found = with_control_plane(store, read)
    if as_json:
        show_json(found)
        return
    say(f"{found.price_per_hour:g} an hour and worker; {found.burn_per_hour:g} an hour now")
    for name in ("hour", "day", "month"):
        most = getattr(found, f"max_per_{name}")
        say(f"this {name}: {getattr(found.spent, name):.4f}" + (f" of {most:g}" if most is not None else ""))
