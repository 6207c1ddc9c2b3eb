"""The objects that the API and the pages share while a server runs."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import Clock
from drumbeat.web.feeds import Feeds
from drumbeat.web.run_warnings import RunWarnings
from drumbeat.web.settings import WebSettings
from drumbeat.web.verdicts import Verdicts

if TYPE_CHECKING:
    from drumbeat.composition.plane import Pool, TriggerService


@dataclass(frozen=True, slots=True, kw_only=True)
class AppState:
    """The shared objects of a running server: control plane, settings, background tasks and live updates."""

    plane: ControlPlane
    settings: WebSettings
    clock: Clock
    group: asyncio.TaskGroup  #: background tasks; they end when the server stops
    triggers: "TriggerService | None" = None  #: triggers of this server's trigger file; None: no file
    on_push: Callable[[str], Awaitable[Sequence[str]]] | None = None  #: fires triggers after a push to a pool
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)  #: held during a simulation, so that only one runs at a time
    feeds: Feeds = field(init=False)  #: live updates of runs and pools, each read once for all viewers
    verdicts: Verdicts = field(init=False)
    run_warnings: RunWarnings = field(default_factory=RunWarnings, init=False)
    _started: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "feeds", Feeds(clock=self.clock, group=self.group))
        object.__setattr__(self, "verdicts", Verdicts(self.plane))

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background. It is cancelled when the server stops. An error that it raises stops the server."""
        task = self.group.create_task(work)
        self._started.add(task)
        task.add_done_callback(self._started.discard)

    def close(self) -> None:
        """End the live updates and the work in the background."""
        self.feeds.close()
        for task in tuple(self._started):
            task.cancel()

    def pool(self, name: str) -> "Pool":
        """Return a job pool, for changes that let jobs run: they fire the triggers that start workers."""
        return self.plane.pool(name, self.on_push)

    def fingerprint(self, request: bytes) -> str:
        """Return a hash of a request, keyed with DRUMBEAT_KEY if it is set, so that the hash does not reveal the request."""
        return self.plane.vault().fingerprint(request)
