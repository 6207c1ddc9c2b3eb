"""Cron expressions: read as every cron reads them, and due when they should be, whatever the clocks do."""

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings, strategies as st

from drumbeat.core.cron import CronSchedule, moments_after, next_after, parse_schedule, zone
from drumbeat.core.errors import InvalidSettings

VIENNA, NEW_YORK, LORD_HOWE = ZoneInfo("Europe/Vienna"), ZoneInfo("America/New_York"), ZoneInfo("Australia/Lord_Howe")
APIA = ZoneInfo("Pacific/Apia")  #: 30 December 2011 does not exist there
GREENWICH = ZoneInfo("UTC")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(expression: str, after: str, times: int, where: ZoneInfo = GREENWICH) -> list[str]:
    """The next moments, in UTC."""
    schedule, moment, found = parse_schedule(expression), at(after), []
    for _ in range(times):
        moment = next_after(schedule, moment, where)
        found.append(f"{moment:%Y-%m-%d %H:%M}")
    return found


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("*/5 * * * *", "2026-01-01 00:00", "2026-01-01 00:05"),
        ("*/5 * * * *", "2026-01-01 00:04:59", "2026-01-01 00:05"),
        ("* * * * *", "2026-12-31 23:59", "2027-01-01 00:00"),
        ("0 9-17/2 * * *", "2026-01-01 09:00", "2026-01-01 11:00"),
        ("0 9-17/2 * * *", "2026-01-01 17:00", "2026-01-02 09:00"),
        ("15,45 3 * * *", "2026-01-01 03:15", "2026-01-01 03:45"),
        ("5/20 0 * * *", "2026-01-01 00:05", "2026-01-01 00:25"),
        ("0 0 29 2 *", "2026-01-01 00:00", "2028-02-29 00:00"),
        ("0 0 29 2 *", "2096-03-01 00:00", "2104-02-29 00:00"),
        ("0 0 31 * *", "2026-01-31 00:00", "2026-03-31 00:00"),
        ("0 0 * * mon-fri", "2026-01-02 00:00", "2026-01-05 00:00"),
        ("0 0 * * 7", "2026-01-01 00:00", "2026-01-04 00:00"),
        ("0 0 * * SUN", "2026-01-01 00:00", "2026-01-04 00:00"),
        ("0 0 * jan,Jul *", "2026-01-31 00:00", "2026-07-01 00:00"),
        ("0 0 13 * fri", "2026-01-01 00:00", "2026-01-02 00:00"),
        ("0 0 13 * fri", "2026-01-09 00:00", "2026-01-13 00:00"),
        ("0 0 */2 * fri", "2026-01-01 00:00", "2026-01-09 00:00"),
        ("@hourly", "2026-01-01 00:00", "2026-01-01 01:00"),
        ("@weekly", "2026-01-01 00:00", "2026-01-04 00:00"),
        ("@yearly", "2026-01-01 00:00", "2027-01-01 00:00"),
    ],
)
def test_the_next_moment(expression: str, after: str, expected: str) -> None:
    assert due(expression, after, 1) == [expected]


