from pathlib import Path

import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import ManualClock
from drumbeat.settings import Settings
from drumbeat.store.memory import MemoryStore
from web.stream.scene import Scene


@pytest.fixture
def plane(store: MemoryStore, clock: ManualClock, tmp_path: Path) -> ControlPlane:
    return ControlPlane(Settings(store="memory://", state_dir=tmp_path), store, clock)


@pytest.fixture
async def scene(store: MemoryStore, clock: ManualClock) -> Scene:
    return Scene(store, clock)
