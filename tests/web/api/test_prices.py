"""Usual prices over HTTP: set, shown, and kept with the runs that are made."""

from typing import Any

import httpx
import pytest

from web.given import Web, document

PRICES = "/api/v1/prices"
NONE = {"worker_hour": None, "target_hour": None, "credit": None, "currency": "USD"}


async def made_with(api: httpx.AsyncClient, web: Web, **more: Any) -> dict[str, Any]:
    import json

    made = await api.post("/api/v1/runs", json={"document": json.loads(document(web, **more))})
    assert made.status_code == 201, made.text
    shown = await api.get(made.headers["Location"])
    prices: dict[str, Any] = shown.json()["config"]["plan"]["prices"]
    return prices


async def test_a_run_keeps_the_prices_of_its_day(api: httpx.AsyncClient, furnished: Web) -> None:
    first = {"worker_hour": 0.5, "target_hour": 2.0, "credit": 3.0, "currency": "EUR"}
    assert (await api.get(PRICES)).json() == NONE
    assert (await api.put(PRICES, json=first)).json() == first
    made = await api.post("/api/v1/runs", json={"template": "kept"})
    await api.put(PRICES, json={"worker_hour": 9})

    config = (await api.get(made.headers["Location"])).json()["config"]

    assert config["plan"]["prices"] == first
    planned = await api.post("/api/v1/templates/plan", json={"template": "kept"})
    assert (planned.status_code, planned.json()["estimated_cost"] is None) == (200, False), planned.text
    assert await made_with(api, furnished) == {**NONE, "worker_hour": 9.0}
    assert await made_with(api, furnished, prices={"target_hour": 1}) == {**NONE, "target_hour": 1.0}
    assert (await api.put(PRICES, json={})).json() == (await api.get(PRICES)).json() == NONE


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"worker_hour": -1}, "worker_hour"),
        ({"target_hour": False}, "target_hour"),
        ({"target_hour": "2"}, "target_hour"),
        ({"currency": "a b"}, "currency"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
async def test_what_is_no_price_is_refused(api: httpx.AsyncClient, body: dict[str, Any], field: str) -> None:
    answer = await api.put(PRICES, json=body)

    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["errors"]] == [field]
