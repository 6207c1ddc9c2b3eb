"""The mix is exact, over every round and wherever one begins to count."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from drumbeat.bench.values.mix import cycle
from drumbeat.bench.workloads.sql_generation import PRESETS

MILLION = 1_000_000


def weights() -> st.SearchStrategy[list[int]]:
    """Whole numbers that total 100."""
    cuts = st.lists(st.integers(0, 100), min_size=0, max_size=6).map(sorted)
    return cuts.map(lambda each: [high - low for low, high in zip([0, *each], [*each, 100], strict=True)])


@pytest.mark.parametrize(
    "weights",
    [[100], [50, 50], [25, 25, 35, 15], [40, 40, 15, 5], [1, 99], [33, 33, 34], [45, 17, 26, 2, 2, 4, 4], [97, 1, 1, 1]],
)
def test_over_a_million_operations_the_mix_is_exact(weights: list[int]) -> None:
    order = cycle(weights)

    counts = Counter(order * (MILLION // len(order)))

    assert [counts[index] for index in range(len(weights))] == [weight * MILLION // 100 for weight in weights]


@settings(deadline=None)
@given(weights())
def test_any_hundred_operations_in_a_row_hold_each_kind_as_often_as_its_weight_says(weights: list[int]) -> None:
    order = cycle(weights) * 200

    for begin in range(100):
        assert [order[begin : begin + 100].count(index) for index in range(len(weights))] == weights


@pytest.mark.parametrize("preset", PRESETS)
def test_kinds_are_interleaved_and_not_in_runs(preset: str) -> None:
    shares = list(PRESETS[preset].values())
    order = cycle(shares) * 10

    for index, share in enumerate(shares):
        places = [place for place, chosen in enumerate(order) if chosen == index]
        gaps = [after - before for before, after in pairwise(places)]
        assert all(gap <= 2 * 100 / share + 1 for gap in gaps)


def test_a_kind_without_a_weight_never_comes() -> None:
    assert set(cycle([0, 70, 0, 30])) == {1, 3}


def test_a_round_is_as_short_as_the_weights_allow() -> None:
    assert cycle([50, 50]) == [0, 1]
    assert len(cycle([25, 25, 35, 15])) == 20
