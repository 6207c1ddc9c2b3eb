"""A child process that runs jobs for its worker, one at a time: python -m drumbeat.pool.worker.child_process [text|json LEVEL]

It reads requests from standard input and writes responses to standard output as frames: four bytes of length, then JSON.
For handlers and the programs that they start, standard input is empty and standard output is standard error. Log lines go
there too, if the arguments name their format and lowest level. When the requests end, the worker is gone, and this process
exits at once.
"""

import json
import os
import struct
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from queue import SimpleQueue
from typing import Any, BinaryIO

import msgspec

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import Job
from drumbeat.pool.payload import as_json
from drumbeat.pool.worker.context import JobContext, JobFailure
from drumbeat.pool.worker.executors import call
from drumbeat.pool.worker.failures import HandlerFailure, failure
from drumbeat.pool.worker.handlers import Handler, load
from drumbeat.pool.worker.log_context import CURRENT_JOB, JobLogFilter
from drumbeat.runtime.log_output import logging_to_stderr, stderr_handler

Messages = SimpleQueue[dict[str, Any]]

_LENGTH = struct.Struct(">I")


def main() -> None:
    """Run the jobs that the worker sends on standard input, until standard input ends."""
    requests: Messages = SimpleQueue()
    answers: Messages = SimpleQueue()
    stream, responses = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    threading.Thread(target=_listen, args=(stream, requests, answers), daemon=True).start()
    with _logging(sys.argv[1:]):
        while True:
            _write(responses, _work(requests.get(), responses, answers))


def _logging(arguments: Sequence[str]) -> AbstractContextManager[None]:
    """Write log lines, each with its job, to standard error; ``arguments`` are format and lowest level, or empty: no change."""
    if not arguments:
        return nullcontext()
    log_format, level = arguments
    return logging_to_stderr(int(level), stderr_handler(as_json=log_format == "json", only=JobLogFilter()))


def _listen(stream: BinaryIO, requests: Messages, answers: Messages) -> None:
    while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
        message = json.loads(stream.read(_LENGTH.unpack(head)[0]))
        (requests if "handler" in message else answers).put(message)
    os._exit(0)


def _work(request: dict[str, Any], responses: BinaryIO, answers: Messages) -> dict[str, Any]:
    """Import the handler of a request and, if the request has a job, run it. Returns the last response to the request."""
    try:
        _write(responses, {"begun": True})
        handler = load(request["handler"])
        return _run(handler, request, responses, answers) if "job" in request else {"result": None}
    except BaseException as exc:
        return {"failure": _failure_json(failure(exc))}


def _run(handler: Handler, request: dict[str, Any], responses: BinaryIO, answers: Messages) -> dict[str, Any]:
    def report(_: JobContext, share: float, note: str | None) -> None:
        _write(responses, {"progress": share, "note": note})

    def report_lock(is_locked: bool) -> None:
        _write(responses, {"is_locked": is_locked})

    def ask_parents() -> list[Job]:
        with _ASKING:  # one request at a time: a thread of an earlier job may still wait for its answer
            _write(responses, {"asks": "parents"})
            answer = answers.get()
        if "error" in answer:
            raise JobFailure(answer["error"])
        return msgspec.convert(answer["parents"], list[Job])

    deadline = None if request["deadline"] is None else datetime.fromisoformat(request["deadline"])
    context = JobContext(Job(**request["job"]), deadline, report, request["store_url"], report_lock)
    context.headers, context.most_bytes = request["headers"], request["most_bytes"]
    context.ask_parents_by(ask_parents)
    CURRENT_JOB.set(context)
    return {"result": as_json(call(handler, context), "result", context.most_bytes)}


def _failure_json(found: HandlerFailure) -> dict[str, Any]:
    wait = None if found.retry_in is None else found.retry_in.total_seconds()
    return {"error": found.error, "fatal": found.fatal, "retry_in": wait}


def _write(responses: BinaryIO, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    with _WRITING:
        responses.write(_LENGTH.pack(len(body)) + body)
        responses.flush()


_WRITING = threading.Lock()
_ASKING = threading.Lock()

if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, BrokenPipeError, InvalidInput):
        sys.exit(1)
