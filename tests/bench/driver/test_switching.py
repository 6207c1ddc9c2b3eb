"""Threads switch quickly while an engine drives, and as before once none does."""

import sys
from collections.abc import Iterator

import pytest

from drumbeat.bench.driver.switching import short_switch_interval


@pytest.fixture(params=[0.005, 0.00005])
def before(request: pytest.FixtureRequest) -> Iterator[float]:
    """What the process had set, longer or shorter than an engine needs it."""
    found = sys.getswitchinterval()
    sys.setswitchinterval(request.param)
    yield sys.getswitchinterval()
    sys.setswitchinterval(found)


def test_the_interval_is_as_before_once_the_last_engine_is_closed(before: float) -> None:
    quick = pytest.approx(min(before, 0.0001))
    first, second = short_switch_interval(), short_switch_interval()
    with first:
        assert sys.getswitchinterval() == quick
        second.__enter__()
    assert sys.getswitchinterval() == quick, "the second still drives"
    second.__exit__(None, None, None)

    assert sys.getswitchinterval() == pytest.approx(before)
