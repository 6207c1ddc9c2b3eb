"""The durable steps of jobs, in Redis: one hash for each job, which maps the position of a step to its JSON text."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from drumbeat.core.errors import NotFound
from drumbeat.core.job import JobId, Token
from drumbeat.core.job_step import JobStep, NewStep, StepKind, in_step_order
from drumbeat.core.worker import Holder
from drumbeat.store.redis.database import RedisDatabase
from drumbeat.store.redis.job_rows import as_json, holder_argument
from drumbeat.store.redis.rows import at_us, instant


class _StoredStep(msgspec.Struct, omit_defaults=True, frozen=True):
    """A step as it is stored; times are in microseconds."""

    position: int
    name: str
    kind: StepKind
    started_at: int
    finished_at: int | None = None
    until: int | None = None
    epoch: int = 0
    error: str | None = None
    result: Any = None


_pack = msgspec.msgpack.Encoder().encode
_read_steps = msgspec.json.Decoder(list[_StoredStep]).decode


class RedisJobSteps:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def record(self, holder: Holder, steps: Sequence[NewStep]) -> Sequence[Token]:
        if not steps:
            return []
        arguments = _pack([_step_arguments(new) for new in steps])
        stale = await self._database.run("step_record", holder_argument(holder), arguments)
        return [*dict.fromkeys(steps[n].token for n in stale)]

    async def list(self, job_id: JobId) -> Sequence[JobStep]:
        found = await self._database.run("step_list", job_id)
        if found is None:
            raise _no_job(job_id)
        return in_step_order([_step(stored) for stored in _read_steps(found)])

    async def send(self, job_id: JobId, name: str, value: Any) -> bool:
        sent = await self._database.run("step_send", job_id, name, as_json(value, "event"))
        if sent is None:
            raise _no_job(job_id)
        return bool(sent)


def _step_arguments(new: NewStep) -> tuple[Any, ...]:
    step = new.step
    stored = _StoredStep(
        position=step.position,
        name=step.name,
        kind=step.kind,
        started_at=at_us(step.started_at) or 0,
        finished_at=at_us(step.finished_at),
        until=at_us(step.until),
        epoch=new.token.epoch,
        error=step.error,
        result=step.result,
    )
    event = step.name if step.kind is StepKind.EVENT else None
    return new.token.job_id, new.token.epoch, step.position, as_json(stored, "step"), event, step.finished_at is not None


def _step(stored: _StoredStep) -> JobStep:
    return JobStep(
        position=stored.position,
        name=stored.name,
        kind=stored.kind,
        result=stored.result,
        error=stored.error,
        started_at=instant(stored.started_at),
        finished_at=_moment(stored.finished_at),
        until=_moment(stored.until),
        epoch=stored.epoch,
    )


def _moment(us: int | None) -> datetime | None:
    return None if us is None else instant(us)


def _no_job(job_id: JobId) -> NotFound:
    return NotFound(f"there is no job {job_id!r}: it was never pushed, or was deleted")
