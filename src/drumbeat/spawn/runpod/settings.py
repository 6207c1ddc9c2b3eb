"""Settings: which RunPod pods to rent, where, and at what maximum price. The API key stays in the environment."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Self
from urllib.parse import urlsplit

from drumbeat.core.errors import InvalidSettings

API_KEY_VARIABLE = "RUNPOD_API_KEY"
BASE_URL = "https://api.runpod.io"


class Cloud(StrEnum):
    """RunPod's two clouds, from which pods can be rented."""

    SECURE = "SECURE"  #: RunPod's own data centres
    COMMUNITY = "COMMUNITY"  #: machines of third parties


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPodSettings:
    """Which pods to rent from RunPod. Required are an image or template, and the maximum price; the rest has defaults."""

    max_price_per_hour: float  #: in USD; no pod with a higher price is ever requested
    image: str | None = None  #: the container image; this or ``template_id`` must be set
    template_id: str | None = None  #: a template stored at RunPod
    registry: str | None = None  #: the id of the registry credentials stored at RunPod, for a private image
    gpu_types: tuple[str, ...] = ()  #: names as in RunPod's catalogue; empty: every type
    min_gpu_memory_gb: int = 0  #: least memory of a GPU
    gpu_count: int = 1  #: GPUs of a pod
    min_cuda_version: str | None = None  #: least version of CUDA, such as 12.4
    clouds: tuple[Cloud, ...] = (Cloud.SECURE,)  #: SECURE, COMMUNITY or both
    data_centers: tuple[str, ...] = ()  #: allowed data centres; empty: all
    container_disk_gb: int = 50  #: size of the container's own disk
    persistent_disk_gb: int = 0  #: size of a disk that is deleted with the pod; 0: none
    network_volume_id: str | None = None  #: a network volume; set ``data_centers`` to its data centre
    volume_mount_path: str = "/workspace"  #: where the disk or volume is mounted
    ports: tuple[str, ...] = ()  #: ports to open, such as 8080/http
    command: tuple[str, ...] = ("drumbeat", "worker")  #: what the pod runs, followed by the worker's arguments
    auto_start: bool = True  #: False: the image's own command starts the worker
    prefix: str = "drumbeat"  #: begins pod names; must differ between deployments that share an account
    base_url: str = BASE_URL  #: address of the API; the key is sent there
    tries_per_spawn: int = 5  #: how many places (GPU types and data centres) a spawn tries
    refused_for: timedelta = timedelta(minutes=10)  #: for how long a place that refused is not asked again
    catalogue_for: timedelta = timedelta(minutes=1)  #: for how long prices and stock are cached
    settle: timedelta = timedelta(minutes=3)  #: after a creation without an answer: how long its pod may still appear
    timeout: timedelta = timedelta(seconds=30)  #: of one API call
    usual_start: timedelta = timedelta(minutes=2)  #: typical time until a pod runs
    billing_granule: timedelta = timedelta(minutes=1)  #: the billed unit of time; RunPod documents both second and minute

    def __post_init__(self) -> None:
        """Raise InvalidSettings if no pod can be created with these settings."""
        for fails, expected_and_got in self._rules():
            if fails:
                raise InvalidSettings(f"RunPod: expected {expected_and_got}")

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        both = bool(self.persistent_disk_gb and self.network_volume_id)
        return (
            (not (self.image or self.template_id), "an image or a template, got none; set RUNPOD_WORKER_IMAGE"),
            (not self.max_price_per_hour > 0, f"RUNPOD_MAX_PRICE_PER_HOUR above 0, got {self.max_price_per_hour}"),
            (self.gpu_count < 1, f"RUNPOD_GPU_COUNT of 1 or more, got {self.gpu_count}"),
            (self.container_disk_gb < 1, f"RUNPOD_CONTAINER_DISK_GB of 1 or more, got {self.container_disk_gb}"),
            (0 < self.persistent_disk_gb < 10, f"RUNPOD_DISK_SIZE_GB of 0, or 10 or more, got {self.persistent_disk_gb}"),
            (both, "RUNPOD_DISK_SIZE_GB or RUNPOD_NETWORK_VOLUME_ID, got both; remove one of them"),
            (not self.clouds, "at least one of the clouds SECURE and COMMUNITY, got none"),
            (not self.prefix, "a prefix for pod names, got an empty text; set RUNPOD_POD_PREFIX"),
            (self.tries_per_spawn < 1, f"tries_per_spawn of 1 or more, got {self.tries_per_spawn}"),
        )

    @classmethod
    def from_environment(cls, variables: Mapping[str, str], settings: Mapping[str, Any] | None = None) -> Self:
        """Read ``RUNPOD_*`` variables; ``settings`` override them, missing ones keep their default. Raises InvalidSettings."""
        given = {
            field: _read(variable, variables[variable], kind)
            for variable, (field, kind) in VARIABLES.items()
            if variables.get(variable, "").strip()
        }
        given |= settings or {}
        if "base_url" in given:
            given["base_url"] = _read("base_url", given["base_url"], _url)
        if "max_price_per_hour" not in given:
            raise InvalidSettings("RunPod: set RUNPOD_MAX_PRICE_PER_HOUR to the most that a pod may cost, in USD per hour")
        return cls(**given)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCHES:
        raise ValueError(text)
    return _SWITCHES[text.lower()]


