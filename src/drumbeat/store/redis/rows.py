"""Converts rows between Redis (microseconds, JSON text) and Python (datetimes, dataclasses)."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from drumbeat.core.beat import Beat, NewBeat
from drumbeat.core.errors import InvalidInput
from drumbeat.core.event import Event, NewEvent, Scope
from drumbeat.core.histogram import Histogram
from drumbeat.core.lease import Fence
from drumbeat.core.log import Log, NewLog
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, Thresholds
from drumbeat.core.sample import Sample, StoredSample
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store.interface import PoolChange
from drumbeat.store.redis.database import Argument

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
Fields = Mapping[str, str]


def to_us(duration: timedelta) -> int:
    return duration // _MICROSECOND


def at_us(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def moment(us: str | bytes | None) -> datetime | None:
    return None if us is None else instant(us)


def instant(us: str | bytes | int) -> datetime:
    """Convert a stored time to a datetime. A time outside the range of datetime becomes the earliest or latest datetime."""
    try:
        return _EPOCH + timedelta(microseconds=int(us))
    except OverflowError:
        return _FIRST if int(us) < 0 else _LAST


def dump(value: Any) -> bytes:
    """Encode a value as JSON. Raises InvalidInput if JSON cannot express it."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"expected a value that JSON can express, got {type(value).__name__}: {exc}") from exc


def load(text: str | bytes | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def fields(flat: Sequence[bytes]) -> Fields:
    """Turn Redis' flat list of a hash or stream entry (name, value, name, value, …) into a mapping."""
    words = [word.decode() for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))


def fence_arguments(fence: Fence | None) -> tuple[Argument, Argument]:
    return (None, None) if fence is None else (fence.name, fence.epoch)


def pool_arguments(pool: PoolRow) -> tuple[Argument, ...]:
    """Return the script arguments for the fields of a pool that can change: thresholds, policy, end of the pause."""
    return _limits(pool.thresholds), dump(pool.policy), at_us(pool.paused_until)


def _limits(thresholds: Thresholds) -> bytes:
    return dump({name: getattr(thresholds, name).total_seconds() for name in Thresholds.__dataclass_fields__})


def change_arguments(change: PoolChange, flat: Sequence[bytes]) -> tuple[Argument, ...]:
    """Return the script's arguments for a change of a pool: thresholds, pause and policy; None for a field to leave as it is.
    Raises StaleWrite if the policy is not as ``change.expected`` requires. If the policy changes after this check, the
    script changes nothing."""
    row = fields(flat)
    new = dump(change.policy_of(PoolId(row["pool_id"]), load(row["policy"])))
    policies = (row["policy"], new) if change.policy or change.dropped or change.expected else (None, None)
    thresholds = None if change.thresholds is None else _limits(change.thresholds)
    return thresholds, int(change.resumed), at_us(change.paused_until), *policies


def pool_of(flat: Sequence[bytes]) -> PoolRow:
    row = fields(flat)
    limits = {name: timedelta(seconds=seconds) for name, seconds in load(row["thresholds"]).items()}
    return PoolRow(
        pool_id=PoolId(row["pool_id"]),
        kind=PoolKind(row["kind"]),
        thresholds=Thresholds(**limits),
        policy=load(row["policy"]),
        paused_until=moment(row.get("paused_until")),
        created_at=moment(row.get("created_at")),
        last_worker=int(row.get("last_numbered", -1)),
    )


_TIMES = frozenset({"heartbeat_at", "created_at", "started_at", "ready_at", "drain_deadline", "ended_at", "reaped_at"})
_DOCUMENTS = frozenset({"gpu", "meta"})
_REALS = frozenset({"cpu_percent", "memory_percent"})
_TEXTS = frozenset({"worker_id", "instance", "host", "provider", "provider_ref", "phase", "error"})


def worker_of(pool_id: PoolId, flat: Sequence[bytes]) -> Worker:
    return Worker(pool_id=pool_id, **{name: _worker_field(name, value) for name, value in fields(flat).items()})


def _worker_field(name: str, value: str) -> Any:
    if name in _TEXTS:
        return value
    if name in _TIMES:
        return instant(value)
    if name in _REALS:
        return float(value)
    if name in _DOCUMENTS:
        return load(value)
    if name == "capabilities":
        return tuple(load(value))
    return WorkerStatus(value) if name == "status" else int(value)


def event_arguments(event: NewEvent) -> tuple[Argument, ...]:
    return str(event.type), str(event.scope), event.worker_id, event.slot, dump(event.payload)


def event_of(pool_id: PoolId, entry: Sequence[Any]) -> Event:
    row = fields(entry[1])
    worker_id, slot = row.get("worker_id"), row.get("slot")
    return Event(
        pool_id=pool_id,
        sequence_id=entry_number(entry),
        type=row["type"],
        scope=Scope(row["scope"]),
        worker_id=None if worker_id is None else WorkerId(worker_id),
        slot=None if slot is None else int(slot),
        payload=load(row["payload"]),
        created_at=instant(row["at"]),
    )


def entry_number(entry: Sequence[bytes]) -> int:
    return int(entry[0].partition(b"-")[0])


def decoded_event(pool_id: PoolId, event: NewEvent, number: int, at: datetime) -> Event:
    """Return the stored event for an event that was just appended under this number."""
    return Event(
        pool_id=pool_id,
        sequence_id=number,
        type=str(event.type),
        scope=event.scope,
        worker_id=event.worker_id,
        slot=event.slot,
        payload=load(dump(event.payload)),
        created_at=at,
    )


def beat_body(beat: NewBeat) -> bytes:
    body = {name: getattr(beat, name) for name in NewBeat.__dataclass_fields__}
    return dump(body | {"duration": to_us(beat.duration)})


def beat_of(pool_id: PoolId, entry: Sequence[Any]) -> Beat:
    _, at, _, body = entry[1]
    return beat_from(pool_id, entry_number(entry), at, body)


def beat_from(pool_id: PoolId, n: int, at: bytes, body: bytes) -> Beat:
    values = load(body)
    values["duration"] = timedelta(microseconds=values["duration"])
    return Beat(pool_id=pool_id, n=n, at=instant(at), **values)


def log_body(log: NewLog) -> bytes:
    return dump({"level": log.level, "logger": log.logger, "message": log.message, "details": log.details})


def log_of(pool_id: PoolId, entry: Sequence[Any]) -> Log:
    _, at, _, worker, _, _, _, body = entry[1]
    worker_id = WorkerId(worker.decode()) if worker != b"\0" else None
    return Log(pool_id=pool_id, log_id=entry_number(entry), at=instant(at), worker_id=worker_id, **load(body))


_UNCONVERTED = tuple(name for name in Sample.__dataclass_fields__ if name not in {"age", "interval", "latency"})


def sample_arguments(sample: Sample | None) -> tuple[Argument, ...]:
    """Return a sample as script arguments (number, age, body); three times None if there is no sample."""
    if sample is None:
        return None, None, None
    measured = {name: getattr(sample, name) for name in _UNCONVERTED}
    body = measured | {"interval": to_us(sample.interval), "latency": sample.latency.to_bytes()}
    return sample.n, to_us(sample.age), msgspec.msgpack.encode(body)


def sample_of(pool_id: PoolId, worker: bytes, at: bytes, body: bytes) -> StoredSample:
    values = msgspec.msgpack.decode(body)
    values["interval"] = timedelta(microseconds=values["interval"])
    values["latency"] = Histogram.from_bytes(values["latency"])
    return StoredSample(pool_id=pool_id, worker_id=WorkerId(worker.decode()), at=instant(at), **values)
