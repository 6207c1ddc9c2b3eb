"""Suppresses errors that only say that the client disconnected before it was answered."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

App = Callable[[Scope, Receive, Send], Awaitable[None]]

_CLIENT = "drumbeat.client"  #: key in a request's scope: whether the client has disconnected

log = logging.getLogger(__name__)


class DisconnectMiddleware:
    """Wraps the application and drops errors caused by a client that disconnected."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[_CLIENT] = client = {"gone": False}

        async def watched_receive() -> Message:
            message = await receive()
            client["gone"] = client["gone"] or message["type"] == "http.disconnect"
            return message

        try:
            await self._app(scope, watched_receive, send)
        except Exception as exc:
            if not is_disconnect(scope, exc):
                raise
            log.debug("client disconnected before %s was answered", scope["path"][:200])


def is_disconnect(scope: Mapping[str, Any], error: Exception) -> bool:
    """Whether the client has disconnected and the error only reports this, so that it need not be logged as a failure."""
    says_so = isinstance(error, ClientDisconnect) or str(error) == "No response returned."
    return bool(scope.get(_CLIENT, {}).get("gone")) and says_so
