"""Controllers that die at any call, a provider that lies, clocks that jump: some of the runs of benchmarks/fleet_faults.py."""

import pytest

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.runpod import RunPodSpawner
from simulate.fleet_world import judged


@pytest.mark.parametrize("seed", range(36))
def test_whatever_goes_wrong_everything_comes_right(seed: int) -> None:
    verdict = judged(seed)

    assert verdict.wrong == []
    assert verdict.beats > 5


def test_a_seed_tells_the_same_story_twice() -> None:
    assert judged(7) == judged(7)


def test_pods_that_nobody_ends_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(self: RunPodSpawner, pool_id: PoolId, worker_id: WorkerId) -> None:
        return None

    monkeypatch.setattr(RunPodSpawner, "terminate", forget)
    monkeypatch.setattr("simulate.fleet_crew.Crew.end", lambda self, pod: None)

    wrong = [fault for seed in range(4) for fault in judged(seed).wrong]

    assert any(fault.startswith(("orphans", "not over")) for fault in wrong)
