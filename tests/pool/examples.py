"""Handlers that tests find by name."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from drumbeat.pool.worker.context import JobContext, JobFailure


class Paper(BaseModel):
    title: str
    pages: int = 1


@dataclass
class Author:
    name: str
    age: int


IMPORTED = time.monotonic()


def imported_at() -> float:
    return IMPORTED


def leave_a_reader(payload: Any) -> int:
    """Start a program that reads standard input and outlives this job; returns its process id."""
    return subprocess.Popen(["cat"], stdout=subprocess.DEVNULL).pid


def read_input() -> str:
    return sys.stdin.read() + subprocess.run(["cat"], capture_output=True, text=True, check=True).stdout


def start_and_wait(payload: Any, context: JobContext) -> None:
    """Start a program, tell its process id, and wait for it."""
    with subprocess.Popen(["sleep", "3600"]) as program:
        context.progress(0.5, str(program.pid))


def complain(payload: str) -> None:
    logging.getLogger("papers").warning("complaint: %s", payload, extra={"page": 7})


def echo(payload: Any) -> Any:
    return payload


async def echo_async(payload: Any) -> Any:
    await asyncio.sleep(0)
    return payload


def read_paper(paper: Paper) -> Paper:
    return Paper(title=paper.title.upper(), pages=paper.pages + 1)


class Account(BaseModel):
    model_config = ConfigDict(strict=True)

    user_id: int = Field(alias="userId")
    since: date


def read_account(account: Account) -> Account:
    return account


def greet(author: Author, context: JobContext) -> dict[str, Any]:
    return {"hello": author.name, "attempt": context.attempt}


def nothing_given() -> str:
    return "done"


def only_context(context: JobContext) -> str:
    return context.job_id


def too_many(payload: Any, other: Any) -> None: ...


def fail(payload: Any) -> None:
    raise ValueError(f"cannot read {payload}")


def fail_for_good(payload: Any) -> None:
    raise JobFailure("withdrawn", fatal=True)


def leave(payload: Any) -> None:
    sys.exit(3)


def kill_oneself(payload: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def chatter(payload: Any) -> str:
    print("this is not the answer", flush=True)
    return "the answer"


def where(payload: Any) -> int:
    return os.getpid()


def in_steps(payload: Any, context: JobContext) -> None:
    context.progress(0.5, "half")
    time.sleep(0.05)


def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "rested"


def spin(seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "dizzy"


def spin_for_ever(payload: Any, context: JobContext) -> None:
    context.progress(0.0, "begun")
    while True:
        pass


def mark_and_wait(payload: dict[str, Any]) -> str:
    """Note that it has begun; wait until there is a file that lets it go on."""
    with Path(payload["began"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    while not Path(payload["go"]).exists():
        time.sleep(0.01)
    return "done"


not_a_function = 3


def parents_plain(context: JobContext) -> Any:
    return [parent.result for parent in context.parents_blocking()]


async def parents_async(context: JobContext) -> Any:
    return [[parent.result, parent.status, parent.backoff.first.total_seconds()] for parent in await context.parents()]


def ask_and_leave(context: JobContext) -> str:
    """Ask for parents in a thread that is not waited for."""
    threading.Thread(target=context.parents_blocking, daemon=True).start()
    return "left"
