"""Pods as RunPod reports them, their names, and the request that creates a pod."""

import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote, unquote

import msgspec

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import VOLUME_ID, VOLUME_PATH, Instance, InstanceState, Order
from drumbeat.spawn.names import POOL, WORKER, Name
from drumbeat.spawn.runpod.placement import GpuPlace
from drumbeat.spawn.runpod.settings import RunPodSettings

SURPLUS = "~"  #: separates worker id and pod id in the name of a surplus pod (a worker's second pod)

Moment = Annotated[datetime, msgspec.Meta(tz=True)]

_STATES: Mapping[str, InstanceState] = {
    "RUNNING": InstanceState.RUNNING,
    "EXITED": InstanceState.EXITED,
    "ERROR": InstanceState.EXITED,
    "TERMINATED": InstanceState.EXITED,
}


class Gpu(msgspec.Struct, frozen=True):
    """Type and number of the GPUs of a pod."""

    id: str
    count: int = 1


class GpuUse(msgspec.Struct, frozen=True, rename="camel"):
    """How much of one GPU and of its memory is used, in percent."""

    util: int | None = None
    memory_util: int | None = None


class Runtime(msgspec.Struct, frozen=True):
    """What RunPod measures in a running pod: uptime and GPU use."""

    uptime: int | None = None
    gpus: tuple[GpuUse, ...] = ()


class Pod(msgspec.Struct, frozen=True, rename="camel"):
    """A RunPod pod (a rented container): only the fields that are used here."""

    id: str
    name: str
    status: str
    created_at: Moment
    started_at: Moment | None = None
    cost: float = 0.0
    cloud: str = "SECURE"
    data_center_id: str | None = None
    gpu: Gpu | None = None
    runtime: Runtime | None = None

    @property
    def state(self) -> InstanceState:
        """Return the pod's state; an unknown status counts as pending, since the pod might run and cost money."""
        return _STATES.get(self.status, InstanceState.PENDING)

    @property
    def is_alive(self) -> bool:
        return self.state is not InstanceState.EXITED

    @property
    def seniority(self) -> tuple[bool, datetime, str]:
        """Sort key for pods of the same name: smallest for the pod in which the worker most likely runs."""
        return self.state is not InstanceState.RUNNING, self.started_at or self.created_at, self.id


def pod_name(prefix: str, name: Name) -> str:
    """Return the name for a worker's pod, made of prefix, pool and worker; two workers never share a name."""
    return ".".join(_quoted(part) for part in (prefix, *name))


def parse_name(prefix: str, text: str) -> Name | None:
    """Return pool and worker from a pod's name; None if the name has another prefix or form."""
    parts = text.split(".")
    if len(parts) != 3 or parts[0] != _quoted(prefix):
        return None
    return PoolId(unquote(parts[1])), WorkerId(unquote(parts[2]))


def _quoted(part: str) -> str:
    return quote(part, safe="").replace(".", "%2E")


def surplus_id(worker_id: WorkerId, pod: Pod) -> WorkerId:
    """Return a worker id for a surplus (second) pod. No worker has that id, so a controller ends this pod, not the first."""
    return WorkerId(f"{worker_id}{SURPLUS}{pod.id}")


def instance(pod: Pod, name: Name, memory_gb: Mapping[str, int]) -> Instance:
    """Convert a pod to an ``Instance`` of the spawner interface."""
    running = pod.state is InstanceState.RUNNING
    return Instance(
        pool_id=name[0],
        worker_id=name[1],
        ref=pod.id,
        state=pod.state,
        started_at=(pod.started_at or pod.created_at) if running else pod.started_at,
        price_per_hour=pod.cost,
        meta=_details(pod, memory_gb),
    )


def _details(pod: Pod, memory_gb: Mapping[str, int]) -> Mapping[str, Any]:
    """Return details of a pod: status, location, and the use of its GPUs."""
    details: dict[str, Any] = {"status": pod.status, "cloud": pod.cloud, "data_center": pod.data_center_id}
    if pod.gpu is not None:
        details |= {"gpu": pod.gpu.id, "gpu_count": pod.gpu.count}
    if pod.runtime is not None and pod.runtime.gpus:
        total = memory_gb.get(pod.gpu.id) if pod.gpu else None
        details["gpus"] = [_gpu_use(use, total) for use in pod.runtime.gpus]
    return details


def _gpu_use(use: GpuUse, total_gb: int | None) -> Mapping[str, Any]:
    known = use.memory_util is not None and total_gb is not None
    return {
        "util_percent": use.util,
        "memory_percent": use.memory_util,
        "memory_total_gb": total_gb,
        "memory_used_gb": round((use.memory_util or 0) * (total_gb or 0) / 100, 2) if known else None,
    }


def creation(order: Order, place: GpuPlace, settings: RunPodSettings, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the body of the request that creates a worker's pod at a place (GPU type and data centre)."""
    name = (order.pool_id, order.worker_id)
    gpu = {"id": place.gpu, "count": settings.gpu_count, "minCudaVersion": settings.min_cuda_version}
    body: dict[str, Any] = {
        "name": pod_name(settings.prefix, name),
        "image": settings.image,
        "templateId": settings.template_id,
        "registry": settings.registry,
        "gpu": {field: value for field, value in gpu.items() if value is not None},
        "cloud": place.cloud.value,
        "dataCenterIds": [place.data_center] if place.data_center else None,
        "args": shlex.join(order.command_line(settings.command)) if settings.auto_start or order.command else None,
        "env": {**environment, **_volume(settings), **order.environment, POOL: name[0], WORKER: name[1]},
        "disk": settings.container_disk_gb,
        "ports": list(settings.ports) or None,
        "mounts": _mounts(settings),
    }
    return {field: value for field, value in body.items() if value is not None}


def _volume(settings: RunPodSettings) -> Mapping[str, str]:
    """Return the environment variables that tell a worker which volume it has, so that it reports the free space."""
    if settings.network_volume_id:
        return {VOLUME_PATH: settings.volume_mount_path, VOLUME_ID: settings.network_volume_id}
    return {VOLUME_PATH: settings.volume_mount_path} if settings.persistent_disk_gb else {}


def _mounts(settings: RunPodSettings) -> Mapping[str, Any] | None:
    path = settings.volume_mount_path
    if settings.network_volume_id:
        return {"network": [{"volumeId": settings.network_volume_id, "path": path}]}
    return {"persistent": {"size": settings.persistent_disk_gb, "path": path}} if settings.persistent_disk_gb else None
