"""The SQL statements that the spawner sends to Snowflake. Snowflake requires their clauses in the order used here."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.names import Name, digest, slug

CONTAINER: Final = "worker"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_PARTS = re.compile(r'(?:^|\.)("(?:[^"]|"")+"|[A-Za-z_][A-Za-z0-9_$]*)')
_SHORT = 10  #: characters of the hashes by which services are listed
_SLUG = 12  #: readable characters of a worker's name
_MOST_PARTS = 3


@dataclass(frozen=True, slots=True)
class Identifier:
    """The exact name of an object in Snowflake. ``str()`` returns it in quotes, so that no name can be taken for SQL."""

    name: str

    def __str__(self) -> str:
        return '"' + self.name.replace('"', '""') + '"'

    @property
    def plain(self) -> str:
        """The name without quotes if it means the same without them, else with quotes; for texts such as a specification."""
        return self.name if _PLAIN.fullmatch(self.name) and self.name == self.name.upper() else str(self)


def identifiers(written: str) -> tuple[Identifier, ...]:
    """Split a name as written in SQL (db.schema.name); parts without quotes become upper case. Raises InvalidSettings."""
    parts = _PARTS.findall(written)
    if ".".join(parts) != written or not 1 <= len(parts) <= _MOST_PARTS:
        raise InvalidSettings(f'SPCS: expected a name as in SQL, such as my_pool or "My pool", got {written!r}')
    return tuple(Identifier(part[1:-1].replace('""', '"') if part.startswith('"') else part.upper()) for part in parts)


def literal(text: str) -> str:
    """Return a text as an SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


# Names of services. Snowflake does not support quoted names of services, so they consist of capital letters, digits and _.


def scope_prefix(scope: str) -> str:
    """Return the prefix of the names of all services of a store."""
    return f"DRUMBEAT_{_hash(scope)}_"


def worker_prefix(scope: str, name: Name) -> str:
    """Return the prefix of the names of a worker's services: at most 60 characters, always the same for the same worker."""
    words = slug(name[1], _SLUG).replace("-", "_").strip("_")
    return f"{scope_prefix(scope)}{_hash(scope, name[0])}_{words + '_' if words else ''}{digest(scope, *name)}_".upper()


def service_name(scope: str, name: Name, start: int) -> str:
    """Return the name of a worker's service. ``start`` is the number of the start: an ended worker can be started again."""
    return f"{worker_prefix(scope, name)}{start}"


def start_number(scope: str, name: Name, service: str) -> int | None:
    """Return the number of the start to which a worker's service belongs; None if it is not a service of this worker."""
    prefix = worker_prefix(scope, name)
    number = service.removeprefix(prefix)
    return int(number) if service.startswith(prefix) and number.isdecimal() else None


def _hash(*parts: str) -> str:
    return digest(*parts)[:_SHORT].upper()


# Comments. A service's comment has the exact names of pool and worker, and a random text that tells apart two starts.


def comment(name: Name, token: str) -> str:
    return json.dumps({"drumbeat": token, "pool": name[0], "worker": name[1]})


def read_comment(text: object) -> tuple[Name, str] | None:
    """Return the worker and the random text of its start from a service's comment; None if Drumbeat did not write it."""
    try:
        known: Any = json.loads(text) if isinstance(text, str) else None
        return (PoolId(known["pool"]), WorkerId(known["worker"])), str(known["drumbeat"])
    except (ValueError, KeyError, TypeError):
        return None


class Statements:
    """Builds the SQL statements for the services of one schema."""

    def __init__(self, database: Identifier, schema: Identifier) -> None:
        self._schema = f"{database}.{schema}"

    def execute(
        self,
        service: str,
        *,
        compute_pool: Identifier,
        specification: str,
        comment: str,
        warehouse: Identifier | None = None,
        external_access: Sequence[Identifier] = (),
    ) -> str:
        """Return the statement that starts a job service. Snowflake answers as soon as it has accepted the job (ASYNC)."""
        if "$$" in specification:
            raise ValueError("expected a specification without $$, which ends it")
        parts = [
            "EXECUTE JOB SERVICE",
            f"IN COMPUTE POOL {compute_pool}",
            f"FROM SPECIFICATION $$\n{specification}$$",
            f"NAME = {self._name(service)}",
            "ASYNC = TRUE",
            f"QUERY_WAREHOUSE = {warehouse}" if warehouse is not None else "",
            f"COMMENT = {literal(comment)}",
            f"EXTERNAL_ACCESS_INTEGRATIONS = ({', '.join(map(str, external_access))})" if external_access else "",
        ]
        return "\n".join(part for part in parts if part)

    def show(self, prefix: str) -> str:
        """Return the statement that lists the job services with this prefix.

        An underscore in the prefix matches any character, so the caller must check the names.
        """
        return f"SHOW JOB SERVICES LIKE {literal(prefix + '%')} IN SCHEMA {self._schema}"

    def describe(self, service: str) -> str:
        return f"DESCRIBE SERVICE {self._name(service)}"

    def containers(self, service: str) -> str:
        return f"SHOW SERVICE CONTAINERS IN SERVICE {self._name(service)}"

    def logs(self, service: str, lines: int) -> str:
        return f"SELECT SYSTEM$GET_SERVICE_LOGS({literal(self._name(service))}, 0, {literal(CONTAINER)}, {lines:d}) AS LOG"

    def drop(self, service: str) -> str:
        """Return the statement that ends a service: SIGTERM, and SIGKILL 30 s later. Exit code and log are lost."""
        return f"DROP SERVICE IF EXISTS {self._name(service)}"

    def _name(self, service: str) -> str:
        return f"{self._schema}.{service}"


Row = Mapping[str, Any]  #: a row of an answer, by the names of its columns in lower case
