"""The Job and the Secret of a worker, as they are sent to Kubernetes.

Workers are found by labels. A label must be short, so it contains a hash; the exact names of pool and worker are annotations.
The worker's environment, with the store's password, is only in the Secret. The Job owns the Secret, so Kubernetes deletes both
together. Each Job has its own Secret, so that a new Job never starts with the Secret of an earlier one.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from drumbeat.core.errors import SpawnCause, SpawnFailed
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import VOLUME_PATH, Order
from drumbeat.spawn.kubernetes.settings import KubernetesSettings
from drumbeat.spawn.names import POOL, WORKER, Name, digest, instance_name

CONTAINER: Final = "worker"
SCOPE_LABEL: Final = "drumbeat/scope"
POOL_LABEL: Final = "drumbeat/pool"
WORKER_LABEL: Final = "drumbeat/worker"
POOL_NAME: Final = "drumbeat/pool-name"
WORKER_NAME: Final = "drumbeat/worker-name"
STARTED: Final = "drumbeat/started"  #: an annotation that is added to a Job when it is started
SECRET_NAME: Final = "drumbeat/secret-name"  # noqa: S105  (the name of an annotation)
_STATE_DIR: Final = {"DRUMBEAT_STATE_DIR": "/tmp/drumbeat"}  # noqa: S108  (the container's own; others may be read-only)
_MOST_ENVIRONMENT: Final = 1_048_576  #: bytes that fit into a Secret
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


def job_name(scope: str, name: Name) -> str:
    """Return the name of a worker's Job. It is the same at every start, so that Kubernetes refuses to create a second Job."""
    return instance_name(scope, *name)


def scope_selector(scope: str) -> str:
    return f"{SCOPE_LABEL}={digest(scope)}"


def pool_selector(scope: str, pool_id: PoolId) -> str:
    return f"{POOL_LABEL}={digest(scope, pool_id)}"


def worker_selector(scope: str, name: Name) -> str:
    return f"{WORKER_LABEL}={digest(scope, *name)}"


def read_name(annotations: Mapping[str, str]) -> Name | None:
    """Return pool and worker from the annotations of a Job or pod; None if they are not there."""
    if POOL_NAME not in annotations or WORKER_NAME not in annotations:
        return None
    return PoolId(annotations[POOL_NAME]), WorkerId(annotations[WORKER_NAME])


def job_manifest(scope: str, order: Order, settings: KubernetesSettings) -> Mapping[str, Any]:
    """Return the Job of a worker, with one pod that is never restarted. The Job is suspended until its Secret exists."""
    name = (order.pool_id, order.worker_id)
    title = job_name(scope, name)
    labels = {
        **settings.labels,
        "app.kubernetes.io/name": "drumbeat-worker",
        "app.kubernetes.io/managed-by": "drumbeat",
        SCOPE_LABEL: digest(scope),
        POOL_LABEL: digest(scope, order.pool_id),
        WORKER_LABEL: digest(scope, *name),
    }
    names = {POOL_NAME: order.pool_id, WORKER_NAME: order.worker_id}
    secret = f"{title}-{uuid4().hex[:8]}"
    deadline = settings.max_runtime
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": title, "labels": labels, "annotations": {**names, SECRET_NAME: secret}},
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            "suspend": True,
            "ttlSecondsAfterFinished": int(settings.keep_ended.total_seconds()),
            **({"activeDeadlineSeconds": int(deadline.total_seconds())} if deadline else {}),
            "template": {
                "metadata": {"labels": labels, "annotations": {**settings.annotations, **names}},
                "spec": _pod(order, settings, secret),
            },
        },
    }


def start_patch() -> Mapping[str, Any]:
    """Return the patch that starts a Job. It also annotates the Job as started: ``suspend`` alone would not tell, because a job
    queue might suspend the Job again."""
    return {"metadata": {"annotations": {STARTED: "true"}}, "spec": {"suspend": False}}


