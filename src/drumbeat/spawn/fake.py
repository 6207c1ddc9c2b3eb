"""A spawner for tests that starts no processes. Tests can make its calls fail, take long, or return wrong lists."""

import itertools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self, TypeVar

from drumbeat.core.clock import Clock
from drumbeat.core.errors import SpawnAmbiguous, SpawnCause, SpawnError, SpawnFailed
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Instance, InstanceState, Order, SpawnerTraits
from drumbeat.spawn.volumes import check_seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that affects the next ``times`` calls to which it applies."""

    worker_id: WorkerId | None = None  #: the fault applies only to this worker; None: to any
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnFails(Fault):
    """The provider refuses to start the worker."""

    reason: str = "no capacity"
    cause: SpawnCause = SpawnCause.NO_CAPACITY
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLost(Fault):
    """The call raises SpawnAmbiguous, as if the provider's answer was lost; ``started``: whether the worker was started."""

    started: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StartDelayed(Fault):
    """The provider accepts the instance, which then stays pending for a while."""

    by: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedTwice(Fault):
    """The provider starts two instances under one name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitsAtOnce(Fault):
    """The instance is started, and ends before it can be listed."""

    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFails(Fault):
    """The next call of ``list`` raises SpawnError."""

    reason: str = "the provider did not answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOmits(Fault):
    """The list omits the instances of these workers, or all instances if ``workers`` is None."""

    workers: Sequence[WorkerId] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListInvents(Fault):
    """The list contains running instances of these workers, although they do not exist."""

    workers: Sequence[WorkerId]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainIgnored(Fault):
    """The instance ignores the request to drain and keeps running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateRefused(Fault):
    """The call of ``terminate`` raises SpawnError, and the instance keeps running."""

    reason: str = "the provider refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnerCall:
    """One recorded call to the spawner: which method, for which worker, and when."""

    verb: str
    pool_id: PoolId
    worker_id: WorkerId | None
    at: datetime


F = TypeVar("F", bound=Fault)


@dataclass(slots=True, kw_only=True)
class _Machine:
    """A fake instance: when it really starts and ends, even if a fault makes the spawner answer something else."""

    order: Order
    ref: str
    runs_at: datetime
    ends_at: datetime | None = None
    exit_code: int | None = None

    @property
    def name(self) -> tuple[PoolId, WorkerId]:
        return self.order.pool_id, self.order.worker_id

    def end(self, at: datetime, exit_code: int) -> None:
        if self.ends_at is None or at < self.ends_at:
            self.ends_at, self.exit_code = at, exit_code

    def state(self, now: datetime) -> InstanceState:
        if self.ends_at is not None and now >= self.ends_at:
            return InstanceState.EXITED
        return InstanceState.RUNNING if now >= self.runs_at else InstanceState.PENDING

    def as_instance(self, now: datetime) -> Instance:
        state = self.state(now)
        return Instance(
            pool_id=self.order.pool_id,
            worker_id=self.order.worker_id,
            ref=self.ref,
            state=state,
            started_at=None if state is InstanceState.PENDING else self.runs_at,
            exit_code=self.exit_code if state is InstanceState.EXITED else None,
        )


