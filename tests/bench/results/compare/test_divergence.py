from random import Random

import pytest

from drumbeat.bench.results.compare.divergence import DIFFERENT, divergence
from drumbeat.core.histogram import Histogram


def drawn(seed: int, median_ms: float = 5, spread: float = 0.5) -> Histogram:
    rng = Random(seed)
    found = Histogram()
    found.record_all([int(median_ms * 1e6 * rng.lognormvariate(0, spread)) for _ in range(5000)])
    return found


def test_the_same_distribution_does_not_diverge() -> None:
    found = divergence(drawn(1), drawn(2))

    assert found is not None
    assert 0 <= found < 0.01


@pytest.mark.parametrize("other", [drawn(2, median_ms=8), drawn(2, spread=1.0)], ids=["slower", "wider"])
def test_another_distribution_diverges(other: Histogram) -> None:
    found = divergence(drawn(1), other)

    assert found is not None
    assert found > DIFFERENT


def test_a_distribution_does_not_diverge_from_itself() -> None:
    assert divergence(drawn(1), drawn(1)) == 0


def test_nothing_cannot_be_compared() -> None:
    assert divergence(Histogram(), drawn(1)) is None
    assert divergence(drawn(1), Histogram()) is None
