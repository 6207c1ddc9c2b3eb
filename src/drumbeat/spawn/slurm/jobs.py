"""Reads a cluster's jobs from squeue: from its JSON, in the shapes of Slurm 22.05 and of 23.02 and later, or from its text.

A job's comment contains scope (store), run, pool and worker: ``drumbeat:SCOPE:RUN:POOL:WORKER``, percent-encoded.
"""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from drumbeat.core.errors import Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import InstanceState
from drumbeat.spawn.names import Name

NODES_FORMAT: Final = "%R|%T"  #: of sinfo
TEXT_FORMAT: Final = "%A|%T|%r|%N|%P|%S|%U|%k"  #: of squeue, for clusters whose squeue was built without JSON

_MARK: Final = "drumbeat"
_PENDING: Final = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT", "POWER_UP_NODE"}
)
_UNUSABLE: Final = ("down", "drain", "error", "fail", "inval", "maint", "unknown")  #: beginnings of states of nodes
_ENDED: Final = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED"),
        *("NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLabel:
    """The worker and run for which a job was submitted; written into the job's comment, and read from it."""

    scope: str
    run: str
    pool_id: PoolId
    worker_id: WorkerId

    @property
    def comment(self) -> str:
        return ":".join([_MARK, *(quote(part, safe="", errors="surrogatepass") for part in self._parts)])

    @property
    def name(self) -> Name:
        return (self.pool_id, self.worker_id)

    @property
    def _parts(self) -> tuple[str, ...]:
        return (self.scope, self.run, self.pool_id, self.worker_id)

    @classmethod
    def read(cls, comment: str) -> "JobLabel | None":
        """Read a job's comment; None if Drumbeat did not write it."""
        mark, *parts = comment.split(":")
        if mark != _MARK or len(parts) != 4:
            return None
        scope, run, pool_id, worker_id = (unquote(part, errors="surrogatepass") for part in parts)
        return cls(scope=scope, run=run, pool_id=PoolId(pool_id), worker_id=WorkerId(worker_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job of a worker, as squeue shows it."""

    job_id: int
    label: JobLabel
    states: frozenset[str]  #: since 23.02 several, such as CANCELLED and COMPLETING
    reason: str = ""  #: why it is pending, or why it ended
    nodes: str = ""
    partition: str = ""
    started_at: datetime | None = None
    exit_code: int | None = None  #: negative: the signal that ended its script; None: unknown

    @property
    def state(self) -> InstanceState:
        """The job's ``InstanceState``. A completing job can still have processes, so it counts as running."""
        if "COMPLETING" in self.states:
            return InstanceState.RUNNING
        if self.states & _PENDING:
            return InstanceState.PENDING
        return InstanceState.EXITED if self.states & _ENDED else InstanceState.RUNNING

    @property
    def is_live(self) -> bool:
        return self.state is not InstanceState.EXITED

    @property
    def meta(self) -> Mapping[str, str]:
        """Details for the instance: Slurm's own states, the reason for them, the nodes and the partition."""
        reason = self.reason if self.reason != "None" else ""
        found = {"state": "+".join(sorted(self.states)), "reason": reason, "host": self.nodes, "partition": self.partition}
        return {name: value for name, value in found.items() if value}


def read_json(text: str, user_id: int) -> Sequence[SlurmJob] | None:
    """Read the answer of ``squeue --json``: the jobs of one user that belong to Drumbeat. Raises Unanswered.

    Returns None if the answer contains errors: if squeue 22.05 cannot reach the controller, it still exits with 0, but reports
    errors and an empty list of jobs.
    """
    try:
        document = json.loads(text)
        if document.get("errors"):
            return None
        return [job for row in document["jobs"] if (job := _read_row(row, user_id)) is not None]
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise Unanswered(f"expected jobs as JSON from squeue, got {text[:80]!r} ({exc}); check: squeue --json") from exc


def read_text(text: str, user_id: int) -> Sequence[SlurmJob]:
    """Read the answer of ``squeue --noheader --format=TEXT_FORMAT``: Drumbeat's jobs of one user. Raises Unanswered."""
    return list(_read_lines(text, user_id))


def read_down_partitions(text: str) -> Set[str]:
    """Read the answer of ``sinfo --noheader --format=NODES_FORMAT``: the partitions without any usable node."""
    rows = [line.rpartition("|") for line in text.splitlines() if "|" in line]
    usable = {name for name, _, state in rows if not state.startswith(_UNUSABLE) and not state.endswith("*")}
    return {name for name, _, _ in rows} - usable


def _read_row(row: Mapping[str, Any], user_id: int) -> SlurmJob | None:
    comment = row.get("comment") or ""
    label = JobLabel.read(comment if isinstance(comment, str) else comment.get("job") or "")
    if label is None or _number(row.get("user_id", user_id)) != user_id:
        return None
    states = row["job_state"]
    started = _number(row.get("start_time"))
    job = SlurmJob(
        job_id=int(row["job_id"]),
        label=label,
        states=frozenset([states] if isinstance(states, str) else states),
        reason=row.get("state_reason") or "",
        nodes=row.get("nodes") or "",
        partition=row.get("partition") or "",
        started_at=datetime.fromtimestamp(started, UTC) if started else None,
    )
    return _completed(job, _exit_code(row.get("exit_code")))


def _read_lines(text: str, user_id: int) -> Iterator[SlurmJob]:
    for line in filter(None, text.splitlines()):
        try:
            job_id, state, reason, nodes, partition, started, owner, comment = line.split("|", 7)
            label = JobLabel.read(comment)
            if label is not None and int(owner) == user_id:
                job = SlurmJob(
                    job_id=int(job_id),
                    label=label,
                    states=frozenset([state]),
                    reason=reason,
                    nodes=nodes,
                    partition=partition,
                    started_at=None if started == "N/A" else datetime.fromisoformat(started).astimezone(UTC),
                )
                yield _completed(job, None)
        except ValueError as exc:
            raise Unanswered(f"expected 8 fields from squeue, got {line[:80]!r}; check: squeue --format") from exc


def _completed(job: SlurmJob, code: int | None) -> SlurmJob:
    """Return an ended job with its exit code, and a pending job without a start time: Slurm only predicts that time."""
    if job.is_live:
        return replace(job, started_at=None if job.state is InstanceState.PENDING else job.started_at)
    return replace(job, exit_code=code if code or job.states == {"COMPLETED"} else None)


def _number(value: Any) -> int | None:
    """Read a number: plain in Slurm 22.05, an object with ``set`` and ``infinite`` in later versions. None if it is not set."""
    if isinstance(value, Mapping):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else None
    return None if value is None else int(value)


def _exit_code(value: Any) -> int | None:
    """Read an exit code: a wait status in Slurm 22.05, an object with code and signal in later versions.

    Returns a negative number for a signal, None if it is not set.
    """
    if isinstance(value, Mapping):
        killed = value.get("signal") or {}
        number = _number(killed.get("signal_id", killed.get("id")) if isinstance(killed, Mapping) else killed)
        return -number if number else _number(value.get("return_code"))
    status = _number(value)
    if status is None:
        return None
    return -(status & 0x7F) if status & 0x7F else status >> 8
