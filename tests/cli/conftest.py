"""Stores for commands to read."""

from pathlib import Path

import pytest

from cli.given import make_store, nothing, scene


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Where a SQLite store may be made."""
    return f"sqlite:///{tmp_path}/drumbeat.db"


@pytest.fixture
def empty(url: str) -> str:
    make_store(url, nothing)
    return url


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with something in every table, for reading only."""
    url = f"sqlite:///{tmp_path_factory.mktemp('scene')}/drumbeat.db"
    make_store(url, scene)
    return url
