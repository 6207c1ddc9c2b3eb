"""Runs beats (passes that start, reap or scale workers) in AWS Lambda.

Set the function's handler to ``drumbeat.adapters.aws_lambda.handler``, and its environment variable DRUMBEAT_STORE to the
URL of the store.
"""

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.pool import PoolId, PoolKind
from drumbeat.settings import load_settings
from drumbeat.triggers.model import BeatKind, Firing

_SPARE = timedelta(seconds=5)  #: reserved at the end of the function's time limit for sending the answer


def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    """Run the beat that an event asks for, and return the beat's report (for an HTTP request: the response).

    The event is a direct call, an EventBridge event, or a signed HTTP request to /triggers/NAME.

    Workers that run in the function end when it ends, so after a check of job pools it waits for these workers, at most until
    its time limit. It does not wait for workers of engines elsewhere, which go on without it, nor for the workers of a fleet,
    which run until they are told to stop. If jobs
    take longer, let the function only mark workers lost (reap), and start the workers (check) from another machine.
    """
    return asyncio.run(_answer(event, context))


async def _answer(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    fired: list[Firing] = []
    async with open_control_plane(load_settings(os.environ)) as plane:
        answer = await plane.answer_event(event, fired.append)
        if any(firing.machine is BeatKind.CHECKER for firing in fired):
            report = json.loads(answer["body"]) if "statusCode" in answer else answer
            await _stay(plane, report.get("beats", {}), _time_left(context))
    return answer


async def _stay(plane: ControlPlane, pool_ids: Iterable[str], time_left: timedelta) -> None:
    """Wait until no worker of these pools runs in this function, at most for ``time_left``. Does not wait for fleets' pools."""
    deadline = plane.clock.elapsed() + time_left
    for pool_id in pool_ids:
        pool, left = await plane.store.pools.find(PoolId(pool_id)), deadline - plane.clock.elapsed()
        if left > timedelta() and pool is not None and pool.kind is PoolKind.JOBS and not pool.is_scaled:
            await plane.checker().stay(pool.pool_id, left)


def _time_left(context: Any) -> timedelta:
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    return timedelta(milliseconds=remaining()) - _SPARE if remaining else timedelta(minutes=10)
