"""A simulated Kubernetes cluster: its objects, and the controllers that act on them.

It follows Kubernetes 1.31 and later: a pod that is deleted counts as failed; with ``recreates=True`` a Job creates another pod
for one that is deleted, as older clusters do. A second of the cluster lasts ``second`` seconds.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from spawn.kubernetes.kubelet import PodRun, moment

Object = dict[str, Any]
OVER = frozenset({"Succeeded", "Failed"})


class Cluster:
    """One namespace of objects, by kind and name, with a Job controller, a garbage collector and one node."""

    def __init__(self, folder: Path, *, second: float = 0.05, recreates: bool = False) -> None:
        self.second = second
        self.recreates = recreates
        self.folder = folder
        self.lock = threading.RLock()
        self.objects: dict[str, dict[str, Object]] = {"jobs": {}, "pods": {}, "secrets": {}, "events": {}}
        self.broken_images: dict[str, str] = {}  #: image, and why it cannot be pulled: ``ErrImagePull: not found``
        self.unschedulable: str | None = None  #: why no node takes a pod
        self.no_pods: str | None = None  #: why no pod can be created, such as a quota
        self.node_is_down = False  #: whether the node does not do what it is told
        self._runs: dict[str, PodRun] = {}
        self._since: dict[str, float] = {}
        self._failed: dict[str, set[str]] = {}
        self._closed = threading.Event()
        self._ticker = threading.Thread(target=self._tick_on, daemon=True)
        self._ticker.start()

    def close(self) -> None:
        self._closed.set()
        self._ticker.join()
        with self.lock:
            for run in self._runs.values():
                run.stop(0)

    def add(self, kind: str, body: Mapping[str, Any]) -> Object:
        """Store a new object, with what the API server adds to it."""
        meta = {**body["metadata"], "uid": str(uuid4()), "creationTimestamp": moment(), "generation": 1, "namespace": "work"}
        made = {**body, "metadata": meta, **({"status": {}} if kind != "secrets" else {})}
        self.objects[kind][meta["name"]] = made
        self._since[meta["uid"]] = time.monotonic()
        return made

    def delete_job(self, job: Object, policy: str) -> None:
        if policy == "Foreground":
            job["metadata"] |= {"deletionTimestamp": moment(), "finalizers": ["foregroundDeletion"]}
        else:
            self._remove("jobs", job)

    def delete_pod(self, pod: Object, grace: int | None = None) -> None:
        usual = pod["spec"].get("terminationGracePeriodSeconds", 30)
        seconds = usual if grace is None else grace
        run = self._runs.get(pod["metadata"]["uid"])
        if run is None or seconds == 0:
            self._remove("pods", pod)
            if run is not None:  # the node hears of it later
                threading.Timer(10 * self.second, run.stop, [0]).start()
            return
        before = pod["metadata"].get("deletionGracePeriodSeconds")
        if before is not None and before <= seconds:
            return
        pod["metadata"] |= {"deletionTimestamp": moment(), "deletionGracePeriodSeconds": seconds}
        self._count_pod(pod)
        if run is not None and not self.node_is_down:
            run.stop(seconds)

    def pods_of(self, job: Object) -> list[Object]:
        uid = job["metadata"]["uid"]
        return [pod for pod in self.objects["pods"].values() if pod["metadata"]["ownerReferences"][0]["uid"] == uid]

    def evict(self, pod: Object, reason: str = "Evicted", message: str = "The node was low on resource: memory.") -> None:
        """End a pod as a node under pressure does: it stays, as failed."""
        pod["status"] |= {"reason": reason, "message": message}
        self._runs[pod["metadata"]["uid"]].stop(0)

    def reconcile(self) -> None:
        """What the controllers do after each change."""
        with self.lock:
            for job in [*self.objects["jobs"].values()]:
                self._reconcile_job(job)
            self._collect()

    # The Job controller

    def _reconcile_job(self, job: Object) -> None:
        meta, spec, status, pods = job["metadata"], job["spec"], job["status"], self.pods_of(job)
        live = [pod for pod in pods if pod["status"]["phase"] not in OVER]
        if "deletionTimestamp" in meta:
            for pod in live:
                if "deletionTimestamp" not in pod["metadata"]:
                    self.delete_pod(pod)
            for pod in pods:
                if pod["status"]["phase"] in OVER:
                    self._remove("pods", pod)
            if not self.pods_of(job):
                self._remove("jobs", job)
            return
        if finished(job):
            if time.monotonic() - self._since[meta["uid"] + "/end"] > spec["ttlSecondsAfterFinished"] * self.second:
                self._remove("jobs", job)
            return
        self._count(job, pods)
        if spec.get("suspend"):
            self._end_pods(live)
            status.pop("startTime", None)
            return
        if "startTime" not in status:
            status["startTime"] = moment()
            self._since[meta["uid"]] = time.monotonic()
        self._advance(job, pods, live)

    def _count(self, job: Object, pods: list[Object]) -> None:
        failed = self._failed.setdefault(job["metadata"]["uid"], set())
        for pod in pods:
            deleted = "deletionTimestamp" in pod["metadata"] and not self.recreates
            if pod["status"]["phase"] == "Failed" or (deleted and pod["status"]["phase"] != "Succeeded"):
                failed.add(pod["metadata"]["uid"])
        job["status"]["failed"] = len(failed)

    def _advance(self, job: Object, pods: list[Object], live: list[Object]) -> None:
        spec, uid = job["spec"], job["metadata"]["uid"]
        deadline = spec.get("activeDeadlineSeconds")
        late = deadline is not None and time.monotonic() - self._since[uid] > deadline * self.second
        if any(pod["status"]["phase"] == "Succeeded" for pod in pods):
            self._finish(job, "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        elif late:
            self._end_pods(live)
            if not any(pod["status"]["phase"] not in OVER for pod in self.pods_of(job)):
                self._finish(job, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
        elif job["status"]["failed"] > spec.get("backoffLimit", 6):
            if not live:
                self._finish(job, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif not [pod for pod in live if "deletionTimestamp" not in pod["metadata"]]:
            self._create_pod(job)

    def _finish(self, job: Object, kind: str, reason: str, message: str) -> None:
        job["status"]["conditions"] = [{"type": kind, "status": "True", "reason": reason, "message": message}]
        self._since[job["metadata"]["uid"] + "/end"] = time.monotonic()

    def _end_pods(self, pods: list[Object]) -> None:
        for pod in pods:
            if "deletionTimestamp" not in pod["metadata"]:
                self.delete_pod(pod)

    def _create_pod(self, job: Object) -> None:
        meta, template = job["metadata"], job["spec"]["template"]
        if self.no_pods is not None:
            about = {"kind": "Job", "name": meta["name"], "uid": meta["uid"]}
            event = {"metadata": {"name": f"{meta['name']}.failed"}, "involvedObject": about, "reason": "FailedCreate"}
            self.add("events", {**event, "message": self.no_pods})
            return
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
        labels = {"batch.kubernetes.io/controller-uid": meta["uid"], "batch.kubernetes.io/job-name": meta["name"]}
        pod = self.add(
            "pods",
            {
                "metadata": {
                    "name": f"{meta['name'][:57]}-{uuid4().hex[:5]}",
                    "labels": {**template["metadata"]["labels"], **labels},
                    "annotations": template["metadata"]["annotations"],
                    "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
                },
                "spec": {**template["spec"]},
            },
        )
        pod["status"] = {"phase": "Pending"}
        if self.unschedulable is not None:
            scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": self.unschedulable}
            pod["status"]["conditions"] = [scheduled]
            return
        self._start(pod)

    # The node

    def _start(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        pod["spec"]["nodeName"] = "node-1"
        pod["status"]["startTime"] = moment()
        run = PodRun(pod, self.log_of(pod), self.second, lambda state, ended=False: self._changed(pod, state, ended))
        self._runs[uid] = run
        run.start(self._secret, self.broken_images)

    def log_of(self, pod: Object) -> Path:
        return self.folder / f"{pod['metadata']['uid']}.log"

    def _secret(self, name: str) -> Mapping[str, str] | None:
        with self.lock:
            found = self.objects["secrets"].get(name)
            return None if found is None else found.get("data", {})

    def _changed(self, pod: Object, state: Mapping[str, Any] | None, ended: bool) -> None:
        with self.lock:
            status = pod["status"]
            if state is not None:
                status["containerStatuses"] = [{"name": "worker", "ready": "running" in state, "state": state}]
                status["phase"] = "Running" if "running" in state else status["phase"]
            if ended:
                code = (state or {}).get("terminated", {}).get("exitCode", 1)
                status["phase"] = "Failed" if code or "reason" in status else "Succeeded"
                del self._runs[pod["metadata"]["uid"]]
                if "deletionTimestamp" in pod["metadata"]:
                    self._count_pod(pod)
                    self._remove("pods", pod)
        self.reconcile()

    def _count_pod(self, pod: Object) -> None:
        for job in self.objects["jobs"].values():
            if pod in self.pods_of(job) and not finished(job):
                self._count(job, [pod])

    # Time and garbage

    def _tick_on(self) -> None:
        while not self._closed.wait(self.second / 4):
            with self.lock:
                for pod in [*self.objects["pods"].values()]:
                    self._check_deadline(pod)
                self.reconcile()

    def _check_deadline(self, pod: Object) -> None:
        """What the node does with a pod that is past its deadline: SIGTERM and the usual grace; the pod stays."""
        deadline, uid = pod["spec"].get("activeDeadlineSeconds"), pod["metadata"]["uid"]
        if deadline is None or uid not in self._runs or "reason" in pod["status"]:
            return
        if time.monotonic() - self._since[uid] > deadline * self.second:
            message = "Pod was active on the node longer than the specified deadline"
            pod["status"] |= {"reason": "DeadlineExceeded", "message": message}
            self._runs[uid].stop(pod["spec"]["terminationGracePeriodSeconds"])

    def _collect(self) -> None:
        """Delete what belongs to an object that is gone."""
        alive = {each["metadata"]["uid"] for each in self._all()}
        for kind in ("secrets", "pods"):
            for each in [*self.objects[kind].values()]:
                owners = each["metadata"].get("ownerReferences", ())
                if owners and not any(owner["uid"] in alive for owner in owners):
                    self._remove(kind, each) if kind == "secrets" else self._end_pods([each])

    def _all(self) -> Iterator[Object]:
        for found in self.objects.values():
            yield from found.values()

    def _remove(self, kind: str, each: Object) -> None:
        with suppress(KeyError):
            if self.objects[kind][each["metadata"]["name"]] is each:
                del self.objects[kind][each["metadata"]["name"]]


def finished(job: Object) -> bool:
    return bool(job["status"].get("conditions"))
