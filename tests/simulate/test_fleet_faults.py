"""Controllers that die at any call, a provider that lies, clocks that jump: some of the runs of benchmarks/fleet_faults.py."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.runpod import RunPodSpawner
from simulate import fleet_sabotage as sabotage
from simulate.fleet_verdict import judged
from thorough import some


@pytest.mark.parametrize("seed", range(some(30)))
def test_whatever_goes_wrong_everything_comes_right(seed: int) -> None:
    verdict = judged(seed)

    assert verdict.wrong == []
    assert verdict.beats > 5


def test_a_seed_tells_the_same_story_twice() -> None:
    assert judged(7) == judged(7)


@pytest.mark.parametrize(
    ("taken_away", "seeds", "found"),
    [
        (sabotage.money_limit, (1, 2, 3, 4), ("bought without money", "passed the ceiling")),
        (sabotage.reserve_for_new_workers, (2, 3, 4, 8), ("bought without money",)),
        (sabotage.reserve_for_starting_workers, (3, 23, 58), ("bought without money", "passed the ceiling")),
        (sabotage.fencing, (11, 15, 18), ("written while another led",)),
        (sabotage.pool_of_a_holder, (0, 3), ("foreign", "taken from the living")),
        (sabotage.listing_before_a_retry, (6, 10), ("spawned twice",)),
        (sabotage.looking_twice, (14, 52, 63), ("sent away in haste",)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_safeguard_that_is_taken_away_is_missed(
    taken_away: Callable[[pytest.MonkeyPatch], None],
    seeds: Sequence[int],
    found: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With it these runs are as promised, or the benchmark would say so."""
    taken_away(monkeypatch)

    assert any(fault.startswith(found) for seed in seeds for fault in judged(seed).wrong)


def test_pods_that_nobody_ends_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(self: RunPodSpawner, pool_id: PoolId, worker_id: WorkerId) -> None:
        return None

    monkeypatch.setattr(RunPodSpawner, "terminate", forget)
    monkeypatch.setattr("simulate.fleet_crew.Crew.end", lambda self, pod: None)
    monkeypatch.setattr("simulate.fleet_verdict.SETTLES_WITHIN", timedelta(minutes=30))

    assert any(fault.startswith(("orphans", "not over")) for fault in judged(2).wrong)
