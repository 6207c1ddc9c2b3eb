"""SQL table ``job_steps``: the durable steps of jobs, and the events that were sent to them."""

from collections.abc import Sequence
from typing import Any

from drumbeat.core.errors import NotFound
from drumbeat.core.job import ENDED, JobId, JobStatus, Token
from drumbeat.core.job_step import JobStep, NewStep, StepKind, in_step_order
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder
from drumbeat.store.job_ids import number_of
from drumbeat.store.job_outcomes import ended_job
from drumbeat.store.sql.database import Database, NotifyingQueue, Row, Script, transact_again
from drumbeat.store.sql.job_rows import holder_values, json_text, result_text, rows_json, text
from drumbeat.store.sql.rows import at_us, instant, load, moment


class SqlJobSteps:
    """Records the steps of jobs, many in one statement, and sends events to jobs."""

    def __init__(self, database: Database, queue: NotifyingQueue) -> None:
        self._database = database
        self._queue = queue

    async def record(self, holder: Holder, steps: Sequence[NewStep]) -> Sequence[Token]:
        numbers = await self._queue.numbers(new.token for new in steps)
        rows = {
            (number, new.token.epoch, new.step.position): _values(number, new)
            for new in steps
            if (number := numbers.get(new.token.job_id))
        }
        values = holder_values(holder) | {"steps": rows_json([*rows.values()])}
        written = await self._database.write("record_steps", values) if rows else ()
        held = {(row["seq"], row["lease_epoch"]) for row in written}
        tokens = dict.fromkeys(new.token for new in steps)
        return [token for token in tokens if (numbers.get(token.job_id), token.epoch) not in held]

    async def list(self, job_id: JobId) -> Sequence[JobStep]:
        number = await self._number(job_id)
        return in_step_order([_step(row) for row in await self._database.read("list_job_steps", {"seq": number})])

    async def send(self, job_id: JobId, name: str, value: Any) -> bool:
        number, result = await self._number(job_id), json_text(value, "event")
        pool_id = await transact_again(self._database, lambda: _send(job_id, number, name, result))
        if pool_id is not None:
            await self._queue.notify([pool_id])
        return pool_id is not None

    async def _number(self, job_id: JobId) -> int:
        number = number_of(job_id)
        by_id, by_number = ("find_job_by_id", {"job_id": job_id}), ("find_job_by_number", {"seq": number})
        rows = await self._database.read(*(by_id if number is None else by_number))
        if not rows:
            raise _no_job(job_id)
        return int(rows[0]["seq"])


def _send(job_id: JobId, number: int, name: str, result: str) -> Script[PoolId | None]:
    """Keep an event, and make a job due that waits for it. Returns the job's pool; None if the event was sent before."""
    rows = yield "lock_job", {"seq": number}
    if not rows:
        raise _no_job(job_id)
    known = yield "list_events_named", {"seq": number, "name": name}
    if any(row["kind"] == StepKind.SENT for row in known):
        return None
    status = JobStatus(rows[0]["status"])
    if status in ENDED:
        raise ended_job(job_id, status)
    waits = status is JobStatus.PENDING and any(row["finished_at"] is None for row in known)
    yield "add_event", {"seq": number, "n": -(rows[0]["events_sent"] + 1), "name": name, "result": result}
    yield "note_event", {"seq": number, "wakes": int(waits)}
    return PoolId(rows[0]["pool_id"])


def _values(number: int, new: NewStep) -> dict[str, Any]:
    step = new.step
    return {
        "seq": number,
        "epoch": new.token.epoch,
        "n": step.position,
        "name": step.name,
        "kind": str(step.kind),
        "result": result_text(step.result),
        "error": text(step.error),
        "started_at": at_us(step.started_at),
        "finished_at": at_us(step.finished_at),
        "until": at_us(step.until),
    }


def _step(row: Row) -> JobStep:
    return JobStep(
        position=row["n"],
        name=row["name"],
        kind=StepKind(row["kind"]),
        result=load(row["result"]),
        error=row["error"],
        started_at=instant(row["started_at"]),
        finished_at=moment(row["finished_at"]),
        until=moment(row["until"]),
        epoch=row["epoch"],
    )


def _no_job(job_id: JobId) -> NotFound:
    return NotFound(f"there is no job {job_id!r}: it was never pushed, or was deleted")
