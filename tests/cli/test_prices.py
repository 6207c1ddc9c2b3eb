"""drumbeat bench prices: shown, set one by one, forgotten."""

import json
from pathlib import Path

import pytest

from cli.given import invoke


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/drumbeat.db"


def test_prices_are_set_one_by_one_shown_and_forgotten(store: str) -> None:
    invoke("bench", "prices", "--worker-hour", "0.5", store=store)
    invoke("bench", "prices", "--target-hour", "2", "--currency", "EUR", store=store)
    invoke("bench", "prices", "--credit", "3", store=store)

    shown = invoke("bench", "prices", store=store)
    told = json.loads(invoke("bench", "prices", "--json", store=store).output)
    forgotten = invoke("bench", "prices", "--forget", store=store)

    assert shown.output.strip() == "worker: 0.5 EUR per hour; database: 2 EUR per hour; Snowflake: 3 EUR per credit"
    assert told == {"worker_hour": 0.5, "target_hour": 2.0, "credit": 3.0, "currency": "EUR"}
    assert forgotten.output.strip() == "worker: no price; database: no price"
