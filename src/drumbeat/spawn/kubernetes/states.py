"""Derives a worker's state from its Job and pods: whether it runs, how it ended, and why it cannot start."""

from collections.abc import Mapping, Sequence
from typing import Any

from drumbeat.spawn.interface import Instance, InstanceState
from drumbeat.spawn.kubernetes.objects import KubernetesJob, KubernetesPod
from drumbeat.spawn.kubernetes.problems import one_line
from drumbeat.spawn.names import Name

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"})
_USUAL = frozenset({"", "ContainerCreating", "PodInitializing"})  #: reasons to wait that every new container has


def newest(pods: Sequence[KubernetesPod]) -> KubernetesPod | None:
    """Return a running pod; if none runs, a pod that has not ended; if all have ended, the newest pod. None without pods."""
    ranked = sorted(pods, key=lambda pod: (pod.is_running, not pod.has_ended, pod.metadata.creation_timestamp))
    return ranked[-1] if ranked else None


def worker_instance(
    name: Name,
    job: KubernetesJob | None,
    pods: Sequence[KubernetesPod],
    *,
    price: float,
    refused: str = "",
    is_unfinished: bool = False,
) -> Instance:
    """Return the instance of a worker from its Job and the Job's pods; ``job`` can be None, or ``pods`` empty.

    ``refused``: why Kubernetes could not create the Job's pod; empty if it could. ``is_unfinished``: the Job was created some
    time ago and never started, so that without a pod the worker counts as ended.
    """
    pod = newest(pods)
    ref = job.metadata.uid if job is not None else pod.job_uid if pod is not None else ""
    state = InstanceState.EXITED if is_unfinished and pod is None else _state(job, pod)
    ended = pod.container.terminated if pod is not None else None
    runs = pod.container.running if pod is not None else None
    started_at = runs.started_at if runs else ended.started_at if ended else None
    if runs and started_at is None and pod is not None:
        started_at = pod.status.start_time or pod.metadata.creation_timestamp
    return Instance(
        pool_id=name[0],
        worker_id=name[1],
        ref=ref,
        state=state,
        started_at=started_at,
        exit_code=ended.exit_code if ended is not None and state is InstanceState.EXITED else None,
        price_per_hour=price,
        meta=_details(job, pod, state, refused),
    )


def _state(job: KubernetesJob | None, pod: KubernetesPod | None) -> InstanceState:
    if pod is not None and pod.is_running:
        return InstanceState.RUNNING
    if (pod is not None and pod.has_ended) or (job is not None and job.finished is not None):
        return InstanceState.EXITED
    if job is None or job.metadata.deletion_timestamp is not None:
        return InstanceState.EXITED if pod is None else InstanceState.PENDING
    return InstanceState.PENDING


def _details(job: KubernetesJob | None, pod: KubernetesPod | None, state: InstanceState, refused: str) -> Mapping[str, Any]:
    details: dict[str, Any] = {"job": job.metadata.name if job is not None else None}
    if pod is not None:
        details |= {"pod": pod.metadata.name, "host": pod.spec.node_name or None, "reason": _reason(job, pod)}
    elif job is not None and job.finished is not None:
        details["reason"] = job.finished.reason
    details["problem"] = _problem(job, pod, state, refused)
    return {name: value for name, value in details.items() if value}


def _reason(job: KubernetesJob | None, pod: KubernetesPod) -> str:
    """Return Kubernetes' reason why the worker waits or ended, such as ImagePullBackOff or OOMKilled; empty if unknown."""
    state, disrupted, scheduled = pod.container, pod.condition("DisruptionTarget"), pod.condition("PodScheduled")
    if state.terminated is not None and state.terminated.reason not in {"", "Error", "Completed"}:
        return state.terminated.reason
    if disrupted is not None and disrupted.status == "True":
        return disrupted.reason
    if pod.status.reason:
        return pod.status.reason
    if state.waiting is not None and state.waiting.reason not in _USUAL:
        return state.waiting.reason
    if scheduled is not None and scheduled.status == "False":
        return scheduled.reason
    return state.terminated.reason if state.terminated is not None else ""


def _problem(job: KubernetesJob | None, pod: KubernetesPod | None, state: InstanceState, refused: str) -> str:
    """Return in one line why the worker cannot start, or why Kubernetes ended it; empty if neither is the case."""
    if pod is None:
        failed = job.finished if job is not None else None
        if job is not None and not job.is_started and state is InstanceState.EXITED and failed is None:
            return "its start was not completed; start it again, or terminate it"
        if refused and state is InstanceState.PENDING:
            return f"its pod cannot be created: {one_line(refused)}"
        return f"its Job ended: {failed.reason}: {one_line(failed.message)}" if failed and failed.type == "Failed" else ""
    reason, container = _reason(job, pod), pod.container
    if container.waiting is not None and container.waiting.reason not in _USUAL:
        what = "its image cannot be pulled" if reason in _IMAGE else "its container cannot be created"
        return f"{what}: {reason}: {one_line(container.waiting.message)}"
    if state is InstanceState.PENDING and reason == "Unschedulable":
        scheduled = pod.condition("PodScheduled")
        return f"no node can run it: {one_line(scheduled.message if scheduled else '')}"
    if reason == "OOMKilled":
        return "it used more memory than its limit: OOMKilled; raise memory in the settings"
    if reason in {"StartError", "ContainerCannotRun"} and container.terminated is not None:
        return f"its command cannot be run: {one_line(container.terminated.message)}"
    if state is InstanceState.EXITED and (container.terminated is None or pod.condition("DisruptionTarget") is not None):
        return one_line(f"its pod was ended: {reason or pod.status.phase}: {pod.status.message}").removesuffix(":").strip()
    return ""
