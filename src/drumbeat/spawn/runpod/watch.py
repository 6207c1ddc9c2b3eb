"""Finds the pods of each worker. RunPod's list can be incomplete, so known pods that are missing there are looked up by id."""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from drumbeat.core.clock import Clock
from drumbeat.spawn.names import Name
from drumbeat.spawn.runpod.client import RunPodClient
from drumbeat.spawn.runpod.pods import Pod, parse_name
from drumbeat.spawn.runpod.settings import RunPodSettings

log = logging.getLogger(__name__)

_LOOKUPS = 20  #: most pods looked up by id per call; others count as unchanged
_TERMINATED = "TERMINATED"


@dataclass(frozen=True, slots=True)
class WorkerPods:
    """A worker's pods: ``current``, in which the worker runs, and ``rest``: ended pods, and surplus pods, which run too."""

    current: Pod | None
    rest: Sequence[Pod]

    @property
    def last(self) -> Pod | None:
        """Return the pod in which the worker runs; if none runs, the newest pod that has ended. None if there are no pods."""
        over = (pod for pod in self.rest if not pod.is_alive)
        return self.current or max(over, key=lambda pod: pod.created_at, default=None)

    @property
    def surplus(self) -> Sequence[Pod]:
        return [pod for pod in self.rest if pod.is_alive]


@dataclass(frozen=True, slots=True)
class _Known:
    pod: Pod
    new_until: timedelta  #: until then, the new pod may be missing in RunPod's answers


class PodFinder:
    """Reads, and remembers, the pods with the settings' prefix in their names. Changes nothing at RunPod."""

    def __init__(self, client: RunPodClient, settings: RunPodSettings, clock: Clock) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._known: dict[Name, _Known] = {}

    async def find_pods(self, matches: Callable[[Name], bool]) -> Mapping[Name, WorkerPods]:
        """Return the pods of the workers for which ``matches`` is true: pods in RunPod's list, and known pods missing there."""
        listed = await self._listed(matches)
        if self._missing(listed, matches):
            log.info("known pods are missing in RunPod's list of pods; listing again")
            listed = {**listed, **await self._listed(matches)}
        for name, known in self._missing(listed, matches)[:_LOOKUPS]:
            pod = await self._by_id(known)
            listed[pod.id] = pod
            self._known[name] = _Known(pod, known.new_until)
        return await self._sorted(listed)

    def note(self, name: Name, pod: Pod, *, is_new: bool = False) -> None:
        """Remember this pod as the worker's. ``is_new``: the pod was just created, so RunPod's answers can still lack it."""
        known = self._known.get(name)
        new_until = known.new_until if known is not None and known.pod.id == pod.id else timedelta()
        self._known[name] = _Known(pod, self._clock.elapsed() + self._settings.settle if is_new else new_until)

    def forget(self, name: Name) -> None:
        self._known.pop(name, None)

    def is_known_alive(self, name: Name) -> bool:
        return name in self._known and self._known[name].pod.is_alive

    def pod_of(self, name: Name) -> Pod | None:
        """Return the worker's pod as it was last read; None if it is not known."""
        return self._known[name].pod if name in self._known else None

    def known(self, matches: Callable[[Name], bool]) -> Mapping[Name, Pod]:
        return {name: known.pod for name, known in self._known.items() if matches(name)}

    async def _listed(self, matches: Callable[[Name], bool]) -> dict[str, Pod]:
        named = [(parse_name(self._settings.prefix, pod.name), pod) for pod in await self._client.pods()]
        return {pod.id: pod for name, pod in named if name is not None and matches(name) and pod.status != _TERMINATED}

    def _missing(self, listed: Mapping[str, Pod], matches: Callable[[Name], bool]) -> Sequence[tuple[Name, _Known]]:
        return [
            (name, known)
            for name, known in self._known.items()
            if matches(name) and known.pod.is_alive and known.pod.id not in listed
        ]

    async def _by_id(self, known: _Known) -> Pod:
        """Read a pod by its id. If RunPod does not know the id, return the pod as ended.

        A pod that was created a moment ago is returned unchanged instead, because RunPod's answers can still lack it.
        """
        pod = await self._client.find_pod(known.pod.id)
        if pod is not None:
            return pod
        is_new = self._clock.elapsed() < known.new_until
        return known.pod if is_new else msgspec.structs.replace(known.pod, status=_TERMINATED, cost=0.0)

    async def _sorted(self, listed: Mapping[str, Pod]) -> Mapping[Name, WorkerPods]:
        pods: dict[Name, list[Pod]] = defaultdict(list)
        for pod in listed.values():
            if (name := parse_name(self._settings.prefix, pod.name)) is not None:
                pods[name].append(pod)
        return {name: await self._choose(name, group) for name, group in pods.items()}

    async def _choose(self, name: Name, pods: Sequence[Pod]) -> WorkerPods:
        """Choose the worker's pod among several that run: the one remembered as the worker's, or else the most likely one."""
        alive = [pod for pod in pods if pod.is_alive]
        if len(alive) > 1:
            alive = [
                pod for pod in [await self._client.find_pod(each.id) for each in alive] if pod is not None and pod.is_alive
            ]
        known = self.pod_of(name)
        own = [pod for pod in alive if known is not None and pod.id == known.id]
        current = own[0] if own else min(alive, key=lambda pod: pod.seniority, default=None)
        over = [pod for pod in pods if not pod.is_alive]
        return WorkerPods(current, [*over, *(pod for pod in alive if pod is not current)])
