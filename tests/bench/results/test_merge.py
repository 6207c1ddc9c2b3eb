"""What many workers measured comes to one set of figures, exactly."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.bench.results.merge import WindowMerger
from drumbeat.core.histogram import Histogram
from drumbeat.core.pool import PoolId
from drumbeat.core.sample import StoredSample
from drumbeat.core.worker import WorkerId

T = datetime(2026, 1, 1, tzinfo=UTC)
MS = 1_000_000


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def sample(n: int, worker: str, latencies_ms: list[float], errors: int = 0, **extra: Any) -> StoredSample:
    """What a worker measured in the n-th second."""
    latency = Histogram()
    latency.record_all([int(each * MS) for each in latencies_ms])
    packed = base64.b64encode(latency.to_bytes()).decode()
    kind = {"operations": len(latencies_ms), "errors": errors, "response": packed, "service": packed}
    return StoredSample(
        pool_id=PoolId("r"),
        worker_id=WorkerId(worker),
        n=n,
        at=T + seconds(n),
        interval=seconds(1),
        operations=len(latencies_ms),
        errors=errors,
        latency=latency,
        extra={"kinds": {"READ": kind}, "held": 4, **extra},
    )


def gathered(*samples: StoredSample, since: float = 0, until: float = 10) -> WindowMerger:
    gathering = WindowMerger(T + seconds(since), T + seconds(until))
    gathering.add(samples)
    return gathering


def test_rates_add_up_and_percentiles_are_of_all_operations_together() -> None:
    fast = [sample(n, "a", [1.0] * 95) for n in (1, 2)]
    slow = [sample(n, "b", [100.0] * 5, errors=1) for n in (1, 2)]

    figures = gathered(*fast, *slow).figures()

    assert (figures.operations, figures.errors, figures.qps, figures.workers) == (200, 2, 100, 2)
    assert figures.p95_ms == pytest.approx(1, rel=0.01)
    assert figures.p99_ms == pytest.approx(100, rel=0.01)
    assert figures.slowest_p95_ms == pytest.approx(100, rel=0.01)
    assert figures.mean_ms == pytest.approx((95 + 500) / 100)
    assert figures.connections == 8
    assert figures.kinds["READ"].operations == 200


def test_a_worker_and_the_one_that_took_its_place_are_no_two_workers_at_once() -> None:
    """Four seconds of one, two of nothing, four of the next; a third was there all the time."""
    lost, new = [sample(n, "a", [1.0] * 100) for n in range(1, 5)], [sample(n, "b", [1.0] * 100) for n in range(7, 11)]
    steady = [sample(n, "c", [1.0] * 100) for n in range(1, 11)]

    figures = gathered(*lost, *new, *steady).figures()

    assert (figures.operations, figures.workers) == (1800, 3)
    assert figures.qps == pytest.approx(80 + 100)
    assert figures.connections == pytest.approx(4 * 0.8 + 4)


def test_a_worker_that_joins_others_counts_at_its_own_rate() -> None:
    steady, late = [sample(n, "a", [1.0] * 100) for n in range(1, 11)], [sample(n, "b", [1.0] * 50) for n in range(7, 11)]

    assert gathered(*steady, *late).figures().qps == pytest.approx(150)


def test_what_lies_outside_the_window_or_came_twice_does_not_count() -> None:
    twice = sample(3, "a", [1.0] * 10)

    figures = gathered(sample(1, "a", [1.0] * 99), twice, twice, sample(9, "a", [1.0] * 99), since=2, until=6).figures()

    assert (figures.operations, figures.qps) == (10, 10)


def test_failed_connects_add_up_and_count_as_failed_operations() -> None:
    samples = sample(1, "a", [1.0] * 6, errors=1, failed_connects=3), sample(1, "b", [1.0] * 6, failed_connects=1)

    found = gathered(*samples).figures()

    assert (found.errors, found.failed_connects, found.error_rate) == (1, 4, 5 / 16)
    assert found.kinds["READ"].error_rate == 1 / 12


def test_what_was_counted_while_draining_is_no_rate() -> None:
    assert gathered(sample(1, "a", [1.0] * 10)).figures().operations == 10
    assert gathered(sample(1, "a", [1.0] * 10, draining=True)).figures().operations == 0


def test_clients_that_were_their_own_limit_most_of_the_time_are_named() -> None:
    busy: dict[str, Any] = {"client": {"was_the_limit": True}}

    assert (
        gathered(sample(1, "a", [1.0], **busy), sample(2, "a", [1.0], **busy), sample(3, "a", [1.0])).figures().client_limited
    )
    assert not gathered(sample(1, "a", [1.0], **busy), sample(2, "a", [1.0]), sample(3, "a", [1.0])).figures().client_limited


def test_nothing_measured_is_no_figure() -> None:
    figures = gathered().figures()

    assert (figures.operations, figures.qps, figures.p95_ms, figures.service_ms) == (0, 0, None, None)
