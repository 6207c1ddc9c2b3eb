"""Over Redis, which keeps no benchmarks: pools are served, and what is not there is said."""

from pathlib import Path

import pytest

from drumbeat.web.pages.overview import read_overview
from drumbeat.web.settings import WebSettings
from servers.places import memory_folder
from servers.redis import RedisServer, Unavailable
from web.given import web


async def test_a_server_over_redis_serves_pools_and_says_what_it_lacks(tmp_path: Path) -> None:
    try:
        server = RedisServer(folder=memory_folder())
    except Unavailable as exc:
        pytest.skip(f"Redis is not available: {exc}")
    with server:
        async with web(tmp_path, WebSettings(), store=server.new_database()) as made:
            await made.plane.pool("mail").push({"n": 1})
            async with made.client() as client:
                pools, runs, figures = [await client.get(path) for path in ("/api/v1/pools", "/api/v1/runs", "/metrics")]
            overview = await read_overview(made.state)

    assert (pools.status_code, [each["pool_id"] for each in pools.json()]) == (200, ["mail"])
    assert (runs.status_code, "Redis cannot store benchmarks" in runs.json()["detail"]) == (409, True)
    assert (figures.status_code, "drumbeat_jobs" in figures.text) == (200, True)
    assert ([each.pool.pool_id for each in overview.pools], overview.runs) == (["mail"], ())
