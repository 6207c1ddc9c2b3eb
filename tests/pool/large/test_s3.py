"""Large payloads and results as objects of S3-compatible servers."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

pytest.importorskip("obstore", reason="needs the extra drumbeat[s3]")

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import InvalidSettings, LargeLost, LargeUnavailable
from drumbeat.pool.large.place import LargePlace
from drumbeat.pool.large.s3 import S3Place
from drumbeat.pool.large.sweep import sweep
from drumbeat.pool.large.values import LargeValues
from drumbeat.pool.plugins import PoolPlugins
from drumbeat.pool.service import Pool
from drumbeat.store.memory import MemoryStore
from servers.s3 import S3Server, moto_server, own_server

KEY = "s/n-p/n-j/payload-1.json"


@pytest.fixture(scope="module", params=["own", "moto"])
def server(request: pytest.FixtureRequest) -> Iterator[S3Server]:
    if request.param == "moto":
        pytest.importorskip("moto", reason="moto is not installed")
    with own_server() if request.param == "own" else moto_server() as found:
        yield found


@pytest.fixture
def place(server: S3Server) -> S3Place:
    return S3Place(f"s3://{server.new_bucket()}/some/prefix?endpoint={server.endpoint}&region=us-east-1")


async def keys(place: LargePlace, after: str = "") -> list[str]:
    return [value.key async for value in place.list("s/", after)]


async def test_a_value_is_written_listed_read_and_deleted(place: S3Place) -> None:
    other = KEY.replace("1", "2")
    await place.write(KEY, b"abc")
    await place.write(other, b"d")

    assert await place.read(KEY, 3) == b"abc"
    assert await place.read(KEY, 1) == b"ab"
    assert await keys(place) == [KEY, other]
    assert await keys(place, after=KEY) == [other]
    await place.delete(KEY)
    await place.delete(KEY)
    assert await keys(place) == [other]
    with pytest.raises(LargeLost, match="has no object"):
        await place.read(KEY, 3)


async def test_payloads_and_results_go_to_the_bucket_and_come_back(place: S3Place) -> None:
    store, clock = MemoryStore(SystemClock()), SystemClock()
    values = LargeValues(place=place, store=store, clock=clock, max_inline=1024)
    pool = Pool(store, clock, "a pool: é", "test", plugins=PoolPlugins(large=values))
    job_id = await pool.push("x" * 5000, job_id="some/id")
    job = await pool.claim()
    assert job is not None
    await pool.complete(job, job.payload.upper())

    assert await pool.result(job_id) == "X" * 5000
    assert (await sweep(values, timedelta())).deleted == 0
    await pool.delete()
    assert (await sweep(values, timedelta())).checked == 0


async def test_a_bucket_that_does_not_exist_is_an_error_of_one_line(server: S3Server) -> None:
    place = S3Place(f"s3://nowhere?endpoint={server.endpoint}&region=us-east-1")

    with pytest.raises(LargeUnavailable, match="cannot write a large value to bucket nowhere") as caught:
        await place.write(KEY, b"abc")
    assert "\n" not in str(caught.value)


async def test_requests_are_signed() -> None:
    """Our own server refuses a request without a signature, and accepts those of the client."""
    with own_server() as server:
        bucket = server.new_bucket()
        place = S3Place(f"s3://{bucket}?endpoint={server.endpoint}&region=us-east-1")
        await place.write(KEY, b"abc")

        with pytest.raises(HTTPError, match="403"):
            await asyncio.to_thread(urlopen, f"{server.endpoint}/{bucket}/{KEY}")
        assert await place.read(KEY, 3) == b"abc"


def test_an_unknown_option_of_the_url_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="expected only the options endpoint, region, got 'endpiont'"):
        S3Place("s3://bucket?endpiont=http://localhost")
