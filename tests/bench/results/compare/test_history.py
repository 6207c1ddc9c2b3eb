import pytest

from drumbeat.bench.results.compare.history import Steadiness, history


def test_recent_runs_weigh_more() -> None:
    found = history([100, 100, 200])

    assert found is not None
    assert found.median == 100
    assert found.recent == pytest.approx((0.64 * 100 + 0.8 * 100 + 200) / 2.44)


def test_a_steady_rise_is_a_trend() -> None:
    found = history([10, 12, 14, 16])

    assert found is not None
    assert [found.slope, found.r_squared] == pytest.approx([2, 1])


@pytest.mark.parametrize(
    ("values", "steadiness"),
    [
        ([100, 101, 99], Steadiness.STABLE),
        ([100, 150, 80], Steadiness.MODERATE),
        ([100, 300, 20], Steadiness.UNSTABLE),
        ([100], Steadiness.UNKNOWN),
    ],
)
def test_past_runs_agree_or_do_not(values: list[float], steadiness: Steadiness) -> None:
    found = history(values)

    assert found is not None
    assert found.steadiness is steadiness


def test_no_runs_have_no_history() -> None:
    assert history([]) is None