def secret_manifest(
    job: str, job_uid: str, secret: str, order: Order, settings: KubernetesSettings, environment: Mapping[str, str]
) -> Mapping[str, Any]:
    """Return the Secret with the worker's environment. The Job owns it, so Kubernetes deletes it with the Job."""
    first = {VOLUME_PATH: settings.volumes[0].path} if settings.volumes else {}
    own = {POOL: order.pool_id, WORKER: order.worker_id}
    variables = {**environment, **_STATE_DIR, **settings.environment, **first, **order.environment, **own}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job_uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret,
            "labels": {"app.kubernetes.io/managed-by": "drumbeat"},
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "immutable": True,
        "data": {name: base64.b64encode(value.encode()).decode() for name, value in variables.items()},
    }


def check_environment(order: Order) -> None:
    """Raise SpawnFailed if the environment is too large, or has a variable whose name makes Kubernetes silently skip it."""
    size = sum(len(value.encode()) for value in order.environment.values())
    if size > _MOST_ENVIRONMENT:
        raise SpawnFailed(
            f"worker {order.worker_id} of {order.pool_id}: expected an environment of at most 1 MiB, got {size} bytes",
            cause=SpawnCause.BAD_REQUEST,
        )
    for name in order.environment:
        if not _VARIABLE.fullmatch(name):
            raise SpawnFailed(
                f"worker {order.worker_id} of {order.pool_id}: expected the name of an environment variable to have only "
                f"letters, digits, _ - and . and not to begin with a digit, got {name!r}",
                cause=SpawnCause.BAD_REQUEST,
            )


def _pod(order: Order, settings: KubernetesSettings, secret: str) -> Mapping[str, Any]:
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": int(settings.grace.total_seconds()),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _pod_security(settings),
        "containers": [_container(order, settings, secret)],
        "serviceAccountName": settings.service_account,
        "priorityClassName": settings.priority_class,
        "runtimeClassName": settings.runtime_class,
        "nodeSelector": dict(settings.node_selector),
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
        "tolerations": [
            {
                **({"key": each.key} if each.key else {}),
                **({"effect": each.effect} if each.effect else {}),
                **({"operator": "Exists"} if each.value is None else {"operator": "Equal", "value": each.value}),
            }
            for each in settings.tolerations
        ],
        "volumes": [
            {"name": f"volume-{n}", "persistentVolumeClaim": {"claimName": each.claim, "readOnly": each.read_only}}
            for n, each in enumerate(settings.volumes)
        ]
        + ([{"name": "tmp", "emptyDir": {}}] if settings.read_only_root else []),
    }
    return {field: value for field, value in spec.items() if value not in ("", [], {})}


def _container(order: Order, settings: KubernetesSettings, secret: str) -> Mapping[str, Any]:
    requests = {"cpu": settings.cpu, "memory": settings.memory}
    limits = {
        "cpu": settings.cpu_limit,
        "memory": settings.memory,
        settings.gpu_resource: str(settings.gpus) if settings.gpus else "",
    }
    return {
        "name": CONTAINER,
        "image": settings.image,
        **({"imagePullPolicy": settings.image_pull_policy} if settings.image_pull_policy else {}),
        "command": [_verbatim(word) for word in order.command_line(settings.command)],
        "envFrom": [{"secretRef": {"name": secret}}],
        "resources": {
            "requests": {name: amount for name, amount in requests.items() if amount},
            "limits": {name: amount for name, amount in limits.items() if amount},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": settings.read_only_root,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": f"volume-{n}", "mountPath": each.path, "readOnly": each.read_only}
            for n, each in enumerate(settings.volumes)
        ]
        + ([{"name": "tmp", "mountPath": "/tmp"}] if settings.read_only_root else []),  # noqa: S108
    }


def _pod_security(settings: KubernetesSettings) -> Mapping[str, Any]:
    """Return the security context that the restricted Pod Security Standard requires; it allows root only if configured."""
    group = {"fsGroup": settings.run_as_user} if settings.volumes and settings.run_as_user else {}
    return {
        "runAsNonRoot": settings.run_as_user != 0,
        "runAsUser": settings.run_as_user,
        **group,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _verbatim(word: str) -> str:
    """Escape a word of a command by doubling each $, because Kubernetes would replace $(NAME) by a variable's value."""
    return word.replace("$", "$$")
