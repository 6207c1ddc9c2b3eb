"""Workers of a simulated fleet: each lives in a pod, joins the store, claims jobs, may be killed or fall silent."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError
from drumbeat.core.job import AttemptOutcome, Job, JobId, JobOutcome
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder, WorkerId, WorkerStatus
from drumbeat.spawn.runpod.pods import parse_name
from drumbeat.store.interface import ClaimRequest, Heartbeat, JoinRequest, Store
from simulate.fleet_purse import Meter
from simulate.fleet_weather import HIDDEN, LATE, Weather
from spawn.runpod.machines import SimPod
from spawn.runpod.simulator import RunPodSimulator
from spawn.runpod.wire import Answer

BEAT = 20.0  #: seconds between two heartbeats
LEASE = timedelta(seconds=90)
_SETTLED = timedelta(seconds=HIDDEN + LATE)


@dataclass(slots=True, kw_only=True)
class Crew:
    """What all workers of a run share."""

    store: Store
    clock: Clock
    chance: Random
    weather: Weather
    group: asyncio.TaskGroup
    controller_gone_after: timedelta
    lives: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    accepted: Counter[JobId] = field(default_factory=Counter)  #: results the store has taken
    wronged: list[str] = field(default_factory=list)  #: workers that were well and given up
    taken: list[str] = field(default_factory=list)  #: jobs taken from workers that were well and not given up
    holders: dict[JobId, "Life"] = field(default_factory=dict)  #: who was last handed each job
    haunted: set[str] = field(default_factory=set)  #: pods' names of which the provider has shown ghosts
    met: Counter[str] = field(default_factory=Counter)
    leaps: bool = False  #: whether the store's clock jumps, by which leases run out

    def start(self, pod: SimPod) -> None:
        self.lives[pod.id] = self.group.create_task(self._live(pod))

    def end(self, pod: SimPod) -> None:
        if pod.id in self.lives:
            self.lives[pod.id].cancel()

    async def _live(self, pod: SimPod) -> None:
        name = parse_name("drumbeat", pod.name)
        assert name is not None
        life = Life(crew=self, pod=pod, pool_id=name[0], worker_id=name[1])
        try:
            await self.clock.sleep(pod.starts_in)
            await life.lived()
        except Killed:
            life.is_well = False
        except DrumbeatError:
            self.met["workers that were told they are gone"] += 1
            await self._mourn(life)
        pod.stopped_at = pod.stopped_at or self.clock.now()

    async def _mourn(self, life: "Life") -> None:
        """Whoever was heard until now, and is at work, may be asked to leave, and not be given up.

        Unless its provider showed a pod of its name that never was: that one is over as soon as it is looked for.
        """
        row = await self.store.workers.get(life.pool_id, life.worker_id)
        given_up = row.status in {WorkerStatus.LOST, WorkerStatus.ERROR} and life.pod.name not in self.haunted
        if life.is_well and given_up:
            self.wronged.append(f"{life.pool_id}/{life.worker_id}, {row.status} at {self.clock.now():%H:%M:%S}: {row.error}")


class Killed(DrumbeatError):
    """The process is gone, its pod may not know."""


@dataclass(slots=True, kw_only=True)
class Life:
    """One worker's."""

    crew: Crew
    pod: SimPod
    pool_id: PoolId
    worker_id: WorkerId
    held: Job | None = None
    left: float = 0.0  #: seconds of work on it
    is_well: bool = False  #: has joined, and was never silent for long
    renewed_at: datetime | None = None  #: when it was last told that it holds its job

    async def lived(self) -> None:
        store, me = self.crew.store, (self.pool_id, self.worker_id, self.pod.id)
        slot = int(self.pod.asked["args"].split("--worker-group-id ")[1].split()[0])
        who = JoinRequest(pool_id=me[0], worker_id=me[1], slot=slot, instance=me[2], host="pod", pid=1)
        await store.membership.join(who)
        await store.membership.move(*me, WorkerStatus.WAITING, "ready")
        await store.membership.move(*me, WorkerStatus.ACTIVE, "at work")
        self.is_well = True
        while not await self._told_to_leave():
            await self._work(BEAT)
        await store.membership.move(*me, WorkerStatus.DRAINING, "asked to")
        while self.held is not None:
            await self._work(BEAT)
            await self._told_to_leave()
        await store.membership.move(*me, WorkerStatus.TERMINATED, "left")

    async def _told_to_leave(self) -> bool:
        """One heartbeat; whoever holds a job renews its lease."""
        await self._suffer()
        store = self.crew.store
        beat = Heartbeat(
            pool_id=self.pool_id,
            worker_id=self.worker_id,
            instance=self.pod.id,
            read_to=10**9,
            active=int(self.held is not None),
        )
        orders = await store.membership.beat(beat)
        if self.held is not None:
            renewed = await store.queue.renew(self._holder, [self.held.token], LEASE)
            if renewed.stale:
                await self._lose("renewed")
            else:
                self.renewed_at = self.crew.clock.now()
        if orders.controller_until and orders.now - orders.controller_until > self.crew.controller_gone_after:
            self.crew.met["workers that left because nobody led"] += 1
            raise Killed("nobody leads")
        return orders.drain_deadline is not None

    async def _suffer(self) -> None:
        """What may befall it in the time of one heartbeat."""
        chance, weather, met = self.crew.chance, self.crew.weather, self.crew.met
        if chance.random() < weather.kills:
            met["workers killed"] += 1
            self.is_well = False
            if chance.random() < 0.5:
                raise Killed("its pod knows")
            await asyncio.get_running_loop().create_future()
        if chance.random() < weather.freezes:
            met["workers frozen"] += 1
            self.is_well = False
            await self.crew.clock.sleep(timedelta(seconds=chance.uniform(60, 400)))

    async def _work(self, seconds: float) -> None:
        """So much time, on as many jobs as it is enough for."""
        while seconds > 0:
            if self.held is None and not await self._claim():
                await self.crew.clock.sleep(timedelta(seconds=seconds))
                return
            spent = min(self.left, seconds)
            await self.crew.clock.sleep(timedelta(seconds=spent))
            self.left, seconds = self.left - spent, seconds - spent
            if self.left <= 0:
                await self._finish()

    @property
    def _holder(self) -> Holder:
        return Holder(pool_id=self.pool_id, worker_id=self.worker_id, instance=self.pod.id)

    async def _claim(self) -> bool:
        claiming = ClaimRequest(pool_id=self.pool_id, holder=self._holder, lease=LEASE, alone=True)
        found = await self.crew.store.queue.claim(claiming)
        if found:
            self.held, self.left = found[0], found[0].payload["seconds"]
            await self._take(found[0])
        return bool(found)

    async def _take(self, job: Job) -> None:
        """It is handed a job, which nobody else may have."""
        if job.pool_id != self.pool_id:
            self.crew.taken.append(f"{self.pool_id}/{self.worker_id} was handed {job.job_id} of {job.pool_id}")
        before, self.crew.holders[job.job_id] = self.crew.holders.get(job.job_id), self
        if before is not None and before is not self and before.held is not None and before.held.job_id == job.job_id:
            await before.check_taken(job, f"handed to {self.pool_id}/{self.worker_id}")
        self.renewed_at = self.crew.clock.now()

    async def _lose(self, how: str) -> None:
        """It hears that it does not hold its job any more."""
        assert self.held is not None
        await self.check_taken(self.held, f"gone when it was {how}")
        self.held = None

    async def check_taken(self, job: Job, how: str) -> None:
        """Whether its job was taken from it though it is well, was not given up, and kept its lease by a clock that is true."""
        row = await self.crew.store.workers.get(self.pool_id, self.worker_id)
        late = self.renewed_at is None or self.crew.clock.now() - self.renewed_at >= LEASE
        if self.is_well and row.is_live and row.instance == self.pod.id and not late and not self.crew.leaps:
            self.crew.taken.append(f"{self.pool_id}/{self.worker_id} lost {job.job_id}: {how}")

    async def _finish(self) -> None:
        assert self.held is not None
        done = JobOutcome(token=self.held.token, outcome=AttemptOutcome.DONE)
        settled = await self.crew.store.queue.settle(self._holder, [done])
        if settled.stale:
            await self._lose("done")
        else:
            self.crew.accepted[self.held.job_id] += 1
        self.held = None


