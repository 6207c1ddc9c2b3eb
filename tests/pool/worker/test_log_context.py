"""Log records of a handler carry their job."""

import json
import logging
from collections.abc import Iterator

import pytest

import drumbeat
from drumbeat.core.pool import PoolId
from drumbeat.runtime.log_output import stderr_handler

log = logging.getLogger("handlers")


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.addFilter(drumbeat.JobLogFilter())

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


async def speak() -> None:
    log.warning("async")


def speak_in_a_thread() -> None:
    log.warning("thread")


@pytest.mark.parametrize(("handler", "executor"), [(speak, "async"), (speak_in_a_thread, "async"), (speak, "threads")])
async def test_a_record_of_a_handler_has_its_job(handler: object, executor: str, kept: Kept) -> None:
    async with drumbeat.connect("memory:") as db:
        job_id = await db.pool("papers").push(None, type="t")
        await db.work("papers", handler, executor=executor)  # type: ignore[arg-type]
    log.warning("after")

    (record, after) = kept.records
    assert (vars(record)["job_id"], vars(record)["pool"]) == (job_id, "papers")
    assert (vars(record)["type"], vars(record)["attempt"]) == ("t", 1)
    assert not hasattr(after, "job_id")


async def test_stored_log_lines_have_their_job() -> None:
    async def complain() -> None:
        logging.getLogger("drumbeat.mine").warning("complaint")

    async with drumbeat.connect("memory:") as db:
        job_id = await db.pool("papers").push(None)
        await db.work("papers", complain)
        lines = await (await db._store()).logs.list(PoolId("papers"))

    assert [line.details for line in lines if line.message == "complaint"] == [
        {"job_id": job_id, "pool": "papers", "type": "", "attempt": 1}
    ]


def record(**extra: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "n", "levelname": "WARNING", "msg": "said %d", "args": (3,), "created": 0.0, **extra})


def test_a_json_line_has_the_job_and_the_fields_of_extra() -> None:
    formatter = stderr_handler(as_json=True).formatter
    assert formatter is not None

    found = json.loads(formatter.format(record(job_id="j1", odd={1})))

    assert found == {
        "time": "1970-01-01T00:00:00.000+00:00",
        "level": "WARNING",
        "logger": "n",
        "message": "said 3",
        "job_id": "j1",
        "odd": "{1}",
    }


def test_a_text_line_ends_with_the_job() -> None:
    formatter = stderr_handler(as_json=False).formatter
    assert formatter is not None

    assert formatter.format(record(job_id="j1")).endswith("WARNING n: said 3 [job j1]")
    assert formatter.format(record()).endswith("WARNING n: said 3")
