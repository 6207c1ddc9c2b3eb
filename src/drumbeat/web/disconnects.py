"""Browsers that leave amid loading: nobody waits for the answer, and nothing went wrong."""

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_LEFT = "drumbeat.left"  #: in a request's scope: says so once the other end is gone

log = logging.getLogger(__name__)


class DisconnectMiddleware:
    """Stands before the application: what fails for want of somebody to answer is no error of ours."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[_LEFT] = left = {"is": False}

        async def heard() -> Message:
            message = await receive()
            left["is"] = left["is"] or message["type"] == "http.disconnect"
            return message

        try:
            await self._app(scope, heard, send)
        except Exception as exc:
            if not is_for_nobody(scope, exc):
                raise
            log.debug("nobody waits for %s any more", scope["path"][:200])


def is_for_nobody(scope: Mapping[str, Any], error: Exception) -> bool:
    """Whether an error says no more than that the other end was gone before there was an answer (Starlette's words)."""
    is_of_leaving = isinstance(error, ClientDisconnect) or str(error) == "No response returned."
    return bool(scope.get(_LEFT, {}).get("is")) and is_of_leaving
