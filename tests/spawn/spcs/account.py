"""A simulated Snowflake account: runs statements about services, keeps their states, and runs their containers as processes.

It follows what is documented: a service that is dropped is DELETING until its container has ended, after SIGTERM and, 30 of the
account's seconds later, SIGKILL; a job that has ended stays until it is dropped; a name can be used once at a time.
"""

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from snowflake.connector import errors

from drumbeat.spawn.private import last_lines
from spawn.spcs.containers import ContainerRun, moment
from spawn.spcs.faults import Answers, Delays, Fault, Garbles, Loses, Omits, Says
from spawn.spcs.parser import Statement, SyntaxRefused, parse
from spawn.spcs.published import SpecificationRefused, read_specification

Rows = list[dict[str, Any]]
GRACE = 30
PLACE = ("WORK", "Jobs")
ENDED = frozenset({"DONE", "FAILED", "INTERNAL_ERROR"})


@dataclass(slots=True, kw_only=True)
class Service:
    """A job service."""

    name: str
    comment: str
    compute_pool: str
    spec: Mapping[str, Any]
    environment: Mapping[str, str]
    identity: str = field(default_factory=lambda: uuid4().hex)
    status: str = "PENDING"
    message: str = "Waiting to start"
    started: str | None = None
    exit_code: int | None = None
    created: datetime = field(default_factory=lambda: datetime.now(UTC))  # noqa: TID251
    updated: datetime = field(default_factory=lambda: datetime.now(UTC))  # noqa: TID251
    run: ContainerRun | None = None


