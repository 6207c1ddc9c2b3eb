"""Reads what Snowflake recorded about a run: its statements, found by query tag, and the credits of its warehouse."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from drumbeat.bench.targets.interface import RecordedStatements
from drumbeat.bench.targets.snowflake_session import driver, failure_of
from drumbeat.bench.targets.snowflake_tables import shown_name
from drumbeat.bench.targets.snowflake_warehouse import credits_per_hour

log = logging.getLogger(__name__)

MOST_LIVE = 200_000  #: for more statements, ACCOUNT_USAGE (up to 45 minutes late) is read instead of the live history
_MOST_AT_ONCE = 10_000  #: rows that one call of INFORMATION_SCHEMA.QUERY_HISTORY returns at most
_PER_SLICE = 5_000
_SHORTEST_BILL = timedelta(seconds=60)
_SUMS = (
    "queued_overload_time",
    "queued_provisioning_time",
    "transaction_blocked_time",
    "compilation_time",
    "execution_time",
    "total_elapsed_time",
    "bytes_scanned",
    "rows_produced",
    "partitions_scanned",
    "credits_used_cloud_services",
)
_LONGEST = "longest_queue_time"
_NAMES = ("statements", "failed", "queued", _LONGEST, *_SUMS)
_SELECT = (
    "SELECT query_tag, COUNT(*), COUNT_IF(execution_status <> 'SUCCESS'), COUNT_IF(queued_overload_time > 0), "
    "MAX(queued_overload_time), " + ", ".join(f"COALESCE(SUM({name}), 0)" for name in _SUMS)
)
_LIVE = (
    "{select} FROM TABLE(INFORMATION_SCHEMA.QUERY_HISTORY(END_TIME_RANGE_START => {since}, END_TIME_RANGE_END => {until}, "
    "RESULT_LIMIT => 10000)) WHERE STARTSWITH(query_tag, {tag}) AND end_time < {until} GROUP BY query_tag"
)
_LATE = (
    "{select} FROM SNOWFLAKE.ACCOUNT_USAGE.QUERY_HISTORY WHERE STARTSWITH(query_tag, {tag}) "
    "AND end_time >= {since} AND end_time < {until} GROUP BY query_tag"
)
_COUNT = (
    "SELECT COUNT(*) FROM TABLE(INFORMATION_SCHEMA.QUERY_HISTORY(END_TIME_RANGE_START => {since}, "
    "END_TIME_RANGE_END => {until}, RESULT_LIMIT => 10000))"
)
_METERED = (
    "SELECT COALESCE(SUM(credits_used), 0), COUNT(DISTINCT start_time) "
    "FROM TABLE(INFORMATION_SCHEMA.WAREHOUSE_METERING_HISTORY({since}, {until}, {warehouse})) "
    "WHERE start_time >= {since} AND start_time < {until} AND end_time <= CURRENT_TIMESTAMP()"
)
_HOUR = timedelta(hours=1)


class _Totals:
    """Adds up the rows of the history: totals by name for all statements, and as ``KIND.NAME`` for each kind of operation."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    def add(self, kind: str, row: Sequence[Any]) -> None:
        for name, value in zip(_NAMES, row, strict=True):
            for full in (name, f"{kind}.{name}") if kind else (name,):
                before, new = self.found.get(full, 0.0), float(value or 0)
                self.found[full] = max(before, new) if name == _LONGEST else before + new


def read_totals(connection: Any, tag: str, since: datetime, until: datetime, expected: int) -> RecordedStatements:
    """Read the totals of a run's statements from the live history, one slice of time after another; if more than ``MOST_LIVE``
    statements are expected, from ACCOUNT_USAGE instead. Blocks."""
    totals, is_cut, is_live = _Totals(), False, expected <= MOST_LIVE
    count = max(1, math.ceil(expected / _PER_SLICE)) if is_live else 1
    with connection.cursor() as cursor:
        for begin, end in _slices(since, until, count):
            times = {"since": _moment(begin), "until": _moment(end)}
            cursor.execute((_LIVE if is_live else _LATE).format(select=_SELECT, tag=_text(tag), **times))
            for found, *row in cursor.fetchall():
                totals.add(kind_of(str(found)), row)
            if is_live:
                cursor.execute(_COUNT.format(**times))
                is_cut = is_cut or int(cursor.fetchall()[0][0]) >= _MOST_AT_ONCE
    note = "Snowflake returns at most 10,000 statements at a time, and others used the account too" if is_cut else None
    return RecordedStatements(statements=int(totals.found.get("statements", 0)), totals=totals.found, note=note)


def read_credits(connection: Any, warehouse: Mapping[str, Any], since: datetime, until: datetime) -> dict[str, float]:
    """Return the credits of a warehouse: ``estimated`` by size, clusters and time, and ``metered`` (see ``read_metered``).
    The estimate is based on ``clusters`` (how many ran) and ``per_hour`` (their credits in an hour)."""
    hourly = credits_per_hour(warehouse)
    hours = max(until - since, _SHORTEST_BILL) / _HOUR
    clusters = max(int(warehouse.get("started_clusters") or 1), int(warehouse.get("min_cluster_count") or 1))
    found = {"clusters": float(clusters)}
    if hourly is not None:
        found |= {"estimated": hourly * clusters * hours, "per_hour": hourly * clusters}
    try:
        return found | read_metered(connection, str(warehouse["name"]), since, until)
    except driver().Error as exc:
        if failure_of(exc, 0).lost:
            raise
        log.info("could not read the metered credits of warehouse %s: %s; its estimate is used", warehouse["name"], exc.raw_msg)
        return found


def read_metered(connection: Any, warehouse: str, since: datetime, until: datetime) -> dict[str, float]:
    """Return ``metered``, the credits of a warehouse in all hours that overlap this time, and ``metered_hours``, their number.

    Snowflake meters whole hours, so the credits include any other use of the warehouse in these hours. The result is empty
    until all hours have ended and been metered, or if the role may not see the metering."""
    start = since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    hours = max(1, math.ceil((until - start) / _HOUR))
    times = {"since": _moment(start), "until": _moment(until), "warehouse": _text(shown_name(warehouse))}
    with connection.cursor() as cursor:
        cursor.execute(_METERED.format(**times))
        metered, found = cursor.fetchall()[0]
    return {"metered": float(metered), "metered_hours": float(hours)} if found == hours else {}


def kind_of(tag: str) -> str:
    """Return the kind of operation in a query tag (see ``tag_of``); empty if the tag has none."""
    return tag.split(":", 3)[3] if tag.count(":") >= 3 else ""


def _slices(since: datetime, until: datetime, count: int) -> Iterator[tuple[datetime, datetime]]:
    width = (until - since) / count
    for number in range(count):
        yield since + number * width, since + (number + 1) * width


def _moment(at: datetime) -> str:
    return f"'{at.astimezone(UTC).isoformat()}'::TIMESTAMP_TZ"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
