"""The throughput controller against a simulated fleet: 100 seeds, noise, a latency three times as long, a lost worker."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from drumbeat.bench.model import LoadMode, QpsPlan, RunPlan, Scaling, ScalingMode
from simulate.bench_qps import PacedFleet
from thorough import some

SEEDS = range(some(100))
SETTLED = 8  #: intervals
WATCHED = 22


def fleet(seed: int, *, catches_up: bool = False, cap: int = 1000, workers: int = 1) -> PacedFleet:
    """A target and a latency by the seed; the database always has capacity beyond need."""
    random = Random(seed)
    target = random.choice([20.0, 100.0, 500.0, 2000.0, 5000.0])
    latency = random.uniform(0.0005, 0.02) if target > 1000 else random.uniform(0.001, 0.1)
    scaling = Scaling(min_workers=workers, min_connections=random.randint(1, 5), cap=cap)
    plan = RunPlan(load_mode=LoadMode.QPS, connections=None, scaling=scaling, qps=QpsPlan(target_qps=target))
    return PacedFleet(plan=plan, latency=latency, seed=seed, catches_up=catches_up)


def off_target(simulated: PacedFleet, happens: Callable[[], object] = lambda: None) -> list[float]:
    """Throughputs outside the deadband, from when it must have settled after what happens."""
    simulated.run((simulated.seed % 5) / 5)
    then = simulated.now
    happens()
    simulated.run(WATCHED)
    plan = simulated.plan.qps
    return [seen for seen in simulated.throughput(then)[SETTLED:] if abs(seen - plan.target_qps) > plan.tolerance]


def triple(simulated: PacedFleet) -> None:
    simulated.latency *= 3


@pytest.mark.parametrize("catches_up", [False, True], ids=["drops what is overdue", "catches up"])
def test_it_settles_in_the_deadband_within_eight_intervals_and_stays_there(catches_up: bool) -> None:
    wrong = {}
    for seed in SEEDS:
        simulated = fleet(seed, catches_up=catches_up, workers=2 + seed % 3)
        wrong[seed, "start"] = off_target(simulated)
        wrong[seed, "latency"] = off_target(simulated, lambda: triple(simulated))  # noqa: B023
        wrong[seed, "loss"] = off_target(simulated, simulated.lose)

    assert {what: seen for what, seen in wrong.items() if seen} == {}


def test_it_settles_as_quickly_when_that_takes_more_workers() -> None:
    """Where overdue operations are dropped. Where they are caught up on it takes longer, as the module says."""
    wrong, most = {}, 0
    for seed in SEEDS:
        simulated = fleet(seed, cap=12)
        wrong[seed, "start"] = off_target(simulated)
        wrong[seed, "latency"] = off_target(simulated, lambda: triple(simulated))  # noqa: B023
        most = max(most, len(simulated.workers))

    assert {what: seen for what, seen in wrong.items() if seen} == {}
    assert most > 10


def test_it_gives_back_what_it_does_not_need_and_stays_on_target() -> None:
    for seed in range(20):
        simulated = fleet(seed, workers=2)
        plan = replace(simulated.plan, qps=replace(simulated.plan.qps, starting_connections=600))
        generous = PacedFleet(plan=plan, latency=simulated.latency, seed=seed)
        assert off_target(generous) == []

        generous.run(20)

        enough = generous.latency * plan.qps.target_qps
        least = plan.scaling.min_connections * 2
        assert enough < generous.state.connections <= max(least, 2 * (enough + 2) + 2)
        assert {step.outcome for step in generous.steps} == {"ON_TARGET"}


def test_a_database_that_gives_no_more_is_not_given_ever_more_workers() -> None:
    simulated = fleet(3, cap=10)
    simulated.plan = replace(simulated.plan, qps=QpsPlan(target_qps=1000))
    simulated.latency, simulated.most_at_once = 0.1, 20

    simulated.run(100)

    assert any("more workers brought no more" in reason for reason in simulated.reasons)
    assert simulated.finish is None
    assert 2 <= len(simulated.workers) <= 30


def test_a_target_beyond_the_bounds_ends_the_run() -> None:
    simulated = fleet(3, cap=10)
    scaling = Scaling(mode=ScalingMode.BOUNDED, max_workers=3, cap=10)
    simulated.plan = replace(simulated.plan, scaling=scaling, qps=QpsPlan(target_qps=1000))
    simulated.latency = 0.1

    simulated.run(100)

    assert simulated.finish is not None
    assert simulated.finish.completion_reason == "BOUNDS_LIMIT_REACHED"
    assert simulated.finish.result["achieved_qps"] == pytest.approx(300, rel=0.1)
    assert (simulated.finish.result["max_workers"], simulated.finish.result["max_connections"]) == (3, 10)
    assert simulated.now - simulated.seconds[0].at < timedelta(seconds=60)
