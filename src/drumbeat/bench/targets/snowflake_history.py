"""What Snowflake recorded about a run: its statements by query tag, and the credits of its warehouse."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from drumbeat.bench.targets.snowflake_warehouse import credits_per_hour

MOST_LIVE = 200_000  #: statements up to which the live history is read; beyond, ACCOUNT_USAGE, which is up to 45 minutes late
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
    "SELECT COALESCE(SUM(credits_used), 0), COUNT(*) FROM TABLE(INFORMATION_SCHEMA.WAREHOUSE_METERING_HISTORY("
    "{since}, {until}, {warehouse}))"
)


@dataclass(slots=True)
class StatementTotals:
    """The history of the statements of one kind of operation, or of all: counts, and sums in milliseconds and bytes."""

    statements: int = 0
    failed: int = 0
    queued: int = 0  #: statements that waited for a free slot of the warehouse
    longest_queue_ms: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, row: Sequence[Any]) -> None:
        statements, failed, queued, longest, *sums = row
        self.statements += int(statements)
        self.failed += int(failed)
        self.queued += int(queued)
        self.longest_queue_ms = max(self.longest_queue_ms, float(longest or 0))
        for name, value in zip(_SUMS, sums, strict=True):
            self.sums[name] = self.sums.get(name, 0.0) + float(value or 0)

    def as_json(self) -> dict[str, Any]:
        counts = {"statements": self.statements, "failed": self.failed, "queued": self.queued}
        return {**counts, "longest_queue_ms": self.longest_queue_ms, **self.sums}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTotals:
    """What the query history holds about a run so far; ``cut`` if a part of it had more rows than can be read."""

    whole: StatementTotals = field(default_factory=StatementTotals)
    kinds: Mapping[str, StatementTotals] = field(default_factory=dict)
    source: str = "INFORMATION_SCHEMA"
    cut: bool = False

    def as_json(self) -> dict[str, Any]:
        kinds = {kind: totals.as_json() for kind, totals in sorted(self.kinds.items())}
        return {"source": self.source, **self.whole.as_json(), "kinds": kinds}


def read_totals(connection: Any, tag: str, since: datetime, until: datetime, expected: int) -> QueryTotals:
    """Read a run's statements from the live history, slice by slice; a very long run's from ACCOUNT_USAGE. Blocks."""
    whole, kinds, cut = StatementTotals(), dict[str, StatementTotals](), False
    is_live = expected <= MOST_LIVE
    count = max(1, math.ceil(expected / _PER_SLICE)) if is_live else 1
    with connection.cursor() as cursor:
        for begin, end in _slices(since, until, count):
            times = {"since": _moment(begin), "until": _moment(end), "tag": _text(tag)}
            cursor.execute((_LIVE if is_live else _LATE).format(select=_SELECT, **times))
            rows = list(cursor.fetchall())
            for found, *row in rows:
                whole.add(row)
                kinds.setdefault(kind_of(str(found)), StatementTotals()).add(row)
            if is_live and expected > _PER_SLICE:
                cursor.execute(_COUNT.format(**times))
                cut = cut or int(cursor.fetchall()[0][0]) >= _MOST_AT_ONCE
    kinds.pop("", None)
    return QueryTotals(whole=whole, kinds=kinds, cut=cut, source="INFORMATION_SCHEMA" if is_live else "ACCOUNT_USAGE")


def read_credits(connection: Any, warehouse: Mapping[str, Any], since: datetime, until: datetime) -> dict[str, Any]:
    """Return the credits of a warehouse: estimated by size, clusters and time, and metered, once that hour is known."""
    hourly = credits_per_hour(warehouse)
    hours = max(until - since, _SHORTEST_BILL) / timedelta(hours=1)
    clusters = max(int(warehouse.get("started_clusters") or 1), int(warehouse.get("min_cluster_count") or 1))
    found: dict[str, Any] = {"warehouse": warehouse["name"], "size": warehouse["size"], "clusters": clusters}
    if hourly is not None:
        found |= {"estimated": hourly * clusters * hours, "per_hour": hourly * clusters}
    with connection.cursor() as cursor:
        times = {"since": _moment(since), "until": _moment(until), "warehouse": _text(str(warehouse["name"]))}
        cursor.execute(_METERED.format(**times))
        metered, rows = cursor.fetchall()[0]
    return {**found, "metered": float(metered) if rows else None}


def kind_of(tag: str) -> str:
    """Return the kind of operation in a query tag (see ``tag_of``)."""
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
