"""Starts, lists and ends workers as RunPod pods. RunPod allows two pods of one name, so a start first looks for a pod."""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence, Set
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import InvalidInput, SpawnAmbiguous, SpawnCause, SpawnError, SpawnFailed
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Instance, Order, SpawnerTraits
from drumbeat.spawn.names import Name
from drumbeat.spawn.runpod.client import NoAnswer, RunPodClient, Transport
from drumbeat.spawn.runpod.market import GpuCatalogue
from drumbeat.spawn.runpod.placement import GpuPlace, Refusal, all_refused, remembered_backoff, remembered_refusals
from drumbeat.spawn.runpod.pods import SURPLUS, Pod, creation, instance, surplus_id
from drumbeat.spawn.runpod.settings import RunPodSettings, api_key, fingerprint
from drumbeat.spawn.runpod.watch import PodFinder, WorkerPods
from drumbeat.spawn.volumes import check_seen

log = logging.getLogger(__name__)

_SEARCH_PAUSES = (timedelta(), timedelta(seconds=1), timedelta(seconds=4))  #: pauses before each search for a pod
_GONE_WITHIN = timedelta(minutes=1)
_POLL = timedelta(seconds=1)
_LISTS_WITHOUT_POD = 2  #: how many lists must lack a pod before it counts as ended: a list may be incomplete


