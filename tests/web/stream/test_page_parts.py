"""What pages about runs are made of, without a browser: timers, addresses, lines, words."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.bench.model import Curves, Point, RunJudgement, RunPlan, RunVerdict, Stretch
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.histogram import Histogram
from drumbeat.core.run import Run, RunId, RunStatus
from drumbeat.web.pages.compare.overlays import measured
from drumbeat.web.pages.pools_one import per_minute
from drumbeat.web.pages.run_live.charts import CHARTS, OUTAGE_BAND, ChartLine, LimitLine, options
from drumbeat.web.pages.run_live.figures import ms, number, percent
from drumbeat.web.pages.run_live.knee import answer, throughput_by_level
from drumbeat.web.pages.run_live.progress import SteadyTimer, clock_text, position_of
from drumbeat.web.pages.run_result.kinds import BARS, histogram_bars, histogram_options
from drumbeat.web.pages.runs.filters import RunFilters, read_filters
from drumbeat.web.verdicts import status_colour, verdict_colour, verdict_words

SECOND = timedelta(seconds=1)


async def test_a_timer_goes_on_between_looks_and_never_back(clock: ManualClock) -> None:
    timer, shown = SteadyTimer(clock), []
    for known in (5, 4, 9):
        timer.sync(SECOND * known, running=True)
        shown.append(timer.read())
        await clock.advance(2 * SECOND)
        shown.append(timer.read())

    assert [each // SECOND for each in shown] == [5, 7, 7, 7, 9, 11]


async def test_a_timer_that_has_stopped_stands_still(clock: ManualClock) -> None:
    timer = SteadyTimer(clock)
    timer.sync(SECOND * 5, running=False)
    await clock.advance(60 * SECOND)

    assert timer.read() == SECOND * 5


@pytest.mark.parametrize(
    ("seconds", "face"), [(0, "0:00"), (59.9, "0:59"), (61, "1:01"), (3600, "1:00:00"), (36_061, "10:01:01")]
)
def test_a_time_is_told_as_a_watch_does(seconds: float, face: str) -> None:
    assert clock_text(timedelta(seconds=seconds)) == face


@pytest.mark.parametrize(
    ("status", "phase", "place"),
    [
        (RunStatus.PREPARED, None, -1),
        (RunStatus.STARTING, "PREPARING", 0),
        (RunStatus.RUNNING, "WARMUP", 1),
        (RunStatus.RUNNING, "MEASUREMENT", 2),
        (RunStatus.STOPPING, "COOLDOWN", 3),
        (RunStatus.CANCELLING, "PROCESSING", 3),
        (RunStatus.FAILED, "MEASUREMENT", 4),
        (RunStatus.COMPLETED, "PROCESSING", 4),
    ],
)
def test_every_state_has_its_bubble(status: RunStatus, phase: str | None, place: int) -> None:
    assert position_of(Run(run_id=RunId("r"), name="r", config={}, status=status, phase=phase)) == place


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0, "0"), (0.01234, "0.0123"), (12.34, "12.3"), (123.4, "123"), (1_234_567.8, "1,234,568")]
)
def test_figures_have_three_digits_and_no_fewer_than_their_whole_part(value: float | None, text: str) -> None:
    assert number(value) == text


def test_units_are_told() -> None:
    assert (ms(1.5), ms(None), percent(0.125), percent(None)) == ("1.5 ms", "–", "12.5 %", "–")


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, RunFilters()),
        ({"status": "FAILED", "page": "3", "unknown": "x"}, RunFilters(status="FAILED", page="3")),
        ({"order": "nonsense"}, RunFilters()),
        ({"search": "x" * 500}, RunFilters(search="x" * 200)),
    ],
)
def test_an_address_is_read_and_what_it_does_not_know_is_left(query: dict[str, str], wanted: RunFilters) -> None:
    assert read_filters(query) == wanted


def test_what_is_wanted_is_written_as_it_was_read() -> None:
    wanted = RunFilters(status="FAILED", search="a b&c", since="2026-01-01", order="qps", page="2")

    assert wanted.query == "status=FAILED&since=2026-01-01&search=a+b%26c&order=qps&page=2"


def test_days_are_whole_ones() -> None:
    filters = RunFilters(since="2026-03-01", until="2026-03-02", status="NONSENSE", page="x").filters()

    assert (filters["since"], filters["until"]) == (datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC))
    assert filters["statuses"] == ()


@pytest.mark.parametrize("day", ["yesterday", "2026-13-01", "2026-02-30", "01.02.2026"])
def test_a_day_that_is_none_is_refused_with_its_field(day: str) -> None:
    with pytest.raises(InvalidInput, match=r"^until: expected a day like"):
        RunFilters(until=day).filters()


@pytest.mark.parametrize(("page", "number_"), [("1", 1), ("0", 1), ("-3", 1), ("x", 1), ("7", 7)])
def test_a_page_is_a_number_from_one(page: str, number_: int) -> None:
    assert RunFilters(page=page).number == number_


def curves(length: int, **series: Sequence[float | None]) -> Curves:
    points: dict[str, tuple[Point, ...]] = {name: tuple(enumerate(values)) for name, values in series.items()}
    phases = (Stretch(name="WARMUP", began=0, ended=2), Stretch(name="MEASUREMENT", began=2, ended=length))
    return Curves(seconds=length, phases=phases, series=points)


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_can_be_drawn_of_nothing_and_of_something(name: str) -> None:
    some = curves(4, qps=[1, 2, 3, 4], errors=[0, 0, 1, 0], p50_ms=[1, 1, 1, 1], p95_ms=[1, 1, 1, 900], held=[1, None, 2, 2])

    drawn: list[dict[str, Any]] = [CHARTS[name](each, RunPlan()) for each in (Curves(), some)]

    assert all(each["series"] for each in drawn)


def test_seconds_without_service_are_marked_in_red_and_named() -> None:
    some = replace(curves(20, qps=[9.0] * 20), outages=(Stretch(name="no service", began=7, ended=9),))

    *_, (begin, end) = CHARTS["Throughput"](some, RunPlan())["series"][0]["markArea"]["data"]

    assert (begin["name"], begin["xAxis"], end["xAxis"], begin["itemStyle"]["color"]) == ("no service", 7, 9, OUTAGE_BAND)


def test_latencies_far_apart_get_a_logarithmic_axis_without_nothings() -> None:
    wide = CHARTS["Latency"](curves(3, p50_ms=[0, 1, 1], p95_ms=[1, 2, 900], p99_ms=[1, 2, 900]), RunPlan())

    assert wide["yAxis"]["type"] == "log"
    assert wide["series"][0]["data"][0] == (0, None)


def test_errors_are_drawn_only_where_there_are_any() -> None:
    counts = [
        len(CHARTS["Throughput"](curves(2, qps=[1, 1], errors=errors), RunPlan())["series"]) for errors in ([0, 0], [0, 1])
    ]

    assert counts == [1, 2]


def test_long_runs_are_told_in_minutes() -> None:
    drawn = options([ChartLine(name="a", points=[(0, 1.0), (1200, 2.0)])], limits=[LimitLine(name="most", level=3)])

    assert (drawn["xAxis"]["name"], drawn["series"][0]["data"][-1]) == ("minutes", (20, 2.0))
    assert drawn["series"][0]["markLine"]["data"][0]["yAxis"] == 3


def test_of_a_run_that_is_compared_only_the_measurement_is_drawn() -> None:
    assert measured(curves(5, qps=[1, 2, 3, 4, 5]), "qps") == [(0, 3), (1, 4), (2, 5)]
    assert measured(Curves(series={"qps": ((0, 1.0),)}), "qps") == []


def searched(**known: Any) -> dict[str, Any]:
    told = {"to_target": 4, "qps": 100.0, "p95_ms": 2.0, "p99_ms": 3.0, "outcome": "STABLE"}
    steps = [told, {**told, "to_target": 8, "qps": 190.0}, {**told, "to_target": 12, "qps": 180.0, "outcome": "DEGRADED"}]
    return {"steps": steps, "best": {"connections": 8, "qps": 190.0, "p95_ms": 2.5}, "result": None, "message": None, **known}


FOUND = {"best_connections": 8, "best_qps": 190.0, "best_p95_ms": 2.5, "usl": {"lambda": 25.0, "sigma": 0.01, "kappa": 0.001}}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (searched(best=None, steps=[]), "No stable number of connections yet"),
        (searched(), "Best so far: 8 connections at 190 operations/s, p95 2.5 ms"),
        (searched(result=FOUND), "Max stable: 8 connections at 190 operations/s, p95 2.5 ms"),
        (
            searched(result={**FOUND, "bounded": True}),
            "Max within the template's limits: 8 connections at 190 operations/s, p95 2.5 ms",
        ),
        (searched(result={"best_connections": None}, message="No stable level: errors"), "No stable level: errors"),
    ],
)
def test_a_search_says_its_answer_first(told: dict[str, Any], said: str) -> None:
    assert answer(told) == said


def test_the_knee_is_drawn_from_the_first_step_on_and_with_the_law_once_it_is_fitted() -> None:
    nothing = throughput_by_level(searched(steps=[], best=None))
    live, finished = throughput_by_level(searched()), throughput_by_level(searched(result=FOUND))

    assert [each["name"] for each in nothing["series"]] == ["stable"]
    assert [(each["name"], len(each["data"])) for each in live["series"]] == [("stable", 2), ("not stable", 1)]
    assert [each["name"] for each in finished["series"]] == ["stable", "not stable", "model curve (Universal Scalability Law)"]
    assert finished["series"][0]["markLine"]["data"] == [{"name": "best 8", "xAxis": 8}]


@pytest.mark.parametrize(
    ("status", "judgement", "words", "colours"),
    [
        (RunStatus.RUNNING, RunJudgement(), None, ("positive", "grey-8")),
        (RunStatus.RUNNING, RunJudgement(is_orphan=True), "not controlled (no orchestrator)", ("warning", "warning")),
        (RunStatus.COMPLETED, RunJudgement(verdict=RunVerdict.PASSED), "passed", ("positive", "positive")),
        (RunStatus.COMPLETED, RunJudgement(verdict=RunVerdict.MISSED), "objectives missed", ("negative", "negative")),
        (RunStatus.COMPLETED, RunJudgement(verdict=RunVerdict.FAILED), "failed", ("negative", "negative")),
        (RunStatus.COMPLETED, RunJudgement(verdict=RunVerdict.NO_OBJECTIVE), "no objective set", ("grey-8", "grey-8")),
    ],
)
def test_only_a_run_that_is_led_or_has_passed_is_green(
    status: RunStatus, judgement: RunJudgement, words: str | None, colours: tuple[str, str]
) -> None:
    run = Run(run_id=RunId("r"), name="r", config={}, status=status)

    assert verdict_words(judgement) == words
    assert (status_colour(run, judgement), verdict_colour(judgement)) == colours


def test_finished_jobs_are_told_by_the_minute_once_there_are_two_looks() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)

    assert per_minute([(at, 5000)]) is None
    assert per_minute([(at, 5000), (at + SECOND * 30, 5100)]) == 200


def test_a_histogram_keeps_every_operation_in_its_bars() -> None:
    latency = Histogram()
    latency.record_all([1_000_000, 1_000_000, 5_000_000, 90_000_000])

    bars = histogram_bars(latency)

    assert (len(bars), sum(count for _, count in bars), bars[0]) == (BARS, 4, (1.0, 2))
    assert histogram_bars(Histogram()) == []
    assert histogram_options(latency)["xAxis"]["name"] == "milliseconds (logarithmic)"
