"""Applications for the web's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from web.given import KEY, LOCKED, READ_TOKEN, TOKEN, Web, bearer, furnish, web


@pytest.fixture(scope="module")
async def furnished(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Web]:
    """A furnished application, open to this machine; its tests bear one another's rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRUMBEAT_KEY", KEY)
        async with web(tmp_path_factory.mktemp("web")) as made:
            await furnish(made)
            yield made


@pytest.fixture
async def api(furnished: Web) -> AsyncIterator[httpx.AsyncClient]:
    async with furnished.client() as client:
        yield client


@pytest.fixture
async def locked(tmp_path: Path) -> AsyncIterator[Web]:
    """An application that asks for a token."""
    async with web(tmp_path, LOCKED) as made:
        yield made


@pytest.fixture
async def operator(locked: Web) -> AsyncIterator[httpx.AsyncClient]:
    async with locked.client(bearer(TOKEN)) as client:
        yield client


@pytest.fixture
async def reader(locked: Web) -> AsyncIterator[httpx.AsyncClient]:
    async with locked.client(bearer(READ_TOKEN)) as client:
        yield client
