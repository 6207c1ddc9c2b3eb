"""Query history as Snowflake keeps it: rows that come late, queue times that a test sets, and credits."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, get_args

import pyarrow as pa

SCHEMA = "SNOWFLAKE.ACCOUNT_USAGE"


def utc_now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)  # noqa: TID251  (the server's own clock)


@dataclass(slots=True, kw_only=True)
class QueryRow:
    """One row of QUERY_HISTORY, with the columns people use. Times are in milliseconds, as Snowflake's are."""

    query_id: str
    query_text: str
    database_name: str | None
    schema_name: str | None
    query_type: str
    session_id: int
    user_name: str
    role_name: str | None
    warehouse_name: str | None
    warehouse_size: str | None
    warehouse_type: str | None
    cluster_number: int | None
    query_tag: str
    execution_status: str = "RUNNING"
    error_code: str | None = None
    error_message: str | None = None
    start_time: datetime = field(default_factory=utc_now)
    end_time: datetime | None = None
    total_elapsed_time: int = 0
    bytes_scanned: int = 0
    percentage_scanned_from_cache: float = 0.0
    rows_produced: int | None = None
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    compilation_time: int = 0
    execution_time: int = 0
    queued_provisioning_time: int = 0
    queued_repair_time: int = 0
    queued_overload_time: int = 0
    transaction_blocked_time: int = 0
    credits_used_cloud_services: float = 0.0
    partitions_scanned: int = 0
    partitions_total: int = 0
    bytes_spilled_to_local_storage: int = 0
    bytes_spilled_to_remote_storage: int = 0


_TYPES: Mapping[str, tuple[pa.DataType, str]] = {
    "int": (pa.int64(), "BIGINT"),
    "float": (pa.float64(), "DOUBLE"),
    "str": (pa.string(), "VARCHAR"),
    "datetime": (pa.timestamp("us", tz="UTC"), "TIMESTAMPTZ"),
}


def _type_name(kind: Any) -> str:
    """Of the type itself, where None is allowed besides."""
    return str(next(each for each in get_args(kind) or (kind,) if each is not type(None)).__name__)


_COLUMNS = tuple((each.name.upper(), *_TYPES[_type_name(each.type)]) for each in fields(QueryRow))


@dataclass(slots=True)
class _Entry:
    row: QueryRow
    visible_live: float
    visible_usage: float
    held: bool = False


@dataclass(slots=True, kw_only=True)
class MeteringRow:
    """Credits of one warehouse in one hour."""

    start_time: datetime
    end_time: datetime
    warehouse_name: str
    credits_used: float
    credits_used_compute: float
    credits_used_cloud_services: float


class History:
    """All statements that ran, and the tables in which clients may read them."""

    def __init__(self, duck: Any) -> None:
        self._duck = duck.cursor()
        self._entries: list[_Entry] = []
        self._written: dict[str, set[int]] = {"LIVE": set(), "USAGE": set()}
        self.metering: list[MeteringRow] = []
        self.live_delay = 0.0  #: seconds until a row is in INFORMATION_SCHEMA
        self.usage_delay = 0.0  #: seconds until a row is in ACCOUNT_USAGE
        self.hold: str | None = None  #: rows whose text contains this stay out until released
        columns = ", ".join(f'"{name}" {kind}' for name, _, kind in _COLUMNS)
        for name in ("QUERY_HISTORY", "LIVE_FINISHED", "LIVE_RUNNING"):
            self._duck.execute(f"CREATE TABLE {SCHEMA}.{name} ({columns})")
        both = f"SELECT * FROM {SCHEMA}.LIVE_FINISHED UNION ALL SELECT * FROM {SCHEMA}.LIVE_RUNNING"
        self._duck.execute(f"CREATE VIEW {SCHEMA}.LIVE_QUERY_HISTORY AS {both}")
        metering = "START_TIME TIMESTAMPTZ, END_TIME TIMESTAMPTZ, WAREHOUSE_ID BIGINT, WAREHOUSE_NAME VARCHAR"
        amounts = "CREDITS_USED DOUBLE, CREDITS_USED_COMPUTE DOUBLE, CREDITS_USED_CLOUD_SERVICES DOUBLE"
        self._duck.execute(f"CREATE TABLE {SCHEMA}.WAREHOUSE_METERING_HISTORY ({metering}, {amounts})")

    def begin(self, row: QueryRow) -> None:
        self._entries.append(_Entry(row, 0.0, 0.0))

    def end(self, row: QueryRow) -> None:
        """Called when a statement has ended; its row becomes visible after the delays."""
        now = time.monotonic()
        row.end_time = utc_now()
        row.total_elapsed_time = round((row.end_time - row.start_time).total_seconds() * 1000)
        queued = row.queued_overload_time + row.queued_provisioning_time + row.transaction_blocked_time
        row.execution_time = max(0, row.total_elapsed_time - queued - row.compilation_time)
        for entry in reversed(self._entries):
            if entry.row is row:
                entry.visible_live, entry.visible_usage = now + self.live_delay, now + self.usage_delay
                entry.held = self.hold is not None and self.hold in row.query_text
                return

    def release(self) -> None:
        """Let every row be seen at once."""
        self.hold, self.live_delay, self.usage_delay = None, 0.0, 0.0
        for entry in self._entries:
            entry.held, entry.visible_live, entry.visible_usage = False, 0.0, 0.0

    @property
    def rows(self) -> list[QueryRow]:
        return [entry.row for entry in self._entries]

    def forget(self) -> None:
        self._entries.clear()
        self.metering.clear()
        for name in self._written:
            self._written[name].clear()
        for table in ("QUERY_HISTORY", "LIVE_FINISHED", "LIVE_RUNNING"):
            self._duck.execute(f"DELETE FROM {SCHEMA}.{table}")

    def write(self) -> None:
        """Bring the tables up to date, before a client reads them. Runs in a thread."""
        now = time.monotonic()
        ended = [entry for entry in self._entries if entry.row.end_time is not None and not entry.held]
        self._append("LIVE", "LIVE_FINISHED", [entry.row for entry in ended if entry.visible_live <= now])
        self._append("USAGE", "QUERY_HISTORY", [entry.row for entry in ended if entry.visible_usage <= now])
        self._duck.execute(f"DELETE FROM {SCHEMA}.LIVE_RUNNING")
        self._insert("LIVE_RUNNING", [entry.row for entry in self._entries if entry.row.end_time is None])
        self._duck.execute(f"DELETE FROM {SCHEMA}.WAREHOUSE_METERING_HISTORY")
        for row in self.metering:
            values = [row.start_time, row.end_time, 1, row.warehouse_name]
            amounts = [row.credits_used, row.credits_used_compute, row.credits_used_cloud_services]
            self._duck.execute(
                f"INSERT INTO {SCHEMA}.WAREHOUSE_METERING_HISTORY VALUES (?, ?, ?, ?, ?, ?, ?)", values + amounts
            )

    def _append(self, name: str, table: str, rows: Sequence[QueryRow]) -> None:
        new = [row for row in rows if id(row) not in self._written[name]]
        self._insert(table, new)
        self._written[name].update(id(row) for row in new)

    def _insert(self, table: str, rows: Sequence[QueryRow]) -> None:
        if not rows:
            return
        arrays = [pa.array([getattr(row, name.lower()) for row in rows], kind) for name, kind, _ in _COLUMNS]
        self._duck.register("new_rows", pa.table(arrays, names=[name for name, _, _ in _COLUMNS]))
        self._duck.execute(f"INSERT INTO {SCHEMA}.{table} SELECT * FROM new_rows")
        self._duck.unregister("new_rows")
