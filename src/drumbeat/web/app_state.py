"""The state that the API and the pages share while a server runs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import Clock
from drumbeat.web.feeds import Feeds
from drumbeat.web.settings import WebSettings
from drumbeat.web.verdicts import Verdicts

if TYPE_CHECKING:
    from drumbeat.composition.plane import TriggerService


@dataclass(frozen=True, slots=True, kw_only=True)
class AppState:
    """One server: its control plane, its settings, and the task group of its background work."""

    plane: ControlPlane
    settings: WebSettings
    clock: Clock
    group: asyncio.TaskGroup  #: its tasks end with the server
    triggers: "TriggerService | None" = None  #: of this server's trigger file; None: it has no file
    wake: Callable[[str], Awaitable[Sequence[str]]] | None = None  #: fires the triggers that a push to a pool fires
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)  #: held during a simulation: one at a time
    feeds: Feeds = field(init=False)  #: live updates of runs and pools, each read once for all viewers
    verdicts: Verdicts = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "feeds", Feeds(clock=self.clock, group=self.group))
        object.__setattr__(self, "verdicts", Verdicts(self.plane))

    async def work_added(self, pool_id: str) -> Sequence[str]:
        """Fire the triggers that a push to a pool fires. Returns their names. Their errors are logged, not raised."""
        return () if self.wake is None else await self.wake(pool_id)

    def fingerprint(self, request: bytes) -> str:
        """A hash of a request, keyed if DRUMBEAT_KEY is set, so that the request cannot be guessed from it."""
        return self.plane.vault().fingerprint(request)
