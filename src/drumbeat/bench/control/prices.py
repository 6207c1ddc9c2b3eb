"""Usual prices: what an hour costs where a template does not say. Each run keeps those it was made with."""

from dataclasses import asdict, replace
from math import isfinite

import msgspec

from drumbeat.bench.model import Prices, RunPlan
from drumbeat.core.errors import InvalidInput
from drumbeat.store.interface import Notes

_NOTE = "prices"
_DEAREST = 1e9
_LONGEST = 10  #: characters of a currency


async def read_usual(notes: Notes) -> Prices:
    """As they are kept; none where none were set."""
    note = await notes.find(_NOTE)
    return Prices() if note is None else msgspec.convert(note.value, Prices)


async def set_usual(notes: Notes, prices: Prices) -> Prices:
    """Keep them in place of those before. Runs that are there already stay as they are. Raises InvalidInput."""
    checked = _checked(prices)
    if checked == Prices():
        await notes.delete(_NOTE)
    else:
        await notes.put(_NOTE, asdict(checked))
    return checked


def with_usual(plan: RunPlan, usual: Prices) -> RunPlan:
    """A plan whose template gives no price has the usual ones; one that gives any has its own alone: currencies do not mix."""
    own = plan.prices
    return plan if own.worker_hour is not None or own.target_hour is not None else replace(plan, prices=usual)


def _checked(prices: Prices) -> Prices:
    for name, value in (("worker_hour", prices.worker_hour), ("target_hour", prices.target_hour)):
        if value is not None and not (isfinite(value) and 0 <= value <= _DEAREST):
            raise InvalidInput(f"{name}: expected what an hour costs, from 0 to {_DEAREST:,.0f}, got {value}")
    if not (0 < len(prices.currency) <= _LONGEST and prices.currency.isprintable() and " " not in prices.currency):
        raise InvalidInput(f"currency: expected 1 to {_LONGEST} characters such as USD, got {prices.currency!r}")
    return prices
