"""AWS Lambda: set ``drumbeat.adapters.aws_lambda.handler`` as the handler, with DRUMBEAT_STORE in the environment."""

import asyncio
import json
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.pool import PoolId
from drumbeat.settings import load_settings

_SPARE = timedelta(seconds=5)  #: left of the function's time, to answer in


def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    """Run the beat an event asks for: a direct call, EventBridge's, or a signed HTTP request to /triggers/NAME.

    Processes end with the function, so it stays for the workers it started as long as it has time. Where jobs outlast that,
    have it reap only, and check from where workers can live.
    """
    return asyncio.run(_answer(event, _time_left(context)))


async def _answer(event: Mapping[str, Any], time_left: timedelta) -> Mapping[str, Any]:
    async with open_control_plane(load_settings(os.environ)) as plane:
        answer = await plane.answer_event(event)
        await _stay(plane, answer, time_left)
    return answer


async def _stay(plane: ControlPlane, answer: Mapping[str, Any], time_left: timedelta) -> None:
    told = json.loads(answer["body"]) if "statusCode" in answer else answer
    for pool_id in told.get("beats", {}):
        await plane.checker().stay(PoolId(pool_id), time_left)


def _time_left(context: Any) -> timedelta:
    ask = getattr(context, "get_remaining_time_in_millis", None)
    return max(timedelta(milliseconds=ask()) - _SPARE, timedelta()) if ask else timedelta(minutes=10)
