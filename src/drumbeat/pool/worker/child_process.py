"""A child process that runs jobs for its worker, one at a time: python -m drumbeat.pool.worker.child_process

What it reads from standard input and writes to standard output are frames: four bytes of length, then JSON. What handlers
print goes to standard error. When standard input ends the worker is gone, and so is this process, whatever it is doing.
"""

import json
import os
import struct
import sys
import threading
from datetime import datetime
from queue import SimpleQueue
from typing import Any, BinaryIO

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import Job
from drumbeat.pool.payload import as_json
from drumbeat.pool.worker.context import JobContext
from drumbeat.pool.worker.executors import call
from drumbeat.pool.worker.failures import HandlerFailure, failure
from drumbeat.pool.worker.handlers import load

_LENGTH = struct.Struct(">I")


def main() -> None:
    """Serve until standard input ends."""
    orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=_listen, args=(sys.stdin.buffer, orders), daemon=True).start()
    while True:
        _write(answers, _work(orders.get(), answers))


def _listen(stream: BinaryIO, orders: SimpleQueue[dict[str, Any]]) -> None:
    while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
        orders.put(json.loads(stream.read(_LENGTH.unpack(head)[0])))
    os._exit(0)


def _work(order: dict[str, Any], answers: BinaryIO) -> dict[str, Any]:
    def tell(share: float, note: str | None) -> None:
        _write(answers, {"progress": share, "note": note})

    deadline = None if order["deadline"] is None else datetime.fromisoformat(order["deadline"])
    context = JobContext(Job(**order["job"]), deadline, tell)
    try:
        return {"result": as_json(call(load(order["handler"]), context), "result")}
    except BaseException as exc:
        return {"failure": _told(failure(exc))}


def _told(found: HandlerFailure) -> dict[str, Any]:
    wait = None if found.retry_in is None else found.retry_in.total_seconds()
    return {"error": found.error, "fatal": found.fatal, "retry_in": wait}


def _write(answers: BinaryIO, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    with _WRITING:
        answers.write(_LENGTH.pack(len(body)) + body)
        answers.flush()


_WRITING = threading.Lock()

if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, BrokenPipeError, InvalidInput):
        sys.exit(1)
