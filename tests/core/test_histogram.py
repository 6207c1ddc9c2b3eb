"""The latency histogram: near enough in its percentiles, exact in everything else."""

import math
import random
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import assume, example, given, strategies as st

from drumbeat.core.histogram import BUCKETS, Histogram, bucket_bounds, bucket_of, merged

MICROSECOND = 1_000
HOUR = 3_600_000_000_000

latencies = st.integers(min_value=MICROSECOND, max_value=HOUR)
any_duration = st.integers(min_value=-HOUR, max_value=1000 * HOUR)
many = st.lists(any_duration, max_size=50)


def histogram_of(durations: list[int]) -> Histogram:
    histogram = Histogram()
    for nanoseconds in durations:
        histogram.record(nanoseconds)
    return histogram


def exact_percentile(durations: list[int], percent: float) -> int:
    rank = max(1, math.ceil(percent * len(durations) / 100))
    return sorted(durations)[rank - 1]


@given(st.lists(latencies, min_size=1, max_size=200), st.sampled_from([0, 1, 10, 50, 75, 90, 95, 99, 99.9, 100]))
def test_a_percentile_is_within_one_percent_from_a_microsecond_to_an_hour(durations: list[int], percent: float) -> None:
    exact = exact_percentile(durations, percent)

    estimate = histogram_of(durations).percentile_ns(percent)

    assert estimate is not None
    assert abs(estimate - exact) <= exact / 100


def test_percentiles_of_a_long_tail_are_within_one_percent() -> None:
    chance = random.Random(7)
    durations = [int(chance.lognormvariate(15, 2)) for _ in range(100_000)]
    histogram = histogram_of(durations)

    for percent in (1, 25, 50, 75, 90, 95, 99, 99.9, 99.99):
        assert histogram.percentile_ns(percent) == pytest.approx(exact_percentile(durations, percent), rel=0.01)


@given(latencies)
def test_one_value_is_every_percentile_of_itself(nanoseconds: int) -> None:
    histogram = histogram_of([nanoseconds])

    assert [histogram.percentile_ns(percent) for percent in (0, 50, 100)] == [nanoseconds] * 3


@given(st.lists(any_duration, min_size=1, max_size=100), st.floats(0, 100), st.floats(0, 100))
def test_a_higher_percentile_is_never_a_shorter_duration(durations: list[int], one: float, other: float) -> None:
    histogram = histogram_of(durations)
    low, high = (histogram.percentile_ns(percent) for percent in sorted((one, other)))

    assert low is not None
    assert high is not None
    assert low <= high


@given(st.integers(0, 1 << 42))
def test_each_value_lies_within_its_bucket(nanoseconds: int) -> None:
    assume(nanoseconds < 1 << 42)
    low, above = bucket_bounds(bucket_of(nanoseconds))

    assert low <= nanoseconds < above


def test_buckets_follow_one_another_without_gap_or_overlap() -> None:
    bounds = [bucket_bounds(bucket) for bucket in range(BUCKETS)]

    assert bounds[0][0] == 0
    assert all(above == low for (_, above), (low, _) in pairwise(bounds))
    assert [bucket_of(low) for low, _ in bounds] == list(range(BUCKETS))
    assert bounds[-1][1] > HOUR


@given(st.lists(any_duration, min_size=1, max_size=50))
@example([1 << 42, (1 << 42) - 1, 1 << 50, 127, 128, 0])
def test_count_sum_least_and_greatest_are_exact(durations: list[int]) -> None:
    histogram = histogram_of(durations)
    counted = [max(nanoseconds, 0) for nanoseconds in durations]

    assert (histogram.count, histogram.total) == (len(counted), sum(counted))
    assert (histogram.least, histogram.greatest) == (min(counted), max(counted))


def test_the_mean_is_exact() -> None:
    assert histogram_of([1_000_000, 2_000_000, 6_000_000]).mean == timedelta(milliseconds=3)


@given(many)
@example([-5, 128, 127, 1 << 42])
def test_many_at_once_count_as_they_would_one_by_one(durations: list[int]) -> None:
    at_once = Histogram()
    at_once.record_all(durations)

    assert at_once == histogram_of(durations)


