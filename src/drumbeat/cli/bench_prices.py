"""drumbeat bench prices: default prices for cost estimates."""

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
    credit: Annotated[
        float | None, typer.Option("--credit", callback=refuse_nan, min=0, help="Price of one Snowflake credit.")
    ] = None,
    currency: Annotated[str | None, typer.Option("--currency", help="Currency of the prices. Default: USD")] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Remove all stored prices first.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show or set the default prices, for templates without prices. A run keeps the prices it was created with."""
    given = {"worker_hour": worker_hour, "target_hour": target_hour, "credit": credit, "currency": currency}
    changes = {name: value for name, value in given.items() if value is not None}

    async def work(plane: ControlPlane) -> Prices:
        bench = plane.bench()
        current = Prices() if forget else await bench.prices()
        return await bench.set_prices(replace(current, **changes)) if changes or forget else current  # type: ignore[arg-type]

    found = with_control_plane(store, work, create=bool(changes))
    if as_json:
        show_json(found)
    else:
        per_credit = "" if found.credit is None else f"; Snowflake: {found.credit:g} {found.currency} per credit"
        worker, database = _hourly(found.worker_hour, found.currency), _hourly(found.target_hour, found.currency)
        say(f"worker: {worker}; database: {database}{per_credit}")


def _hourly(price: float | None, currency: str) -> str:
    return "no price" if price is None else f"{price:g} {currency} per hour"
