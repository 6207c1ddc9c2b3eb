"""Reads what Snowflake reports of services and containers, and derives from it whether a worker runs and how it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from drumbeat.spawn.interface import Instance, InstanceState
from drumbeat.spawn.names import Name
from drumbeat.spawn.spcs.problems import one_line
from drumbeat.spawn.spcs.statements import CONTAINER, Row, read_comment

#: the states of a job service. One that is being deleted still runs: its container has up to 30 seconds to finish
_STATES: Final[Mapping[str, InstanceState]] = {
    "PENDING": InstanceState.PENDING,
    "RUNNING": InstanceState.RUNNING,
    "SUSPENDING": InstanceState.RUNNING,
    "SUSPENDED": InstanceState.PENDING,
    "DELETING": InstanceState.RUNNING,
    "DONE": InstanceState.EXITED,
    "FAILED": InstanceState.EXITED,
    "INTERNAL_ERROR": InstanceState.EXITED,
    "DELETED": InstanceState.EXITED,
}
_USUAL: Final = ("", "running", "waiting to start", "completed successfully")  #: messages that mean no problem


@dataclass(frozen=True, slots=True, kw_only=True)
class SpcsService:
    """A job service of a worker, as SHOW SERVICES and DESCRIBE SERVICE list it."""

    service: str  #: its name
    status: str
    name: Name
    token: str  #: a random text that tells this start from others of the same name
    created_on: datetime | None = None
    updated_on: datetime | None = None
    compute_pool: str = ""

    @property
    def ref(self) -> str:
        return f"{self.service}:{self.token}"

    @property
    def state(self) -> InstanceState:
        """The status as an ``InstanceState``. A status that this version of Drumbeat does not know counts as pending."""
        return _STATES.get(self.status, InstanceState.PENDING)

    @property
    def is_alive(self) -> bool:
        return self.state is not InstanceState.EXITED

    @property
    def is_leaving(self) -> bool:
        return self.status == "DELETING"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpcsContainer:
    """The worker's container, as SHOW SERVICE CONTAINERS lists it."""

    status: str = ""
    message: str = ""
    started_at: datetime | None = None
    exit_code: int | None = None
    node: str = ""


def read_service(row: Row, name: Name | None = None, token: str = "") -> SpcsService | None:
    """Return the service in a row of a list; None if it is not one of Drumbeat's.

    ``name``, ``token``: the worker and its start if they are known; used if somebody has changed the service's comment.
    """
    known = read_comment(row.get("comment")) or (None if name is None else (name, token))
    if known is None or not row.get("name"):
        return None
    return SpcsService(
        service=str(row["name"]),
        status=str(row.get("status") or "").upper(),
        name=known[0],
        token=known[1],
        created_on=moment(row.get("created_on")),
        updated_on=moment(row.get("updated_on")),
        compute_pool=str(row.get("compute_pool") or ""),
    )


def read_container(rows: Sequence[Row]) -> SpcsContainer:
    """Return the worker's container from the rows of its service; an empty ``SpcsContainer`` if it does not exist yet."""
    for row in rows:
        if row.get("container_name") == CONTAINER:
            code = str(row.get("last_exit_code", ""))
            return SpcsContainer(
                status=str(row.get("status") or "").upper(),
                message=one_line(str(row.get("message") or "")),
                started_at=moment(row.get("start_time")),
                exit_code=int(code) if code.lstrip("-").isdecimal() else None,
            )
    return SpcsContainer()


def moment(value: Any) -> datetime | None:
    """Return a time that Snowflake gives as a timestamp or as text; None if it gives none that can be read."""
    if isinstance(value, str) and value.strip():
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def worker_instance(service: SpcsService, container: SpcsContainer, price: float) -> Instance:
    """Return the instance of a worker from its service and its container."""
    ended = service.state is InstanceState.EXITED
    code = 0 if container.exit_code is None and service.status == "DONE" else container.exit_code
    problem = _problem(service, container)
    details = {"service": service.service, "status": service.status, "compute_pool": service.compute_pool, "problem": problem}
    is_started = service.state is not InstanceState.PENDING
    return Instance(
        pool_id=service.name[0],
        worker_id=service.name[1],
        ref=service.ref,
        state=service.state,
        started_at=container.started_at or (service.created_on if is_started else None),
        exit_code=code if ended else None,
        price_per_hour=price,
        meta={name: value for name, value in details.items() if value},
    )


def _problem(service: SpcsService, container: SpcsContainer) -> str:
    """Return in one line why the worker cannot start, or what ended its service if not the worker itself; empty if neither."""
    said = container.message
    if service.status not in _STATES:
        return f"its service has the status {service.status or '(none)'}, which this version of Drumbeat does not know"
    if service.status == "SUSPENDED":
        return "its service is suspended, perhaps with its compute pool; resume the pool: ALTER COMPUTE POOL … RESUME"
    if said.lower().rstrip(".") in _USUAL:
        return f"its service ended with {service.status}" if service.status == "INTERNAL_ERROR" else ""
    if service.status == "PENDING":
        return f"it cannot start yet: {said}"
    return f"its service ended: {said}" if service.status in {"FAILED", "INTERNAL_ERROR"} and _is_outside(container) else ""


def _is_outside(container: SpcsContainer) -> bool:
    """Whether the container was ended from outside: it has no exit code, or one that means that a signal ended it."""
    return container.exit_code is None or container.exit_code >= 128
