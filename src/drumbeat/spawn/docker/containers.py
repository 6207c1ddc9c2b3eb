"""Workers' containers: builds the requests that create them, and reads the daemon's descriptions of them. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.docker.settings import DockerSettings, mount_from, size_in_bytes
from drumbeat.spawn.interface import Instance, InstanceState, Order
from drumbeat.spawn.names import POOL, WORKER, Name

SCOPE_LABEL = "drumbeat.scope"  #: tells stores and engines apart
ENGINE_LABEL = "drumbeat.engine"
POOL_LABEL = "drumbeat.pool"
WORKER_LABEL = "drumbeat.worker"
GPU_LABEL = "drumbeat.gpu-ids"  #: the GPUs that were given to the container, with commas between

OCCUPYING = ("created", "restarting", "running", "paused")  #: states of containers that take a slot
_STATES = {
    "created": InstanceState.PENDING,
    "restarting": InstanceState.RUNNING,
    "running": InstanceState.RUNNING,
    "paused": InstanceState.RUNNING,
}
_NEVER = 1  #: the year in the daemon's zero time, which stands for "never happened"
_LOG_FILES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContainer:
    """A container as the daemon describes it when it is inspected."""

    id: str
    name: str
    status: str
    image: str
    labels: Mapping[str, str]
    variables: Sequence[str] = ()  #: NAME=VALUE, the image's included
    started_at: datetime | None = None
    exit_code: int = 0
    oom_killed: bool = False
    error: str = ""  #: why its last start failed

    @classmethod
    def from_inspection(cls, told: Mapping[str, Any]) -> Self:
        """Read the daemon's answer to an inspection of the container."""
        state, config = told["State"], told["Config"]
        return cls(
            id=told["Id"],
            name=told["Name"].removeprefix("/"),
            status=state["Status"],
            image=config.get("Image") or "",
            labels=config.get("Labels") or {},
            variables=config.get("Env") or (),
            started_at=_time(state.get("StartedAt")),
            exit_code=state.get("ExitCode") or 0,
            oom_killed=bool(state.get("OOMKilled")),
            error=state.get("Error") or "",
        )

    @property
    def state(self) -> InstanceState:
        """Return the container's state; a container whose start failed counts as exited."""
        if self.status == "created" and self.error:
            return InstanceState.EXITED
        return _STATES.get(self.status, InstanceState.EXITED)

    def instance(self, price_per_hour: float) -> Instance:
        """Return the worker's instance. The container must have the labels of a worker."""
        has_ended = self.state is InstanceState.EXITED
        meta = {
            "container": self.name,
            "image": self.image,
            "gpu_ids": self.labels.get(GPU_LABEL),
            "oom_killed": self.oom_killed or None,
            "error": self.error or None,
        }
        return Instance(
            pool_id=PoolId(self.labels[POOL_LABEL]),
            worker_id=WorkerId(self.labels[WORKER_LABEL]),
            ref=short_id(self.id),
            state=self.state,
            started_at=None if self.status == "created" else self.started_at,
            exit_code=self.exit_code if has_ended else None,
            price_per_hour=price_per_hour,
            meta={name: value for name, value in meta.items() if value is not None},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """Everything that a worker's container is created from, apart from the settings."""

    order: Order
    labels: Mapping[str, str]  #: by which the worker is found
    environment: Mapping[str, str] = field(default_factory=dict)
    gpu_ids: Sequence[str] = ()

    @property
    def worker(self) -> Name:
        return self.order.pool_id, self.order.worker_id

    def command(self, settings: DockerSettings) -> tuple[str, ...]:
        return self.order.command_line(settings.command)

    def request(self, settings: DockerSettings) -> dict[str, Any]:
        """Return the body of the API's request to create the container. Its command replaces the image's entry point."""
        program, *arguments = self.command(settings)
        gpu_labels = {GPU_LABEL: ",".join(self.gpu_ids)} if self.gpu_ids else {}
        values = {
            **settings.environment,
            **self.environment,
            **self.order.environment,
            POOL: self.order.pool_id,
            WORKER: self.order.worker_id,
        }
        whole = {
            "Image": settings.image,
            "Entrypoint": [program],
            "Cmd": arguments,
            "Env": [f"{name}={value}" for name, value in values.items()],
            "Labels": {**settings.labels, **self.labels, **gpu_labels},
            "User": settings.user,
            "WorkingDir": settings.working_dir,
            "StopSignal": "SIGTERM",
            "StopTimeout": int(settings.stop_grace.total_seconds()),
            "HostConfig": self._host_config(settings),
        }
        return {name: value for name, value in whole.items() if value != ""}

    def _host_config(self, settings: DockerSettings) -> dict[str, Any]:
        """Return limits, mounts and devices. Docker's init is process 1: it passes on signals and ends all children."""
        mounts = [mount_from(text) for text in settings.mounts]
        whole: dict[str, Any] = {
            "Init": True,
            "RestartPolicy": {"Name": "no"},
            "Mounts": [
                {"Type": each.kind, "Source": each.source, "Target": each.target, "ReadOnly": each.read_only} for each in mounts
            ],
            "NanoCpus": round(settings.cpus * 1e9),
            "Memory": size_in_bytes(settings.memory),
            "ShmSize": size_in_bytes(settings.shm_size),
            "NetworkMode": settings.network,
            "ExtraHosts": [f"{name}:{address}" for name, address in settings.extra_hosts.items()],
            "DeviceRequests": _device_requests(settings, self.gpu_ids),
            "LogConfig": _log_config(settings),
        }
        return {name: value for name, value in whole.items() if value}


def _device_requests(settings: DockerSettings, gpu_ids: Sequence[str]) -> list[dict[str, Any]]:
    if gpu_ids:
        return [{"DeviceIDs": list(gpu_ids), "Capabilities": [["gpu"]]}]
    return [{"Count": settings.gpu_count, "Capabilities": [["gpu"]]}] if settings.gpu_count else []


def _log_config(settings: DockerSettings) -> dict[str, Any]:
    size = size_in_bytes(settings.log_size)
    if not size:
        return {}
    return {"Type": "json-file", "Config": {"max-size": str(max(size // _LOG_FILES, 1)), "max-file": str(_LOG_FILES)}}


def short_id(identifier: str) -> str:
    """Return a container's id as ``docker ps`` shows it."""
    return identifier[:12]


def taken_gpus(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the ids of the GPUs that these containers use, from their labels."""
    texts = ((row.get("Labels") or {}).get(GPU_LABEL, "") for row in rows)
    return {each for text in texts for each in text.split(",") if each}


def search_path(variables: Sequence[str]) -> Sequence[str]:
    """Return the folders in which a container's programs are looked for, from its environment variables."""
    usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    found = [each.removeprefix("PATH=") for each in variables if each.startswith("PATH=")]
    return [folder for folder in (found[-1] if found else usual).split(":") if folder]


def _time(text: str | None) -> datetime | None:
    """Parse a time that the daemon reports; None if it is empty or in the year 1, by which the daemon means "never"."""
    if not text:
        return None
    read = datetime.fromisoformat(text)
    return None if read.year == _NEVER else read
