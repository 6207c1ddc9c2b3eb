"""Usual prices: for templates that give none, kept with each run that is made."""

from dataclasses import replace
from math import inf, nan

import pytest

from drumbeat.bench.control.prices import read_default_prices, set_default_prices, with_default_prices
from drumbeat.bench.model import Prices, RunPlan
from drumbeat.core.errors import InvalidInput
from drumbeat.store.memory import MemoryStore

USUAL = Prices(worker_hour=0.5, target_hour=2.0, currency="EUR")


async def test_they_are_none_until_they_are_set_and_again_once_forgotten() -> None:
    async with MemoryStore() as store:
        before = await read_default_prices(store.notes)
        await set_default_prices(store.notes, USUAL)
        kept = await read_default_prices(store.notes)
        await set_default_prices(store.notes, Prices())

        assert (before, kept, await read_default_prices(store.notes)) == (Prices(), USUAL, Prices())
        assert await store.notes.list() == []


@pytest.mark.parametrize(
    ("own", "found"),
    [
        (Prices(), USUAL),
        (Prices(currency="CHF"), USUAL),
        (Prices(worker_hour=1.0), Prices(worker_hour=1.0)),
        (Prices(target_hour=0.0, currency="CHF"), Prices(target_hour=0.0, currency="CHF")),
    ],
)
def test_a_template_that_gives_any_price_has_its_own_alone(own: Prices, found: Prices) -> None:
    assert with_default_prices(replace(RunPlan(), prices=own), USUAL).prices == found


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"worker_hour": -0.01}, "worker_hour"),
        ({"target_hour": nan}, "target_hour"),
        ({"target_hour": inf}, "target_hour"),
        ({"currency": ""}, "currency"),
        ({"currency": "two words"}, "currency"),
        ({"currency": "x" * 11}, "currency"),
    ],
)
async def test_what_is_no_price_is_refused_and_the_field_named(wrong: dict[str, float | str], field: str) -> None:
    async with MemoryStore() as store:
        with pytest.raises(InvalidInput, match=f"^{field}: expected"):
            await set_default_prices(store.notes, replace(USUAL, **wrong))  # type: ignore[arg-type]

        assert await read_default_prices(store.notes) == Prices()
