"""drumbeat fleet drain, kill, exempt, retry and spend: manual actions on workers, and spending."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from drumbeat.cli.fleet_options import PoolArgument, ProviderOption
from drumbeat.cli.options import JsonOption, StoreOption, parse_age, with_control_plane
from drumbeat.cli.render import say, show_json
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.worker import Worker, WorkerId

app = typer.Typer()


@app.command()
def drain(
    pool: PoolArgument,
    workers: Annotated[list[str] | None, typer.Argument(metavar="[WORKER]…", help="Worker names. Default: all workers")] = None,
    within: Annotated[
        str | None,
        typer.Option("--within", help="Time for a worker to finish, such as 10m; then it is killed. Default: that of the pool"),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Drain workers: they finish their jobs and exit. The request goes through the store, so workers can run anywhere.

    If the policy still wants as many workers, new ones are started; pause the pool to prevent that.
    """
    limit = parse_age(within, "--within") if within else None
    asked = with_control_plane(store, lambda plane: plane.fleet(pool).drain(workers or (), limit))
    _print_names(asked, "asked to drain", as_json=as_json)


@app.command()
def kill(
    pool: PoolArgument,
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Worker name.")],
    provider: ProviderOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Kill a worker now: its process or pod is ended, and its jobs return to the queue."""

    async def work(plane: ControlPlane) -> Worker:
        async with plane.fleets.spawner(pool, provider) as spawner:
            return await plane.fleet(pool).kill(worker, spawner)

    _print_names([with_control_plane(store, work).worker_id], "killed", as_json=as_json)


@app.command()
def exempt(
    pool: PoolArgument,
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Worker name.")],
    off: Annotated[bool, typer.Option("--off", help="Remove the exemption.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Exempt a worker from capacity, for example for a test: it does not count towards the wanted number of workers.

    It is monitored like any other worker, and not drained as surplus. It is drained once it is older than the policy's
    exempt_max_lifetime, or if a spending limit would be exceeded.
    """
    row = with_control_plane(store, lambda plane: plane.fleet(pool).exempt(worker, exempt=not off))
    _print_names([row.worker_id], "counts as capacity again" if off else "exempt from capacity", as_json=as_json)


@app.command()
def retry(pool: PoolArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Let the next beat request workers again at once, after you fixed why the engine refused them: credit, API key, image.

    Earlier refusals are forgotten; if the circuit breaker is open, one worker is tried. After a change of RUNPOD_API_KEY or
    another RUNPOD_* variable, this command is not needed: the first beat with the new value asks at once.
    """
    at = with_control_plane(store, lambda plane: plane.fleet(pool).retry())
    if as_json:
        show_json({"pool_id": pool, "retry_at": at})
    else:
        say(f"pool {pool}: its next beat asks the engine again; run one now with: drumbeat fleet beat {pool}")


def _print_names(names: Sequence[WorkerId], done: str, *, as_json: bool) -> None:
    if as_json:
        show_json(list(names))
    else:
        say(f"{done}: {', '.join(names)}" if names else f"no worker was {done}")


@app.command()
def spend(pool: PoolArgument, provider: ProviderOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show the spending of this hour, day and month, and its limits."""

    async def read(plane: ControlPlane) -> Any:
        async with plane.fleets.spawner(pool, provider) as spawner:
            return await plane.fleet(pool).spend(spawner)

    found = with_control_plane(store, read)
    if as_json:
        show_json(found)
        return
    say(f"price: {found.price_per_hour:g} per worker and hour; spending: {found.burn_per_hour:g} per hour now")
    for name in ("hour", "day", "month"):
        most = getattr(found, f"max_per_{name}")
        say(f"this {name}: {getattr(found.spent, name):.4f}" + (f" of {most:g}" if most is not None else ""))
