"""drumbeat bench prices: what an hour usually costs."""

from dataclasses import replace
from typing import Annotated

import typer

from drumbeat.bench.model import Prices
from drumbeat.cli.options import JsonOption, StoreOption, refuse_nan, with_control_plane
from drumbeat.cli.render import say, show_json
from drumbeat.composition.plane import ControlPlane

app = typer.Typer()


@app.command("prices")
def prices(
    worker_hour: Annotated[
        float | None, typer.Option("--worker-hour", callback=refuse_nan, min=0, help="What an hour of a worker costs.")
    ] = None,
    target_hour: Annotated[
        float | None,
        typer.Option("--target-hour", callback=refuse_nan, min=0, help="What an hour of the database under test costs."),
    ] = None,
    currency: Annotated[str | None, typer.Option("--currency", help="What they are counted in. At first: USD")] = None,
    forget: Annotated[bool, typer.Option("--forget", help="First forget those that were set.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show or set the usual prices, for runs whose template gives none. A run keeps those it was made with."""
    given = {"worker_hour": worker_hour, "target_hour": target_hour, "currency": currency}
    changes = {name: value for name, value in given.items() if value is not None}

    async def work(plane: ControlPlane) -> Prices:
        desk = plane.bench()
        kept = Prices() if forget else await desk.prices()
        return await desk.set_prices(replace(kept, **changes)) if changes or forget else kept  # type: ignore[arg-type]

    found = with_control_plane(store, work, create=bool(changes))
    if as_json:
        show_json(found)
    else:
        say(f"worker: {_hourly(found.worker_hour, found.currency)}; database: {_hourly(found.target_hour, found.currency)}")


def _hourly(price: float | None, currency: str) -> str:
    return "no price" if price is None else f"{price:g} {currency} an hour"
