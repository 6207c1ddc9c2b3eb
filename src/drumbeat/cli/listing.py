"""drumbeat pools, workers, events, beats, runs, samples and logs: list rows of the store as tables or JSON."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer

from drumbeat.bench.model import RunJudgement, stored_judgement
from drumbeat.cli.bench_runs import run_json
from drumbeat.cli.options import JsonOption, LimitOption, PoolArgument, StoreOption, with_control_plane
from drumbeat.cli.render import Columns, say, sentence, show, show_json, text
from drumbeat.cli.worker_columns import place_columns, problem
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.beat import Beat
from drumbeat.core.errors import InvalidInput, MissingExtra
from drumbeat.core.log import LEVELS
from drumbeat.core.pool import PoolId
from drumbeat.core.run import Run
from drumbeat.core.worker import Health, Worker, WorkerId, shown_health
from drumbeat.store.interface import Store

T = TypeVar("T")

pools = typer.Typer(no_args_is_help=True, help="List pools (named sets of workers).")
workers = typer.Typer(no_args_is_help=True, help="List workers with their status and health.")
events = typer.Typer(no_args_is_help=True, help="List events: commands sent to workers, and status changes of workers.")
beats = typer.Typer(no_args_is_help=True, help="List and show beats: what controllers saw, decided and did, and why.")
runs = typer.Typer(no_args_is_help=True, help="List benchmark runs.")
samples = typer.Typer(no_args_is_help=True, help="List samples: throughput, latency and errors measured by workers.")
logs = typer.Typer(no_args_is_help=True, help="List log lines of workers.")

_POOL: Columns = {
    "pool": lambda pool: pool.pool_id,
    "kind": lambda pool: pool.kind,
    "created": lambda pool: pool.created_at,
    "paused until": lambda pool: pool.paused_until,
    "policy": lambda pool: ", ".join(f"{name} {value}" for name, value in pool.policy.items()),
}
_EVENT: Columns = {
    "n": lambda event: event.sequence_id,
    "at": lambda event: event.created_at,
    "type": lambda event: event.type,
    "recipient": lambda event: event.worker_id or (event.scope if event.slot is None else f"slot {event.slot}"),
    "payload": lambda event: ", ".join(f"{name} {value}" for name, value in event.payload.items()),
}
_BEAT: Columns = {
    "n": lambda beat: beat.n,
    "at": lambda beat: beat.at,
    "epoch": lambda beat: beat.epoch,
    "took": lambda beat: beat.duration,
    "actions": lambda beat: "\n".join(sentence(action) for action in beat.actions) or f"nothing: {beat.why_not}",
    "error": lambda beat: beat.error,
}
_RUN: Columns = {
    "run": lambda row: row[0].run_id,
    "name": lambda row: row[0].name,
    "status": lambda row: row[0].status,
    "verdict": lambda row: row[1].short,
    "phase": lambda row: row[0].phase,
    "reason": lambda row: row[0].completion_reason,
    "operations": lambda row: row[0].operations,
    "qps": lambda row: row[0].qps,
    "created": lambda row: row[0].created_at,
}
_SAMPLE: Columns = {
    "at": lambda sample: sample.at,
    "worker": lambda sample: sample.worker_id,
    "phase": lambda sample: sample.phase,
    "ops/s": lambda sample: sample.qps,
    "errors": lambda sample: sample.errors,
    "p50": lambda sample: sample.latency.percentile(50),
    "p99": lambda sample: sample.latency.percentile(99),
    "active": lambda sample: sample.active,
    "target": lambda sample: sample.target,
}
_LOG: Columns = {
    "at": lambda log: log.at,
    "worker": lambda log: log.worker_id,
    "level": lambda log: log.level,
    "message": lambda log: log.message,
}


@pools.command("list")
def list_pools(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List all pools, oldest first."""
    rows = with_control_plane(store, lambda plane: plane.store.pools.list())
    show(rows, _POOL, as_json=as_json, nothing="no pools yet; try: drumbeat demo")


