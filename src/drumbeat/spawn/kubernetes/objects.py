"""Jobs, pods and events as Kubernetes reports them: only the fields that are used here."""

from datetime import datetime
from typing import Annotated

import msgspec

from drumbeat.spawn.kubernetes.manifests import CONTAINER, STARTED

Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base class of the objects in this file. Kubernetes omits empty fields, so most fields have defaults."""


class OwnerReference(_Part, frozen=True, rename="camel"):
    """A reference to the owner of an object, such as the Job of a pod."""

    kind: str
    uid: str


class ObjectMeta(_Part, frozen=True, rename="camel"):
    """Name, identity, labels and annotations of an object."""

    name: str
    uid: str
    creation_timestamp: Moment
    deletion_timestamp: Moment | None = None
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class StatusCondition(_Part, frozen=True, rename="camel"):
    """One fact about a Job or pod, such as Failed or PodScheduled."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class KubernetesJobStatus(_Part, frozen=True, rename="camel"):
    """The status of a Job: its conditions."""

    conditions: tuple[StatusCondition, ...] = ()


class AnyObject(_Part, frozen=True, rename="camel"):
    """An object of any kind, with its metadata only."""

    metadata: ObjectMeta


class KubernetesJob(_Part, frozen=True, rename="camel"):
    """A Kubernetes Job, which runs one worker."""

    metadata: ObjectMeta
    status: KubernetesJobStatus = KubernetesJobStatus()

    @property
    def finished(self) -> StatusCondition | None:
        """Return the condition (Complete or Failed) with which the Job ended; None if it has not ended."""
        ends = (each for each in self.status.conditions if each.type in {"Complete", "Failed"} and each.status == "True")
        return next(ends, None)

    @property
    def is_started(self) -> bool:
        """Whether the Job was started. If not, it still waits for its Secret, and has no pod."""
        return STARTED in self.metadata.annotations

    @property
    def is_over(self) -> bool:
        """Whether no pod of this Job can start any more."""
        return self.finished is not None or self.metadata.deletion_timestamp is not None


class ContainerRuns(_Part, frozen=True, rename="camel"):
    """The state of a running container: when it started."""

    started_at: Moment | None = None


class ContainerWaits(_Part, frozen=True, rename="camel"):
    """The state of a container that has not started: why it waits."""

    reason: str = ""
    message: str = ""


class ContainerEnded(_Part, frozen=True, rename="camel"):
    """The state of a container that has ended: its exit code and the reason."""

    exit_code: int
    reason: str = ""
    message: str = ""
    started_at: Moment | None = None


class ContainerState(_Part, frozen=True, rename="camel"):
    """The state of a container: one of the three fields is set, or none if Kubernetes reports no state yet."""

    running: ContainerRuns | None = None
    waiting: ContainerWaits | None = None
    terminated: ContainerEnded | None = None


class ContainerStatus(_Part, frozen=True, rename="camel"):
    """The state of one container of a pod."""

    name: str
    state: ContainerState = ContainerState()


class KubernetesPodStatus(_Part, frozen=True, rename="camel"):
    """The state of a pod."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    start_time: Moment | None = None
    conditions: tuple[StatusCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class KubernetesPodSpec(_Part, frozen=True, rename="camel"):
    """The node on which a pod runs; empty before it is scheduled."""

    node_name: str = ""


class KubernetesPod(_Part, frozen=True, rename="camel"):
    """A pod of a Job."""

    metadata: ObjectMeta
    spec: KubernetesPodSpec = KubernetesPodSpec()
    status: KubernetesPodStatus = KubernetesPodStatus()

    @property
    def job_uid(self) -> str:
        """Return the uid of the Job to which the pod belongs; the pod's own uid if it belongs to no Job."""
        owners = (each.uid for each in self.metadata.owner_references if each.kind == "Job")
        return next(owners, self.metadata.uid)

    @property
    def container(self) -> ContainerState:
        """Return the state of the worker's container, which need not be the only container of the pod."""
        states = (each.state for each in self.status.container_statuses if each.name == CONTAINER)
        return next(states, ContainerState())

    @property
    def has_ended(self) -> bool:
        return self.container.terminated is not None or (
            self.status.phase in {"Succeeded", "Failed"} and self.container.running is None
        )

    @property
    def is_running(self) -> bool:
        return self.container.running is not None

    def condition(self, kind: str) -> StatusCondition | None:
        return next((each for each in self.status.conditions if each.type == kind), None)


class InvolvedObject(_Part, frozen=True, rename="camel"):
    """The object, such as a Job, that an event is about."""

    uid: str = ""


class KubernetesEvent(_Part, frozen=True, rename="camel"):
    """A Kubernetes event, such as that a Job's pod could not be created, with its message."""

    involved_object: InvolvedObject = InvolvedObject()
    message: str = ""


class ListMeta(_Part, frozen=True, rename="camel"):
    """Metadata of one page of a list; ``continue_`` is the token for the next page, empty on the last page."""

    continue_: str = msgspec.field(default="", name="continue")
