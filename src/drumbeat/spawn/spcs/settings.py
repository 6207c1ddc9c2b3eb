"""Settings: in which Snowflake account and compute pool workers run as job services, with which image, and at what price."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.pool_settings import POOL_VARIABLES
from drumbeat.spawn.spcs.statements import Identifier, identifiers

_CPU = re.compile(r"(\d+(\.\d+)?|\d+m)")
_MEMORY = re.compile(r"\d+(\.\d+)?(Ki|Mi|Gi|Ti|K|M|G|T)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECOND = timedelta(seconds=1)
_MOST_INTEGRATIONS = 10  #: external access integrations of one service, by Snowflake's limits
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PUBLIC = ("DRUMBEAT_RETENTION", "DRUMBEAT_REPORT_CLOCK", "DRUMBEAT_STATE_DIR", *POOL_VARIABLES.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class SpcsSettings:
    """The account, schema and compute pool in which workers run as job services, their image, resources and price.

    Names are written as in SQL: my_pool means MY_POOL, and '"My pool"' with quotes is taken exactly. Passwords, tokens and keys
    are never in these settings, only the names of the variables or files that hold them.
    """

    account: str  #: the account's identifier, such as MYORG-MYACCOUNT
    database: str  #: in which job services are created
    schema: str  #: in which job services are created
    compute_pool: str  #: whose nodes run the workers
    image: str  #: in an image repository of the account, such as /db/schema/repository/drumbeat:1
    user: str = ""  #: who signs in; not needed with an OAuth token
    role: str = ""  #: owns the services; empty: the user's default role
    warehouse: str = ""  #: for the workers' own queries (QUERY_WAREHOUSE); starting workers needs none
    private_key_file: Path | None = None  #: sign in with a key pair: the file with the private key (PEM)
    private_key_password_variable: str = ""  #: the environment variable with that file's password, if it is encrypted
    token_variable: str = ""  #: sign in with OAuth or a programmatic access token: the environment variable that holds it
    token_file: Path | None = None  #: the same, as a file that is read again at each sign-in, such as /snowflake/session/token
    password_variable: str = ""  #: sign in with a password: the environment variable that holds it
    authenticator: str = ""  #: of the token, such as PROGRAMMATIC_ACCESS_TOKEN; empty: oauth
    host: str = ""  #: empty: by the account; inside Snowflake it is in SNOWFLAKE_HOST
    port: int = 443  #: of the host
    protocol: Literal["https", "http"] = "https"  #: http only for tests
    command: Sequence[str] = ("drumbeat", "worker")  #: what the container runs, followed by the worker's arguments
    python: str = "python3"  #: the image's Python, which unpacks secrets before it runs the command
    cpu: str = ""  #: requested for a worker, such as 0.5 or 500m
    cpu_limit: str = ""  #: the most that a worker may use; empty: Snowflake's default
    memory: str = ""  #: requested for a worker, and its limit, such as 512Mi
    gpus: int = 0  #: GPUs of a worker
    external_access: Sequence[str] = ()  #: external access integrations, by which workers reach the store and databases
    secrets: Mapping[str, str] = field(default_factory=dict)  #: variables of workers, each with the SECRET object that holds it
    environment: Mapping[str, str] = field(default_factory=dict)  #: variables set for the workers; no secrets
    public: Sequence[str] = ()  #: variables from here that hold no secret, so that they may be in a service's specification
    key_variable: str = ""  #: the environment variable with a key that encrypts all other variables on their way
    key_secret: str = ""  #: the SECRET object with the same key
    log_level: Literal["", "INFO", "ERROR", "NONE"] = ""  #: which output goes to the event table; empty: as the account says
    node_price_per_hour: float = 0.0  #: what a node of the compute pool costs per hour; or set the next two
    credits_per_hour: float = 0.0  #: what a node costs in credits per hour
    price_per_credit: float = 0.0  #: what a credit costs
    workers_per_node: int = 1  #: how many workers fit on a node; they share its price
    auto_suspend: timedelta = timedelta(minutes=5)  #: AUTO_SUSPEND_SECS of the compute pool: paid time after the last worker
    keep_ended: timedelta = timedelta(hours=1)  #: how long an ended worker's service and log are kept
    timeout: timedelta = timedelta(seconds=60)  #: of one statement
    settle: timedelta = timedelta(seconds=60)  #: after a start without an answer: how long its service may still appear
    usual_start: timedelta = timedelta(minutes=2)  #: typical time until a worker runs; a suspended compute pool takes longer
    sessions: int = 4  #: how many statements are sent at once, each by a session of its own

    def __post_init__(self) -> None:
        """Raise InvalidSettings if no worker can be started with these settings."""
        for fails, expected_and_got in (*self._rules(), *self._price_rules()):
            if fails:
                raise InvalidSettings(f"SPCS: expected {expected_and_got}")
        self._check_names()
        if self.private_key_file is not None and not self.private_key_file.expanduser().is_file():
            raise InvalidSettings(f"SPCS: expected a file in private_key_file, but there is no file {self.private_key_file}")

    @property
    def node_price(self) -> float:
        """What a node of the compute pool costs per hour."""
        return self.node_price_per_hour or self.credits_per_hour * self.price_per_credit

    @property
    def price_per_hour(self) -> float:
        """The most that a worker can cost per hour: the price of a node, because the worker may be alone on its node."""
        return self.node_price

    @property
    def billing_granule(self) -> timedelta:
        """The unit of paid time: ``auto_suspend``, because a node is paid until the compute pool is suspended."""
        return max(self.auto_suspend, _SECOND)

    @property
    def place(self) -> tuple[Identifier, Identifier]:
        """The database and schema in which services are created."""
        return self._one("database"), self._one("schema")

    @property
    def public_variables(self) -> frozenset[str]:
        return frozenset({*_PUBLIC, *self.public})

    def secret_name(self, given: str) -> tuple[Identifier, ...]:
        """Return the full name of a SECRET object. If ``given`` lacks database or schema, adds those of the services."""
        parts = identifiers(given)
        return (*self.place[: 3 - len(parts)], *parts)

    def _rules(self) -> Sequence[tuple[bool, str]]:
        ways = [self.private_key_file is not None, bool(self.token_variable), self.token_file is not None]
        variables = [*self.secrets, *self.environment, *self.public]
        wrong = next((each for each in variables if not _VARIABLE.fullmatch(each)), None)
        return (
            (not self.account.strip(), "an account, got none"),
            (
                [*ways, bool(self.password_variable)].count(True) != 1,
                "one way to sign in: private_key_file, token_variable, token_file or password_variable",
            ),
            (not self.user and not any(ways[1:]), "a user, got none"),
            (
                not self.image.strip() or " " in self.image,
                f"an image such as /db/schema/repository/drumbeat:1, got {self.image!r}",
            ),
            (self.protocol == "http" and self.host not in _LOOPBACK, "https, because http would send the secret unencrypted"),
            (not 0 < self.port < 65_536, f"a port from 1 to 65535, got {self.port}"),
            (not self.command, "a command, got none"),
            (bool(self.cpu) and not _CPU.fullmatch(self.cpu), f"cpu such as 500m or 2, got {self.cpu!r}"),
            (
                bool(self.cpu_limit) and not _CPU.fullmatch(self.cpu_limit),
                f"cpu_limit such as 500m or 2, got {self.cpu_limit!r}",
            ),
            (bool(self.memory) and not _MEMORY.fullmatch(self.memory), f"memory such as 512Mi or 2Gi, got {self.memory!r}"),
            (self.gpus < 0, f"gpus of 0 or more, got {self.gpus}"),
            (
                len(self.external_access) > _MOST_INTEGRATIONS,
                f"at most {_MOST_INTEGRATIONS} external_access integrations, got {len(self.external_access)}",
            ),
            (wrong is not None, f"variables of letters, digits and _, got {wrong!r}"),
            (bool(self.key_variable) != bool(self.key_secret), "both key_variable and key_secret, or neither, got one"),
            (self.timeout < _SECOND, f"a timeout of 1 s or more, got {self.timeout}"),
            (not 1 <= self.sessions <= 64, f"sessions from 1 to 64, got {self.sessions}"),
        )

    def _price_rules(self) -> Sequence[tuple[bool, str]]:
        prices = (self.node_price_per_hour, self.credits_per_hour, self.price_per_credit)
        return (
            (min(prices) < 0, f"prices of 0 or more, got {min(prices):g}"),
            (
                bool(self.node_price_per_hour and self.credits_per_hour),
                "node_price_per_hour, or credits_per_hour and price_per_credit, got both",
            ),
            (
                bool(self.credits_per_hour) != bool(self.price_per_credit),
                "both credits_per_hour and price_per_credit, or neither, got one",
            ),
            (self.workers_per_node < 1, f"workers_per_node of 1 or more, got {self.workers_per_node}"),
        )

    def _check_names(self) -> None:
        for name in ("database", "schema", "compute_pool", *(["warehouse"] if self.warehouse else [])):
            self._one(name)
        for name in self.external_access:
            _only(identifiers(name), f"external_access {name!r}")
        for given in (*self.secrets.values(), *([self.key_secret] if self.key_secret else [])):
            identifiers(given)

    def _one(self, name: str) -> Identifier:
        return _only(identifiers(getattr(self, name)), name)


def _only(parts: Sequence[Identifier], what: str) -> Identifier:
    if len(parts) != 1:
        raise InvalidSettings(f"SPCS: expected {what} to be one name, got {'.'.join(map(str, parts))}")
    return parts[0]
