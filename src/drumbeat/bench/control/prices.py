"""Default prices per hour, of a worker and of the database, for templates that set none. Each run stores its own prices."""

from dataclasses import asdict, replace
from math import isfinite

import msgspec

from drumbeat.bench.model import Prices, RunPlan
from drumbeat.core.errors import InvalidInput
from drumbeat.store.interface import Notes

_NOTE = "prices"
_MAX_PRICE = 1e9
_MAX_CURRENCY_LENGTH = 10


async def read_default_prices(notes: Notes) -> Prices:
    """Read the default prices per hour from the store; empty prices if none were set."""
    note = await notes.find(_NOTE)
    return Prices() if note is None else msgspec.convert(note.value, Prices)


async def set_default_prices(notes: Notes, prices: Prices) -> Prices:
    """Replace the default prices. Existing runs keep their own prices. Raises InvalidInput."""
    checked = _checked(prices)
    if checked == Prices():
        await notes.delete(_NOTE)
    else:
        await notes.put(_NOTE, asdict(checked))
    return checked


def with_default_prices(plan: RunPlan, usual: Prices) -> RunPlan:
    """Return the plan with its own prices or, if it has none, the default ones. Never with both, as currencies may differ."""
    own = plan.prices
    is_priced = any(price is not None for price in (own.worker_hour, own.target_hour, own.credit))
    return plan if is_priced else replace(plan, prices=usual)


def _checked(prices: Prices) -> Prices:
    for name, value in (("worker_hour", prices.worker_hour), ("target_hour", prices.target_hour), ("credit", prices.credit)):
        if value is not None and not (isfinite(value) and 0 <= value <= _MAX_PRICE):
            raise InvalidInput(f"{name}: expected a price from 0 to {_MAX_PRICE:,.0f}, got {value}")
    if not (0 < len(prices.currency) <= _MAX_CURRENCY_LENGTH and prices.currency.isprintable() and " " not in prices.currency):
        raise InvalidInput(f"currency: expected 1 to {_MAX_CURRENCY_LENGTH} characters such as USD, got {prices.currency!r}")
    return prices
