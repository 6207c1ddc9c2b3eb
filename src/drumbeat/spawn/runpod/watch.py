"""Which pods belong to which worker, also when the provider's list lies: what was seen once is looked for by its id."""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from drumbeat.core.clock import Clock
from drumbeat.spawn.runpod.client import RunPodClient
from drumbeat.spawn.runpod.pods import Pod, parse_name
from drumbeat.spawn.runpod.settings import RunPodSettings
from drumbeat.spawn.tagged import Name

log = logging.getLogger(__name__)

_LOOKUPS = 20  #: pods looked for by id in one look; the rest are taken to be as they were
_TERMINATED = "TERMINATED"


@dataclass(frozen=True, slots=True)
class Found:
    """A worker's pods: the one that is it, and the others, which are over or one too many."""

    keeper: Pod | None
    rest: Sequence[Pod]

    @property
    def last(self) -> Pod | None:
        """The worker's pod, or else the last that was."""
        over = (pod for pod in self.rest if not pod.is_alive)
        return self.keeper or max(over, key=lambda pod: pod.created_at, default=None)

    @property
    def surplus(self) -> Sequence[Pod]:
        return [pod for pod in self.rest if pod.is_alive]


@dataclass(frozen=True, slots=True)
class _Known:
    pod: Pod
    new_until: timedelta  #: so long it may be unknown to the provider that made it


class Watch:
    """The pods of one prefix. Looking changes nothing at the provider."""

    def __init__(self, client: RunPodClient, settings: RunPodSettings, clock: Clock) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._known: dict[Name, _Known] = {}

    async def look(self, mine: Callable[[Name], bool]) -> Mapping[Name, Found]:
        """The pods of those workers, as the provider lists them, and those it leaves out though it has them."""
        seen = await self._listed(mine)
        if self._missing(seen, mine):
            log.info("known pods are missing from the list of pods; looking twice")
            seen = {**seen, **await self._listed(mine)}
        for name, known in self._missing(seen, mine)[:_LOOKUPS]:
            pod = await self._by_id(known)
            seen[pod.id] = pod
            self._known[name] = _Known(pod, known.new_until)
        return await self._sorted(seen)

    def note(self, name: Name, pod: Pod, *, is_new: bool = False) -> None:
        """Remember that this pod is that worker."""
        known = self._known.get(name)
        kept = known.new_until if known is not None and known.pod.id == pod.id else timedelta()
        self._known[name] = _Known(pod, self._clock.elapsed() + self._settings.settle if is_new else kept)

    def forget(self, name: Name) -> None:
        self._known.pop(name, None)

    def is_known_alive(self, name: Name) -> bool:
        return name in self._known and self._known[name].pod.is_alive

    def pod_of(self, name: Name) -> Pod | None:
        """The worker's pod as it was last seen."""
        return self._known[name].pod if name in self._known else None

    def known(self, mine: Callable[[Name], bool]) -> Mapping[Name, Pod]:
        return {name: known.pod for name, known in self._known.items() if mine(name)}

    async def _listed(self, mine: Callable[[Name], bool]) -> dict[str, Pod]:
        named = [(parse_name(self._settings.prefix, pod.name), pod) for pod in await self._client.pods()]
        return {pod.id: pod for name, pod in named if name is not None and mine(name) and pod.status != _TERMINATED}

    def _missing(self, seen: Mapping[str, Pod], mine: Callable[[Name], bool]) -> Sequence[tuple[Name, _Known]]:
        return [
            (name, known)
            for name, known in self._known.items()
            if mine(name) and known.pod.is_alive and known.pod.id not in seen
        ]

    async def _by_id(self, known: _Known) -> Pod:
        """The pod as it is now. One that is unknown is over, unless it is so new that it may not be known yet."""
        pod = await self._client.find_pod(known.pod.id)
        if pod is not None:
            return pod
        is_new = self._clock.elapsed() < known.new_until
        return known.pod if is_new else msgspec.structs.replace(known.pod, status=_TERMINATED, cost=0.0)

    async def _sorted(self, seen: Mapping[str, Pod]) -> Mapping[Name, Found]:
        pods: dict[Name, list[Pod]] = defaultdict(list)
        for pod in seen.values():
            if (name := parse_name(self._settings.prefix, pod.name)) is not None:
                pods[name].append(pod)
        return {name: await self._choose(name, those) for name, those in pods.items()}

    async def _choose(self, name: Name, pods: Sequence[Pod]) -> Found:
        """Of several alive, each really there, the one known to be the worker stays, or else the one most likely to be."""
        alive = [pod for pod in pods if pod.is_alive]
        if len(alive) > 1:
            alive = [
                pod for pod in [await self._client.find_pod(each.id) for each in alive] if pod is not None and pod.is_alive
            ]
        known = self.pod_of(name)
        own = [pod for pod in alive if known is not None and pod.id == known.id]
        keeper = own[0] if own else min(alive, key=lambda pod: pod.seniority, default=None)
        over = [pod for pod in pods if not pod.is_alive]
        return Found(keeper, [*over, *(pod for pod in alive if pod is not keeper)])
