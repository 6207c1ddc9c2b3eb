"""How many workers each policy wants, as tables."""

from datetime import timedelta
from typing import Any

import pytest

from drumbeat.fleet.model import FleetPolicy, PolicyName, QueueView
from drumbeat.fleet.policies import POLICIES, PolicyInput, WorkerLevel
from fleet.given import NOW


def desired(policy: str, *, ready: int = 0, **scene: Any) -> int:
    chosen = FleetPolicy(policy=PolicyName(policy), **scene.pop("rules", {}))
    queue = QueueView(ready=ready, claimed=scene.get("busy", 0) * chosen.concurrency)
    return POLICIES[PolicyName(policy)](PolicyInput(now=NOW, policy=chosen, queue=queue, **scene)).desired


def test_every_policy_has_a_function() -> None:
    assert set(POLICIES) == set(PolicyName)


@pytest.mark.parametrize(
    ("ready", "scene", "expected"),
    [
        (0, {}, 0),
        (1, {}, 1),  # capacity 0 and MIN 0 is no deadlock
        (100, {}, 34),  # the formula counts from the first beat on
        (100, {"starting": 34}, 34),
        (3, {"busy": 1}, 1),  # no trigger, only the difference
        (4, {"busy": 1}, 2),
        (15, {"busy": 5}, 5),
        (0, {"busy": 5}, 0),
    ],
)
def test_queue_ratio_is_the_queue_over_what_a_worker_is_worth(ready: int, scene: dict[str, int], expected: int) -> None:
    assert desired("queue_ratio", ready=ready, **scene) == expected


@pytest.mark.parametrize(
    ("ready", "scene", "rules", "expected"),
    [
        (0, {}, {}, 0),
        (5, {}, {}, 5),
        (5, {"idle": 2, "starting": 1}, {}, 5),  # three are covered, two are added
        (3, {"idle": 2, "starting": 1}, {}, 3),
        (5, {"busy": 4}, {}, 9),
        (0, {"busy": 4}, {"keep_idle": 2}, 6),
        (2, {"busy": 4}, {"keep_idle": 2}, 6),  # buffer and demand are one need
        (40, {}, {"concurrency": 20}, 2),
        (10, {}, {"headroom": 1.5}, 15),
    ],
)
def test_queue_cover_gives_every_job_a_place(ready: int, scene: dict[str, int], rules: dict[str, Any], expected: int) -> None:
    assert desired("queue_cover", ready=ready, rules=rules, **scene) == expected


LAG: dict[str, Any] = {"lag": 120.0, "service": 60.0}


@pytest.mark.parametrize(
    ("ready", "scene", "expected"),
    [
        (0, LAG, 0),
        (1, LAG, 1),
        (6, LAG, 1),  # one worker finds two restarts' worth of work in six
        (13, LAG, 3),
        (1, {**LAG, "busy": 1, "free_in": (30.0,)}, 1),
        (15, {**LAG, "busy": 3, "free_in": (30.0,) * 3}, 3),  # those who are here begin them within three restarts
        (40, {**LAG, "busy": 3, "free_in": (30.0,) * 3}, 6),  # twice those ready by now at most, as long as they get to all
        (4, {**LAG, "busy": 3, "free_in": (30.0,) * 3}, 3),
        (90, {**LAG, "busy": 3, "idle": 1, "starting": 70, "free": 1, "free_in": (30.0,) * 73}, 74),  # enough will be here
        (1, {**LAG, "starting": 1, "free_in": (100.0,)}, 1),
        (6, {**LAG, "steady_rate": 0.04}, 4),  # and eighteen more will have come by the time these are begun
        (0, {**LAG, "steady_rate": 0.04}, 0),
        (0, {**LAG, "coming": 2}, 1),
        (4, {"lag": 120.0, "service": 600.0}, 4),  # jobs that take longer than a restart get a worker each
    ],
)
def test_lag_aware_asks_only_for_whom_it_cannot_wait(ready: int, scene: dict[str, Any], expected: int) -> None:
    assert desired("lag_aware", ready=ready, **scene) == expected


@pytest.mark.parametrize(
    ("ready", "scene", "expected"),
    [
        (1, {}, 2),
        (3, {}, 3),
        (4, {"busy": 1, "free_in": (30.0,)}, 4),
        (3000, {}, 4),
        (3000, {"lag": 600.0}, 4),
        (0, {"coming": 2}, 2),
        (30, {"rules": {"concurrency": 8}}, 4),
        (2, {"rules": {"concurrency": 8}}, 2),
        (0, {}, 0),
    ],
)
def test_lag_aware_bets_few_workers_before_it_knows_how_long_jobs_take(
    ready: int, scene: dict[str, Any], expected: int
) -> None:
    assert desired("lag_aware", ready=ready, **{"lag": 120.0, **scene}) == expected


@pytest.mark.parametrize(
    ("rate", "service", "lag", "expected"),
    [
        (0.001, 60.0, 120.0, 0),  # one that is mostly idle is kept by its gaps, or not at all
        (0.02, 60.0, 120.0, 2),  # 1.2 are kept busy
        (0.1, 60.0, 120.0, 7),
        (1.0, 60.0, 120.0, 61),  # the more, the less is to spare
        (1.0, 4.0, 15.0, 5),
        (0.1, 60.0, 15.0, 7),
        (0.5, 4.0, 120.0, 3),
        (0.5, 4.0, 300.0, 3),  # what flows in is met by work, not by lag
    ],
)
def test_lag_aware_has_enough_for_what_flows_in(rate: float, service: float, lag: float, expected: int) -> None:
    assert desired("lag_aware", rate=rate, service=service, lag=lag) == expected


def test_jobs_that_vary_need_more_to_spare() -> None:
    wanted = [desired("lag_aware", rate=0.1, service=60.0, lag=120.0, variance=spread**2) for spread in (0.0, 60.0, 240.0)]

    assert wanted == sorted(wanted)
    assert wanted[0] < wanted[-1]


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ((), 1),
        (((10, 120),), 2),
        (((200, 120),), 1),
        (((10, 120), (200, 120)), 2),
        (((200, 120), (10, 120)), 3),  # who is kept keeps all below it
    ],
)
def test_lag_aware_keeps_whom_it_would_miss(levels: tuple[tuple[float, float], ...], expected: int) -> None:
    kept = tuple(WorkerLevel(idle=idle, keep=keep) for idle, keep in levels)

    assert desired("lag_aware", busy=1, needed=1, idle=len(kept), free_in=(30.0,), levels=kept, **LAG) == expected


def test_shorter_jobs_need_fewer_workers() -> None:
    wanted = [desired("lag_aware", ready=60, lag=120.0, service=service) for service in (1.0, 5.0, 10.0, 30.0, 600.0)]

    assert wanted == sorted(wanted)
    assert wanted[0] < wanted[-1] == 60


def test_the_policy_beats_as_often_as_it_is_told() -> None:
    assert FleetPolicy().every == timedelta(seconds=30)