class SpcsAccount:
    """One account with a database, a schema and a compute pool."""

    def __init__(self, folder: Path, *, second: float = 0.1, secrets: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.second = second
        self.services: dict[str, Service] = {}
        self.secrets = {'WORK."Jobs".STORE_URL': "postgresql://ann@db/app", **(secrets or {})}
        self.images = {"/work/jobs/images/drumbeat:1"}
        self.integrations = {"STORE ACCESS"}
        self.room: int | None = None  #: how many containers the nodes have room for; None: enough
        self.most_services = 200
        self.node_is_down = False  #: whether dropped services do not end
        self.faults: list[Fault] = []
        self.statements: list[str] = []  #: every statement as it was sent
        self.sign_ins: list[Mapping[str, Any]] = []
        self.refusals: list[str] = []  #: what was not understood
        self.in_progress = 0  #: statements that are being run
        self.lock = threading.RLock()

    def close(self) -> None:
        with self.lock:
            for service in self.services.values():
                if service.run is not None:
                    service.run.stop(0)

    def asked(self, operation: str) -> list[str]:
        return [each for each in self.statements if each.startswith(operation)]

    def log_of(self, service: Service) -> Path:
        return self.folder / f"{service.identity}.log"

    # Statements

    def execute(self, text: str) -> Rows:
        """Run a statement, with what befalls it. Raises errors of Snowflake's connector."""
        with self.lock:
            self.statements.append(text)
            self.in_progress += 1
        try:
            return self._executed(text)
        finally:
            with self.lock:
                self.in_progress -= 1

    def _executed(self, text: str) -> Rows:
        try:
            statement = parse(text)
        except SyntaxRefused as exc:
            self.refusals.append(f"{exc}: {text}")
            raise refused(1003, "42000", f"SQL compilation error: syntax error line 1: {exc}.") from exc
        fault = self.taken(statement.operation)
        if isinstance(fault, Delays):
            threading.Event().wait(fault.by.total_seconds())
        if isinstance(fault, Loses | Answers) and not fault.done:
            raise _failure(fault)
        with self.lock:
            rows = self._run(statement)
        if isinstance(fault, Loses | Answers):
            raise _failure(fault)
        return _told(rows, fault)

    def taken(self, operation: str) -> Fault | None:
        """The fault that befalls this operation, if any."""
        with self.lock:
            for n, fault in enumerate(self.faults):
                if fault.operation == operation or (fault.operation is None and operation not in {"sign in", "connection"}):
                    self.faults[n : n + 1] = [] if fault.times == 1 else [_less(fault)]
                    return fault
            return None

    def _run(self, statement: Statement) -> Rows:
        known: Mapping[str, Callable[[Statement], Rows]] = {
            "EXECUTE JOB SERVICE": self._execute,
            "SHOW JOB SERVICES": self._show,
            "SHOW SERVICES": self._show,
            "DESCRIBE SERVICE": lambda one: [self._row(self._service(one))],
            "SHOW SERVICE CONTAINERS": self._containers,
            "SYSTEM$GET_SERVICE_LOGS": self._logs,
            "DROP SERVICE": self._drop,
        }
        return known[statement.operation](statement)

    def _execute(self, statement: Statement) -> Rows:
        self._check_place(statement.name[:2])
        if not statement.name or not statement.is_async:
            raise refused(1003, "42000", "expected a name and ASYNC = TRUE of this spawner")
        if statement.compute_pool != "Fast pool":
            raise missing("Compute pool", statement.compute_pool)
        if statement.warehouse and statement.warehouse != "LOAD":
            raise missing("Warehouse", statement.warehouse)
        for name in statement.integrations:
            if name not in self.integrations:
                raise missing("Integration", name)
        name = statement.name[2]
        if name in self.services:
            raise refused(2002, "42710", f"SQL compilation error: Object '{name}' already exists.")
        try:
            if "$" in statement.specification:
                raise SpecificationRefused("a dollar sign, which may be taken for a variable")
            spec = read_specification(statement.specification)
        except SpecificationRefused as exc:
            self.refusals.append(str(exc))
            raise refused(395018, "22023", f"Invalid spec: {exc}.") from exc
        if len(self.services) >= self.most_services:
            raise refused(395081, "22023", "The maximum number of services in the account has been reached.")
        service = self._made(name, statement, spec)
        self.services[name] = service
        self._schedule()
        return [{"status": f"Job {name} started."}]

    def _made(self, name: str, statement: Statement, spec: Mapping[str, Any]) -> Service:
        [container] = spec["containers"]
        if container["image"] not in self.images:
            raise refused(395008, "22023", f"Failed to retrieve image {container['image']}: it does not exist.")
        environment = dict(container.get("env", {}))
        for secret in container.get("secrets", []):
            held = secret["snowflakeSecret"]["objectName"]
            if held not in self.secrets:
                raise missing("Secret", held)
            environment[secret["envVarName"]] = self.secrets[held]
        return Service(
            name=name, comment=statement.comment, compute_pool=statement.compute_pool, spec=spec, environment=environment
        )

    def _show(self, statement: Statement) -> Rows:
        self._check_place(statement.schema)
        pattern = re.escape(statement.like or "%").replace("%", ".*").replace("_", ".")
        found = [each for each in self.services.values() if re.fullmatch(pattern, each.name, re.IGNORECASE)]
        return [self._row(each) for each in sorted(found, key=lambda each: each.name)]

    def _containers(self, statement: Statement) -> Rows:
        service = self._service(statement)
        is_there = service.status != "PENDING" or service.message != "Waiting to start"
        [container] = service.spec["containers"]
        states = {"DONE": "DONE", "FAILED": "FAILED", "RUNNING": "READY", "DELETING": "READY"}
        row = {
            "database_name": PLACE[0],
            "schema_name": PLACE[1],
            "service_name": service.name,
            "service_status": service.status,
            "instance_id": "0" if is_there else None,
            "instance_status": "READY" if is_there else None,
            "container_name": container["name"] if is_there else None,
            "status": states.get(service.status, "PENDING") if is_there else None,
            "message": service.message if is_there else None,
            "image_name": container["image"],
            "restart_count": 0,
            "start_time": service.started,
            "last_exit_code": None if service.exit_code is None else str(service.exit_code),
        }
        return [row]

    def _logs(self, statement: Statement) -> Rows:
        service = self._service(statement)
        if statement.container != service.spec["containers"][0]["name"]:
            raise refused(395014, "22023", f"Container {statement.container} does not exist.")
        if service.started is None or not self.log_of(service).exists():
            raise refused(395014, "22023", f"Container {statement.container} is not ready.")
        text = last_lines(self.log_of(service), statement.lines or 1000)
        return [{"LOG": text.removesuffix("\n")}]

    def _drop(self, statement: Statement) -> Rows:
        self._check_place(statement.name[:2])
        service = self.services.get(statement.name[2])
        if service is None and not statement.if_exists:
            raise missing("Service", statement.name[2])
        if service is not None and service.status != "DELETING":
            self._end(service)
        return [{"status": f"{statement.name[2]} successfully dropped."}]

    def _end(self, service: Service) -> None:
        if service.status in ENDED or service.run is None:
            self.services.pop(service.name)
            self._schedule()
        elif not self.node_is_down:
            service.status = "DELETING"
            service.run.stop(GRACE * self.second)
        else:
            service.status = "DELETING"

    # States

    def _schedule(self) -> None:
        """Start what waits, as far as the nodes have room."""
        running = sum(each.run is not None and each.status not in ENDED for each in self.services.values())
        for service in self.services.values():
            if service.status == "PENDING" and service.run is None:
                if self.room is not None and running >= self.room:
                    service.message = "Unschedulable due to insufficient memory resources."
                    continue
                [container] = service.spec["containers"]
                service.message = "Waiting to start"
                service.run = ContainerRun(
                    service.identity,
                    container["command"],
                    service.environment,
                    self.log_of(service),
                    lambda code, service=service: self._changed(service, code),  # type: ignore[misc]
                )
                service.run.start()
                running += 1

    def _changed(self, service: Service, code: int | None) -> None:
        with self.lock:
            service.updated = datetime.now(UTC)  # noqa: TID251
            if code is None:
                service.started, service.message = moment(), "Running"
                service.status = "RUNNING" if service.status == "PENDING" else service.status
                return
            service.exit_code = code
            if service.status == "DELETING":
                self.services.pop(service.name, None)
            else:
                service.status = "FAILED" if code else "DONE"
                service.message = "Failed" if code else "Completed successfully"
            self._schedule()

    def _service(self, statement: Statement) -> Service:
        self._check_place(statement.name[:2])
        if statement.name[2] not in self.services:
            raise missing("Service", statement.name[2])
        return self.services[statement.name[2]]

    def _check_place(self, names: tuple[str, ...]) -> None:
        if names != PLACE:
            raise refused(2043, "02000", "SQL compilation error: Object does not exist, or operation cannot be performed.")

    def _row(self, service: Service) -> dict[str, Any]:
        return {
            "name": service.name,
            "status": service.status,
            "database_name": PLACE[0],
            "schema_name": PLACE[1],
            "owner": "DRUMBEAT",
            "compute_pool": service.compute_pool,
            "current_instances": 1,
            "created_on": service.created,
            "updated_on": service.updated,
            "comment": service.comment,
            "is_job": "true",
            "is_async_job": "true",
        }


def refused(errno: int, sqlstate: str, message: str) -> errors.ProgrammingError:
    return errors.ProgrammingError(msg=message, errno=errno, sqlstate=sqlstate)


def missing(kind: str, name: str) -> errors.ProgrammingError:
    return refused(2003, "02000", f"SQL compilation error: {kind} '{name}' does not exist or not authorized.")


def _failure(fault: Loses | Answers) -> errors.Error:
    if isinstance(fault, Answers):
        return refused(fault.errno, fault.sqlstate, fault.message)
    return errors.OperationalError(msg="connection reset by peer", errno=250003)


def _told(rows: Rows, fault: Fault | None) -> Rows:
    if isinstance(fault, Omits):
        return []
    if isinstance(fault, Garbles):
        return [{"unexpected": "column"} for _ in rows]
    if isinstance(fault, Says):
        return [{**row, "status": fault.status} for row in rows]
    return rows


def _less(fault: Fault) -> Fault:
    from dataclasses import replace

    return replace(fault, times=fault.times - 1)
