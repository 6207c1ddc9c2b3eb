"""What the API and the pages share while a server runs."""

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
    """One server: its control plane, its settings, and the group its background work belongs to."""

    plane: ControlPlane
    settings: WebSettings
    clock: Clock
    group: asyncio.TaskGroup  #: what is started in it ends with the server
    triggers: "TriggerService | None" = None  #: those of the file this server keeps
    wake: Callable[[str], Awaitable[Sequence[str]]] | None = None  #: pulls those of them that wait for work in a pool
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)  #: held while something long is computed: one at a time
    feeds: Feeds = field(init=False)  #: what is watched, read once for everybody who watches
    verdicts: Verdicts = field(init=False)  #: how runs stand

    def __post_init__(self) -> None:
        object.__setattr__(self, "feeds", Feeds(clock=self.clock, group=self.group))
        object.__setattr__(self, "verdicts", Verdicts(self.plane))

    async def work_added(self, pool_id: str) -> Sequence[str]:
        """Say that a pool has new work. Answers with the triggers that were pulled for it; never raises for them."""
        return () if self.wake is None else await self.wake(pool_id)

    def fingerprint(self, request: bytes) -> str:
        """The same for the same request; where there is a key in DRUMBEAT_KEY, of no use to whoever guesses at a request."""
        return self.plane.vault().fingerprint(request)
