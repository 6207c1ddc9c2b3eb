"""Converts SQL rows (microseconds, JSON text) to values (datetimes, dataclasses) and back."""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from drumbeat.core.beat import Beat
from drumbeat.core.event import Event, NewEvent, Scope
from drumbeat.core.histogram import Histogram
from drumbeat.core.lease import Lease
from drumbeat.core.log import Log
from drumbeat.core.pool import PoolKind, PoolRow, Thresholds
from drumbeat.core.run import Execution, Result, Run, RunStatus, Step, StepType, Template
from drumbeat.core.sample import Sample, StoredSample
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.store.sql.database import Row

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def to_us(duration: timedelta) -> int:
    return duration // _MICROSECOND


def at_us(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def moment(us: int | None) -> datetime | None:
    return None if us is None else instant(us)


def instant(us: int) -> datetime:
    """Convert a stored time to a datetime. A time outside the range of datetime becomes the earliest or latest datetime."""
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return _FIRST if us < 0 else _LAST


def dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def load(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def like_pattern(part: str | None) -> str | None:
    """Return a pattern for LIKE … ESCAPE '!' that matches every text that contains ``part``."""
    if part is None:
        return None
    literal = re.sub(r"([!%_])", r"!\1", part)
    return f"%{literal}%"


def thresholds_json(thresholds: Thresholds) -> str:
    return dump({name: getattr(thresholds, name).total_seconds() for name in Thresholds.__dataclass_fields__})


def pool_of(row: Row) -> PoolRow:
    limits = {name: timedelta(seconds=seconds) for name, seconds in load(row["thresholds"]).items()}
    return PoolRow(
        pool_id=row["pool_id"],
        kind=PoolKind(row["kind"]),
        thresholds=Thresholds(**limits),
        policy=load(row["policy"]),
        paused_until=moment(row["paused_until"]),
        created_at=moment(row["created_at"]),
        last_worker=row["last_worker"],
    )


_WORKER_TIMES = ("heartbeat_at", "created_at", "started_at", "ready_at", "drain_deadline", "ended_at", "reaped_at")
_WORKER_JSON = ("gpu", "meta")
_WORKER_PLAIN = frozenset(Worker.__dataclass_fields__) - {*_WORKER_TIMES, *_WORKER_JSON, "capabilities", "status"}


def worker_of(row: Row) -> Worker:
    fields = _fields(row, _WORKER_PLAIN, _WORKER_TIMES, _WORKER_JSON)
    return Worker(**fields, capabilities=tuple(load(row["capabilities"])), status=WorkerStatus(row["status"]))


def _fields(row: Row, plain: Iterable[str], times: Iterable[str], documents: Iterable[str]) -> dict[str, Any]:
    values: dict[str, Any] = {name: row[name] for name in plain}
    values |= {name: moment(row[name]) for name in times}
    return values | {name: load(row[name]) for name in documents}


def event_of(pool_id: str, row: Row | Mapping[str, Any]) -> Event:
    payload = row["payload"]
    return Event(
        pool_id=pool_id,  # type: ignore[arg-type]
        sequence_id=row["sequence_id"],
        type=row["type"],
        scope=Scope(row["scope"]),
        worker_id=row["worker_id"],
        slot=row["slot"],
        payload=load(payload) if isinstance(payload, str) else payload,
        created_at=instant(row["created_at"]),
    )


def event_json(event: NewEvent) -> dict[str, Any]:
    return {
        "type": str(event.type),
        "scope": str(event.scope),
        "worker_id": event.worker_id,
        "slot": event.slot,
        "payload": dict(event.payload),
    }


def lease_of(row: Row) -> Lease:
    return Lease(name=row["name"], owner=row["owner"], epoch=row["epoch"], expires_at=instant(row["expires_at"]))


def beat_of(row: Row) -> Beat:
    return Beat(
        pool_id=row["pool_id"],
        n=row["n"],
        owner=row["owner"],
        epoch=row["epoch"],
        at=instant(row["at"]),
        view=load(row["view"]),
        actions=load(row["actions"]),
        why_not=row["why_not"],
        error=row["error"],
        duration=timedelta(microseconds=row["duration_us"]),
        summary=load(row["summary"]),
    )


def sample_values(sample: Sample | None) -> dict[str, Any]:
    """Return a sample as query values; without a sample every value is None."""
    if sample is None:
        return _NO_SAMPLE
    return {
        "n": sample.n,
        "age_us": to_us(sample.age),
        "interval_us": to_us(sample.interval),
        "sample_phase": sample.phase,
        "sample_operations": sample.operations,
        "reads": sample.reads,
        "writes": sample.writes,
        "sample_errors": sample.errors,
        "sample_active": sample.active,
        "target": sample.target,
        "sample_cpu": sample.cpu_percent,
        "sample_memory": sample.memory_percent,
        "sample_gpu": None if sample.gpu is None else dump(dict(sample.gpu)),
        "extra": dump(dict(sample.extra)),
    } | latency_values(sample.latency)


def latency_values(latency: Histogram) -> dict[str, Any]:
    """Return a histogram as query values: its bytes, and percentiles in milliseconds for people who read the table."""
    p50, p90, p95, p99 = latency.percentiles_ns((50, 90, 95, 99))
    return {
        "latency": latency.to_bytes(),
        "p50_ms": _ms(p50),
        "p90_ms": _ms(p90),
        "p95_ms": _ms(p95),
        "p99_ms": _ms(p99),
        "avg_ms": _ms(latency.total / latency.count) if latency.least is not None else None,
        "min_ms": _ms(latency.least),
        "max_ms": _ms(latency.greatest),
    }


def _ms(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6


_NO_SAMPLE: dict[str, Any] = dict.fromkeys(sample_values(Sample(n=0, interval=timedelta())))


def sample_of(row: Row) -> StoredSample:
    return StoredSample(
        pool_id=row["pool_id"],
        worker_id=row["worker_id"],
        at=instant(row["at"]),
        n=row["n"],
        interval=timedelta(microseconds=row["interval_us"]),
        phase=row["phase"],
        operations=row["operations"],
        reads=row["reads"],
        writes=row["writes"],
        errors=row["errors"],
        latency=Histogram.from_bytes(row["latency"]),
        active=row["active"],
        target=row["target"],
        cpu_percent=row["cpu_percent"],
        memory_percent=row["memory_percent"],
        gpu=load(row["gpu"]),
        extra=load(row["extra"]),
    )


_RUN_TIMES = ("created_at", "updated_at", "started_at", "warmup_started_at", "warmup_ended_at", "ended_at")
_RUN_JSON = ("config", "controller_state", "custom_metrics")
_RUN_PLAIN = frozenset(Run.__dataclass_fields__) - {*_RUN_TIMES, *_RUN_JSON, "status"}


def run_of(row: Row) -> Run:
    return Run(**_fields(row, _RUN_PLAIN, _RUN_TIMES, _RUN_JSON), status=RunStatus(row["status"]))


def log_of(row: Row) -> Log:
    return Log(
        pool_id=row["pool_id"],
        log_id=row["log_id"],
        at=instant(row["at"]),
        worker_id=row["worker_id"],
        level=row["level"],
        logger=row["logger"],
        message=row["message"],
        details=load(row["details"]),
    )


_RESULT_TIMES = ("started_at", "ended_at")
_RESULT_JSON = ("find_max_result", "custom_metrics")
_RESULT_PLAIN = frozenset(Result.__dataclass_fields__) - {
    *_RESULT_TIMES,
    *_RESULT_JSON,
    "worker_id",
    "kind",
    "status",
    "latency",
}


def result_of(row: Row) -> Result:
    return Result(
        **_fields(row, _RESULT_PLAIN, _RESULT_TIMES, _RESULT_JSON),
        worker_id=row["worker_id"] or None,
        kind=row["kind"] or None,
        status=RunStatus(row["status"]),
        latency=Histogram.from_bytes(row["latency"]),
    )


_STEP_PLAIN = frozenset(Step.__dataclass_fields__) - {"type", "started_at", "ended_at", "queue_detected", "is_probe"}


def step_of(row: Row) -> Step:
    return Step(
        **{name: row[name] for name in _STEP_PLAIN},
        type=StepType(row["type"]),
        started_at=instant(row["started_at"]),
        ended_at=moment(row["ended_at"]),
        queue_detected=None if row["queue_detected"] is None else bool(row["queue_detected"]),
        is_probe=bool(row["is_probe"]),
    )


def execution_of(row: Row) -> Execution:
    return Execution(
        run_id=row["run_id"],
        worker_id=row["worker_id"],
        n=row["n"],
        connection=row["connection"],
        kind=row["kind"],
        started_at=instant(row["started_at"]),
        duration_ms=row["duration_ms"],
        ok=bool(row["ok"]),
        error_class=row["error_class"],
        error=row["error"],
        rows=row["rows_affected"],
        warmup=bool(row["warmup"]),
        query_text=row["query_text"],
    )


_TEMPLATE_TIMES = ("last_used_at", "created_at", "updated_at")
_TEMPLATE_PLAIN = frozenset(Template.__dataclass_fields__) - {*_TEMPLATE_TIMES, "config", "tags"}


def template_of(row: Row) -> Template:
    return Template(**_fields(row, _TEMPLATE_PLAIN, _TEMPLATE_TIMES, ("config",)), tags=tuple(load(row["tags"])))
