"""What the API and the pages share while a server runs."""

import asyncio
from dataclasses import dataclass

from drumbeat.control_plane import ControlPlane
from drumbeat.core.clock import Clock
from drumbeat.web.settings import WebSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """One server: its control plane, its settings, and the group its background work belongs to."""

    plane: ControlPlane
    settings: WebSettings
    clock: Clock
    group: asyncio.TaskGroup  #: what is started in it ends with the server
