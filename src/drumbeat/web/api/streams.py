"""Live streams of runs and pools, over WebSocket and as server-sent events."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, WebSocket
from fastapi.responses import StreamingResponse

from drumbeat.core.pool import PoolId
from drumbeat.core.run import RunId
from drumbeat.web.api.entry import PREFIX, CalledBy, State
from drumbeat.web.app_state import AppState
from drumbeat.web.feeds import Feed
from drumbeat.web.feeds_pool import pool_feed
from drumbeat.web.feeds_run import run_feed
from drumbeat.web.stream import events, feed_or_refuse, stream

router = APIRouter(tags=["streams"])


@router.websocket(f"{PREFIX}/runs/{{run_id}}/stream")
async def run_stream(websocket: WebSocket, run_id: str, state: State, caller: CalledBy) -> None:
    """Send a RUN_UPDATE message each second until the run has ended. Messages from the client are ignored."""
    feed = await feed_or_refuse(websocket, _run_feed(state, run_id))
    if feed is not None:
        await stream(websocket, feed, caller)


@router.websocket(f"{PREFIX}/pools/{{pool_id}}/stream")
async def pool_stream(websocket: WebSocket, pool_id: str, state: State, caller: CalledBy) -> None:
    """Send a POOL_UPDATE message each second."""
    feed = await feed_or_refuse(websocket, _pool_feed(state, pool_id))
    if feed is not None:
        await stream(websocket, feed, caller)


LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]


@router.get(f"{PREFIX}/runs/{{run_id}}/events-stream", include_in_schema=False)
async def run_events(run_id: str, state: State, caller: CalledBy, last_event_id: LastEventId = None) -> StreamingResponse:
    """Stream a run as server-sent events. A client that reconnects with Last-Event-ID gets the log lines after that event,
    each once, but only from the last 1000 lines that the server has read (500 if it has just started to read)."""
    return events(await _run_feed(state, run_id), last_event_id, caller)


@router.get(f"{PREFIX}/pools/{{pool_id}}/events-stream", include_in_schema=False)
async def pool_events(pool_id: str, state: State, caller: CalledBy, last_event_id: LastEventId = None) -> StreamingResponse:
    return events(await _pool_feed(state, pool_id), last_event_id, caller)


async def _run_feed(state: AppState, run_id: str) -> Feed[Any]:
    """Return the live updates of a run. Raises NotFound."""
    await state.plane.store.runs.get(RunId(run_id))
    return run_feed(state.feeds, state.plane, RunId(run_id))[0]


async def _pool_feed(state: AppState, pool_id: str) -> Feed[Any]:
    """Return the live updates of a pool. Raises NotFound."""
    await state.plane.store.pools.get(PoolId(pool_id))
    return pool_feed(state.feeds, state.plane, PoolId(pool_id))
