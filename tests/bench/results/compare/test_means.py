from random import Random
from statistics import fmean

import pytest
from hypothesis import given, strategies as st

from bench.recorded import noise
from drumbeat.bench.results.compare.means import inflation, shift

positive = st.lists(st.floats(0.01, 1e6), min_size=8, max_size=20)
any_size = st.lists(st.floats(0, 1e6), min_size=8, max_size=20)


def batched(rng: Random, seconds: int, level: float, spread: float, likeness: float) -> list[float]:
    """Means of three seconds each."""
    series = [level * factor for factor in noise(rng, seconds, spread, likeness)]
    return [sum(series[n : n + 3]) / 3 for n in range(0, seconds, 3)]


@given(before=positive | any_size, after=positive | any_size, between=st.sampled_from([0.0, 0.015]))
def test_a_difference_is_shown_exactly_where_its_interval_excludes_zero(
    before: list[float], after: list[float], between: float
) -> None:
    found = shift(before, after, between=between)

    assert found is not None
    assert found.low <= found.estimate <= found.high
    assert found.is_significant == (found.low > 0 or found.high < 0) or found.p_value == pytest.approx(0.01)


def test_the_test_is_welchs() -> None:
    """By a table of Student's t: logarithms 0 ± 1 and 2 ± 1, eight of each, differ by t = 2 / sqrt(2 / 7) = 3.742 at 14
    degrees of freedom: p = 0.0022, and the 99 % interval is 2 ± 2.977 × 0.5345."""
    e = 2.718281828459045
    before, after = [1 / e, e] * 4, [e, e**3] * 4

    found = shift(before, after)

    assert found is not None
    assert inflation(before, after) == 1
    assert found.p_value == pytest.approx(0.0022, abs=0.0002)
    assert [found.low, found.high] == pytest.approx([e**0.409 - 1, e**3.591 - 1], rel=0.02)


@pytest.mark.parametrize("likeness", [0.0, 0.7, 0.9])
def test_two_runs_of_the_same_are_called_different_in_at_most_one_of_twenty(likeness: float) -> None:
    called = 0
    for seed in range(200):
        rng = Random(seed)
        found = shift(batched(rng, 120, 1000, 0.1, likeness), batched(rng, 120, 1000, 0.1, likeness))
        assert found is not None
        called += found.is_significant

    assert called <= 10


def test_a_shift_of_fifteen_percent_is_found_in_at_least_nineteen_of_twenty() -> None:
    shown = held = 0
    for seed in range(200):
        rng = Random(seed)
        found = shift(batched(rng, 180, 1000, 0.1, 0.7), batched(rng, 180, 850, 0.1, 0.7))
        assert found is not None
        shown += found.is_significant
        held += found.low <= -150 <= found.high

    assert shown >= 190
    assert held >= 190


@pytest.mark.parametrize("batches", [8, 9, 12])
def test_ten_times_as_much_is_found_however_few_batches_there_are(batches: int) -> None:
    """Nineteen times in twenty; and of runs of the same at most one in twenty is called different."""
    found = same = 0
    for seed in range(100):
        rng = Random(seed)
        runs = [batched(rng, batches * 3, level, 0.1, 0.7) for level in (1000, 1000, 10_000)]
        before, again, after = (runs[0], runs[1], runs[2])
        found += getattr(shift(before, after), "is_significant", False)
        same += getattr(shift(before, again), "is_significant", False)

    assert (found >= 95, same <= 5) == (True, True), (found, same)


def test_what_lies_between_runs_widens_the_interval_of_the_steadiest_of_runs() -> None:
    before, after = [1000.0] * 9, [1020.0] * 9

    assert getattr(shift(before, after), "is_significant", None) is True
    assert getattr(shift(before, after, between=0.015), "is_significant", None) is False
    assert getattr(shift(before, [900.0] * 9, between=0.015), "is_significant", None) is True


def test_amounts_are_told_of_the_whole_runs_figure() -> None:
    found = shift([9.0, 11.0] * 4, [18.0, 22.0] * 4, whole=12.0)

    assert found is not None
    assert found.estimate == pytest.approx(12.0)


def test_with_nothing_among_the_batches_the_plain_means_are_compared() -> None:
    before, after = [0.0, 1.0] * 5, [4.0, 5.0] * 5

    found = shift(before, after)

    assert found is not None
    assert (found.estimate, found.is_significant) == (fmean(after) - fmean(before), True)


def test_all_alike_is_no_difference() -> None:
    found = shift([0.0] * 10, [0.0] * 12)

    assert found is not None
    assert (found.estimate, found.low, found.high, found.p_value, found.is_significant) == (0, 0, 0, 1, False)


def test_too_few_batches_say_nothing() -> None:
    assert shift([1.0] * 7, [2.0] * 100) is None


def test_neighbours_that_resemble_each_other_widen_the_test() -> None:
    slow_wave = [float(n // 10 % 2) for n in range(60)]

    assert inflation(slow_wave) > 3
    assert inflation([float(n % 2) for n in range(60)]) == 1
