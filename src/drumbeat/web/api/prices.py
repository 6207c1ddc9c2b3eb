"""API for the default prices, which apply to templates without prices."""

from typing import Annotated

from pydantic import Field

from drumbeat.bench.model import Prices
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import PREFIX, Plane
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import RequestBody, Shape

router = checked("prices")

PRICES = f"{PREFIX}/prices"
Price = Annotated[float, Field(ge=0, le=1e9, strict=True)]


class NewPrices(RequestBody):
    """All default prices to set. A price that is missing or null is removed."""

    worker_hour: Price | None = None
    target_hour: Price | None = None
    credit: Price | None = Field(default=None, description="Price of one Snowflake credit.")
    currency: Annotated[str, Field(pattern=r"^[!-~]{1,10}$")] = "USD"


class PricesShape(Shape):
    """Prices per hour of a worker and of the database under test, and of one Snowflake credit."""

    worker_hour: float | None
    target_hour: float | None
    credit: float | None
    currency: str


@router.get(PRICES, operation_id="show_prices", responses=problems(501))
async def show_prices(plane: Plane) -> PricesShape:
    """Return the default prices, for runs whose template sets none. A run keeps the prices it was created with."""
    return PricesShape.model_validate(await plane.bench().prices())


@router.put(PRICES, operation_id="set_prices", responses=problems(501))
async def set_prices(body: NewPrices, plane: Plane) -> PricesShape:
    """Set the default prices. Existing runs keep their prices."""
    return PricesShape.model_validate(await plane.bench().set_prices(Prices(**body.model_dump())))
