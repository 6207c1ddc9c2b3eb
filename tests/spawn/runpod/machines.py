"""Pods of the simulator as they really are, whatever is told of them, and its volumes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any

ACTIONS: Mapping[str, Sequence[str]] = {
    "RUNNING": ["stop", "restart", "terminate"],
    "EXITED": ["start", "terminate"],
    "PROVISIONING": ["stop", "terminate"],
    "STARTING": ["stop", "terminate"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU type, what it costs in each cloud, and how many are free where."""

    id: str
    memory: int = 24
    secure: float = 0.44
    community: float = 0.0  #: 0: not there


@dataclass(slots=True, kw_only=True)
class SimPod:
    """A pod as it really is. Its status follows from the time."""

    id: str
    asked: Mapping[str, Any]
    place: tuple[str, str, str]  #: type, cloud, data centre
    price: float
    created_at: datetime
    starts_in: timedelta
    shown_at: datetime
    memory_util: int = 0
    stopped_at: datetime | None = None
    deleted_at: datetime | None = None

    @property
    def name(self) -> str:
        return str(self.asked["name"])

    def status(self, now: datetime) -> str:
        if self.stopped_at is not None:
            return "EXITED"
        if now >= self.created_at + self.starts_in:
            return "RUNNING"
        return "STARTING" if now >= self.created_at + self.starts_in / 2 else "PROVISIONING"

    def is_billed(self) -> bool:
        return self.stopped_at is None and self.deleted_at is None

    def billed(self, now: datetime) -> float:
        """By the second, each begun one whole."""
        end = min(moment for moment in (self.stopped_at, self.deleted_at, now) if moment is not None)
        return ceil((end - self.created_at).total_seconds()) * self.price / 3600

    def shown(self, now: datetime) -> Mapping[str, Any]:
        """As the schema's Pod."""
        status, (gpu, cloud, data_center), asked = self.status(now), self.place, self.asked
        running = status == "RUNNING"
        started = self.created_at + self.starts_in
        count = int(asked["gpu"].get("count", 1))
        return {
            "id": self.id,
            "name": self.name,
            "status": status,
            "actions": list(ACTIONS[status]),
            "image": asked.get("image", "template/image"),
            "args": asked.get("args", ""),
            "disk": asked.get("disk", 50),
            "mounts": asked.get("mounts", {}),
            "ports": asked.get("ports", []),
            "env": asked.get("env", {}),
            "registry": asked.get("registry"),
            "cloud": cloud,
            "gpu": {"id": gpu, "count": count},
            "dataCenterId": data_center,
            "cudaVersion": None,
            "ssh": {"proxy": None, "direct": None},
            "template": None,
            "cost": self.price if self.is_billed() else 0.0,
            "locked": False,
            "globalNetworking": {"enabled": False},
            "runtime": {"uptime": 1, "gpus": [{"util": 50, "memoryUtil": self.memory_util}] * count} if running else None,
            "createdAt": _moment(self.created_at),
            "startedAt": _moment(started) if running or (self.stopped_at and started <= self.stopped_at) else None,
        }


def shown_volume(volume_id: str, size: int) -> Mapping[str, Any]:
    """As the schema's NetworkVolume."""
    return {"id": volume_id, "name": volume_id, "size": size, "dataCenter": "EU-1", "type": "STANDARD"}


def _moment(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
