"""Middleware and large values on every store, with real workers."""

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import drumbeat
from drumbeat.core.job import JobStatus
from drumbeat.pool.envelope import open_envelope

MODULE = """
import logging

class Stamp:
    def before_push(self, push):
        for job in push.jobs:
            job.headers["stamp"] = "pushed"

    def before_attempt(self, attempt):
        attempt.headers["seen"] = "yes"

def handle(payload, context):
    logging.getLogger("app").warning("working")
    return {"headers": dict(context.headers), "length": len(payload), "back": payload}
"""


class Stamp:
    def __init__(self) -> None:
        self.times: list[tuple[datetime | None, datetime | None]] = []

    def before_push(self, push: drumbeat.PushCall) -> None:
        for job in push.jobs:
            job.headers["stamp"] = "pushed"

    def before_attempt(self, attempt: drumbeat.AttemptCall) -> None:
        self.times.append((attempt.job.created_at, attempt.job.begun_at or attempt.job.claimed_at))


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMBEAT_LARGE", f"file://{tmp_path}/large")
    monkeypatch.setenv("DRUMBEAT_MAX_INLINE", "1KB")
    return tmp_path / "large"


async def test_headers_and_large_values_survive_every_store(any_url: str, large: Path) -> None:
    seen: list[dict[str, str]] = []

    async def handle(payload: str, context: drumbeat.JobContext) -> str:
        seen.append(dict(context.headers))
        return payload.upper()

    stamp = Stamp()
    async with drumbeat.connect(any_url, middleware=[stamp]) as db:
        pool = db.pool("papers")
        ids = [await pool.push("small"), await pool.push("x" * 5000), *await pool.push_many(["é" * 3000], type="t")]
        await db.work("papers", handle)

        assert [await pool.result(job_id) for job_id in ids] == ["SMALL", "X" * 5000, "É" * 3000]
        assert [job.payload for job in await pool.list()] == ["small", "x" * 5000, "é" * 3000]
        stored = await (await db._store()).jobs.get(ids[1])
    assert seen == [{"stamp": "pushed"}] * 3
    assert all(pushed and begun and pushed <= begun for pushed, begun in stamp.times)
    assert open_envelope(stored.payload).large is not None
    assert len(list(large.rglob("*.json"))) == 4


async def test_a_worker_of_the_command_line_has_middleware_and_large_values(tmp_path: Path, large: Path) -> None:
    (tmp_path / "app.py").write_text(MODULE)
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with drumbeat.connect(url, middleware=[Stamp()]) as db:
        pool = db.pool("papers")
        await pool.create()
        job_id = await pool.push("x" * 5000)

        done = _work(url, "--middleware", "app:Stamp", "--log-format", "json", "--executor", "processes")

        assert done.returncode == 0, done.stderr
        result: Any = await pool.result(job_id)
    assert result == {"headers": {"stamp": "pushed", "seen": "yes"}, "length": 5000, "back": "x" * 5000}


async def test_a_worker_writes_json_with_the_job_and_refuses_unknown_middleware(tmp_path: Path, large: Path) -> None:
    (tmp_path / "app.py").write_text(MODULE)
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with drumbeat.connect(url) as db:
        pool = db.pool("papers")
        job_id = await pool.push("abc")

        refused = _work(url, "--middleware", "app:Nothing")
        status = (await pool.job(job_id)).status
        done = _work(url, "--log-format", "json")

    assert refused.returncode == 1
    assert "module 'app' has no 'Nothing'; expected an object with hooks of that module" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert status is JobStatus.PENDING
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    (said,) = [line for line in lines if line["message"] == "working"]
    assert (said["job_id"], said["pool"], said["attempt"]) == (job_id, "papers", 1)


def _work(url: str, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "drumbeat", "pool", "work", "papers", "--drain", "--handler", "app:handle"]
    return subprocess.run(
        [*command, "--store", url, *options], capture_output=True, text=True, timeout=120, check=False, env={**os.environ}
    )
