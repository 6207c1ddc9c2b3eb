"""Runs beats (passes that start, reap or scale workers) in AWS Lambda.

Set the function's handler to ``drumbeat.adapters.aws_lambda.handler``, and its environment variable DRUMBEAT_STORE to the
URL of the store.
"""

import asyncio
import json
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.pool import PoolId
from drumbeat.settings import load_settings

_SPARE = timedelta(seconds=5)  #: kept free at the end of the function's time limit, to send the answer


def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    """Run the beat that an event asks for, and return the beat's report (for an HTTP request: the response).

    The event is a direct call, an EventBridge event, or a signed HTTP request to /triggers/NAME.

    Workers that the function starts end when the function ends, so it waits for them, at most until its time limit. If jobs
    take longer, let the function only mark workers lost (reap), and start the workers (check) from another machine.
    """
    return asyncio.run(_answer(event, _time_left(context)))


async def _answer(event: Mapping[str, Any], time_left: timedelta) -> Mapping[str, Any]:
    async with open_control_plane(load_settings(os.environ)) as plane:
        answer = await plane.answer_event(event)
        await _stay(plane, answer, time_left)
    return answer


async def _stay(plane: ControlPlane, answer: Mapping[str, Any], time_left: timedelta) -> None:
    report = json.loads(answer["body"]) if "statusCode" in answer else answer
    for pool_id in report.get("beats", {}):
        await plane.checker().stay(PoolId(pool_id), time_left)


def _time_left(context: Any) -> timedelta:
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    return max(timedelta(milliseconds=remaining()) - _SPARE, timedelta()) if remaining else timedelta(minutes=10)
