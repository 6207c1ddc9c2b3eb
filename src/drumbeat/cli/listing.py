"""The reading commands: what is in the store, as tables or JSON."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer

from drumbeat.cli.options import JsonOption, LimitOption, PoolArgument, StoreOption, with_control_plane
from drumbeat.cli.render import Columns, say, sentence, show, show_json, text
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.beat import Beat
from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Health, Worker, WorkerId, judge
from drumbeat.store.interface import Store

T = TypeVar("T")

pools = typer.Typer(no_args_is_help=True, help="Pools: named sets of workers.")
workers = typer.Typer(no_args_is_help=True, help="Workers, their states and their health.")
events = typer.Typer(no_args_is_help=True, help="Events: what workers were told, and what became of them.")
beats = typer.Typer(no_args_is_help=True, help="Beats: what controllers saw, decided and did, and why.")
runs = typer.Typer(no_args_is_help=True, help="Runs: benchmark executions.")
samples = typer.Typer(no_args_is_help=True, help="Samples: what workers measured.")
logs = typer.Typer(no_args_is_help=True, help="Log lines of workers.")

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_POOL: Columns = {
    "pool": lambda pool: pool.pool_id,
    "kind": lambda pool: pool.kind,
    "made": lambda pool: pool.created_at,
    "paused until": lambda pool: pool.paused_until,
    "policy": lambda pool: ", ".join(f"{name} {value}" for name, value in pool.policy.items()),
}
_EVENT: Columns = {
    "n": lambda event: event.sequence_id,
    "at": lambda event: event.created_at,
    "type": lambda event: event.type,
    "for": lambda event: event.worker_id or (event.scope if event.slot is None else f"slot {event.slot}"),
    "says": lambda event: ", ".join(f"{name} {value}" for name, value in event.payload.items()),
}
_BEAT: Columns = {
    "n": lambda beat: beat.n,
    "at": lambda beat: beat.at,
    "epoch": lambda beat: beat.epoch,
    "took": lambda beat: beat.duration,
    "did": lambda beat: "\n".join(sentence(action) for action in beat.actions) or f"nothing: {beat.why_not}",
    "error": lambda beat: beat.error,
}
_RUN: Columns = {
    "run": lambda run: run.run_id,
    "name": lambda run: run.name,
    "status": lambda run: run.status,
    "phase": lambda run: run.phase,
    "reason": lambda run: run.completion_reason,
    "operations": lambda run: run.operations,
    "qps": lambda run: run.qps,
    "made": lambda run: run.created_at,
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
    """All pools, oldest first."""
    rows = with_control_plane(store, lambda plane: plane.store.pools.list())
    show(rows, _POOL, as_json=as_json, nothing="no pools yet; try: drumbeat demo")


@workers.command("list")
def list_workers(
    pool: PoolArgument,
    live: Annotated[bool, typer.Option("--live", help="Only those that have not ended.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """The workers of a pool, with their health by the store's clock."""

    async def work(plane: ControlPlane) -> None:
        home = await plane.store.pools.get(PoolId(pool))
        now = await plane.store.now()

        def health(worker: Worker) -> Health | None:
            return judge(worker, now, home.thresholds) if worker.is_live else None

        columns: Columns = {
            "worker": lambda worker: worker.worker_id,
            "slot": lambda worker: worker.slot,
            "status": lambda worker: worker.status,
            "health": health,
            "last beat": lambda worker: worker.heartbeat_at and now - worker.heartbeat_at,
            "target": lambda worker: worker.target,
            "active": lambda worker: worker.active,
            "operations": lambda worker: worker.operations,
            "cpu %": lambda worker: worker.cpu_percent,
            "mem %": lambda worker: worker.memory_percent,
            "exit": lambda worker: worker.exit_code,
            "error": lambda worker: worker.error,
        }
        rows = await plane.store.workers.list(home.pool_id, live=live)
        if as_json:
            show_json([asdict(worker) | {"health": health(worker)} for worker in rows])
        else:
            show(rows, columns, as_json=False, nothing=f"pool {pool} has no workers")

    with_control_plane(store, work)


