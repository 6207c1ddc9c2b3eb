import pytest

from drumbeat.bench.results.report.scale import Scale, even_ticks, is_wide, log_ticks, time_ticks, upwards


@pytest.mark.parametrize(
    ("high", "ticks"),
    [
        (10, [0, 2, 4, 6, 8, 10]),
        (11, [0, 2.5, 5, 7.5, 10, 12.5]),
        (0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.003, [0, 0.001, 0.002, 0.003]),
    ],
)
def test_even_ticks_are_round_and_hold_the_highest(high: float, ticks: list[float]) -> None:
    assert even_ticks(high) == pytest.approx(ticks)


def test_whole_things_have_whole_ticks() -> None:
    assert even_ticks(2, least_step=1) == [0, 1, 2]


@pytest.mark.parametrize(("low", "high"), [(0.3, 70), (1, 1), (5, 5000), (1e-4, 9e4), (3, 4)])
def test_logarithmic_ticks_hold_all_values(low: float, high: float) -> None:
    ticks = log_ticks(low, high)

    assert ticks[0] <= low
    assert high <= ticks[-1]
    assert 2 <= len(ticks) <= 12


@pytest.mark.parametrize(("high", "step"), [(60, 10), (600, 120), (7200, 900), (10**7, 1296000)])
def test_time_is_cut_into_round_pieces(high: float, step: float) -> None:
    ticks = time_ticks(0, high)

    assert ticks[1] - ticks[0] == step
    assert len(ticks) <= 10


def test_a_value_has_its_place_and_none_leaves_the_picture() -> None:
    even = Scale(low=0, high=10, begin=100, end=0)
    log = Scale(low=1, high=100, begin=0, end=200, log=True)

    assert [even.at(value) for value in (0, 5, 10, 99)] == [100, 50, 0, 0]
    assert [log.at(value) for value in (1, 10, 100, 0.01)] == pytest.approx([0, 100, 200, 0])


def test_nothing_above_zero_has_no_logarithm() -> None:
    scale, ticks = upwards([0.0, 0.0], 10, 0, log=True)

    assert not scale.log
    assert ticks[0] == 0


def test_what_spans_more_than_twentyfold_is_wide() -> None:
    assert is_wide([1, 21])
    assert not is_wide([1, 19])
    assert not is_wide([])
