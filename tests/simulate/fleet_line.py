"""The lines of one controller to its store and its provider, on which anything may happen at any call, by chance."""

import asyncio
import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, cast

import httpx

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, StoreUnavailable
from drumbeat.core.job import JobStatus
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.spawn.runpod.pods import parse_name
from drumbeat.store.interface import Store
from simulate.fleet_purse import Meter
from simulate.fleet_weather import LATE, Weather
from simulate.virtual_time import EPOCH
from spawn.runpod.simulator import RunPodSimulator
from spawn.runpod.wire import SimulatedWire

POOLS = (PoolId("p"), PoolId("q"), PoolId("r"))  #: the fleets of one store and one account
RELEASE = "store.queue.release"
_GIVES_UP = 30.0  #: seconds after which a call to the provider has no answer


class Crash(BaseException):
    """The controller is gone: nothing of it may catch this."""


@dataclass(slots=True, kw_only=True, eq=False)
class Line:
    """What becomes of each call. ``weather`` may change meanwhile; ``met`` counts what happened, by call."""

    chance: Random
    clock: Clock
    beyond: asyncio.TaskGroup  #: where what is under way goes on after its caller has gone
    weather: Weather
    meter: Meter
    outdated: list[str]  #: what was written though another led
    pool_id: PoolId  #: whose controller this is
    foreign: list[str]  #: what it did to the workers and jobs of other pools
    met: Counter[str] = field(default_factory=Counter)
    began: datetime = EPOCH  #: its last beat

    async def carry(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        fate = self.chance.random()
        self.die(name, "before", fate)
        if self.weather.fails and self.chance.random() < self.weather.fails:
            return await self._unanswered(name, call)
        answer = await (self._late(name, call) if self.lags(name) else call())
        self.die(name, "after", 1 - fate)
        return answer

    def die(self, name: str, when: str, fate: float) -> None:
        if fate < self.weather.dies * self._stress(name) / 2:
            self.met[f"died {when} {name}"] += 1
            raise Crash(name)

    def lags(self, name: str) -> bool:
        return bool(self.weather.lags) and self.chance.random() < self.weather.lags * self._stress(name)

    def _stress(self, name: str) -> int:
        """How much likelier than elsewhere something happens at this call: creations are rare, and hardest to get right."""
        return 8 if name == "POST pods" else 1

    async def _unanswered(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        done = self.chance.random() < 0.5
        self.met[f"no answer from {name}, {'done' if done else 'not done'}"] += 1
        if done:
            await call()
        raise StoreUnavailable(f"{name}: the store gave no answer")

    async def _late(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """It is done some time later, even if nobody waits for it any more."""
        self.met[f"late {name}"] += 1
        pause = timedelta(seconds=self.chance.uniform(0, LATE))
        answer, failure = await asyncio.shield(self.beyond.create_task(self._after(pause, call)))
        if failure is not None:
            raise failure
        return answer

    async def _after(self, pause: timedelta, call: Callable[[], Awaitable[Any]]) -> tuple[Any, Exception | None]:
        await self.clock.sleep(pause)
        try:
            return await call(), None
        except DrumbeatError as exc:
            return None, exc

    def store(self, store: Store) -> Store:
        return cast("Store", _Tapped(store, self, "store", store))

    async def done(self, name: str, store: Store, call: Callable[[], Awaitable[Any]], fence: Fence | None) -> Any:
        """A call takes effect. Whoever writes under an old epoch must be told so."""
        lease = await store.leases.find(fence.name) if fence else None
        elsewhere = await self._elsewhere(store) if name == RELEASE else None
        answer = await call()
        if elsewhere is not None and (touched := elsewhere - await self._elsewhere(store)):
            self.foreign.append(f"{name} of {self.pool_id} at {self.clock.now():%H:%M:%S} took {sorted(touched)}")
        if fence and lease and lease.epoch > fence.epoch:
            self.outdated.append(f"{name} at {self.clock.now():%H:%M:%S}, epoch {fence.epoch} after {lease.epoch}")
        return answer

    async def _elsewhere(self, store: Store) -> set[tuple[str, str, int]]:
        """The claims of other pools."""
        others = [pool for pool in await store.pools.list() if pool.pool_id != self.pool_id]
        claimed = [await store.jobs.list(each.pool_id, statuses=[JobStatus.CLAIMED], limit=10_000) for each in others]
        return {(job.pool_id, job.job_id, job.lease_epoch) for jobs in claimed for job in jobs}

    def check_own(self, name: str, *given: object) -> None:
        """Whether everything a controller's call names belongs to its pool."""
        flat = [one for each in given for one in (each if isinstance(each, list) else [each])]
        named = {each if isinstance(each, str) else getattr(each, "pool_id", None) for each in flat}
        if strange := {*POOLS} & named - {self.pool_id}:
            self.foreign.append(f"{name} by a controller of {self.pool_id} named {strange}: {given}")


class _Tapped:
    """A store, or a part of it, whose operations go through the line."""

    def __init__(self, thing: object, line: Line, name: str, store: Store) -> None:
        self._thing = thing
        self._store = store
        self._line = line
        self._name = name
        self._parts: dict[str, Any] = {}

    def __getattr__(self, part: str) -> Any:
        if part not in self._parts:
            self._parts[part] = self._tapped(part)
        return self._parts[part]

    def _tapped(self, part: str) -> Any:
        found, name = getattr(self._thing, part), f"{self._name}.{part}"
        if part == "traits":
            return found
        if not inspect.iscoroutinefunction(found):
            return _Tapped(found, self._line, name, self._store)
        line, store = self._line, self._store

        def tapped(*args: Any, **kwargs: Any) -> Any:
            line.check_own(name, *args)
            return line.carry(name, lambda: line.done(name, store, lambda: found(*args, **kwargs), kwargs.get("fence")))

        return tapped


class UnsteadyWire(SimulatedWire):
    """The way to the provider: a request may be under way for long, outlive its sender, and be given up by it."""

    def __init__(self, simulator: RunPodSimulator, line: Line) -> None:
        super().__init__(simulator)
        self._line = line
        self._pods = simulator.pods

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        name = f"{request.method} {request.url.path.split('/')[2]}"
        fate = self._line.chance.random()
        self._line.die(name, "before", fate)
        if self._line.lags(name):
            answer = await self._lagging(name, request)
        else:
            answer = await self._send(request, self._line.began)
        self._line.die(name, "after", 1 - fate)
        return answer

    async def _lagging(self, name: str, request: httpx.Request) -> httpx.Response:
        self._line.met[f"late {name}"] += 1
        pause = timedelta(seconds=self._line.chance.uniform(0, LATE))
        task = self._line.beyond.create_task(self._later(pause, request, self._line.began))
        done, _ = await asyncio.wait([task], timeout=_GIVES_UP)
        if not done:
            raise httpx.ReadTimeout("no answer", request=request)
        answer = task.result()
        if answer is None:
            raise httpx.ReadError("the connection broke", request=request)
        return answer

    async def _later(self, pause: timedelta, request: httpx.Request, began: datetime) -> httpx.Response | None:
        await self._line.clock.sleep(pause)
        try:
            return await self._send(request, began)
        except httpx.HTTPError:
            return None

    async def _send(self, request: httpx.Request, began: datetime) -> httpx.Response:
        """What is bought now, a beat that began then has decided."""
        self._line.meter.asked_in = began
        self._check_own(request)
        return await super().handle_async_request(request)

    def _check_own(self, request: httpx.Request) -> None:
        """Whether what is made or ended at the provider is the controller's own."""
        line = self._line
        named = json.loads(request.content)["name"] if request.url.path.endswith("/pods") and request.content else None
        if request.method in {"DELETE", "POST"} and named is None:
            pod_id = request.url.path.split("/")[3]
            named = next((pod.name for pod in self._pods if pod.id == pod_id), None)
        owner = parse_name("drumbeat", named) if named else None
        if owner is not None and owner[0] != line.pool_id:
            line.foreign.append(f"{request.method} {named} by a controller of {line.pool_id}")
