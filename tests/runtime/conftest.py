"""A world for every test."""

import pytest

from runtime.given import FakeWorkload, World


@pytest.fixture
async def world() -> World:
    """A store with a pool that is not a run's."""
    return await World().with_pool()


@pytest.fixture
async def run_world() -> World:
    """A store with a run that is prepared."""
    return await World().with_run()


@pytest.fixture
def workload(world: World) -> FakeWorkload:
    return FakeWorkload(clock=world.clock)