@dataclass(slots=True, kw_only=True)
class Watched:
    """A pool whose pods are counted."""

    meter: Meter
    most: int  #: pods at once


class CrewedSimulator(RunPodSimulator):
    """RunPod whose pods have workers in them. It notes when it was made to start a second pod for one worker.

    Not where it has hidden the first from every list for longer than a provider is given to settle: nobody could know of that.
    """

    crew: Crew
    watched: dict[PoolId, "Watched"]
    doubles: list[str]
    above: list[str]  #: pods that were made though as many ran as their pool may have
    listed: set[str]  #: pods that some list has shown

    def _list(self, call: Any) -> Answer:
        answer = super()._list(call)
        self.listed.update(pod["id"] for pod in json.loads(answer.body)["pods"])
        return answer

    def _is_known(self, pod: SimPod) -> bool:
        return pod.id in self.listed or self.clock.now() - pod.created_at <= _SETTLED

    def _create(self, call: Any) -> Answer:
        before = [pod for pod in self.alive() if pod.name == call.body["name"] and self._is_known(pod)]
        answer = super()._create(call)
        if answer.status == 201 and before:
            self.doubles.append(f"{call.body['name']} at {self.clock.now():%H:%M:%S}")
        if answer.status == 201:
            self._check(call.body["name"])
        return answer

    def _check(self, name: str) -> None:
        """Whether what was just made may be, and can be paid for. Of two pods that were made of one creation, one counts."""
        owner = parse_name("drumbeat", name)
        watched = self.watched[owner[0]] if owner else None
        if watched is None:
            return
        watched.meter.bought()
        running = {pod.name for pod in watched.meter.alive()}
        if len(running) > watched.most:
            self.above.append(f"{len(running)} of at most {watched.most} at {self.clock.now():%H:%M:%S}: {sorted(running)}")

    def _add(self, asked: Mapping[str, Any], place: tuple[str, str, str], hidden: timedelta) -> SimPod:
        pod = super()._add(asked, place, hidden)
        self.crew.start(pod)
        return pod

    def _ghost(self, name: str) -> SimPod:
        self.crew.haunted.add(name)
        return super()._ghost(name)

    def _free(self, pod: SimPod) -> None:
        super()._free(pod)
        self.crew.end(pod)
