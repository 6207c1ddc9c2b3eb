"""Inspects the database before a run: makes the SQL, lets the database check it, and reads how many connections are free."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from drumbeat.bench.model import Load
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.templates.document import TemplateDocument
from drumbeat.bench.templates.resolve import resolved
from drumbeat.bench.workloads.config import load_of
from drumbeat.bench.workloads.new_keys import highest_keys
from drumbeat.bench.workloads.scale_check import size_warnings
from drumbeat.bench.workloads.standard import standard
from drumbeat.core.errors import InvalidInput

_POSTGRES_LIMIT = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())
"""
_MYSQL_LIMIT = "SELECT @@max_connections"
_MYSQL_USED = "SHOW GLOBAL STATUS LIKE 'Threads_connected'"
_ONE_PROCESS = frozenset({"duckdb"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What is known about the database and the workload before a run."""

    product: str  #: the type of database, for example ``postgresql``
    document: TemplateDocument  #: the template with the SQL that was made for its table
    load: Load | None = None  #: None: not known, or ``problem`` says why the workload cannot run
    problem: str | None = None
    location: str | None = None  #: None: the database was not opened
    one_process: bool = False  #: only one process can use the database at a time
    free_connections: int | None = None  #: None: there is no limit, or it is not known
    size_warnings: tuple[str, ...] = ()
    highest_keys: Mapping[str, int] = field(default_factory=dict)  #: by ``table.column``; standard workloads only


async def inspect(document: TemplateDocument, target: Target) -> Inspection:
    """Let the database check the workload's SQL, and read how many connections are free. Changes nothing, generates no load."""
    made, load, problem = document, None, None
    if document.workload.ways:
        try:
            made, load = await _checked_load(document, target)
        except InvalidInput as exc:
            problem = str(exc)
    return Inspection(
        product=target.traits.name,
        document=made,
        load=load,
        problem=problem,
        location=target.location,
        one_process=not target.traits.processes,
        free_connections=await free_connections(target),
        size_warnings=await _size_warnings(document, target),
        highest_keys=await highest_keys(target, load) if load is not None and made.workload.standard else {},
    )


def inspect_offline(document: TemplateDocument) -> Inspection:
    """Return an inspection made without opening a database, for a template that does not name one yet."""
    product, load, problem = _scheme(document), None, None
    if document.workload.standard or document.workload.operations:
        try:
            load = load_of(document.workload.model_dump(mode="json", exclude_none=True))
        except InvalidInput as exc:
            problem = str(exc)
    return Inspection(product=product, document=document, load=load, problem=problem, one_process=product in _ONE_PROCESS)


async def build_load(document: TemplateDocument, target: Target) -> tuple[TemplateDocument, Load]:
    """Return the template with its SQL filled in, and the load (the operations to send). Raises InvalidInput."""
    made = await resolved(document, target)
    return made, load_of(made.workload.model_dump(mode="json", exclude_none=True))


async def free_connections(target: Target) -> int | None:
    """Return how many more connections the server accepts; None for a database without a connection limit."""
    match target.traits.name:
        case "postgresql":
            limit, used = (await target.fetch(_POSTGRES_LIMIT))[0]
            return int(limit) - int(used)
        case "mysql":
            limit = (await target.fetch(_MYSQL_LIMIT))[0][0]
            used = (await target.fetch(_MYSQL_USED))[0][1]
            return int(limit) - int(used)
        case _:
            return None


async def _checked_load(document: TemplateDocument, target: Target) -> tuple[TemplateDocument, Load]:
    """Return the template with its SQL, and the operations to send. Raises InvalidInput for a rejected operation."""
    made, load = await build_load(document, target)
    if document.table:
        await target.describe(document.table)
    await target.check(load)
    return made, load


async def _size_warnings(document: TemplateDocument, target: Target) -> tuple[str, ...]:
    """Warn of tables with fewer rows than a standard workload needs. A missing table is reported elsewhere, as an error."""
    if not document.workload.standard:
        return ()
    try:
        return await size_warnings(target, standard(document.workload.standard, document.workload.scale))
    except InvalidInput:
        return ()


def _scheme(document: TemplateDocument) -> str:
    """Return the type of database from the scheme of the template's URL; empty if it has none."""
    try:
        return urlsplit(document.target.url or "").scheme.lower()
    except ValueError:
        return ""