@events.command("list")
def list_events(
    pool: PoolArgument,
    after: Annotated[int, typer.Option("--after", min=0, help="Only events numbered above this.")] = 0,
    limit: LimitOption = 100,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """A pool's events, in order."""
    rows = _of_pool(store, pool, lambda kept, home: kept.events.read(home, after, limit))
    show(rows, _EVENT, as_json=as_json, nothing=f"pool {pool} has no events after {after}")


@beats.command("list")
def list_beats(
    pool: PoolArgument,
    after: Annotated[int, typer.Option("--after", min=0, help="Only beats numbered above this.")] = 0,
    limit: LimitOption = 100,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a pool's controllers did, and why."""
    rows = _of_pool(store, pool, lambda kept, home: kept.beats.list(home, after=after, limit=limit))
    show(rows, _BEAT, as_json=as_json, nothing=f"pool {pool} has had no beat yet")


@beats.command("show")
def show_beat(
    pool: PoolArgument,
    n: Annotated[int | None, typer.Argument(metavar="[N]", min=1, help="The beat's number; the last one if left out.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """One beat whole: what it saw, what it decided, why, or why not."""

    async def find(kept: Store, home: PoolId) -> Beat | None:
        if n is None:
            return await kept.beats.last(home)
        return next((beat for beat in await kept.beats.list(home, after=n - 1, limit=1) if beat.n == n), None)

    beat = _of_pool(store, pool, find)
    if beat is None:
        raise InvalidInput(f"pool {pool!r} has no beat {'yet' if n is None else n}; see: drumbeat beats list {pool}")
    if as_json:
        show_json(beat)
    else:
        _print_beat(beat)


def _print_beat(beat: Beat) -> None:
    say(f"beat {beat.n} at {text(beat.at)} UTC by {beat.owner}, epoch {beat.epoch}, took {text(beat.duration)}")
    say(f"saw: {_seen(beat.summary)}")
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


def _seen(summary: Mapping[str, Any]) -> str:
    """The counts of a beat's summary; what they lead to is told line by line, the rest only as JSON."""
    return ", ".join(f"{name} {value}" for name, value in summary.items() if isinstance(value, int | float))


@runs.command("list")
def list_runs(limit: LimitOption = 100, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Runs, newest first."""
    rows = with_control_plane(store, lambda plane: plane.store.runs.list(limit=limit))
    show(rows, _RUN, as_json=as_json, nothing="no runs yet")


@samples.command("list")
def list_samples(
    pool: PoolArgument,
    worker: Annotated[str | None, typer.Option("--worker", help="Only this worker's.")] = None,
    limit: LimitOption = 100,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a pool's workers measured, oldest first."""
    name = WorkerId(worker) if worker else None
    rows = _of_pool(store, pool, lambda kept, home: kept.samples.list(home, worker_id=name, limit=limit))
    show(rows, _SAMPLE, as_json=as_json, nothing=f"nothing was measured in pool {pool} yet")


@logs.command("list")
def list_logs(
    pool: PoolArgument,
    worker: Annotated[str | None, typer.Option("--worker", help="Only this worker's.")] = None,
    level: Annotated[str | None, typer.Option("--level", help="This level and up, such as WARNING.")] = None,
    limit: LimitOption = 1000,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Log lines of a pool's workers, oldest first."""
    if level is not None and level.upper() not in _LEVELS:
        raise InvalidInput(f"expected --level to be one of {', '.join(_LEVELS)}, got {level!r}")

    name, least = WorkerId(worker) if worker else None, level.upper() if level else None
    rows = _of_pool(store, pool, lambda kept, home: kept.logs.list(home, worker_id=name, level=least, limit=limit))
    show(rows, _LOG, as_json=as_json, nothing=f"no log lines in pool {pool}")


def _of_pool(store: str | None, pool: str, read: Callable[[Store, PoolId], Awaitable[T]]) -> T:
    """Read something of a pool that is there. Raises NotFound when it is not."""

    async def work(plane: ControlPlane) -> T:
        return await read(plane.store, (await plane.store.pools.get(PoolId(pool))).pool_id)

    return with_control_plane(store, work)
