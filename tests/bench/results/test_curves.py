import pytest

from bench.recorded import seconds
from drumbeat.bench.model import Point
from drumbeat.bench.results.curves import MOST_POINTS, curves_of, decode_curves, encode_curves
from drumbeat.core.downsample import downsample
from drumbeat.core.errors import InvalidInput


def test_few_points_stay_as_they_are() -> None:
    points: list[Point] = [(n, float(n)) for n in range(MOST_POINTS)]

    assert downsample(points, MOST_POINTS) == points


@pytest.mark.parametrize("length", [601, 3600, 86_400])
def test_many_points_become_few_and_every_peak_is_still_there(length: int) -> None:
    points: list[Point] = [(n, 100.0) for n in range(length)]
    points[length // 3] = (length // 3, 10_000.0)
    points[length // 2] = (length // 2, 0.0)

    few = downsample(points, MOST_POINTS)

    assert len(few) <= MOST_POINTS
    assert (length // 3, 10_000.0) in few
    assert (length // 2, 0.0) in few
    assert [x for x, _ in few] == sorted(x for x, _ in few)


@pytest.mark.parametrize("most", [1, 0, -1])
def test_a_line_of_fewer_than_two_points_is_refused(most: int) -> None:
    with pytest.raises(InvalidInput, match=f"2 points or more, got {most}"):
        downsample([(n, float(n)) for n in range(5)], most)


def test_the_shortest_line_has_the_lowest_and_the_highest_point() -> None:
    assert downsample([(0, 5.0), (1, 9.0), (2, 1.0), (3, 5.0), (4, 5.0)], 2) == [(1, 9.0), (2, 1.0)]


def test_while_a_line_grows_what_was_drawn_of_it_stays() -> None:
    points: list[Point] = [(n, float(n * 7919 % 1000)) for n in range(1210)]
    drawn = {n: downsample(points[:n], MOST_POINTS) for n in range(1190, 1210)}

    redrawn = [n for n in range(1190, 1209) if drawn[n][:-4] != drawn[n + 1][: len(drawn[n]) - 4]]

    assert redrawn == [1200]


def test_a_silence_is_still_one() -> None:
    points: list[Point] = [(n, None if 1000 <= n < 2000 else 5.0) for n in range(3600)]

    silent = [x for x, y in downsample(points, MOST_POINTS) if y is None]

    assert silent
    assert all(1000 <= x < 2000 for x in silent)


def test_an_hour_has_few_points_in_every_line_and_its_phases() -> None:
    found = curves_of(seconds(1, length=3570, warmup=30))

    assert found.seconds == 3600
    assert [(each.name, each.began, each.ended) for each in found.phases] == [("WARMUP", 0, 30), ("MEASUREMENT", 30, 3600)]
    assert all(len(line) <= MOST_POINTS for line in found.series.values())
    assert {"qps", "p95_ms", "held", "cpu_percent"} <= found.series.keys()


def test_what_a_result_kept_is_read_back() -> None:
    found = curves_of(seconds(1, length=30))

    assert decode_curves(encode_curves(found)) == found


@pytest.mark.parametrize("spoiled", [None, 7, {"series": 3}, {"phases": [{}]}])
def test_what_cannot_be_read_is_none(spoiled: object) -> None:
    assert decode_curves(spoiled) is None


def test_of_nothing_there_is_nothing_to_draw() -> None:
    assert curves_of(()).seconds == 0
