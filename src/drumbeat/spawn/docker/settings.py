"""Settings: which Docker daemon runs workers, from which image, and with which limits."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from drumbeat.core.errors import InvalidSettings

LABEL_PREFIX = "drumbeat."  #: begins the labels by which the spawner finds its containers
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([bkmg]?)b?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SCHEMES = frozenset({"unix", "tcp", "http", "https"})


class PullPolicy(StrEnum):
    """When the daemon fetches the image from its registry."""

    NEVER = "never"
    MISSING = "missing"  #: if the daemon does not have it
    ALWAYS = "always"  #: before each start


@dataclass(frozen=True, slots=True)
class ContainerMount:
    """A folder or file of the daemon's host, or a named volume, as a container sees it."""

    source: str
    target: str
    read_only: bool = False

    @property
    def kind(self) -> str:
        return "bind" if self.source.startswith("/") else "volume"


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerSettings:
    """The daemon, the image, and the options of each container. Sizes are texts such as 512m or 8g."""

    image: str  #: the image of the workers; it needs Drumbeat with the extra of your store
    base_url: str = ""  #: the daemon: unix:///run/docker.sock or tcp://host:2376; empty: DOCKER_HOST, or the usual socket
    tls_folder: Path | None = None  #: the folder with ca.pem, cert.pem and key.pem; None: DOCKER_CERT_PATH, if it is set
    pull: PullPolicy = PullPolicy.MISSING  #: when the image is fetched: never, missing or always
    command: Sequence[str] = ("drumbeat", "worker")  #: what the container runs, followed by the worker's arguments
    mounts: Sequence[str] = ()  #: folders of the daemon's host, or volumes: HOST:CONTAINER or HOST:CONTAINER:ro
    working_dir: str = ""  #: the folder in which the command runs; empty: the image's
    user: str = ""  #: name or uid[:gid] of the processes; empty: the image's
    gpus: int | str = 0  #: GPUs of a container: their number, or "all"; needs the NVIDIA Container Toolkit
    gpu_ids: Sequence[str] = ()  #: GPUs to share out: each worker gets ``gpus`` of these that no other worker of the engine has
    cpus: float = 0.0  #: most processors of a container, such as 1.5; 0: no limit
    memory: str = ""  #: most memory of a container; empty: no limit
    shm_size: str = ""  #: size of /dev/shm, which PyTorch's data loaders need; empty: Docker's 64m
    network: str = ""  #: host, none, or the name of a network; empty: the daemon's bridge
    extra_hosts: Mapping[str, str] = field(default_factory=dict)  #: more host names: "host.docker.internal" = "host-gateway"
    labels: Mapping[str, str] = field(default_factory=dict)  #: more labels of the containers
    environment: Mapping[str, str] = field(default_factory=dict)  #: variables set for the workers; no secrets
    variables: Sequence[str] = ()  #: names of variables that the workers get with the values of the process that starts them
    slots: int | None = None  #: most containers at once, of all stores that name this engine alike; none: no limit
    price_per_hour: float = 0.0  #: what a worker costs per hour, for spending limits
    stop_grace: timedelta = timedelta(seconds=30)  #: how long ``docker stop`` waits before it kills a worker
    log_size: str = "20m"  #: how much output is kept of each container; empty: as the daemon is set up
    timeout: timedelta = timedelta(seconds=30)  #: of one request to the daemon
    pull_timeout: timedelta = timedelta(minutes=5)  #: how long a pull may make no progress
    settle: timedelta = timedelta(seconds=10)  #: after a start without an answer: how long its container may still appear
    usual_start: timedelta = timedelta(seconds=2)  #: typical time until a worker runs
    billing_granule: timedelta = timedelta(seconds=1)  #: the unit of time in which workers are paid

    def __post_init__(self) -> None:
        """Raise InvalidSettings if no container can be started with these settings."""
        if not is_gpu_count(self.gpus):
            raise InvalidSettings(f'Docker: expected gpus of 0 or more, or "all", got {self.gpus!r}')
        for fails, expected_and_got in self._checks():
            if fails:
                raise InvalidSettings(f"Docker: expected {expected_and_got}")
        check_address(self.base_url)
        for size in (self.memory, self.shm_size, self.log_size):
            size_in_bytes(size)
        for text in self.mounts:
            mount_from(text)

    def _checks(self) -> Sequence[tuple[bool, str]]:
        reserved = [name for name in self.labels if name.startswith(LABEL_PREFIX)]
        odd = [name for name in (*self.environment, *self.variables) if not name or "=" in name or "\0" in name]
        folder = self.tls_folder.expanduser() if self.tls_folder else None
        shares_gpus = bool(self.gpu_ids)
        return (
            (not self.image.strip(), "the name of an image, got none"),
            (not self.command or not self.command[0], "a command of one word or more, got none"),
            (shares_gpus and not self.gpu_count, f"gpus of 1 or more with gpu_ids, got {self.gpus!r}"),
            (shares_gpus and self.gpu_count > len(self.gpu_ids), f"{self.gpus} gpu_ids or more, got {len(self.gpu_ids)}"),
            (self.cpus < 0, f"cpus of 0 or more, got {self.cpus:g}"),
            (self.slots is not None and self.slots < 1, f"slots of 1 or more, got {self.slots}"),
            (self.price_per_hour < 0, f"a price_per_hour of 0 or more, got {self.price_per_hour:g}"),
            (self.timeout <= timedelta(), "a timeout above 0, got 0"),
            (bool(reserved), f"labels without the prefix {LABEL_PREFIX}, got {', '.join(reserved)}"),
            (bool(odd), f"names of environment variables, got {', '.join(map(repr, odd))}"),
            (
                folder is not None and not (folder / "ca.pem").is_file(),
                f"a ca.pem in tls_folder, but there is none in {folder}",
            ),
        )

    @property
    def gpu_count(self) -> int:
        """Return the number of GPUs of a container; -1: all."""
        return -1 if self.gpus == "all" else int(self.gpus)


def is_gpu_count(value: int | str) -> bool:
    return value == "all" or (isinstance(value, int) and value >= 0) or (isinstance(value, str) and value.isdecimal())


def check_address(url: str) -> None:
    """Raise InvalidSettings if a daemon's URL has a scheme that is not supported. An empty URL is accepted."""
    scheme = urlsplit(url).scheme
    if not url or scheme in _SCHEMES:
        return
    hint = "; forward its socket: ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST" if scheme == "ssh" else ""
    raise InvalidSettings(f"Docker: expected a daemon at unix://PATH or tcp://HOST:PORT, got {url!r}{hint}")


def size_in_bytes(text: str) -> int:
    """Return the bytes of a size such as 512m or 8g; 0 for an empty text. Raises InvalidSettings."""
    found = _SIZE.fullmatch(text.strip())
    if not text.strip():
        return 0
    if found is None:
        raise InvalidSettings(f"Docker: expected a size such as 512m or 8g, got {text!r}")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def mount_from(text: str) -> ContainerMount:
    """Return the mount that HOST:CONTAINER or HOST:CONTAINER:ro describes. Raises InvalidSettings."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not source or not target.startswith("/") or mode not in {"", "ro", "rw"}:
        raise InvalidSettings(
            f"Docker: expected a mount HOST:CONTAINER or HOST:CONTAINER:ro, of absolute paths or a volume's name, got {text!r}"
        )
    if not source.startswith("/") and ("/" in source or source.startswith((".", "~"))):
        raise InvalidSettings(f"Docker: expected an absolute path before the colon of the mount {text!r}, got {source!r}")
    return ContainerMount(source, target, mode == "ro")