_SWITCHES = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _url(text: str) -> str:
    """Check that the API's address begins with https, since the API key is sent there; http is allowed on this machine only."""
    parts = urlsplit(text)
    if parts.scheme != "https" and parts.hostname not in {"127.0.0.1", "localhost", "::1"}:
        raise ValueError(text)
    return text.rstrip("/")


def _clouds(text: str) -> tuple[Cloud, ...]:
    return tuple(Cloud(word.upper()) for word in _words(text))


#: by environment variable: the setting that it sets, and the function that reads it
VARIABLES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "RUNPOD_MAX_PRICE_PER_HOUR": ("max_price_per_hour", float),
    "RUNPOD_WORKER_IMAGE": ("image", str),
    "RUNPOD_TEMPLATE_ID": ("template_id", str),
    "RUNPOD_REGISTRY_ID": ("registry", str),
    "RUNPOD_GPU_TYPE": ("gpu_types", _words),
    "RUNPOD_MIN_GPU_MEMORY_GB": ("min_gpu_memory_gb", int),
    "RUNPOD_GPU_COUNT": ("gpu_count", int),
    "RUNPOD_MIN_CUDA_VERSION": ("min_cuda_version", str),
    "RUNPOD_CLOUD": ("clouds", _clouds),
    "RUNPOD_DATA_CENTERS": ("data_centers", _words),
    "RUNPOD_CONTAINER_DISK_GB": ("container_disk_gb", int),
    "RUNPOD_DISK_SIZE_GB": ("persistent_disk_gb", int),
    "RUNPOD_NETWORK_VOLUME_ID": ("network_volume_id", str),
    "RUNPOD_VOLUME_MOUNT_PATH": ("volume_mount_path", str),
    "RUNPOD_POD_PREFIX": ("prefix", str),
    "RUNPOD_API_URL": ("base_url", _url),
    "AUTO_START_WORKER_PROCESS": ("auto_start", _switch),
}


_EXPECTED: Mapping[Callable[[str], Any], str] = {
    _clouds: "SECURE, COMMUNITY or both",
    _switch: "true or false",
    _url: "an https address, or one of this machine,",
}


def _read(variable: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text.strip())
    except ValueError as exc:
        expected = _EXPECTED.get(kind, f"a number ({kind.__name__})")
        raise InvalidSettings(f"expected {expected} in {variable}, got {text!r}") from exc


def fingerprint(key: str, settings: RunPodSettings) -> str:
    """Return a hash of API key and settings, which reveals neither."""
    return hashlib.sha256(f"{key} {settings!r}".encode()).hexdigest()[:12]


def api_key(variables: Mapping[str, str]) -> str:
    """Return RunPod's API key. Raises InvalidSettings if it is missing or cannot be sent in an HTTP header."""
    key = variables.get(API_KEY_VARIABLE, "").strip()
    if not key:
        raise InvalidSettings(f"expected RunPod's API key in {API_KEY_VARIABLE}, got none; create a key in its console")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InvalidSettings(f"expected an API key of ASCII characters without spaces in {API_KEY_VARIABLE}; copy it again")
    return key
