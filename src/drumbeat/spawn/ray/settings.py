"""Settings: which Ray cluster runs workers, with what resources, and which variable holds its token."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

from drumbeat.core.errors import InvalidSettings

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REMOTE = frozenset({"https", "s3", "gs", "azure", "abfss"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RayRuntimeEnv:
    """What Ray prepares on a node before a worker starts, and which environment variables of this process the worker gets."""

    working_dir: str = ""  #: the address of a .zip file (https, s3, gs, …) in which workers start; empty: none
    pip: Sequence[str] = ()  #: packages that Ray installs for the worker; slow at the first start on each node
    env_vars: Sequence[str] = ()  #: names of environment variables of the controller that workers get too

    def __post_init__(self) -> None:
        """Raise InvalidSettings if Ray cannot prepare such an environment."""
        parts = urlsplit(self.working_dir)
        if self.working_dir and (parts.scheme not in _REMOTE or not parts.path.endswith(".zip")):
            raise InvalidSettings(
                f"Ray: expected runtime_env.working_dir to be the URL of a .zip file ({', '.join(sorted(_REMOTE))}), "
                f"got {self.working_dir!r}; Ray's nodes fetch it themselves"
            )
        for name in self.env_vars:
            if not _VARIABLE.fullmatch(name):
                raise InvalidSettings(
                    f"Ray: expected names of environment variables in runtime_env.env_vars, got {name!r}; "
                    "their values are read from this process's environment"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """The Ray cluster on which workers run as jobs, and the resources of each worker. The token is not stored here."""

    address: str = "http://127.0.0.1:8265"  #: of the head's dashboard, which serves the Jobs API
    token_variable: str = "RAY_AUTH_TOKEN"  # noqa: S105  #: the environment variable with the cluster's token; unset: no token is sent
    num_cpus: float = 1.0  #: CPUs reserved for a worker; 0, and no other resource: all workers run on the head node
    num_gpus: float = 0.0  #: GPUs reserved for a worker
    memory_gb: float = 0.0  #: memory reserved for a worker; Ray does not limit it
    resources: Mapping[str, float] = field(default_factory=dict)  #: custom resources reserved for a worker
    runtime_env: RayRuntimeEnv = field(default_factory=RayRuntimeEnv)  #: what Ray prepares: [engines.NAME.runtime_env]
    slots: int | None = None  #: most workers at once, of all pools of the store; none: no limit
    price_per_hour: float = 0.0  #: of one worker
    python: str = "python3"  #: the nodes' Python, for the supervisor of a worker and the worker
    command: Sequence[str] = ()  #: precedes the worker's arguments; empty: PYTHON -m drumbeat worker
    keep_ended: timedelta = timedelta(hours=1)  #: how long Ray keeps the record and the output of an ended worker
    timeout: timedelta = timedelta(seconds=30)  #: of one request
    settle: timedelta = timedelta(seconds=15)  #: after a start without an answer: how long its worker may still appear
    usual_start: timedelta = timedelta(seconds=6)  #: typical time until a worker runs
    billing_granule: timedelta = timedelta(seconds=1)  #: the unit of time in which the cluster is paid

    def __post_init__(self) -> None:
        """Raise InvalidSettings if no worker can be started with these settings."""
        for fails, expected_and_got in self._rules():
            if fails:
                raise InvalidSettings(f"Ray: expected {expected_and_got}")

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        parts = urlsplit(self.address)
        amounts = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus, "memory_gb": self.memory_gb, **self.resources}
        negative = {name: amount for name, amount in amounts.items() if amount < 0}
        return (
            (
                parts.scheme not in {"http", "https"} or not parts.hostname,
                f"an address such as http://head:8265, got {self.address!r}; it is that of the dashboard, not ray://",
            ),
            (
                bool(parts.username or parts.password or parts.query),
                "an address without user, password or query; the token is read from the variable in token_variable",
            ),
            (
                not _VARIABLE.fullmatch(self.token_variable),
                "the name of an environment variable in token_variable; the token itself does not belong in this file",
            ),
            (bool(negative), f"resources of 0 or more, got {negative}"),
            (self.slots is not None and self.slots < 1, f"slots of 1 or more, got {self.slots}"),
            (self.price_per_hour < 0, f"a price_per_hour of 0 or more, got {self.price_per_hour}"),
            (not self.python, "the name of a Python program in python, got an empty text"),
        )

    @property
    def usual_command(self) -> tuple[str, ...]:
        """The command that precedes a worker's arguments."""
        return tuple(self.command) or (self.python, "-m", "drumbeat", "worker")

    @property
    def entrypoint_resources(self) -> Mapping[str, object]:
        """The resources of a worker as fields of a Jobs API request; memory is in bytes."""
        amounts: dict[str, object] = {
            "entrypoint_num_cpus": self.num_cpus,
            "entrypoint_num_gpus": self.num_gpus,
            "entrypoint_memory": int(self.memory_gb * 1e9),
            "entrypoint_resources": dict(self.resources),
        }
        return {name: amount for name, amount in amounts.items() if amount}

    @property
    def wanted(self) -> str:
        """The resources of a worker as a text for messages, such as ``num_cpus = 1``."""
        amounts = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus, "memory_gb": self.memory_gb, **self.resources}
        return ", ".join(f"{name} = {amount:g}" for name, amount in amounts.items() if amount) or "no resources"
