from math import erfc, sqrt
from random import Random
from statistics import median

import pytest

from bench.recorded import noise
from drumbeat.bench.compare.ranks import _p_value, inflation, ranked, shift


def batched(rng: Random, seconds: int, level: float, spread: float, likeness: float) -> list[float]:
    """Means of five seconds each."""
    series = [level * factor for factor in noise(rng, seconds, spread, likeness)]
    return [sum(series[n : n + 5]) / 5 for n in range(0, seconds, 5)]


@pytest.mark.parametrize("likeness", [0.0, 0.7, 0.9])
def test_two_runs_of_the_same_are_called_different_in_at_most_one_of_twenty(likeness: float) -> None:
    called = 0
    for seed in range(200):
        rng = Random(seed)
        found = shift(batched(rng, 120, 1000, 0.1, likeness), batched(rng, 120, 1000, 0.1, likeness))
        assert found is not None
        called += found.shown

    assert called <= 10


def test_a_shift_of_fifteen_percent_is_found_in_at_least_nineteen_of_twenty() -> None:
    shown = held = 0
    for seed in range(200):
        rng = Random(seed)
        found = shift(batched(rng, 180, 1000, 0.1, 0.7), batched(rng, 180, 850, 0.1, 0.7))
        assert found is not None
        shown += found.shown
        held += found.low <= -150 <= found.high

    assert shown >= 190
    assert held >= 190


def test_the_test_is_mann_and_whitneys() -> None:
    """By hand: 30 of the 36 pairs rise, and of the 924 ways to deal out twelve ranks 60 are as far from 18, or further.
    The values alternate, so neighbours are strangers."""
    x, y = [1.0, 9.0, 2.0, 8.0, 3.0, 7.0], [6.5, 11.0, 7.5, 10.0, 8.5, 12.0]

    found = shift(x, y)

    assert found is not None
    assert inflation(x, y) == 1
    assert _p_value(x, y, 1.0) == pytest.approx(60 / 924)
    assert _p_value(x * 3, y * 3, 1.0) == pytest.approx(
        erfc((270 - 162 - 0.5) / sqrt(999 - 27 * 6 / 35 / 4) / sqrt(2)), rel=0.1
    )
    assert found.estimate == median(late - early for late in y for early in x)


@pytest.mark.parametrize("batches", [5, 6, 7, 8, 10])
def test_ten_times_as_much_is_found_however_few_batches_there_are(batches: int) -> None:
    """Nineteen times in twenty; and of runs of the same at most one in twenty is called different."""
    found = same = 0
    for seed in range(100):
        rng = Random(seed)
        runs = [batched(rng, batches * 5, level, 0.1, 0.7) for level in (1000, 1000, 10_000)]
        before, again, after = (runs[0], runs[1], runs[2])
        found += getattr(shift(before, after), "shown", False)
        same += getattr(shift(before, again), "shown", False)

    assert (found >= 90, same <= 5) == (True, True), (found, same)


def test_five_batches_above_five_others_are_shown() -> None:
    found = shift([1.0, 1.2, 0.9, 1.1, 1.0], [1.3, 1.5, 1.25, 1.4, 1.35])

    assert found is not None
    assert found.shown


def test_all_alike_is_no_difference() -> None:
    found = shift([0.0] * 10, [0.0] * 12)

    assert found is not None
    assert (found.estimate, found.low, found.high, found.p_value, found.shown) == (0, 0, 0, 1, False)


def test_too_few_batches_say_nothing() -> None:
    assert shift([1.0] * 4, [2.0] * 100) is None


def test_ties_share_the_middle_of_their_ranks() -> None:
    assert ranked([5.0, 1.0, 5.0, 9.0, 5.0]) == ([3, 1, 3, 5, 3], 24)


def test_neighbours_that_resemble_each_other_widen_the_test() -> None:
    slow_wave = [float(n // 10 % 2) for n in range(60)]

    assert inflation(slow_wave) > 3
    assert inflation([float(n % 2) for n in range(60)]) == 1
