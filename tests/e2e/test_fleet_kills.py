"""Controllers and workers killed with SIGKILL: some of the runs of benchmarks/fleet_kills.py."""

from pathlib import Path

import pytest

from e2e.fleet_kills import Ground, fought
from thorough import some

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(some(4)))
async def test_whoever_is_killed_every_job_is_done_once_and_nobody_is_left(seed: int, tmp_path: Path) -> None:
    toll = await fought(seed, Ground(tmp_path))

    assert toll.wrong == []
    assert toll.controllers + toll.workers > 0
