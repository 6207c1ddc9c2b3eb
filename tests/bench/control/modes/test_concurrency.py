"""A fixed number of connections, held to the end."""

from datetime import UTC, datetime

import pytest

from drumbeat.bench.control.modes.concurrency import steer
from drumbeat.bench.model import ModeView, RunPlan, Scaling, ScalingMode
from drumbeat.core.run import RunId

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FIXED = Scaling(mode=ScalingMode.FIXED, min_workers=5, min_connections=200, cap=200)
BOUNDED = Scaling(mode=ScalingMode.BOUNDED, max_workers=3, cap=100)


def view(connections: int | None, scaling: Scaling) -> ModeView:
    return ModeView(
        run_id=RunId("r"),
        now=NOW,
        plan=RunPlan(connections=connections, scaling=scaling),
        phase="MEASUREMENT",
        phase_began=NOW,
        connections=0,
        held=0,
        ready=0,
        coming=0,
        most_workers=scaling.most_workers,
    )


@pytest.mark.parametrize(
    ("connections", "scaling", "expected", "why"),
    [
        pytest.param(10, Scaling(), (10, 1), "10 connections on 1 workers", id="one worker does"),
        pytest.param(450, Scaling(cap=200), (450, 3), "at most 200", id="as many as it takes"),
        pytest.param(1000, FIXED, (1000, 5), "FIXED at 5 workers with 200 each", id="five times two hundred"),
        pytest.param(7, FIXED, (1000, 5), "FIXED", id="FIXED does not look at the total"),
        pytest.param(None, Scaling(min_workers=2, min_connections=4), (8, 2), "8 connections", id="nothing said"),
        pytest.param(10, Scaling(min_workers=3), (10, 3), "on 3 workers", id="the fewest workers"),
        pytest.param(500, BOUNDED, (300, 3), "300 connections instead of 500", id="bounds too low for it"),
        pytest.param(3, Scaling(min_connections=5), (3, 1), "fewer than the minimum of 5 per worker", id="less than one floor"),
        pytest.param(
            150, Scaling(min_connections=100, cap=100), (100, 2), "100 connections instead of 150", id="floors too high for it"
        ),
    ],
)
def test_the_total_is_held_as_far_as_bounds_allow(
    connections: int | None, scaling: Scaling, expected: tuple[int, int], why: str
) -> None:
    steered = steer(view(connections, scaling))

    assert (steered.connections, steered.workers) == expected
    assert why in steered.reason
    assert (steered.qps, steered.finish, steered.step) == (None, None, None)
