"""drumbeat bench prices: default hourly prices for cost estimates."""

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
        float | None, typer.Option("--worker-hour", callback=refuse_nan, min=0, help="Price of a worker per hour.")
    ] = None,
    target_hour: Annotated[
        float | None,
        typer.Option("--target-hour", callback=refuse_nan, min=0, help="Price of the database under test per hour."),
    ] = None,
    currency: Annotated[str | None, typer.Option("--currency", help="Currency of the prices. Default: USD")] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Reset the prices before setting new ones.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show or set the default prices, for templates without prices. A run keeps the prices it was created with."""
    given = {"worker_hour": worker_hour, "target_hour": target_hour, "currency": currency}
    changes = {name: value for name, value in given.items() if value is not None}

    async def work(plane: ControlPlane) -> Prices:
        bench = plane.bench()
        current = Prices() if forget else await bench.prices()
        return await bench.set_prices(replace(current, **changes)) if changes or forget else current  # type: ignore[arg-type]

    found = with_control_plane(store, work, create=bool(changes))
    if as_json:
        show_json(found)
    else:
        say(f"worker: {_hourly(found.worker_hour, found.currency)}; database: {_hourly(found.target_hour, found.currency)}")


def _hourly(price: float | None, currency: str) -> str:
    return "no price" if price is None else f"{price:g} {currency} per hour"