@workers.command("list")
def list_workers(
    pool: PoolArgument,
    live: Annotated[bool, typer.Option("--live", help="Only workers that have not ended.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the workers of a pool with their status, health and load."""

    async def work(plane: ControlPlane) -> None:
        row = await plane.store.pools.get(PoolId(pool))
        now = await plane.store.now()

        def health(worker: Worker) -> Health | None:
            return shown_health(worker, now, row.thresholds)

        found = await plane.store.workers.list(row.pool_id, live=live)
        columns: Columns = {
            "worker": lambda worker: worker.worker_id,
            "slot": lambda worker: worker.slot,
            "status": lambda worker: worker.shown_status,
            "health": health,
            **place_columns(found),
            "last heartbeat": lambda worker: worker.heartbeat_at and now - worker.heartbeat_at,
            "target": lambda worker: worker.target,
            "active": lambda worker: worker.active,
            "operations": lambda worker: worker.operations,
            "cpu %": lambda worker: worker.cpu_percent,
            "mem %": lambda worker: worker.memory_percent,
            "exit": lambda worker: worker.exit_code,
            "error": problem,
        }
        if as_json:
            show_json([asdict(each) | {"health": health(each), "not_started": each.not_started} for each in found])
        else:
            show(found, columns, as_json=False, nothing=f"pool {pool} has no workers")

    with_control_plane(store, work)


@events.command("list")
def list_events(
    pool: PoolArgument,
    after: Annotated[int, typer.Option("--after", min=0, help="Only events with a higher number.")] = 0,
    limit: LimitOption = 100,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the events of a pool, oldest first."""
    rows = _of_pool(store, pool, lambda db, pool_id: db.events.read(pool_id, after, limit))
    show(rows, _EVENT, as_json=as_json, nothing=f"pool {pool} has no events after {after}")


@beats.command("list")
def list_beats(
    pool: PoolArgument,
    after: Annotated[int, typer.Option("--after", min=0, help="Only beats with a higher number.")] = 0,
    limit: LimitOption = 100,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the beats of a pool: what its controllers did, and why."""
    rows = _of_pool(store, pool, lambda db, pool_id: db.beats.list(pool_id, after=after, limit=limit))
    show(rows, _BEAT, as_json=as_json, nothing=f"pool {pool} has no beats yet")


@beats.command("show")
def show_beat(
    pool: PoolArgument,
    n: Annotated[int | None, typer.Argument(metavar="[N]", min=1, help="Number of the beat. Default: the last one")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one beat: what the controller saw, what it decided, and why."""

    async def find(db: Store, pool_id: PoolId) -> Beat | None:
        if n is None:
            return await db.beats.last(pool_id)
        return next((beat for beat in await db.beats.list(pool_id, after=n - 1, limit=1) if beat.n == n), None)

    beat = _of_pool(store, pool, find)
    if beat is None:
        raise InvalidInput(f"pool {pool!r} has no beat {'yet' if n is None else n}; see: drumbeat beats list {pool}")
    if as_json:
        show_json(beat)
    else:
        _print_beat(beat)


def _print_beat(beat: Beat) -> None:
    say(f"beat {beat.n} at {text(beat.at)} UTC by {beat.owner}, epoch {beat.epoch}, took {text(beat.duration)}")
    say(f"saw: {_counts(beat.summary)}")
    for wish in beat.summary.get("wishes") or ():
        say(f"rule {wish['rule']} wanted {wish['workers']}: {wish['reason']}")
    for limit in beat.summary.get("limits") or ():
        say(f"limit {limit['name']} made that {limit['after']}: {limit['reason']}")
    for action in beat.actions:
        say(f"did: {sentence(action)}")
    if beat.why_not:
        say(f"did nothing: {beat.why_not}")
    if beat.error:
        say(f"failed: {beat.error}", style="red")


def _counts(summary: Mapping[str, Any]) -> str:
    """Return the numbers in the summary of a beat (pass of a control loop) as text; rules and limits are not included."""
    return ", ".join(f"{name} {value}" for name, value in summary.items() if isinstance(value, int | float))


@runs.command("list")
def list_runs(limit: LimitOption = 100, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List benchmark runs with their verdicts, newest first."""

    async def work(plane: ControlPlane) -> list[tuple[Run, RunJudgement]]:
        found = await plane.store.runs.list(limit=limit)
        try:
            judgements = await plane.bench().judgements(found) if found else {}
        except MissingExtra:
            judgements = {}
        return [(each, judgements.get(each.run_id) or stored_judgement(each) or RunJudgement()) for each in found]

    rows = with_control_plane(store, work)
    if as_json:
        show_json([run_json(*row) for row in rows])
    else:
        show(rows, _RUN, as_json=False, nothing="no runs yet")


@samples.command("list")
def list_samples(
    pool: PoolArgument,
    worker: Annotated[str | None, typer.Option("--worker", help="Only this worker.")] = None,
    limit: LimitOption = 100,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the samples measured by the workers of a pool, oldest first."""
    name = WorkerId(worker) if worker else None
    rows = _of_pool(store, pool, lambda db, pool_id: db.samples.list(pool_id, worker_id=name, limit=limit))
    show(rows, _SAMPLE, as_json=as_json, nothing=f"pool {pool} has no samples yet")


@logs.command("list")
def list_logs(
    pool: PoolArgument,
    worker: Annotated[str | None, typer.Option("--worker", help="Only this worker.")] = None,
    level: Annotated[str | None, typer.Option("--level", help="Minimum level, such as WARNING.")] = None,
    limit: LimitOption = 1000,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the log lines of the workers of a pool, oldest first."""
    if level is not None and level.upper() not in LEVELS:
        raise InvalidInput(f"expected --level to be one of {', '.join(LEVELS)}, got {level!r}")

    name, least = WorkerId(worker) if worker else None, level.upper() if level else None
    rows = _of_pool(store, pool, lambda db, pool_id: db.logs.list(pool_id, worker_id=name, level=least, limit=limit))
    show(rows, _LOG, as_json=as_json, nothing=f"no log lines in pool {pool}")


def _of_pool(store: str | None, pool: str, read: Callable[[Store, PoolId], Awaitable[T]]) -> T:
    """Call ``read`` with the store and the id of an existing pool. Raises NotFound if the pool does not exist."""

    async def work(plane: ControlPlane) -> T:
        return await read(plane.store, (await plane.store.pools.get(PoolId(pool))).pool_id)

    return with_control_plane(store, work)
