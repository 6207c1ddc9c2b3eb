"""Settings: in which cluster and namespace workers run as Jobs, with which image, and with what resources."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from drumbeat.core.errors import InvalidSettings

_CPU = re.compile(r"(\d+(\.\d+)?|\d+m)")
_MEMORY = re.compile(r"\d+(\.\d+)?(Ki|Mi|Gi|Ti|k|M|G|T)?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesVolume:
    """A PersistentVolumeClaim of the namespace that is mounted in every worker."""

    claim: str  #: the name of the claim
    path: str  #: where it is mounted
    read_only: bool = False  #: whether workers may only read it

    def __post_init__(self) -> None:
        """Raise InvalidSettings if the path is not absolute."""
        if not self.path.startswith("/"):
            raise InvalidSettings(f"volume {self.claim}: expected an absolute path, got {self.path!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """Lets workers run on nodes with a taint, such as GPU or spot nodes."""

    key: str = ""  #: of the taint; empty: every taint
    value: str | None = None  #: of the taint; None: any value
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""  #: empty: every effect


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """The cluster and namespace in which workers run as Jobs, their image and their resources."""

    image: str  #: the container image; Drumbeat must be installed in it
    namespace: str = ""  #: empty: the namespace of the context or of this pod, or else default
    kubeconfig: Path | None = None  #: None: this pod's service account in a cluster, else KUBECONFIG or ~/.kube/config
    context: str = ""  #: the context of the kubeconfig; empty: its current one
    command: Sequence[str] = ("drumbeat", "worker")  #: what the container runs, followed by the worker's arguments
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""  #: empty: Kubernetes decides by the image's tag
    image_pull_secrets: Sequence[str] = ()  #: names of Secrets with registry logins
    service_account: str = ""  #: of the workers; its token is not mounted
    cpu: str = ""  #: requested for a worker, such as 500m or 2
    cpu_limit: str = ""  #: the most that a worker may use; empty: no limit
    memory: str = ""  #: requested for a worker and its limit, such as 512Mi
    gpus: int = 0  #: GPUs of a worker
    gpu_resource: str = "nvidia.com/gpu"  #: the name under which nodes offer GPUs
    node_selector: Mapping[str, str] = field(default_factory=dict)  #: labels that a node must have
    tolerations: Sequence[Toleration] = ()  #: taints that are accepted, each as a table: [[engines.NAME.tolerations]]
    priority_class: str = ""  #: the PriorityClass of the workers
    runtime_class: str = ""  #: the RuntimeClass of the workers, such as gvisor
    volumes: Sequence[KubernetesVolume] = ()  #: claims to mount, each as a table: [[engines.NAME.volumes]]
    environment: Mapping[str, str] = field(default_factory=dict)  #: variables set for the workers; no secrets
    labels: Mapping[str, str] = field(default_factory=dict)  #: added to Jobs and pods
    annotations: Mapping[str, str] = field(default_factory=dict)  #: added to pods, such as sidecar.istio.io/inject = "false"
    run_as_user: int = 1000  #: user id of the worker's process; 0: root, which many clusters refuse
    read_only_root: bool = False  #: whether the container's own disk is read-only, except /tmp
    grace: timedelta = timedelta(minutes=5)  #: how long a drained worker may take to finish before it is killed
    max_runtime: timedelta | None = None  #: a worker is ended after this time, to limit cost; None: never
    keep_ended: timedelta = timedelta(hours=1)  #: how long an ended Job and its log are kept
    price_per_hour: float = 0.0  #: what a worker costs per hour, for spending limits
    billing_granule: timedelta = _SECOND  #: the unit of time in which nodes are paid
    timeout: timedelta = timedelta(seconds=20)  #: of one API call
    settle: timedelta = timedelta(seconds=30)  #: after a start without an answer: how long its Job may still appear
    usual_start: timedelta = timedelta(seconds=20)  #: typical time until a worker runs
    page_size: int = 500  #: how many objects are read in one API call

    def __post_init__(self) -> None:
        """Raise InvalidSettings if no worker can be started with these settings."""
        for fails, expected_and_got in (
            (not self.image.strip(), "an image, got none"),
            (bool(self.namespace) and not _NAMESPACE.fullmatch(self.namespace), f"a namespace's name, got {self.namespace!r}"),
            (bool(self.cpu) and not _CPU.fullmatch(self.cpu), f"cpu such as 500m or 2, got {self.cpu!r}"),
            (
                bool(self.cpu_limit) and not _CPU.fullmatch(self.cpu_limit),
                f"cpu_limit such as 500m or 2, got {self.cpu_limit!r}",
            ),
            (bool(self.memory) and not _MEMORY.fullmatch(self.memory), f"memory such as 512Mi or 2Gi, got {self.memory!r}"),
            (self.gpus < 0, f"gpus of 0 or more, got {self.gpus}"),
            (self.run_as_user < 0, f"a run_as_user of 0 or more, got {self.run_as_user}"),
            (self.grace < _SECOND, f"a grace of 1 s or more, got {self.grace}"),
            (
                self.max_runtime is not None and self.max_runtime < _SECOND,
                f"a max_runtime of 1 s or more, got {self.max_runtime}",
            ),
            (self.price_per_hour < 0, f"a price_per_hour of 0 or more, got {self.price_per_hour}"),
            (self.page_size < 1, f"a page_size of 1 or more, got {self.page_size}"),
        ):
            if fails:
                raise InvalidSettings(f"Kubernetes: expected {expected_and_got}")
        if self.kubeconfig is not None and not self.kubeconfig.expanduser().is_file():
            raise InvalidSettings(f"Kubernetes: expected a file in kubeconfig, but there is no file {self.kubeconfig}")