class FakeSpawner:
    """A spawner for tests with instances that exist only in memory.

    Append faults to ``faults``; each is used up by the calls it affects. ``calls`` records all calls. A drained instance exits
    with code 0 after ``drain_takes``; ``end`` lets an instance exit by itself. ``volumes`` maps names to sizes in GB; if it
    is empty, the spawner does not expand volumes.
    """

    def __init__(
        self,
        clock: Clock,
        faults: Sequence[Fault] = (),
        drain_takes: timedelta = timedelta(),
        volumes: Mapping[str, int] | None = None,
        name: str = "fake",
    ) -> None:
        self.name = name
        self.faults = [*faults]
        self.volumes = dict(volumes or {})
        self.calls: list[SpawnerCall] = []
        self.drain_takes = drain_takes
        self._clock = clock
        self._machines: list[_Machine] = []
        self._refs = itertools.count(1)

    @property
    def traits(self) -> SpawnerTraits:
        return SpawnerTraits(
            name=self.name,
            unique_names=True,
            outlives_controller=True,
            reports_exit_codes=True,
            expands_volumes=bool(self.volumes),
        )

    async def spawn(self, order: Order) -> Instance:
        self._record("spawn", order.pool_id, order.worker_id)
        if failed := self._take(SpawnFails, order.worker_id):
            raise SpawnFailed(f"worker {order.worker_id}: {failed.reason}", cause=failed.cause, retry_after=failed.retry_after)
        lost = self._take(AnswerLost, order.worker_id)
        instance = None if lost and not lost.started else self._find_or_start(order)
        if instance is None or lost:
            raise SpawnAmbiguous(f"worker {order.worker_id}: the provider gave no answer; list the workers before trying again")
        return instance

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        self._record("list", pool_id, None)
        if failed := self._take(ListFails):
            raise SpawnError(f"pool {pool_id}: {failed.reason}")
        instances = [machine.as_instance(self._clock.now()) for machine in self._machines if machine.order.pool_id == pool_id]
        if omitted := self._take(ListOmits):
            instances = [one for one in instances if omitted.workers is not None and one.worker_id not in omitted.workers]
        invented = self._take(ListInvents)
        return [*instances, *(_ghost(pool_id, worker_id) for worker_id in (invented.workers if invented else ()))]

    async def pools(self) -> Set[PoolId]:
        now = self._clock.now()
        return {machine.name[0] for machine in self._machines if machine.state(now) is not InstanceState.EXITED}

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        self._record("drain", pool_id, worker_id)
        if not self._take(DrainIgnored, worker_id):
            for machine in self._living(pool_id, worker_id):
                machine.end(self._clock.now() + self.drain_takes, exit_code=0)

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        self._record("terminate", pool_id, worker_id)
        if refused := self._take(TerminateRefused, worker_id):
            raise SpawnError(f"worker {worker_id}: {refused.reason}")
        self.end(pool_id, worker_id, exit_code=-9)

    async def expand_volume(self, volume: str, to_gb: int, seen_gb: float) -> int:
        if volume not in self.volumes:
            raise SpawnError(f"volume {volume} does not exist", cause=SpawnCause.BAD_REQUEST)
        check_seen(volume, self.volumes[volume], seen_gb)
        self.volumes[volume] = max(self.volumes[volume], to_gb)
        return self.volumes[volume]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def end(self, pool_id: PoolId, worker_id: WorkerId, exit_code: int) -> None:
        """Let the worker's instances exit now with this code."""
        for machine in self._living(pool_id, worker_id):
            machine.end(self._clock.now(), exit_code)

    def running(self, pool_id: PoolId) -> Sequence[WorkerId]:
        """Return the workers that really are pending or running, whatever ``list`` says; a worker with two instances, twice."""
        now = self._clock.now()
        instances = [machine.as_instance(now) for machine in self._machines if machine.order.pool_id == pool_id]
        return sorted(one.worker_id for one in instances if one.state is not InstanceState.EXITED)

    def asked(self, verb: str) -> Sequence[WorkerId | None]:
        """Return the workers of all recorded calls of this method (spawn, drain …), in order."""
        return [call.worker_id for call in self.calls if call.verb == verb]

    def _find_or_start(self, order: Order) -> Instance:
        living = self._living(order.pool_id, order.worker_id)
        machine = living[0] if living else self._start(order)
        return machine.as_instance(self._clock.now())

    def _start(self, order: Order) -> _Machine:
        """Start a new instance, and forget an exited one of the same name."""
        self._machines = [machine for machine in self._machines if machine.name != (order.pool_id, order.worker_id)]
        delayed = self._take(StartDelayed, order.worker_id)
        machine = self._add(order, delayed.by if delayed else timedelta())
        if self._take(StartedTwice, order.worker_id):
            self._add(order, timedelta())
        if ended := self._take(ExitsAtOnce, order.worker_id):
            machine.end(self._clock.now(), ended.exit_code)
        return machine

    def _add(self, order: Order, delay: timedelta) -> _Machine:
        machine = _Machine(order=order, ref=f"fake-{next(self._refs)}", runs_at=self._clock.now() + delay)
        self._machines.append(machine)
        return machine

    def _living(self, pool_id: PoolId, worker_id: WorkerId) -> Sequence[_Machine]:
        now, mine = self._clock.now(), [machine for machine in self._machines if machine.name == (pool_id, worker_id)]
        return [machine for machine in mine if machine.state(now) is not InstanceState.EXITED]

    def _record(self, verb: str, pool_id: PoolId, worker_id: WorkerId | None) -> None:
        self.calls.append(SpawnerCall(verb=verb, pool_id=pool_id, worker_id=worker_id, at=self._clock.now()))

    def _take(self, kind: type[F], worker_id: WorkerId | None = None) -> F | None:
        """Return the first fault of this class that applies to the call, and reduce its ``times`` by 1; None if none does."""
        for index, fault in enumerate(self.faults):
            if isinstance(fault, kind) and fault.worker_id in {None, worker_id}:
                self.faults[index : index + 1] = [replace(fault, times=fault.times - 1)] if fault.times > 1 else []
                return fault
        return None


def _ghost(pool_id: PoolId, worker_id: WorkerId) -> Instance:
    return Instance(pool_id=pool_id, worker_id=worker_id, ref=f"ghost-{worker_id}", state=InstanceState.RUNNING)
