"""Usual prices: what an hour costs where a template does not say."""

from typing import Annotated

from pydantic import Field

from drumbeat.bench.model import Prices
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import PREFIX, Plane
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import RequestBody, Shape

router = checked("prices")

PRICES = f"{PREFIX}/prices"
Hour = Annotated[float, Field(ge=0, le=1e9, strict=True)]


class NewPrices(RequestBody):
    """All of them; what is left out or null has no price."""

    worker_hour: Hour | None = None
    target_hour: Hour | None = None
    currency: Annotated[str, Field(pattern=r"^[!-~]{1,10}$")] = "USD"


class PricesShape(Shape):
    """What an hour of a worker and of the database under test costs."""

    worker_hour: float | None
    target_hour: float | None
    currency: str


@router.get(PRICES, operation_id="show_prices", responses=problems(501))
async def show(plane: Plane) -> PricesShape:
    """The usual prices, for runs whose template gives none. A run keeps those it was made with."""
    return PricesShape.model_validate(await plane.bench().prices())


@router.put(PRICES, operation_id="set_prices", responses=problems(501))
async def set_prices(body: NewPrices, plane: Plane) -> PricesShape:
    """Set the usual prices. Runs that are there already stay as they are."""
    return PricesShape.model_validate(await plane.bench().set_prices(Prices(**body.model_dump())))
