"""What the fleet's tests begin with: workers, instances and views in a few words."""

from dataclasses import fields as dataclass_fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from drumbeat.core.job import JobId
from drumbeat.core.pool import PRESETS, PoolId, PoolKind
from drumbeat.core.worker import TERMINAL, Worker, WorkerId, WorkerStatus
from drumbeat.fleet.model import FleetPolicy, FleetState, FleetView, HeldJob, ListedInstance, PolicyName, QueueView

POOL = PoolId("p")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIMITS = PRESETS[PoolKind.FLEET]
LONG_AGO = NOW - timedelta(days=1)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def worker(
    name: str | int,
    slot: int | None = None,
    status: WorkerStatus = WorkerStatus.ACTIVE,
    silent: float = 0,
    reaped: bool = False,
    **fields: Any,
) -> Worker:
    """A worker that was heard of ``silent`` seconds ago; ``3`` is worker-3 in slot 3, with the usual target."""
    row = Worker(
        pool_id=POOL,
        worker_id=WorkerId(f"worker-{name}" if isinstance(name, int) else name),
        slot=slot if slot is not None else int(name),
        status=status,
        target=0 if status is WorkerStatus.SPAWNING else 1,
        created_at=LONG_AGO if status is not WorkerStatus.SPAWNING else NOW - seconds(silent),
        heartbeat_at=None if status is WorkerStatus.SPAWNING else NOW - seconds(silent),
        heartbeat_count=0 if status is WorkerStatus.SPAWNING else 7,
        ended_at=NOW if status in TERMINAL else None,
        reaped_at=NOW if reaped else None,
    )
    return replace(row, **fields)


def runs(*names: str | int) -> tuple[ListedInstance, ...]:
    return tuple(ListedInstance(worker_id=_name(name), running=True) for name in names)


def is_over(name: str | int, exit_code: int | None = -9) -> ListedInstance:
    return ListedInstance(worker_id=_name(name), running=False, exit_code=exit_code)


def _name(name: str | int) -> WorkerId:
    return WorkerId(f"worker-{name}" if isinstance(name, int) else name)


def view(
    *workers: Worker, wanted: int = 0, instances: tuple[ListedInstance, ...] | None = None, target: int = 1, **fields: Any
) -> FleetView:
    """A pool that has been looked at for a day. Unless told otherwise every live worker's instance runs."""
    running = tuple(ListedInstance(worker_id=each.worker_id, running=True) for each in workers if each.is_live)
    seen = FleetView(
        pool_id=POOL,
        now=NOW,
        looking_since=LONG_AGO,
        paused_until=None,
        thresholds=LIMITS,
        policy=FleetPolicy(workers=wanted, target=target),
        workers=workers,
        instances=running if instances is None else instances,
    )
    return replace(seen, **fields)


def job(name: str, holder: str | int, held_for: float = 10, **fields: Any) -> HeldJob:
    """A job that a worker has held for so many seconds, with its lease kept."""
    kept = HeldJob(
        job_id=JobId(name), worker_id=_name(holder), claimed_at=NOW - seconds(held_for), lease_until=NOW + seconds(60)
    )
    return replace(kept, **fields)


def ready_worker(name: int, age: float = 7200, **fields: Any) -> Worker:
    """An active worker of a queue's pool, long ready."""
    made = NOW - seconds(age)
    return worker(name, **({"created_at": made, "started_at": made + seconds(60), "ready_at": made + seconds(120)} | fields))


def idle_for(**spans: float) -> FleetState:
    """What a beat remembers that saw workers idle, and all the while jobs to claim: ``worker_0=700``."""
    idle_since = {name.replace("_", "-"): NOW - seconds(span) for name, span in spans.items()}
    return FleetState(idle_since=idle_since, claimable_since=min(idle_since.values(), default=None))


def queued(
    *workers: Worker,
    ready: int = 0,
    held: tuple[HeldJob, ...] = (),
    oldest: float = 1,
    policy: str = "queue_ratio",
    **fields: Any,
) -> FleetView:
    """A pool with a queue; fields of the policy are given with those of the view."""
    names = {each.name for each in dataclass_fields(FleetPolicy)} - {"provider"}
    rules = {"min_workers": 0} | {name: fields.pop(name) for name in [*fields] if name in names}
    since, demand = NOW - seconds(oldest) if ready else None, {"": ready} if ready else {}
    queue = QueueView(ready=ready, claimed=len(held), oldest_ready=since, demand=demand)
    chosen = FleetPolicy(policy=PolicyName(policy), **rules)
    shown: dict[str, Any] = {"policy": chosen, "queue": queue, "held": held, "state": FleetState()}
    return view(*workers, **(shown | fields))
