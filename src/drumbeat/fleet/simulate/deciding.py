"""The controller of a simulation: builds a view of the simulated world and decides as a real fleet does."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from drumbeat.core.job import JobId
from drumbeat.core.pool import PRESETS, PoolId, PoolKind
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.decide import decide_step
from drumbeat.fleet.model import (
    Arrivals,
    AskToDrain,
    Finished,
    FleetPolicy,
    FleetState,
    FleetView,
    HeldJob,
    LastBeat,
    ListedInstance,
    Provider,
    QueueView,
    Spawn,
    Spending,
)
from drumbeat.fleet.money import spend, tariff
from drumbeat.fleet.simulate.values import SimulatedOrders
from drumbeat.fleet.simulate.world import SimulatedWorker, World

EPOCH = datetime(2026, 1, 5, tzinfo=UTC)  #: the simulation's second 0, a Monday
POOL = PoolId("simulated")
_NEVER = timedelta(days=36_500)
_LAG_SAMPLES = 9  #: ended workers kept in the view to measure the spawn lag
_MAX_FINISHED = 100  #: maximum number of finished jobs in one view
_SAMPLE_SIZE = 200


def moment(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def without_health_timeouts(policy: FleetPolicy) -> FleetPolicy:
    """Return the policy without health timeouts, since simulated workers never fail."""
    limits = dict.fromkeys(("heartbeat_timeout", "spawning_timeout", "stuck_timeout", "ready_not_claiming_timeout"), _NEVER)
    return replace(policy, **limits)  # type: ignore[arg-type]


class SimulatedController:
    """Runs a simulation's beats and decides as a real fleet does. A worker's row is rebuilt only when the worker changes."""

    def __init__(self, policy: FleetPolicy) -> None:
        self._policy = without_health_timeouts(policy)
        self._state: FleetState | None = None
        self._last: datetime | None = None
        self._began: datetime | None = None
        self._rows: dict[str, Worker] = {}
        self._instances: dict[str, ListedInstance] = {}
        self._last_number = -1

    def __call__(self, world: World) -> SimulatedOrders:
        """Run one beat: return which simulated workers to start and to drain."""
        view = self._view(world)
        decision = decide_step(view)
        self._state, self._last = decision.state, view.now
        spawned = [each for each in decision.actions if isinstance(each, Spawn)]
        self._last_number += len(spawned)
        leaving = [str(each.worker_id) for each in decision.actions if isinstance(each, AskToDrain)]
        return SimulatedOrders(spawn=[(str(each.worker_id), each.slot) for each in spawned], drain=leaving)

    def _view(self, world: World) -> FleetView:
        now = moment(world.now)
        self._began = self._began or now
        self._forget_gone(world)
        provider = self._provider(world)
        return FleetView(
            pool_id=POOL,
            now=now,
            looking_since=self._began,
            paused_until=None,
            thresholds=PRESETS[PoolKind.FLEET],
            policy=self._policy,
            workers=(*self._gone(world), *(self._row(each, world.now) for each in world.machines.values())),
            instances=tuple(self._instance(each.name) for each in world.machines.values()),
            provider=provider,
            last_number=self._last_number,
            queue=_queue(world),
            held=_held(world),
            arrived=tuple(Arrivals(minute=moment(at * 60), count=count) for at, count in sorted(world.arrived.items())),
            finished=self._finished(world),
            spent=self._spent(world, now, provider),
            last=LastBeat(at=self._last) if self._last else None,
            state=self._state,
        )

    def _provider(self, world: World) -> Provider:
        provider = world.provider
        return Provider(
            name="simulated",
            price_per_hour=provider.price_per_hour,
            billing_granule=provider.granule,
            usual_start=provider.spawn_lag,
        )

    def _forget_gone(self, world: World) -> None:
        for name in self._rows.keys() - world.machines.keys():
            del self._rows[name]
            self._instances.pop(name, None)

    def _row(self, machine: SimulatedWorker, now: float) -> Worker:
        """Return the worker's row, rebuilt only if the worker has changed."""
        known = self._rows.get(machine.name)
        ready, leaves = machine.is_ready(now), machine.leaving
        if known is None or (known.ready_at is not None) != ready or (known.drain_deadline is not None) != leaves:
            self._rows[machine.name] = known = row(machine, now)
        return known

    def _instance(self, name: str) -> ListedInstance:
        known = self._instances.get(name)
        if known is None:
            self._instances[name] = known = ListedInstance(worker_id=WorkerId(name), running=True)
        return known

    def _gone(self, world: World) -> list[Worker]:
        return [row(each, world.now) for each in world.gone[-_LAG_SAMPLES:]]

    def _finished(self, world: World) -> tuple[Finished, ...]:
        """Return finished jobs that were running in the last beat; as in a real fleet, shorter jobs go unnoticed."""
        last = (self._last - EPOCH).total_seconds() if self._last else world.now
        visible = [each for each in world.finished if each[2] - each[1] <= last][:_MAX_FINISHED]
        return tuple(
            Finished(worker_id=WorkerId(name), took=timedelta(seconds=took), at=moment(ended)) for name, took, ended in visible
        )

    def _spent(self, world: World, now: datetime, provider: Provider) -> Spending:
        """Return the money spent; 0 if the policy has no money ceiling, because decisions then do not depend on it."""
        policy = self._policy
        if not policy.has_ceiling:
            return Spending()
        return spend([row(each, world.now) for each in world.everyone], now, tariff(policy, provider))


def row(machine: SimulatedWorker, now: float) -> Worker:
    """Build the database row that a simulated worker would have: its status, and when it was created, ready and ended."""
    ready, ended = machine.is_ready(min(now, machine.ended or now)), machine.ended
    status = WorkerStatus.TERMINATED if ended is not None else WorkerStatus.ACTIVE if ready else WorkerStatus.SPAWNING
    return Worker(
        pool_id=POOL,
        worker_id=WorkerId(machine.name),
        slot=machine.slot,
        status=status,
        created_at=moment(machine.created),
        ready_at=moment(machine.ready) if ready else None,
        drain_deadline=moment(machine.created) + _NEVER if machine.leaving else None,
        ended_at=moment(ended) if ended is not None else None,
        reaped_at=moment(ended) if ended is not None else None,
    )


def _queue(world: World) -> QueueView:
    ready = len(world.queue)
    return QueueView(
        ready=ready,
        claimed=world.claimed,
        oldest_ready=moment(world.load.arrivals[world.queue[0]]) if ready else None,
        demand={"": ready} if ready else {},
        types={"": min(ready, _SAMPLE_SIZE)} if ready else {},
    )


def _held(world: World) -> tuple[HeldJob, ...]:
    return tuple(
        HeldJob(job_id=JobId(str(job)), worker_id=WorkerId(each.name), claimed_at=moment(since))
        for each in world.machines.values()
        for job, since in each.jobs.items()
    )
