"""Starts, lists and ends workers as RunPod pods. RunPod lets two pods have one name, so every creation is looked up first."""

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
from drumbeat.spawn.runpod.client import NoAnswer, RunPodClient, Transport
from drumbeat.spawn.runpod.market import Market
from drumbeat.spawn.runpod.placement import GpuPlace, Refusal, remembered_patience, remembered_refusals, verdict
from drumbeat.spawn.runpod.pods import SURPLUS, Pod, creation, instance, surplus_id
from drumbeat.spawn.runpod.settings import RunPodSettings, api_key, fingerprint
from drumbeat.spawn.runpod.watch import Found, Watch
from drumbeat.spawn.tagged import Name
from drumbeat.spawn.volumes import check_seen

log = logging.getLogger(__name__)

_LOOKS = (timedelta(), timedelta(seconds=1), timedelta(seconds=4))  #: pauses before each look for a pod nobody answered for
_GONE_WITHIN = timedelta(minutes=1)
_POLL = timedelta(seconds=1)
_CLEAN_LOOKS = 2  #: a list may leave a pod out


class RunPodSpawner:
    """Pods of one RunPod account whose names begin with the settings' prefix.

    Spawners with the same key and prefix see the same workers. The key is read from RUNPOD_API_KEY and shown nowhere. A
    worker's environment, the store's URL with it, becomes its pod's. Where a pod is put is decided by price (placement.py).

    A second pod of one worker, should there be one, is listed under a name of its own (``worker~pod``): no row asks for it, so
    a controller ends it as a stray. RunPod tells no exit codes. A stopped pod still pays for its disk until it is terminated.
    """

    def __init__(
        self,
        settings: RunPodSettings,
        environment: Mapping[str, str],
        clock: Clock | None = None,
        variables: Mapping[str, str] | None = None,
        transport: Transport | None = None,
        state_dir: Path | None = None,
    ) -> None:
        """``environment`` is for workers; ``variables`` is where the key is, this process's own unless given.

        What was refused of late is written down in ``state_dir``, for processes that come after this one.
        """
        self._settings = settings
        self._environment = dict(environment)
        self._clock = clock or SystemClock()
        key = api_key(os.environ if variables is None else variables)
        self._asked_with = fingerprint(key, settings)
        self._client = RunPodClient(key, settings, self._clock, transport)
        self._watch = Watch(self._client, settings, self._clock)
        self._market = Market(self._client, settings, self._clock)
        self._refusals = remembered_refusals(settings, self._clock, state_dir, self._asked_with)
        self._patience = remembered_patience(settings, self._clock, state_dir, self._asked_with)
        self._unresolved: dict[Name, timedelta] = {}  #: creations without an answer, and until when they may turn up
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()
        self._is_open = False

    @property
    def traits(self) -> SpawnerTraits:
        return SpawnerTraits(
            name="runpod",
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
            return await self._adopt(name) or await self._place(order, name)

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        self._check_open()
        found = await self._watch.look(lambda name: name[0] == pool_id)
        for name, pods in found.items():
            if (last := pods.last) is not None:
                self._watch.note(name, last)
        await self._market.learn_memory(pod for pods in found.values() for pod in (pods.keeper, *pods.rest) if pod)
        known = self._watch.known(lambda name: name[0] == pool_id)
        names = sorted({*found, *known})
        return [one for name in names for one in self._instances(name, found.get(name), known.get(name))]

    async def pools(self) -> Set[PoolId]:
        """Of the pods with this prefix; another store may have the same one."""
        self._check_open()
        found = await self._watch.look(lambda name: True)
        return {name[0] for name, pods in found.items() if pods.keeper is not None or pods.surplus}

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """RunPod stops the pod's container: SIGTERM, and after a short grace of its own SIGKILL.

        Longer work is let finish by asking through the store, as the fleet does; the pod is ended once its worker has left.
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
        """Only the volume of these settings: what else a worker may call its own is nothing to spend money on."""
        self._check_open()
        own = self._settings.network_volume_id
        if volume != own:
            told = f"volume {volume}: expected {own or 'none'}, which RUNPOD_NETWORK_VOLUME_ID names; no other is expanded"
            raise SpawnError(told, cause=SpawnCause.BAD_REQUEST)
        found = await self._client.volume(volume)
        check_seen(volume, found.size, seen_gb)
        return found.size if found.size >= to_gb else (await self._client.resize(volume, to_gb)).size

    def forget_refusals(self, pool_id: PoolId) -> None:
        """Every place is asked again, and the pool's failed creations no longer count."""
        self._refusals.forget()
        self._patience.succeeded(pool_id)

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

    def _instances(self, name: Name, found: Found | None, known: Pod | None) -> Sequence[Instance]:
        """The worker, or else how it was last seen, and each pod too many."""
        pool_id, worker_id = name
        last = (found.last if found else None) or known
        own = [instance(last, name, self._market.memory_gb)] if last else []
        surplus = found.surplus if found else ()
        return [*own, *(instance(pod, (pool_id, surplus_id(worker_id, pod)), self._market.memory_gb) for pod in surplus)]

    async def _adopt(self, name: Name) -> Instance | None:
        """The pod that is there already. Any other under its name is ended."""
        try:
            found = await self._look(name)
        except SpawnError as exc:
            raise self._unsure(name, exc) from exc
        if found.keeper is None and self._is_unresolved(name):
            raise SpawnAmbiguous(f"worker {name[1]}: its creation got no answer and no pod has turned up yet; list again later")
        await self._clear(found.rest)
        return self._settled(name, found.keeper) if found.keeper else None

    async def _place(self, order: Order, name: Name) -> Instance:
        """Ask one place after the other."""
        who, wanted = f"worker {order.worker_id}", await self._wanted(name)
        for place in self._refusals.open(wanted, self._clock.elapsed())[: self._settings.tries_per_spawn]:
            self._check_patience(order)
            answer = await self._create(order, name, place)
            if not isinstance(answer, Refusal):
                return answer
            if not answer.is_of_the_place:
                raise SpawnFailed(f"{who}: {answer.detail}", cause=answer.cause, retry_after=answer.retry_after)
            log.info("%s: %s refused: %s", who, place, answer.detail)
            self._refusals.note(place, answer, self._clock.elapsed())
        raise verdict(who, self._refusals.remembered(wanted), self._refusals.wait(wanted, self._clock.elapsed()))

    def _check_patience(self, order: Order) -> None:
        wait = self._patience.wait(order.pool_id, self._clock.elapsed())
        if wait is not None:
            most, span = self._settings.tries_per_spawn, self._settings.refused_for.total_seconds()
            told = f"worker {order.worker_id}: {most} creations have failed within {span:.0f} s; RunPod is left alone"
            raise SpawnFailed(told, cause=SpawnCause.NO_CAPACITY, retry_after=wait)

    async def _wanted(self, name: Name) -> Sequence[GpuPlace]:
        try:
            return await self._market.places()
        except SpawnError as exc:
            raise self._unsure(name, exc) from exc

    async def _create(self, order: Order, name: Name, place: GpuPlace) -> Instance | Refusal:
        """Ask once. Whoever is cancelled meanwhile leaves it unresolved."""
        self._unresolved[name] = self._clock.elapsed() + self._settings.settle
        self._patience.failed(order.pool_id, self._clock.elapsed())
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
        """No answer: look for it, and never ask again before it is known whether it came."""
        log.warning("worker %s: its creation got no answer (%s); looking for it", name[1], lost.why)
        if (pod := await self._seek(name)) is None:
            raise SpawnAmbiguous(f"worker {name[1]}: its creation got no answer ({lost.why}); list before trying again")
        return self._settled(name, pod)

    async def _seek(self, name: Name) -> Pod | None:
        """Look for a pod a few times."""
        for pause in _LOOKS:
            await self._clock.sleep(pause)
            try:
                found = await self._look(name)
            except SpawnError as exc:
                log.warning("worker %s: could not look for its pod: %s", name[1], exc)
                continue
            if found.keeper is not None:
                await self._clear(found.rest)
                return found.keeper
        return None

    def _settled(self, name: Name, pod: Pod) -> Instance:
        self._unresolved.pop(name, None)
        self._patience.succeeded(name[0])
        self._watch.note(name, pod)
        return instance(pod, name, self._market.memory_gb)

    def _is_unresolved(self, name: Name) -> bool:
        if name in self._unresolved and self._clock.elapsed() >= self._unresolved[name]:
            del self._unresolved[name]
        return name in self._unresolved

    def _unsure(self, name: Name, exc: SpawnError) -> SpawnError:
        """Nothing was created by this call; whether an earlier one did something is not known if it left a trace."""
        if self._is_unresolved(name) or self._watch.is_known_alive(name):
            return SpawnAmbiguous(f"worker {name[1]}: {exc}; it may be running: list before trying again")
        return SpawnFailed(f"worker {name[1]}: {exc}", cause=exc.cause, retry_after=exc.retry_after)

    async def _look(self, name: Name) -> Found:
        return (await self._watch.look(lambda each: each == name)).get(name, Found(None, ()))

    async def _clear(self, pods: Sequence[Pod]) -> None:
        """End what stands beside a worker's pod. What cannot be ended now is listed, and so ended later."""
        for pod in pods:
            try:
                await self._client.delete(pod.id)
            except SpawnError as exc:
                log.warning("pod %s, which nobody needs, could not be ended now: %s", pod.id, exc)

    async def _pods_of(self, name: Name) -> Sequence[Pod]:
        """All its pods; for the name of a surplus pod, that one."""
        found = await self._look(name)
        pods = [*([found.keeper] if found.keeper else []), *found.rest]
        if pods or SURPLUS not in name[1]:
            return pods
        worker_id, _, pod_id = name[1].rpartition(SURPLUS)
        beside = await self._look((name[0], WorkerId(worker_id)))
        return [pod for pod in beside.rest if pod.id == pod_id]

    async def _end(self, name: Name) -> None:
        """Delete until no look shows one that is there. Raises SpawnError if one stays."""
        gone: set[str] = set()
        clean, deadline = 0, self._clock.elapsed() + _GONE_WITHIN
        while clean < _CLEAN_LOOKS:
            left = [pod for pod in await self._pods_of(name) if pod.id not in gone]
            clean = 0 if left else clean + 1
            gone |= {pod.id for pod in left if await self._delete(pod)}
            if any(pod.id not in gone for pod in left):
                if self._clock.elapsed() > deadline:
                    raise SpawnError(f"worker {name[1]}: expected its pods to be gone within {_GONE_WITHIN}, they are not")
                await self._clock.sleep(_POLL)

    async def _delete(self, pod: Pod) -> bool:
        """Whether it is gone for good."""
        await self._client.delete(pod.id)
        left = await self._client.find_pod(pod.id)
        return left is None or left.status == "TERMINATED"