@pytest.mark.parametrize(
    ("where", "expression", "after", "expected"),
    [
        (VIENNA, "30 2 * * *", "2026-03-28 12:00", ["2026-03-29 01:00", "2026-03-30 00:30"]),
        (VIENNA, "*/30 * * * *", "2026-03-29 00:30", ["2026-03-29 01:00", "2026-03-29 01:30", "2026-03-29 02:00"]),
        (VIENNA, "30 2 * * *", "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
        (VIENNA, "0 * * * *", "2026-10-24 23:30", ["2026-10-25 00:00", "2026-10-25 01:00", "2026-10-25 02:00"]),
        (VIENNA, "0 9 * * *", "2026-03-28 12:00", ["2026-03-29 07:00", "2026-03-30 07:00"]),
        (NEW_YORK, "30 1 * * *", "2026-11-01 00:00", ["2026-11-01 05:30", "2026-11-02 06:30"]),
        (LORD_HOWE, "*/15 * * * *", "2026-04-04 14:30", ["2026-04-04 14:45", "2026-04-04 15:00", "2026-04-04 15:15"]),
        (APIA, "15 */2 * * *", "2011-12-30 08:15", ["2011-12-30 10:00", "2011-12-30 10:15", "2011-12-30 12:15"]),
        (APIA, "0 9 * * fri", "2011-12-24 00:00", ["2011-12-30 10:00", "2012-01-05 19:00"]),
    ],
    ids=[
        *("missing hour", "missing hour, often", "hour twice", "hour twice, often", "across", "new york", "half an hour"),
        *("missing day", "missing day, once a week"),
    ],
)
def test_when_clocks_are_set_nothing_is_left_out_and_nothing_comes_twice(
    where: ZoneInfo, expression: str, after: str, expected: list[str]
) -> None:
    assert due(expression, after, len(expected), where) == expected


@pytest.mark.parametrize("expression", ["15 */2 * * *", "0 1-3 * * *", "*/20 * * * *", "*/10 0-4 * * 5"])
@pytest.mark.parametrize("where", [APIA, VIENNA, LORD_HOWE], ids=str)
def test_every_moment_comes_once_and_in_order(expression: str, where: ZoneInfo) -> None:
    begin = datetime(2011, 12, 20, tzinfo=UTC)

    found = [
        *takewhile(lambda each: each < begin + timedelta(days=120), moments_after(parse_schedule(expression), begin, where))
    ]

    assert found == sorted(set(found))


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("* * * * * *", "five fields"),
        ("@often", "five fields"),
        ("60 * * * *", "minute: expected 0 to 59, got '60'"),
        ("* 24 * * *", "hour: expected 0 to 23, got '24'"),
        ("* * 0 * *", "day of month: expected 1 to 31, got '0'"),
        ("* * * 13 *", "month: expected 1 to 12, got '13'"),
        ("* * * * 8", "day of week: expected 0 to 7, got '8'"),
        ("* * * foo *", "month: expected 1 to 12, got 'foo'"),
        ("*/0 * * * *", "minute: expected 1 to 59, got '0'"),
        ("5-1 * * * *", "minute: expected a range from low to high, like 1-5, got '5-1'"),
        ("-1 * * * *", "minute: expected 0 to 59, got ''"),
        ("1,,2 * * * *", "minute: expected 0 to 59, got ''"),
        ("١ * * * *", "minute: expected 0 to 59"),
        ("1" * 5_000 + " * * * *", "minute: expected 0 to 59"),
        ("0 0 30 2 *", "a day of month that exists in one of the given months"),
        ("0 0 31 4,jun,9,11 *", "a day of month that exists in one of the given months"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_field_named(expression: str, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        parse_schedule(expression)


@pytest.mark.parametrize("name", ["Nowhere/Land", "../etc/passwd", "Europe"])
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidSettings, match="the name of a time zone"):
        zone(name)


def some(first: int, last: int) -> st.SearchStrategy[str]:
    value = st.integers(first, last)
    spans = st.tuples(value, value).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.tuples(st.just("*") | spans, st.integers(1, last)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    return st.just("*") | st.lists(value.map(str) | spans | steps, min_size=1, max_size=3).map(",".join)


expressions = st.tuples(some(0, 59), some(0, 23), some(1, 28), some(1, 12), some(0, 7)).map(" ".join)
moments = st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
zones = st.sampled_from([GREENWICH, VIENNA, NEW_YORK, LORD_HOWE])


def matches(schedule: CronSchedule, wall: datetime) -> bool:
    return schedule.on(wall.date()) and wall.hour in schedule.hours and wall.minute in schedule.minutes


@given(expressions, moments, zones)
@settings(max_examples=60)
def test_it_is_later_and_a_whole_minute_and_one_that_matches(expression: str, moment: datetime, where: ZoneInfo) -> None:
    schedule = parse_schedule(expression)

    found = next_after(schedule, moment, where)

    assert found > moment
    assert (found.second, found.microsecond) == (0, 0)
    wall = found.astimezone(where)
    hour = timedelta(hours=1)
    was_missing = any((found - gap).astimezone(where).utcoffset() != wall.utcoffset() for gap in (hour / 2, hour))
    assert matches(schedule, wall) or was_missing


@given(expressions, moments)
@settings(max_examples=40)
def test_no_minute_before_it_matches(expression: str, moment: datetime) -> None:
    schedule = parse_schedule(expression)
    found = next_after(schedule, moment, GREENWICH)
    assume(found - moment < timedelta(days=3))

    minute = (moment + timedelta(minutes=1)).replace(second=0, microsecond=0)
    while minute < found:
        assert not matches(schedule, minute)
        minute += timedelta(minutes=1)
    assert matches(schedule, found)


@settings(max_examples=40)
@given(moments, zones, st.sampled_from([1, 5, 10, 15, 30]))
def test_often_is_often_through_every_change_of_the_clocks(moment: datetime, where: ZoneInfo, minutes: int) -> None:
    schedule = parse_schedule(f"*/{minutes} * * * *")

    first = next_after(schedule, moment, where)

    assert timedelta() < first - moment <= timedelta(minutes=minutes)
    assert next_after(schedule, first, where) - first == timedelta(minutes=minutes)


@settings(max_examples=60)
@given(moments, zones, st.integers(0, 23), st.integers(0, 59))
def test_once_a_day_is_once_a_day(moment: datetime, where: ZoneInfo, hour: int, minute: int) -> None:
    schedule = parse_schedule(f"{minute} {hour} * * *")

    first = next_after(schedule, moment, where)
    second = next_after(schedule, first, where)

    assert (second.astimezone(where).date() - first.astimezone(where).date()).days == 1


@settings(max_examples=40)
@given(expressions, moments, zones)
def test_moments_come_in_order_and_are_the_same_wherever_one_begins(expression: str, moment: datetime, where: ZoneInfo) -> None:
    schedule = parse_schedule(expression)
    found = list(islice(moments_after(schedule, moment, where), 6))

    assert found == sorted(set(found))
    assert [next_after(schedule, each, where) for each in found[:-1]] == found[1:]


@settings(max_examples=30)
@given(st.integers(2024, 2030), zones, st.integers(0, 23), st.integers(0, 59))
def test_a_daily_time_that_does_not_exist_comes_at_the_next_moment_that_exists(
    year: int, where: ZoneInfo, hour: int, minute: int
) -> None:
    schedule, start = parse_schedule(f"{minute} {hour} * * *"), datetime(year, 1, 1, tzinfo=UTC)

    found = [each.astimezone(where) for each in islice(moments_after(schedule, start, where), 360)]

    shown = [(wall.hour, wall.minute) for wall in found]
    moved = [wall for wall, (h, m) in zip(found, shown, strict=True) if (h, m) != (hour, minute)]
    assert len(moved) <= 1
    for wall in moved:
        before = (wall.astimezone(UTC) - timedelta(seconds=1)).astimezone(where)
        assert (before.hour, before.minute) < (hour, minute) < (wall.hour, wall.minute)
        assert before.utcoffset() != wall.utcoffset()
