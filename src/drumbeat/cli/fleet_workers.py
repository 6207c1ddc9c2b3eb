"""drumbeat fleet drain, kill, exempt, retry and spend: what a person may do to workers, and what they cost."""

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
    workers: Annotated[list[str] | None, typer.Argument(metavar="[WORKER]…", help="Who; left out, everyone.")] = None,
    within: Annotated[
        str | None, typer.Option("--within", help="Ended if not gone by then. At first: as the pool says")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask workers to finish what they hold and leave, wherever they run: they are asked through the store.

    Whoever the policy wants is replaced: pause the pool to prevent it.
    """
    limit = parse_age(within) if within else None
    asked = with_control_plane(store, lambda plane: plane.fleet(pool).drain(workers or (), limit))
    _tell_names(asked, "asked to drain", as_json=as_json)


@app.command()
def kill(
    pool: PoolArgument,
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="A worker's name.")],
    provider: ProviderOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a worker now: its row is closed, its jobs go back to the queue, its process or pod is ended."""

    async def work(plane: ControlPlane) -> Worker:
        async with plane.fleets.spawner(pool, provider) as spawner:
            return await plane.fleet(pool).kill(worker, spawner)

    _tell_names([with_control_plane(store, work).worker_id], "killed", as_json=as_json)


@app.command()
def exempt(
    pool: PoolArgument,
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="A worker's name.")],
    off: Annotated[bool, typer.Option("--off", help="Have it count again.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Exempt a worker from capacity, such as a worker of a test: it does not count as one of the wanted workers.

    It is watched like any other, and not drained as surplus. It is drained once it is older than the policy's
    exempt_max_lifetime, or if a money ceiling would be passed.
    """
    row = with_control_plane(store, lambda plane: plane.fleet(pool).exempt(worker, exempt=not off))
    _tell_names([row.worker_id], "counts as capacity again" if off else "exempt from capacity", as_json=as_json)


@app.command()
def retry(pool: PoolArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Have the next beat ask the provider again at once, after you put right what it refused: money, a key, an image.

    What was refused is forgotten, and where the breaker is open one worker is tried. A new RUNPOD_API_KEY, or other RUNPOD_*
    variables, need no retry: the first beat that has them asks at once.
    """
    at = with_control_plane(store, lambda plane: plane.fleet(pool).retry())
    if as_json:
        show_json({"pool_id": pool, "retry_at": at})
    else:
        say(f"pool {pool}: its next beat asks the provider again; make one now with: drumbeat fleet beat {pool}")


def _tell_names(names: Sequence[WorkerId], done: str, *, as_json: bool) -> None:
    if as_json:
        show_json(list(names))
    else:
        say(f"{done}: {', '.join(names)}" if names else f"nobody was newly {done}")


@app.command()
def spend(pool: PoolArgument, provider: ProviderOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """What the workers have cost in this hour, day and month, and what they may."""

    async def read(plane: ControlPlane) -> Any:
        async with plane.fleets.spawner(pool, provider) as spawner:
            return await plane.fleet(pool).spend(spawner)

    found = with_control_plane(store, read)
    if as_json:
        show_json(found)
        return
    say(f"{found.price_per_hour:g} an hour and worker; {found.burn_per_hour:g} an hour now")
    for name in ("hour", "day", "month"):
        most = getattr(found, f"max_per_{name}")
        say(f"this {name}: {getattr(found.spent, name):.4f}" + (f" of {most:g}" if most is not None else ""))
