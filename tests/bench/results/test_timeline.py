import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from drumbeat.bench.results.timeline import Timeline, merge_into
from drumbeat.core.histogram import Histogram, merged
from drumbeat.core.pool import PoolId
from drumbeat.core.sample import StoredSample
from drumbeat.core.worker import WorkerId

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
MS = 1_000_000


def histogram(*milliseconds: float) -> Histogram:
    found = Histogram()
    found.record_all([int(each * MS) for each in milliseconds])
    return found


def sample(ends: float, lasts: float = 1.0, worker: str = "w", latencies: Sequence[float] = (), **known: Any) -> StoredSample:
    fields: dict[str, Any] = {"operations": 100, "phase": "MEASUREMENT", "target": 4} | known
    return StoredSample(
        pool_id=PoolId("r"),
        worker_id=WorkerId(worker),
        at=BEGAN + timedelta(seconds=ends),
        n=int(ends * 1000),
        interval=timedelta(seconds=lasts),
        latency=histogram(*latencies),
        **fields,
    )


def timeline(*samples: StoredSample) -> Timeline:
    found = Timeline(BEGAN)
    for each in samples:
        found.add(each)
    return found


def test_an_interval_across_two_seconds_counts_in_both_by_its_shares() -> None:
    first, second = tuple(timeline(sample(1.25, errors=8)).each_second())

    assert [first.operations, second.operations] == pytest.approx([75, 25])
    assert [first.errors, second.errors] == pytest.approx([6, 2])


def test_workers_off_beat_still_give_an_even_series() -> None:
    samples = [sample(n + 0.02 * (-1) ** n, worker="a") for n in range(1, 20)]

    seconds = tuple(timeline(*samples).each_second())

    assert len(seconds) > 15
    assert all(abs(each.qps - 100) < 6 for each in seconds[1:-2])


def test_connections_add_up_over_workers_and_hosts_are_averaged() -> None:
    one = sample(1.0, worker="a", extra={"held": 3}, cpu_percent=20.0)
    other = sample(1.0, worker="b", cpu_percent=40.0, memory_percent=10.0)

    (second,) = tuple(timeline(one, other).each_second())

    assert (second.held, second.target, second.workers) == (7, 8, 2)
    assert (second.cpu_percent, second.memory_percent) == (30, 10)


def test_a_half_known_second_does_not_halve_the_connections() -> None:
    (second,) = tuple(timeline(sample(1.0, lasts=0.5)).each_second())

    assert second.held == 4


def test_a_seconds_percentiles_are_of_all_workers_operations() -> None:
    low, high = [1.0] * 90, [100.0] * 10

    (second,) = tuple(timeline(sample(1.0, worker="a", latencies=low), sample(1.0, worker="b", latencies=high)).each_second())

    assert second.p50_ms == pytest.approx(1, rel=0.01)
    assert second.p99_ms == pytest.approx(100, rel=0.01)


def test_a_late_sample_is_merged_into_a_second_that_is_packed_already() -> None:
    samples = [sample(float(n), latencies=[1.0]) for n in range(1, 80)]

    seconds = tuple(timeline(*samples, sample(2.0, worker="late", latencies=[1.0, 1.0])).each_second())

    assert Histogram.from_bytes(seconds[1].histogram).count == 3
    assert sum(each.operations for each in seconds) == pytest.approx(8000)


def test_silence_is_a_second_of_nothing() -> None:
    seconds = tuple(timeline(sample(1.0), sample(4.0)).each_second())

    assert [(each.offset, each.operations, each.p50_ms) for each in seconds[1:3]] == [(1, 0, None), (2, 0, None)]


def test_phases_and_kinds_are_merged_exactly() -> None:
    packed = base64.b64encode(histogram(2, 3).to_bytes()).decode()
    kinds = {"read": {"operations": 2, "errors": 1, "response": packed}}
    samples = [
        sample(1.0, phase="WARMUP", latencies=[9]),
        sample(2.0, latencies=[1], extra={"kinds": kinds}, reads=5),
        sample(3.0, latencies=[4], extra={"kinds": kinds}, errors=2),
    ]

    warmup, measurement = timeline(*samples).phases()

    assert (warmup.name, measurement.name, measurement.began, measurement.ended) == ("WARMUP", "MEASUREMENT", 1, 3)
    assert (measurement.whole.operations, measurement.whole.errors, measurement.whole.reads) == (200, 2, 5)
    assert measurement.whole.qps == 100
    assert Histogram.from_bytes(measurement.whole.histogram) == merged([histogram(1), histogram(4)])
    assert Histogram.from_bytes(measurement.kinds["read"].histogram) == merged([histogram(2, 3), histogram(2, 3)])
    assert (measurement.kinds["read"].operations, measurement.kinds["read"].errors) == (4, 2)


@pytest.mark.parametrize("spoiled", ["", "not base64!", "AAAA", None, 7])
def test_a_spoiled_histogram_of_a_kind_costs_only_its_latencies(spoiled: Any) -> None:
    kinds = {"read": {"operations": 2, "errors": 0, "response": spoiled}}

    (phase,) = timeline(sample(1.0, extra={"kinds": kinds})).phases()

    assert (phase.kinds["read"].operations, phase.kinds["read"].latency.p95_ms) == (2, None)


def test_clients_at_their_limit_and_failures_are_noted() -> None:
    told = {"kind": "read", "class": "DATABASE_ERROR", "sqlstate": "40001", "message": "no", "sql": "SELECT"}
    extra = {"client": {"was_the_limit": True}, "error_samples": [told], "kinds": {"read": {"operations": 1, "errors": 1}}}

    found = timeline(sample(1.0, extra=extra), sample(2.0))

    assert [each.client_limited for each in found.each_second()] == [True, False]
    assert next(found.each_second()).errors_by_kind == {"read": 1}
    assert found.limited == {"w": 1}
    assert [(each.error_class, each.sqlstate) for each in found.failures] == [("DATABASE_ERROR", "40001")]


def test_merging_quickly_is_merging() -> None:
    rng = Random(1)
    parts = [histogram(*(rng.lognormvariate(1, 2) for _ in range(50))) for _ in range(10)] + [Histogram()]
    whole = Histogram()

    for part in parts:
        merge_into(whole, part)

    assert whole == merged(parts)


def test_failures_are_counted_by_their_class_second_by_second() -> None:
    found = timeline(
        sample(1, errors=3, extra={"error_classes": {"CONNECTION": 1, "QUERY_TIMEOUT": 2}}),
        sample(1, worker="v", errors=1, extra={"error_classes": {"CONNECTION": 1}}),
        sample(2, errors=5),
        sample(2, worker="v", errors=5, extra={"error_classes": "many"}),
    )

    assert [second.errors_by_class for second in found.each_second()] == [{"CONNECTION": 2, "QUERY_TIMEOUT": 2}, {}]


def test_intervals_of_the_measurement_that_did_not_keep_their_schedule_are_counted() -> None:
    late: dict[str, Any] = {"client": {"kept_schedule": False}}

    found = timeline(
        sample(1, extra=late, phase="WARMUP"),
        sample(2, extra=late),
        sample(3, extra={"client": {"kept_schedule": True}}),
        sample(4, extra=late | {"draining": True}),
    )

    assert found.late == {"w": 1}