class RunPodSpawner:
    """Starts workers as pods of one RunPod account, with names that begin with the settings' prefix.

    Spawners with the same API key and prefix see the same workers. The key is read from RUNPOD_API_KEY and never shown. Pods
    get the worker's environment, including the store's URL, and are requested where they are cheapest (placement.py).

    A surplus pod (a second pod of one worker) is listed as ``worker~pod``: no worker has that id, so a controller ends it.
    RunPod reports no exit codes. The disk of a stopped pod costs money until the pod is terminated.
    """

    def __init__(
        self,
        settings: RunPodSettings,
        environment: Mapping[str, str],
        clock: Clock | None = None,
        variables: Mapping[str, str] | None = None,
        transport: Transport | None = None,
        state_dir: Path | None = None,
        name: str = "runpod",
    ) -> None:
        """``variables`` holds the API key (default: the environment); ``name`` is the engine's name. RunPod's refusals are
        stored in the folder ``state_dir`` for later processes; None: they are only kept in memory."""
        self._name = name
        self._settings = settings
        self._environment = dict(environment)
        self._clock = clock or SystemClock()
        key = api_key(os.environ if variables is None else variables)
        self._asked_with = fingerprint(key, settings)
        self._client = RunPodClient(key, settings, self._clock, transport)
        self._watch = PodFinder(self._client, settings, self._clock)
        self._market = GpuCatalogue(self._client, settings, self._clock)
        self._refusals = remembered_refusals(settings, self._clock, state_dir, self._asked_with)
        self._backoff = remembered_backoff(settings, self._clock, state_dir, self._asked_with)
        self._unresolved: dict[Name, timedelta] = {}  #: creations without an answer, and how long their pods may still appear
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()
        self._is_open = False

    @property
    def traits(self) -> SpawnerTraits:
        return SpawnerTraits(
            name=self._name,
            unique_names=False,
            outlives_controller=True,
            reports_exit_codes=False,
            price_per_hour=self._settings.max_price_per_hour,
            billing_granule=self._settings.billing_granule,
            usual_start=self._settings.usual_start,
            settle=self._settings.settle,
            expands_volumes=self._settings.network_volume_id is not None,
            asked_with=self._asked_with,
        )

    async def spawn(self, order: Order) -> Instance:
        self._check_open()
        name = (order.pool_id, order.worker_id)
        async with self._lock(name):
            return await self._adopt(order, name) or await self._place(order, name)

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        self._check_open()
        found = await self._watch.find_pods(lambda name: name[0] == pool_id)
        for name, pods in found.items():
            if (last := pods.last) is not None:
                self._watch.note(name, last)
        await self._market.learn_memory(pod for pods in found.values() for pod in (pods.current, *pods.rest) if pod)
        known = self._watch.known(lambda name: name[0] == pool_id)
        names = sorted({*found, *known})
        return [one for name in names for one in self._instances(name, found.get(name), known.get(name))]

    async def pools(self) -> Set[PoolId]:
        """Return the pools of all live pods whose names begin with the settings' prefix.

        Several stores can use the same prefix, so some of these pools can belong to another store.
        """
        self._check_open()
        found = await self._watch.find_pods(lambda name: True)
        return {name[0] for name, pods in found.items() if pods.current is not None or pods.surplus}

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """Stop the pod's container: RunPod sends SIGTERM, and SIGKILL after a short grace period.

        If the worker can need longer to finish, drain it through the store, as the fleet does, and end the pod afterwards.
        """
        self._check_open()
        for pod in await self._pods_of((pool_id, worker_id)):
            if pod.is_alive:
                await self._client.stop(pod.id)

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        self._check_open()
        name = (pool_id, worker_id)
        async with self._lock(name):
            await self._end(name)
            self._watch.forget(name)

    async def expand_volume(self, volume: str, to_gb: int, seen_gb: float) -> int:
        """Expand the volume of the settings to at least ``to_gb``, and return its size in GB.

        Raises SpawnError for any other volume, so that no money is spent on it.
        """
        self._check_open()
        own = self._settings.network_volume_id
        if volume != own:
            message = f"volume {volume}: expected {own or 'none'} (RUNPOD_NETWORK_VOLUME_ID); other volumes are not expanded"
            raise SpawnError(message, cause=SpawnCause.BAD_REQUEST)
        found = await self._client.volume(volume)
        check_seen(volume, found.size, seen_gb)
        return found.size if found.size >= to_gb else (await self._client.resize(volume, to_gb)).size

    def forget_refusals(self, pool_id: PoolId) -> None:
        """Forget RunPod's refusals and the pool's failed creations of pods, so that pods are requested again at once."""
        self._refusals.forget()
        self._backoff.succeeded(pool_id)

    async def __aenter__(self) -> Self:
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        await self._client.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise InvalidInput("expected an open spawner; use it as: async with RunPodSpawner(...) as spawner")

    def _lock(self, name: Name) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def _instances(self, name: Name, found: WorkerPods | None, known: Pod | None) -> Sequence[Instance]:
        """Return the worker's instance (as found now, else as last known), and one instance for each surplus (second) pod."""
        pool_id, worker_id = name
        last = (found.last if found else None) or known
        own = [instance(last, name, self._market.memory_gb)] if last else []
        surplus = found.surplus if found else ()
        return [*own, *(instance(pod, (pool_id, surplus_id(worker_id, pod)), self._market.memory_gb) for pod in surplus)]

    async def _adopt(self, order: Order, name: Name) -> Instance | None:
        """Return the worker's running pod, and delete its other pods; None if none runs. Raises SpawnFailed, SpawnAmbiguous."""
        try:
            found = await self._find(name)
        except SpawnError as exc:
            raise self._list_error(name, exc, may_run=not order.is_first) from exc
        if found.current is None and self._is_unresolved(name):
            raise SpawnAmbiguous(f"worker {name[1]}: creating its pod got no answer, and no pod is listed yet; try again later")
        await self._end_surplus(found.rest)
        return self._settled(name, found.current) if found.current else None

    async def _place(self, order: Order, name: Name) -> Instance:
        """Request a pod at one place (GPU type and data centre) after the other, until RunPod creates it."""
        who, places = f"worker {order.worker_id}", await self._places(name)
        for place in self._refusals.open(places, self._clock.elapsed())[: self._settings.tries_per_spawn]:
            self._check_backoff(order)
            answer = await self._create(order, name, place)
            if not isinstance(answer, Refusal):
                return answer
            if not answer.may_work_elsewhere:
                raise SpawnFailed(f"{who}: {answer.detail}", cause=answer.cause, retry_after=answer.retry_after)
            log.info("%s: RunPod refused a pod with %s: %s; trying the next GPU type or data centre", who, place, answer.detail)
            self._refusals.note(place, answer, self._clock.elapsed())
        raise all_refused(who, self._refusals.remembered(places), self._refusals.wait(places, self._clock.elapsed()))

    def _check_backoff(self, order: Order) -> None:
        wait = self._backoff.wait(order.pool_id, self._clock.elapsed())
        if wait is not None:
            most, span = self._settings.tries_per_spawn, self._settings.refused_for.total_seconds()
            message = f"worker {order.worker_id}: {most} creations have failed within {span:.0f} s; pausing requests to RunPod"
            raise SpawnFailed(message, cause=SpawnCause.NO_CAPACITY, retry_after=wait)

    async def _places(self, name: Name) -> Sequence[GpuPlace]:
        try:
            return await self._market.places()
        except SpawnError as exc:
            raise self._list_error(name, exc) from exc

    async def _create(self, order: Order, name: Name, place: GpuPlace) -> Instance | Refusal:
        """Request a pod at one place. Before the request, notes that the pod might exist: the call can be cancelled, or get no
        answer, after RunPod has created the pod."""
        self._unresolved[name] = self._clock.elapsed() + self._settings.settle
        self._backoff.failed(order.pool_id, self._clock.elapsed())
        answer = await self._client.create(creation(order, place, self._settings, self._environment))
        if isinstance(answer, Pod):
            self._watch.note(name, answer, is_new=True)
            return self._settled(name, answer)
        if isinstance(answer, NoAnswer):
            return await self._resolve(name, answer)
        if answer.status >= 500 and (found := await self._seek(name)) is not None:
            return self._settled(name, found)
        self._unresolved.pop(name, None)
        return answer

    async def _resolve(self, name: Name, lost: NoAnswer) -> Instance:
        """Look for the pod after its creation got no answer. Raises SpawnAmbiguous if it is not found: it might still exist."""
        log.warning("worker %s: the creation of its pod got no answer (%s); looking for the pod", name[1], lost.why)
        if (pod := await self._seek(name)) is None:
            raise SpawnAmbiguous(
                f"worker {name[1]}: creating its pod got no answer ({lost.why}); list the workers before retrying"
            )
        return self._settled(name, pod)

    async def _seek(self, name: Name) -> Pod | None:
        """Look for the worker's pod a few times, and delete any other pods of the worker; None if the pod is not found."""
        for pause in _SEARCH_PAUSES:
            await self._clock.sleep(pause)
            try:
                found = await self._find(name)
            except SpawnError as exc:
                log.warning("worker %s: failed to look for its pod: %s; trying again", name[1], exc)
                continue
            if found.current is not None:
                await self._end_surplus(found.rest)
                return found.current
        return None

    def _settled(self, name: Name, pod: Pod) -> Instance:
        self._unresolved.pop(name, None)
        self._backoff.succeeded(name[0])
        self._watch.note(name, pod)
        return instance(pod, name, self._market.memory_gb)

    def _is_unresolved(self, name: Name) -> bool:
        if name in self._unresolved and self._clock.elapsed() >= self._unresolved[name]:
            del self._unresolved[name]
        return name in self._unresolved

    def _list_error(self, name: Name, exc: SpawnError, *, may_run: bool = False) -> SpawnError:
        """Return the error after a failed call to RunPod: SpawnAmbiguous if the worker might have a pod, else SpawnFailed.

        ``may_run``: another process, or this one, may have created a pod for the worker, and the pods could not be listed."""
        if may_run or self._is_unresolved(name) or self._watch.is_known_alive(name):
            return SpawnAmbiguous(f"worker {name[1]}: it might be running: {exc}; list the workers before retrying")
        return SpawnFailed(f"worker {name[1]}: {exc}", cause=exc.cause, retry_after=exc.retry_after)

    async def _find(self, name: Name) -> WorkerPods:
        return (await self._watch.find_pods(lambda each: each == name)).get(name, WorkerPods(None, ()))

    async def _end_surplus(self, pods: Sequence[Pod]) -> None:
        """Delete a worker's surplus and ended pods. A pod that cannot be deleted is logged, and stays in RunPod's list."""
        for pod in pods:
            try:
                await self._client.delete(pod.id)
            except SpawnError as exc:
                log.warning("failed to end the surplus pod %s: %s; trying again later", pod.id, exc)

    async def _pods_of(self, name: Name) -> Sequence[Pod]:
        """Return all pods of a worker. The worker id can also name one surplus pod (``worker~pod``): then only this pod."""
        found = await self._find(name)
        pods = [*([found.current] if found.current else []), *found.rest]
        if pods or SURPLUS not in name[1]:
            return pods
        worker_id, _, pod_id = name[1].rpartition(SURPLUS)
        siblings = await self._find((name[0], WorkerId(worker_id)))
        return [pod for pod in siblings.rest if pod.id == pod_id]

    async def _end(self, name: Name) -> None:
        """Delete the worker's pods until RunPod lists none. Raises SpawnError if one cannot be deleted."""
        gone: set[str] = set()
        clean, deadline = 0, self._clock.elapsed() + _GONE_WITHIN
        while clean < _LISTS_WITHOUT_POD:
            left = [pod for pod in await self._pods_of(name) if pod.id not in gone]
            clean = 0 if left else clean + 1
            gone |= {pod.id for pod in left if await self._delete(pod)}
            if any(pod.id not in gone for pod in left):
                if self._clock.elapsed() > deadline:
                    raise SpawnError(f"worker {name[1]}: expected its pods to end within {_GONE_WITHIN}, but some still run")
                await self._clock.sleep(_POLL)

    async def _delete(self, pod: Pod) -> bool:
        """Delete a pod. Returns whether it no longer exists."""
        await self._client.delete(pod.id)
        left = await self._client.find_pod(pod.id)
        return left is None or left.status == "TERMINATED"
