"""Ray's jobs as instances: their names, states and output."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Instance, InstanceState
from drumbeat.spawn.names import DNS_LABEL, Name, instance_name
from drumbeat.spawn.ray.supervisor import BEGUN

SCOPE: Final = "drumbeat_store"  #: key in a job's metadata: a hash that tells stores and engines apart
POOL: Final = "drumbeat_pool"  #: key in a job's metadata: the worker's pool
WORKER: Final = "drumbeat_worker"  #: key in a job's metadata: the worker's id
RUN: Final = "drumbeat_run"  #: key in a job's metadata: a random id of this start, also in the first line of the output
DRAINS: Final = "drumbeat_drains"  #: key in the metadata of a job that drains a worker: the submission id of the worker's job

_STATES: Final[Mapping[str, InstanceState]] = {
    "PENDING": InstanceState.PENDING,
    "RUNNING": InstanceState.RUNNING,
    "STOPPED": InstanceState.EXITED,
    "SUCCEEDED": InstanceState.EXITED,
    "FAILED": InstanceState.EXITED,
}
_LONGEST_REASON: Final = 300
_RAYS_LINE: Final = "Running entrypoint for job"  #: Ray writes it before or after the first lines of the command itself
_RAYS_SUMMARY: Final = "Job entrypoint command failed"  #: a message that repeats the last lines of the output


class RayJob(msgspec.Struct, frozen=True):
    """A job as the Jobs API returns it: only the fields that are used here."""

    status: str
    type: str = "SUBMISSION"
    submission_id: str | None = None
    message: str | None = None
    metadata: dict[str, str] | None = None
    runtime_env: dict[str, Any] | None = None
    start_time: int | None = None  #: in milliseconds since 1970; so is end_time
    end_time: int | None = None
    driver_exit_code: int | None = None
    driver_node_id: str | None = None
    driver_agent_http_address: str | None = None

    @property
    def id(self) -> str:
        return self.submission_id or ""

    @property
    def state(self) -> InstanceState:
        """Ray's status as an ``InstanceState``. A status that this version of Drumbeat does not know counts as running."""
        return _STATES.get(self.status, InstanceState.RUNNING)

    @property
    def is_live(self) -> bool:
        return self.state is not InstanceState.EXITED

    @property
    def name(self) -> Name:
        """The ids of the pool and the worker to which the job belongs."""
        known = self.metadata or {}
        return PoolId(known.get(POOL, "")), WorkerId(known.get(WORKER, ""))

    @property
    def run(self) -> str:
        return (self.metadata or {}).get(RUN, "")

    @property
    def drains(self) -> str | None:
        """For a job that drains a worker: the submission id of the worker's job. None for a worker's job."""
        return (self.metadata or {}).get(DRAINS)

    @property
    def host(self) -> str | None:
        """The address of the node on which the job runs; None if it has not begun."""
        return None if self.driver_agent_http_address is None else urlsplit(self.driver_agent_http_address).hostname

    def is_of(self, scope: str) -> bool:
        return (self.metadata or {}).get(SCOPE) == scope

    def instance(self, price_per_hour: float, wanted: str) -> Instance:
        """Return the job as an instance. ``wanted`` names the resources of a worker, to say what a pending job waits for."""
        pool_id, worker_id = self.name
        meta: dict[str, Any] = {"submission_id": self.id, "status": self.status}
        if self.driver_node_id is not None:
            meta["node"] = self.driver_node_id
        if self.host is not None:
            meta["host"] = self.host
        if self.message and (self.status == "PENDING" or (self.status == "FAILED" and self.driver_exit_code is None)):
            waits = f" It asks for {wanted}; compare with: ray status" if self.status == "PENDING" else ""
            meta["reason"] = " ".join(self.message.split())[:_LONGEST_REASON] + waits
        return Instance(
            pool_id=pool_id,
            worker_id=worker_id,
            ref=f"{self.id}:{self.run}",
            state=self.state,
            started_at=None if self.start_time is None else datetime.fromtimestamp(self.start_time / 1000, UTC),
            exit_code=self.driver_exit_code if not self.is_live else None,
            price_per_hour=price_per_hour,
            meta=meta,
        )


def job_name(scope: str, name: Name) -> str:
    """Return the prefix of the submission ids of a worker's jobs. In each id, a dash and a number follow the prefix."""
    return instance_name(scope, *name, longest=DNS_LABEL)


def latest(jobs: Sequence[RayJob]) -> RayJob | None:
    """Return the worker's current job: the oldest live job; if all have ended, the one started last. None if there are no jobs.

    A later live job is a duplicate, which the controller that submitted it stops.
    """
    live = [job for job in jobs if job.is_live]
    if live:
        return min(live, key=lambda job: (job.start_time or 0, job.id))
    return max(jobs, key=lambda job: (job.start_time or 0, job.id), default=None)


def own_output(text: str, run: str) -> str | None:
    """Return the worker's part of a job's output, which follows Ray's own lines; None if the worker was not started."""
    found = re.search(rf"^{re.escape(BEGUN)} {re.escape(run)}\n", text, re.MULTILINE)
    return text[found.end() :] if found else None


def rays_output(text: str, message: str) -> str:
    """Return the output and Ray's message of a job whose worker was never started, without the line that shows the command."""
    said = [line for line in text.splitlines() if not line.startswith(_RAYS_LINE)]
    return "\n".join([*said, *([] if message.startswith(_RAYS_SUMMARY) else [message])])


def last_lines(text: str, lines: int) -> str:
    """Return the last lines of a text."""
    return "".join(text.splitlines(keepends=True)[-lines:]) if lines > 0 else ""
