"""The Universal Scalability Law's fit finds the coefficients it was made from, and says when it cannot."""

from random import Random

import pytest

from drumbeat.bench.control.modes.usl import UslFit, confidence, fit, fit_summary

LEVELS = (1, 5, 10, 20, 40, 60, 80, 120)


def law(n: float, one: float, contention: float, crosstalk: float) -> float:
    return one * n / (1 + contention * (n - 1) + crosstalk * n * (n - 1))


def points(one: float, contention: float, crosstalk: float) -> list[tuple[float, float]]:
    return [(n, law(n, one, contention, crosstalk)) for n in LEVELS]


def fitted(found: list[tuple[float, float]]) -> UslFit:
    said = fit(found)
    assert said is not None
    return said


@pytest.mark.parametrize(
    ("one", "contention", "crosstalk"), [(100.0, 0.02, 0.0005), (2500.0, 0.0, 0.001), (10.0, 0.3, 0.0), (40.0, 0.0, 0.0)]
)
def test_exact_points_give_back_their_coefficients(one: float, contention: float, crosstalk: float) -> None:
    said = fitted(points(one, contention, crosstalk))

    assert said.throughput_of_one == pytest.approx(one, rel=1e-6)
    assert said.contention == pytest.approx(contention, abs=1e-7)
    assert said.crosstalk == pytest.approx(crosstalk, abs=1e-7)
    assert said.r_squared == pytest.approx(1.0)


def test_the_peak_is_where_throughput_is_highest() -> None:
    said = fitted(points(100.0, 0.02, 0.0005))

    assert said.peak == pytest.approx(max(range(1, 200), key=lambda n: law(n, 100.0, 0.02, 0.0005)), abs=1)
    assert said.peak_low == pytest.approx(said.peak, rel=1e-3)
    assert confidence(said) == "high"


def test_the_interval_holds_the_true_peak_about_as_often_as_it_says() -> None:
    rng = Random(4)
    true = ((1 - 0.02) / 0.0005) ** 0.5
    inside = 0
    for _ in range(200):
        said = fitted([(n, x * (1 + rng.gauss(0, 0.02))) for n, x in points(100.0, 0.02, 0.0005)])
        inside += said.peak_low is not None and said.peak_high is not None and said.peak_low <= true <= said.peak_high

    assert 180 <= inside <= 200


def test_throughput_that_only_grows_has_no_peak() -> None:
    said = fitted(points(100.0, 0.05, 0.0))

    assert (said.peak, said.peak_low, said.peak_high) == (None, None, None)


def test_superlinear_points_give_no_negative_coefficient() -> None:
    said = fitted([(n, n**1.2) for n in LEVELS])

    assert said.contention >= 0
    assert said.crosstalk >= 0


@pytest.mark.parametrize("found", [[], [(1, 10.0), (2, 20.0), (3, 30.0)], [(5, 10.0)] * 9, [(n, 0.0) for n in LEVELS]])
def test_fewer_than_four_levels_are_not_enough(found: list[tuple[float, float]]) -> None:
    assert fit(found) is None
    assert fit_summary(found)["fitted"] is False
    assert "not enough steps" in fit_summary(found)["reason"]


def test_points_that_follow_no_law_are_of_low_confidence() -> None:
    rng = Random(1)

    assert fit_summary([(n, 100 * rng.uniform(0.2, 2)) for n in LEVELS])["confidence"] == "low"


def test_the_opinion_is_numbers_and_words() -> None:
    said = fit_summary(points(100.0, 0.02, 0.0005))

    assert said["lambda"] == pytest.approx(100.0)
    assert said["peak_qps"] == pytest.approx(law(44.27, 100.0, 0.02, 0.0005), rel=1e-3)
    assert said["confidence"] == "high"
