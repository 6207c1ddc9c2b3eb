"""End-to-end tests run on each durable store."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drumbeat.store import open_store


@pytest.fixture(params=["sqlite", "postgres"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new store of each kind, with its tables."""
    if request.param == "sqlite":
        address = f"sqlite:///{tmp_path}/drumbeat.db"
    else:
        new_database: Callable[[], str] = request.getfixturevalue("new_database")
        address = new_database()
    async with open_store(address, create=True):
        pass
    return address
