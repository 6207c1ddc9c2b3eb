"""How often an n-th worker is needed, and for how long it is worth having: learnt from its gaps."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from drumbeat.fleet.decide.keep_alive import (
    BANDS,
    FORGOTTEN,
    LEVELS,
    UsualTimes,
    best_keep_time,
    cost_of_keeping,
    update_levels,
    worker_levels,
)
from drumbeat.fleet.model import FleetState

PACE = UsualTimes(lag=120.0, every=30.0, service=20.0)


def after(demands: list[int], here: int = 3, every: float = 30.0) -> FleetState:
    """What is known after beats that needed so many workers."""
    state = FleetState()
    for n, demand in enumerate(demands):
        levels, gaps, uses = update_levels(state, n * every, demand, here)
        state = replace(state, levels=levels, gaps=gaps, uses=uses)
    return state


def test_a_level_is_needed_or_not_since_its_last_turn() -> None:
    assert after([2, 2, 1, 1]).levels == ((True, 0.0), (False, 60.0), (False, 0.0))


def test_gaps_and_uses_are_kept_when_they_end() -> None:
    state = after([2, 2, 1, 1, 1, 2])

    assert state.gaps == ((BANDS[1], 90.0),)
    assert state.uses == ((BANDS[1], 60.0),)


def test_what_nobody_has_or_needs_is_forgotten_in_time() -> None:
    state = after([3], here=0)
    levels, *_ = update_levels(state, 30.0, 0, 0)
    assert [needed for needed, _ in levels] == [False] * 3

    gone, *_ = update_levels(replace(state, levels=levels), 31.0 + FORGOTTEN, 0, 0)

    assert gone == ()


def test_no_more_levels_are_followed_than_there_are_bands_for() -> None:
    levels, *_ = update_levels(FleetState(), 0.0, LEVELS + 5, LEVELS + 9)

    assert len(levels) == LEVELS == len(BANDS)
    assert list(BANDS) == sorted(BANDS)


@pytest.mark.parametrize(
    ("gaps", "again", "expected"),
    [
        ([10.0] * 6, 150.0, 120.0),  # never shorter than a restart is worth
        ([5000.0] * 6, 150.0, 120.0),
        ([100.0] * 5 + [5000.0], 150.0, 120.0),
        ([900.0] * 6, 2000.0, 960.0),  # the dearer it is to be without, the longer
    ],
)
def test_what_would_have_cost_least_is_done(gaps: list[float], again: float, expected: float) -> None:
    assert best_keep_time(120.0, gaps, again) == expected


_GAPS = st.lists(st.floats(0, 20_000), max_size=40)


@given(gaps=_GAPS, following=st.floats(0, 50_000), restart=st.floats(1, 1000), factor=st.floats(1, 20))
def test_keeping_costs_at_most_twice_the_best_in_hindsight(
    gaps: list[float], following: float, restart: float, factor: float
) -> None:
    again = restart * factor
    keep = best_keep_time(restart, gaps, again)

    every_gap = [*gaps, following]
    best = sum(min(gap, again) for gap in every_gap)
    assert restart <= keep
    assert cost_of_keeping(keep, every_gap, again) <= 2 * best + 1e-6


@pytest.mark.parametrize("gap", [60.0, 9000.0])
@pytest.mark.parametrize("idle", [0.0, 149.0])
def test_every_worker_is_kept_for_a_restarts_worth(gap: float, idle: float) -> None:
    state = FleetState(levels=((False, 0.0),) * 4, gaps=tuple((n, gap) for n in range(4)) * 6)

    levels = worker_levels(state, idle, 0, 4, PACE)

    assert all(level.idle < level.keep for level in levels)


def test_a_worker_that_is_seldom_needed_is_let_go() -> None:
    state = FleetState(levels=((False, 0.0),) * 4, gaps=tuple((n, 9000.0) for n in range(4)) * 6)

    assert all(level.idle >= level.keep for level in worker_levels(state, 400.0, 0, 4, PACE))


def test_before_enough_is_known_a_worker_is_kept_until_that_cost_what_losing_it_would() -> None:
    state = FleetState(levels=((False, 0.0), (False, 0.0)))

    first, second = worker_levels(state, 30.0, 0, 2, PACE)

    assert first.keep == PACE.reach + PACE.lag, "without the first, a job waits for a start"
    assert 0 < second.keep < first.keep, "without the second, it waits for the first"


def test_nobody_is_started_for_what_was_learnt() -> None:
    state = FleetState(levels=((True, 0.0), (True, 0.0)), gaps=((1, 200.0),) * 6, uses=((1, 150.0),))

    assert worker_levels(state, 30.0, 1, 1, PACE) == ()