def test_a_negative_duration_counts_as_none() -> None:
    histogram = histogram_of([-1, -HOUR, 5])

    assert histogram == histogram_of([0, 0, 5])
    assert histogram.percentile_ns(50) == 0


@given(st.lists(many, max_size=6))
def test_the_merge_of_the_parts_is_exactly_the_whole(parts: list[list[int]]) -> None:
    whole = histogram_of([nanoseconds for part in parts for nanoseconds in part])

    assert merged(histogram_of(part) for part in parts) == whole


@given(many, many)
def test_merging_leaves_the_other_as_it_was(one: list[int], other: list[int]) -> None:
    merged_into, given_away = histogram_of(one), histogram_of(other)

    merged_into.merge(given_away)

    assert given_away == histogram_of(other)


@given(many)
def test_bytes_bring_back_the_same_histogram(durations: list[int]) -> None:
    histogram = histogram_of(durations)

    assert Histogram.from_bytes(histogram.to_bytes()) == histogram


def test_a_hundred_thousand_latencies_take_under_four_kilobytes() -> None:
    chance = random.Random(11)
    histogram = histogram_of([int(chance.lognormvariate(15, 1)) for _ in range(100_000)])

    assert histogram.count == 100_000
    assert len(histogram.to_bytes()) < 4_000


def test_an_idle_interval_takes_one_byte() -> None:
    assert len(Histogram().to_bytes()) == 1


WHOLE = histogram_of([0, 5, 1_000, 2_000, 2_001, 1_000_000_000])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x03" + WHOLE.to_bytes()[1:],
        b"not a histogram",
        b"\x01\x80",
        b"\x01\x05\x05\x05",
        b"\x01\x05\x05\x05\x05\x00",
        b"\x01\x05\x05\x05\x05\x01\x00\x01",
        b"\x01\x05\x05\x05\xff\xff\x03\x01",
        b"\x01\x05\x05\x05\x05" + b"\xff" * 10 + b"\x01",
        b"\x01\x05\x05\x05\x06\x01",
    ],
    ids=[
        "nothing",
        "no format",
        "a later format",
        "text",
        "a number cut short",
        "figures without counts",
        "an empty bucket",
        "a bucket twice",
        "a bucket too high",
        "a count too great",
        "a bucket its figures deny",
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="expected"):
        Histogram.from_bytes(data)


@pytest.mark.parametrize("length", range(2, len(WHOLE.to_bytes())))
def test_a_histogram_cut_short_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        Histogram.from_bytes(WHOLE.to_bytes()[:length])


@given(st.binary(max_size=40).map(lambda tail: b"\x01" + tail))
def test_no_bytes_are_half_understood(data: bytes) -> None:
    try:
        histogram = Histogram.from_bytes(data)
    except ValueError:
        return

    assert Histogram.from_bytes(histogram.to_bytes()) == histogram


def test_an_empty_histogram_has_no_figures() -> None:
    histogram = Histogram()

    assert (histogram.count, histogram.total, histogram.least, histogram.greatest) == (0, 0, None, None)
    assert (histogram.mean, histogram.percentile(50), histogram.percentile_ns(99)) == (None, None, None)
    assert merged([]) == histogram


@pytest.mark.parametrize("percent", [-0.1, 100.1])
def test_a_percentile_out_of_range_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="0 to 100"):
        histogram_of([1]).percentile(percent)


def test_a_percentile_is_a_duration() -> None:
    assert histogram_of([2_000_000]).percentile(50) == timedelta(milliseconds=2)


def test_histograms_differ_from_one_another_and_from_anything_else() -> None:
    assert histogram_of([1, 4]) != histogram_of([2, 3])
    assert histogram_of([1_000_001]) != histogram_of([1_000_000])
    assert Histogram() != object()


def test_a_histogram_shows_what_it_holds() -> None:
    assert repr(histogram_of([2_000_000] * 3)) == "<Histogram of 3: p50 0:00:00.002000, p99 0:00:00.002000>"
