"""A small Ray head for tests: keeps jobs and packages, checks what it is sent, and can lose, delay and refuse answers.

A job's command is not run. ``exit N`` ends with that code as soon as it runs; every other command runs until it is drained or
stopped. With ``starts`` a job runs as soon as somebody looks at it.
"""

import asyncio
import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from drumbeat.core.clock import Clock
from drumbeat.spawn.ray.package import MODULE
from drumbeat.spawn.ray.supervisor import BEGUN, KEY, TASK_FILE, encrypted
from spawn.runpod.wire import Answer

TOKEN = "token-of-the-fake-ray"
NODE = "node-0123456789abcdef"
#: the fields of a submission, as Ray 2.60 checks them
FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "entrypoint": str,
    "submission_id": str,
    "runtime_env": dict,
    "metadata": dict,
    "entrypoint_num_cpus": (int, float),
    "entrypoint_num_gpus": (int, float),
    "entrypoint_memory": int,
    "entrypoint_resources": dict,
    "entrypoint_label_selector": dict,
}
_TERMINAL = {"STOPPED", "SUCCEEDED", "FAILED"}


@dataclass
class Fault:
    """What happens to the next request that fits."""

    method: str
    path: str  #: a regular expression
    status: int | None = None  #: the answer's status; None: the connection breaks
    text: str = "Traceback (most recent call last):\nRuntimeError: no reason\n"
    is_done: bool = False  #: whether the request is carried out all the same
    times: int = 1


@dataclass
class FakeRay:
    """The head. ``jobs`` are as the Jobs API returns them, by submission id."""

    clock: Clock
    token: str | None = TOKEN
    version: str = "2.60.0"
    starts: bool = False
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    packages: dict[str, bytes] = field(default_factory=dict)
    output: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str, Mapping[str, str], bytes]] = field(default_factory=list)
    stopped: set[str] = field(default_factory=set)  #: jobs that were stopped before they ran

    async def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        await asyncio.sleep(0)
        path = unquote(urlsplit(target).path)
        self.requests.append((method, path, headers, body))
        fault = next((each for each in self.faults if each.method == method and re.fullmatch(each.path, path)), None)
        if fault is None:
            return self._answer(method, path, headers, body)
        fault.times -= 1
        if fault.times == 0:
            self.faults.remove(fault)
        if fault.is_done:
            self._answer(method, path, headers, body)
        return None if fault.status is None else Answer(fault.status, fault.text.encode())

    # What happens on its nodes

    def run(self, submission_id: str) -> None:
        """Start a pending job on a node."""
        job = self.jobs[submission_id]
        if job["status"] != "PENDING":
            return
        if submission_id in self.stopped:
            self.end(submission_id, "STOPPED")
            return
        job |= {"status": "RUNNING", "driver_node_id": NODE, "driver_agent_http_address": "http://10.0.0.7:52365"}
        entrypoint = f"exec python3 -S -m {MODULE}"
        self.output[submission_id] = self.output.get(submission_id, "") + f"Running entrypoint for job {submission_id}\n"
        if job["entrypoint"] == f"{entrypoint} drain":
            assert "env_vars" not in job["runtime_env"]
            self._drain(job["runtime_env"]["py_modules"][0])
            self.end(submission_id, "SUCCEEDED", 0)
        else:
            assert job["entrypoint"] == entrypoint
            self.output[submission_id] += f"{BEGUN} {self.task(submission_id)['run']}\n"
            command = self.task(submission_id)["command"]
            if command[0] == "exit":
                self.end(submission_id, "FAILED" if int(command[1]) else "SUCCEEDED", int(command[1]))

    def task(self, submission_id: str) -> dict[str, Any]:
        """What the supervisor of a job reads: the command and the environment."""
        chosen = self.jobs[submission_id]["runtime_env"]
        content = self.packages[chosen["py_modules"][0].removeprefix("gcs://")]
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            found: dict[str, Any] = json.loads(encrypted(archive.read(TASK_FILE), chosen["env_vars"][KEY]))
        return found

    def end(self, submission_id: str, status: str, code: int | None = None, message: str | None = None) -> None:
        self.jobs[submission_id] |= {
            "status": status,
            "driver_exit_code": code,
            "end_time": int(self.clock.now().timestamp() * 1000),
            "message": message,
        }

    def _drain(self, package: str) -> None:
        for submission_id, job in self.jobs.items():
            if job["runtime_env"]["py_modules"] == [package] and job["status"] == "RUNNING" and "drain" not in submission_id:
                self.end(submission_id, "SUCCEEDED", 0)

    # Its API

    def _answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            missing = "authorization" not in headers
            return Answer(401, b"Unauthorized: Missing token") if missing else Answer(403, b"Forbidden: Invalid token")
        if self.starts:
            for submission_id in [*self.jobs]:
                self.run(submission_id)
        if method == "GET" and path == "/api/version":
            return _json({"version": "4", "ray_version": self.version, "ray_commit": "x"})
        if found := re.fullmatch(r"/api/packages/gcs/(_ray_pkg_\w+\.zip)", path):
            assert method == "PUT"
            self.packages[found[1]] = body
            return Answer(200)
        if path == "/api/jobs/":
            return _json([*self.jobs.values()]) if method == "GET" else self._submit(json.loads(body))
        found = re.fullmatch(r"/api/jobs/([^/]+)(/stop|/logs)?", path)
        return self._about(method, found[1], found[2]) if found else Answer(404, b"404: Not Found")

    def _submit(self, body: dict[str, Any]) -> Answer:
        for name, value in body.items():
            if name not in FIELDS or not isinstance(value, FIELDS[name]):
                return Answer(400, f"Traceback\nTypeError: unexpected {name} = {value!r}\n".encode())
        if not all(isinstance(value, str) for value in body["metadata"].values()):
            return Answer(400, b"Traceback\nTypeError: metadata values must be strings\n")
        submission_id = body["submission_id"]
        if submission_id in self.jobs:
            said = (
                f"Traceback\nValueError: Job with submission_id {submission_id} already exists. Please use a different one.\n"
            )
            return Answer(500, said.encode())
        for package in body["runtime_env"]["py_modules"]:
            assert package.removeprefix("gcs://") in self.packages
        now = int(self.clock.now().timestamp() * 1000)
        told = "Job has not started yet. It may be waiting for resources."
        known = {"type": "SUBMISSION", "status": "PENDING", "start_time": now, "end_time": None, "message": told}
        self.jobs[submission_id] = {"driver_exit_code": None, "driver_node_id": None, **body, **known}
        return _json({"job_id": submission_id, "submission_id": submission_id})

    def _about(self, method: str, submission_id: str, what: str | None) -> Answer:
        job = self.jobs.get(submission_id)
        if job is None:
            return Answer(404, f"Job {submission_id} does not exist".encode())
        if method == "POST" and what == "/stop":
            if job["status"] == "RUNNING":
                self.end(submission_id, "STOPPED")
            elif job["status"] == "PENDING":
                self.stopped.add(submission_id)
            return _json({"stopped": True})
        if method == "DELETE":
            if job["status"] not in _TERMINAL:
                return Answer(500, b"Traceback\nRuntimeError: it is in a non-terminal state\n")
            del self.jobs[submission_id]
            return _json({"deleted": True})
        assert method == "GET"
        return _json({"logs": self.output.get(submission_id, "")}) if what == "/logs" else _json(job)


def _json(value: object) -> Answer:
    return Answer(200, json.dumps(value).encode(), (("Content-Type", "application/json"),))
