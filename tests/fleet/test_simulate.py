"""Simulations: jobs are served once and in order, cost and wait are what a hand would count, decisions are the real ones."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from drumbeat.core.errors import InvalidInput
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.fleet.simulate import (
    SimulatedLoad,
    SimulatedOrders,
    SimulatedProvider,
    SimulationResult,
    World,
    engine,
    oracle_seconds,
    simulate,
)
from drumbeat.fleet.simulate.draw import as_page, as_svg, as_text
from drumbeat.fleet.simulate.engine import flaps
from drumbeat.fleet.simulate.values import percentile
from drumbeat.fleet.simulate_files import policy_for, simulate_load

HOUR = 3600.0


def load(*jobs: tuple[float, float]) -> SimulatedLoad:
    return SimulatedLoad(arrivals=[at for at, _ in jobs], durations=[lasts for _, lasts in jobs])


def always(count: int) -> Callable[[World], SimulatedOrders]:
    """Starts so many at its first beat, and no more."""
    return lambda world: SimulatedOrders(spawn=() if world.machines else [(f"w{n}", n) for n in range(count)])


def run(jobs: SimulatedLoad, workers: int, lag: float = 10, **around: Any) -> SimulationResult:
    return simulate(jobs, always(workers), SimulatedProvider(spawn_lag=timedelta(seconds=lag), **around), name="always")


def lag_aware(jobs: SimulatedLoad, lag: float = 120, **settings: Any) -> SimulationResult:
    around = SimulatedProvider(spawn_lag=timedelta(seconds=lag))
    return simulate_load(jobs, policy_for("lag_aware", settings), around).outcome


def test_jobs_wait_for_the_start_and_for_each_other() -> None:
    found = run(load((0, 30), (5, 30), (6, 30)), workers=1)

    assert (found.wait_p50_s, found.wait_p99_s) == (35, 64)
    assert found.hours == pytest.approx(100 / HOUR)
    assert found.worker_hours == pytest.approx(100 / HOUR)


def test_paid_time_is_rounded_up_to_the_granule() -> None:
    found = run(load((0, 30)), workers=2, granule=timedelta(seconds=60), price_per_hour=3.0)

    assert found.worker_hours == pytest.approx(2 * 60 / HOUR)
    assert found.cost == pytest.approx(2 * 60 / HOUR * 3)


@pytest.mark.parametrize(
    ("jobs", "leaves"),
    [
        pytest.param([(0, 5), (500, 5)], 60, id="an idle worker that is told at 30 s is paid for until 60 s"),
        pytest.param([(0, 35), (500, 5)], 60, id="one that finishes its job between two beats, too"),
        pytest.param([(0, 65), (500, 5)], 90, id="one that finishes later is paid for until the next beat after that"),
    ],
)
def test_a_worker_is_paid_for_until_the_beat_after_it_has_left(jobs: list[tuple[float, float]], leaves: float) -> None:
    def control(world: World) -> SimulatedOrders:
        if world.now == 30:
            return SimulatedOrders(drain=["w0"])
        return SimulatedOrders(spawn=[(f"w{world.now:.0f}", 0)]) if world.queue and not world.machines else SimulatedOrders()

    found = simulate(load(*jobs), control, SimulatedProvider(spawn_lag=timedelta(seconds=10)), name="told", sleeps=False)

    second = 10 + 5  # it starts for the last job at the beat at 510 s, and all ends with that job
    assert found.spawns == 2
    assert found.worker_hours == pytest.approx((leaves + second) / HOUR)


def test_cold_and_warm_are_told_apart() -> None:
    jobs = load(*[(n * 20.0, 45.0) for n in range(180)])

    found = simulate_load(jobs, policy_for("lag_aware", {}), SimulatedProvider())

    cold, warm = found.outcome, found.warm
    assert warm is not None
    assert (cold.jobs, warm.jobs) == (180, 180)
    assert cold.wait_p99_s > 60 > warm.wait_p99_s, "only the first jobs of all wait for a start"
    assert cold.spawns > warm.spawns
    assert warm.worker_hours == pytest.approx(sum(jobs.durations) / HOUR, rel=0.5)
    assert warm.series.at[0] >= jobs.twice().arrivals[180]
    assert found.figures()["warm"]["jobs"] == 180


def test_a_trace_too_long_to_be_run_twice_has_no_warm_figures() -> None:
    found = simulate_load(load((0, 60), (9e9, 60)), policy_for("lag_aware", {}), SimulatedProvider())

    assert (found.outcome.jobs, found.warm, found.figures()["warm"]) == (2, None, None)


def test_a_worker_takes_as_many_jobs_at_once_as_it_has_places() -> None:
    jobs, around = load(*[(0, 30)] * 4), SimulatedProvider(spawn_lag=timedelta(seconds=10))

    found = simulate(jobs, always(1), around, name="wide", concurrency=4)

    assert found.wait_p99_s == 10


def test_starts_vary_with_jitter_and_a_seed_repeats_them() -> None:
    jobs = load(*[(0, 30)] * 8)
    one, same, other = (run(jobs, 8, jitter=0.5, seed=seed) for seed in (1, 1, 2))

    assert one == same
    assert one.wait_p99_s != other.wait_p99_s
    assert 5 <= one.wait_p50_s <= one.wait_p99_s <= 15


@pytest.mark.parametrize(
    ("jobs", "lag", "paid"),
    [
        pytest.param([(0, 30)], 10, 40, id="a start is paid for"),
        pytest.param([(0, 30), (35, 30)], 10, 75, id="a short gap is kept"),
        pytest.param([(0, 30), (100, 30)], 10, 80, id="over a long gap it is started anew"),
        pytest.param([(0, 30), (10, 30)], 10, 80, id="two at a time need two"),
        pytest.param([(0, 30), (30, 30)], 10, 70, id="one ends as the next comes"),
        pytest.param([(0, 30), (10, 5), (20, 5)], 10, 65, id="the last to get free is taken first"),
    ],
)
def test_the_oracle_pays_busy_time_and_the_shorter_of_gap_and_start(
    jobs: list[tuple[float, float]], lag: float, paid: float
) -> None:
    assert oracle_seconds(load(*jobs), lag) == paid


_JOBS = st.lists(st.tuples(st.floats(0, 5000), st.floats(0.5, 400)), min_size=1, max_size=30)


@settings(max_examples=40)
@given(jobs=_JOBS, lag=st.sampled_from([15, 120, 300]))
def test_every_job_is_served_and_nobody_serves_without_wait_for_less_than_the_oracle(
    jobs: list[tuple[float, float]], lag: float
) -> None:
    found = lag_aware(load(*sorted(jobs)), lag)

    busy = sum(lasts for _, lasts in jobs) / HOUR
    assert found.jobs == len(jobs)
    assert found.worker_hours >= busy - 1e-6
    assert found.oracle_hours >= busy - 1e-6
    assert found.wait_p99_s > 0 or found.worker_hours >= found.oracle_hours - 1e-6


@settings(max_examples=25)
@given(jobs=_JOBS, lag=st.sampled_from([10, 120, 600]))
def test_no_worker_of_lag_aware_lives_for_less_than_two_spawn_lags(jobs: list[tuple[float, float]], lag: float) -> None:
    assert lag_aware(load(*sorted(jobs)), lag).short_lives == 0


def test_a_hint_of_the_service_time_shortens_the_first_waits() -> None:
    jobs = load(*[(n * 0.5, 20.0) for n in range(1000)])

    blind, told = lag_aware(jobs, 300), lag_aware(jobs, 300, expected_service=20)

    assert told.wait_p95_s < blind.wait_p95_s
    assert told.worker_hours < blind.worker_hours * 1.1


def test_a_simulation_keeps_the_policys_bounds() -> None:
    jobs = load(*[(float(n), 60.0) for n in range(200)])

    assert lag_aware(jobs, max_workers=5).most_workers == 5
    assert lag_aware(jobs).most_workers > 5


def test_a_money_ceiling_holds_in_a_simulation() -> None:
    jobs = load(*[(float(n), 60.0) for n in range(100)])
    around = SimulatedProvider(spawn_lag=timedelta(seconds=15), price_per_hour=1.0)

    found = simulate_load(jobs, policy_for("lag_aware", {"max_per_hour": 3}), around).outcome

    assert found.most_workers <= 3
    assert found.cost <= 3 * found.hours + 3


@pytest.mark.parametrize(
    ("settings", "paid", "price"),
    [
        ({}, 100.0, 2.0),
        ({"price_per_hour": 5}, 100.0, 5.0),
        ({"price_per_hour": 0}, 100.0, 0.0),
        ({"billing_granule": "1h"}, HOUR, 2.0),
    ],
)
def test_a_price_and_granule_of_the_policy_come_before_the_providers(
    settings: dict[str, Any], paid: float, price: float
) -> None:
    around = SimulatedProvider(spawn_lag=timedelta(seconds=40), price_per_hour=2.0, granule=timedelta(seconds=1))

    found = simulate_load(load((0, 60)), policy_for("fixed", {"workers": 1, **settings}), around)

    assert found.outcome.worker_hours == pytest.approx(paid / HOUR)
    assert found.outcome.cost == pytest.approx(paid / HOUR * price)


def test_workers_leave_over_a_long_night_and_come_back() -> None:
    found = lag_aware(load((0, 60), (50_000, 60)))

    assert found.spawns == 3, "two at first, while nothing is known"
    assert found.beats < 200, "beats of an empty fleet are left out"
    assert found.worker_hours < 2 * HOUR / HOUR


def test_queue_ratio_keeps_its_two_workers() -> None:
    found = simulate_load(load((0, 60), (7200, 60)), policy_for("queue_ratio", {}), SimulatedProvider()).outcome

    assert found.worker_hours == pytest.approx(2 * found.hours, rel=0.05)


def test_jobs_that_nobody_will_serve_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drumbeat.fleet.simulate.engine.MAX_STALLED_BEATS", 200)
    money = {"price_per_hour": 1.0, "max_per_hour": 0.0}
    policy = FleetPolicy(policy=PolicyName.LAG_AWARE, min_workers=0, max_workers=1, **money)  # type: ignore[arg-type]

    with pytest.raises(InvalidInput, match="1 jobs wait and no worker is started"):
        simulate_load(load((0, 60)), policy, SimulatedProvider())


@pytest.mark.parametrize("settings", [{"max_workers": 0}, {"policy": "fixed", "workers": 0}])
def test_a_policy_that_allows_nobody_is_refused_before_it_begins(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="expected a policy that starts workers, got one that allows 0"):
        simulate_load(load((0, 60)), policy_for(None, settings), SimulatedProvider())


def test_a_simulation_that_would_not_end_is_refused_before_it_begins() -> None:
    with pytest.raises(InvalidInput, match="expected a simulation of at most 1000000 beats, one every 30 s"):
        simulate_load(load((0, 1e9)), policy_for(None, {}), SimulatedProvider())


def test_a_simulation_ends_after_so_many_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MAX_BEATS", 50)

    with pytest.raises(InvalidInput, match="expected a simulation of at most 50 beats"):
        simulate_load(load(*((n * 20, 45) for n in range(100))), policy_for(None, {}), SimulatedProvider())


@pytest.mark.parametrize(("told", "meant"), [(None, "queue_cover"), ("lag_aware", "lag_aware")])
def test_the_files_policy_counts_unless_another_is_told(tmp_path: Path, told: str | None, meant: str) -> None:
    file = tmp_path / "fleet.yml"
    file.write_text("policy: queue_cover\nkeep_idle: 1\n")

    policy = policy_for(told, {}, file)

    assert (policy.policy, policy.keep_idle) == (meant, 1)


@pytest.mark.parametrize("around", [{"spawn_lag": timedelta(days=999)}, {"price_per_hour": float("nan")}])
def test_surroundings_that_cannot_be_are_refused(around: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="at most 366 days and price_per_hour from 0"):
        SimulatedProvider(**around)


@pytest.mark.parametrize(
    ("arrivals", "durations", "message"),
    [
        ([], [], "expected jobs"),
        ([1.0], [], "expected jobs"),
        ([2.0, 1.0], [1.0, 1.0], "order of arrival"),
        ([1.0], [-1.0], "no duration below 0 s"),
        ([float("nan")], [1.0], "expected arrivals"),
        ([1.7e12], [1.0], "at most 1e.10"),
    ],
)
def test_a_load_that_is_none_is_refused(arrivals: list[float], durations: list[float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        SimulatedLoad(arrivals=arrivals, durations=durations)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InvalidInput, match="expected one of fixed, queue_ratio, queue_cover, lag_aware, got the policy 'best'"):
        policy_for("best", {})


def test_a_flap_is_a_turn_within_the_window() -> None:
    assert flaps([(0, 1), (100, -1), (150, 1), (900, -1), (950, -1)], 240) == 2


def test_percentiles_are_nearest_ranks() -> None:
    assert [percentile([1, 2, 3, 4], share) for share in (0.0, 0.5, 0.99)] == [1, 3, 4]
    assert percentile([], 0.5) == 0


def test_a_course_is_drawn() -> None:
    found = run(load((0, 300), (5, 300), (6, 30)), workers=2)

    lines = as_text(found.series, 20)
    assert [line.split()[0] for line in lines] == ["workers", "busy", "queued"]
    assert lines[0].endswith(" 2")
    assert "█" in lines[0]
    assert as_svg(found).startswith("<svg")
    assert "3 jobs" in as_page(found)
