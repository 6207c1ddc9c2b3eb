"""A stream for each run and each pool: WebSocket and server-sent events."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, WebSocket
from fastapi.responses import StreamingResponse

from drumbeat.core.pool import PoolId
from drumbeat.core.run import RunId
from drumbeat.web.api.entry import PREFIX, InHouse
from drumbeat.web.app_state import AppState
from drumbeat.web.feeds import Feed
from drumbeat.web.feeds_pool import pool_feed
from drumbeat.web.feeds_run import run_feed
from drumbeat.web.stream import events, or_refused, stream

router = APIRouter(tags=["streams"])


@router.websocket(f"{PREFIX}/runs/{{run_id}}/stream")
async def run_stream(websocket: WebSocket, run_id: str, house: InHouse) -> None:
    """RUN_UPDATE each second, until the run has ended. What is sent here is not listened to."""
    feed = await or_refused(websocket, _run_feed(house, run_id))
    if feed is not None:
        await stream(websocket, feed)


@router.websocket(f"{PREFIX}/pools/{{pool_id}}/stream")
async def pool_stream(websocket: WebSocket, pool_id: str, house: InHouse) -> None:
    """POOL_UPDATE each second."""
    feed = await or_refused(websocket, _pool_feed(house, pool_id))
    if feed is not None:
        await stream(websocket, feed)


LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]


@router.get(f"{PREFIX}/runs/{{run_id}}/events-stream", include_in_schema=False)
async def run_events(run_id: str, house: InHouse, last_event_id: LastEventId = None) -> StreamingResponse:
    """The same as server-sent events. With Last-Event-ID no log line is told twice; none is left out of the last 1000 that this
    server has read, which are the last 500 when it has just begun to."""
    return events(await _run_feed(house, run_id), last_event_id)


@router.get(f"{PREFIX}/pools/{{pool_id}}/events-stream", include_in_schema=False)
async def pool_events(pool_id: str, house: InHouse, last_event_id: LastEventId = None) -> StreamingResponse:
    return events(await _pool_feed(house, pool_id), last_event_id)


async def _run_feed(house: AppState, run_id: str) -> Feed[Any]:
    """Raises NotFound."""
    await house.plane.store.runs.get(RunId(run_id))
    return run_feed(house.feeds, house.plane, RunId(run_id))[0]


async def _pool_feed(house: AppState, pool_id: str) -> Feed[Any]:
    """Raises NotFound."""
    await house.plane.store.pools.get(PoolId(pool_id))
    return pool_feed(house.feeds, house.plane, PoolId(pool_id))
