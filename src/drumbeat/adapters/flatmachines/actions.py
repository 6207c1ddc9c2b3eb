"""The actions of the ``pool`` hook. Each returns values that the hook merges into the state machine's context."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from drumbeat.adapters.flatmachines.expressions import evaluate
from drumbeat.adapters.flatmachines.reaping import as_stale, find_stale, reap
from drumbeat.adapters.flatmachines.registration import DEFAULT_POOL
from drumbeat.adapters.flatmachines.session import Origin, PoolClaims
from drumbeat.adapters.flatmachines.spawning import QueueCounts, RequestedWorkers, count_jobs_and_workers, launch, spawn_workers
from drumbeat.core.errors import InvalidInput

Context = dict[str, Any]
MAX_WORKERS = 10  #: default of ``max_workers``, as in FlatMachines
WORKER_MACHINE = "job_worker"  #: default machine of a worker, as in FlatMachines


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionCall:
    """One call of an action: the backends it uses, the state machine's context, and the action's arguments (``plan``)."""

    backends: PoolClaims
    origin: Origin
    context: Context
    plan: Mapping[str, Any]  #: the arguments that ``translate`` wrote for this state

    @property
    def pool_id(self) -> str:
        return str(self.context.get("pool_id") or self.plan.get("pool") or DEFAULT_POOL)

    def need(self, key: str, action: str) -> Any:
        if not self.context.get(key):
            raise ValueError(f"{key} is required for {action}, got none; set it in the machine's context")
        return self.context[key]

    def number(self, key: str, default: int) -> int:
        """Return a value of the context as a whole number; ``default`` if it is missing or empty.

        The value can also be a number as text, because Jinja renders every template to text. Raises InvalidInput for
        any other value.
        """
        given = self.context.get(key)
        try:
            return default if given is None or given == "" else int(given)
        except (TypeError, ValueError) as exc:
            raise InvalidInput(f"expected {key} in the machine's context to be a whole number, got {given!r}") from exc


async def get_pool_state(call: ActionCall) -> Context:
    now = await count_jobs_and_workers(call.backends, call.pool_id)
    return {"queue_depth": now.pending, "active_workers": now.capacity, "busy_workers": now.busy}


async def calculate_spawn(call: ActionCall) -> Context:
    now = QueueCounts(
        pending=call.number("queue_depth", 0),
        capacity=call.number("active_workers", 0),
        busy=call.number("busy_workers", 0),
    )
    missing = now.missing_workers(call.number("max_workers", MAX_WORKERS))
    return {"workers_needed": now.capacity + missing, "workers_to_spawn": missing, "spawn_list": list(range(missing))}


async def spawn(call: ActionCall) -> Context:
    """Start workers: as many as requested, but no more than the queue needs and ``max_workers`` allows."""
    plan = call.plan.get("spawn", {})
    variables = {"context": call.context, "input": call.context}
    asked = len(list(evaluate(plan["foreach"], variables))) if "foreach" in plan else call.number("workers_to_spawn", -1)
    workers = RequestedWorkers(
        pool_id=call.pool_id,
        cap=call.number("max_workers", MAX_WORKERS),
        machine=str(plan.get("machine") or call.context.get("worker_config_path") or WORKER_MACHINE),
        given=evaluate(plan.get("input", {}), variables),
        asked=asked if asked >= 0 else None,
        parent=_execution_id(call.context),
    )
    started = await spawn_workers(call.backends, call.origin, workers)
    return {"spawned_ids": started, "spawned_count": len(started), "workers_to_spawn": len(started)}


async def launch_each(call: ActionCall) -> Context:
    """For each item of ``foreach``, start a process that runs a FlatMachines state machine; do not wait for the processes."""
    plan = call.plan["spawn"]
    variables = {"context": call.context, "input": call.context}
    parent = _execution_id(call.context) or "machine"
    items = list(evaluate(plan["foreach"], variables) or ())
    for n, item in enumerate(items):
        given = evaluate(plan["input"], {**variables, plan["as"]: item})
        await launch(call.backends, call.origin, plan["machine"], given, f"{parent}-{n}", parent)
    return {"launched_count": len(items)}


async def claim_job(call: ActionCall) -> Context:
    item = await call.backends.work.pool(call.pool_id).claim(call.need("worker_id", "claim_job"))
    return {"job": item.data, "job_id": item.id, "attempts": item.attempts} if item else {"job": None, "job_id": None}


async def complete_job(call: ActionCall) -> Context:
    await call.backends.work.pool(call.pool_id).complete(call.need("job_id", "complete_job"), call.context.get("result"))
    return {}


async def fail_job(call: ActionCall) -> Context:
    """Fail the job with the context's ``error`` or, without one, with ``last_error``, which FlatMachines sets."""
    error = call.context.get("error") or call.context.get("last_error")
    await call.backends.work.pool(call.pool_id).fail(call.need("job_id", "fail_job"), None if error is None else str(error))
    return {}


async def register_worker(call: ActionCall) -> Context:
    worker_id = call.need("worker_id", "register_worker")
    seconds = call.plan.get("heartbeat_interval")
    every = None if seconds is None else timedelta(seconds=seconds)
    status = await call.backends.enroll(worker_id, call.pool_id, call.context.get("capabilities"), every)
    record = await call.backends.registration.get(worker_id)
    return {"worker_id": worker_id, "status": status, "registered_at": record.started_at if record else None}


async def deregister_worker(call: ActionCall) -> Context:
    await call.backends.deregister(call.need("worker_id", "deregister_worker"), "terminated")
    return {}


async def heartbeat(call: ActionCall) -> Context:
    await call.backends.heartbeat(call.need("worker_id", "heartbeat"))
    return {}


async def list_stale_workers(call: ActionCall) -> Context:
    seconds = call.number("stale_threshold_seconds", -1)
    threshold = timedelta(seconds=seconds) if seconds >= 0 else None
    stale = [each.to_json() for each in await find_stale(call.backends, call.pool_id, threshold)]
    return {"workers": stale, "stale_workers": stale, "stale_count": len(stale)}


async def reap_worker(call: ActionCall) -> Context:
    worker = await as_stale(call.backends, call.pool_id, call.need("worker", "reap_worker"))
    released = await reap(call.backends, worker)
    return {"reaped_worker_id": None if released is None else worker.worker_id, "jobs_released": released or 0}


async def reap_stale_workers(call: ActionCall) -> Context:
    reaped, total = [], 0
    for each in call.context.get("stale_workers") or ():
        worker = await as_stale(call.backends, call.pool_id, each)
        released = await reap(call.backends, worker)
        if released is not None:
            reaped.append(worker.worker_id)
            total += released
    return {"reaped_workers": reaped, "reaped_count": len(reaped), "total_jobs_released": total}


ACTIONS: Mapping[str, Callable[[ActionCall], Awaitable[Context]]] = {
    "get_pool_state": get_pool_state,
    "calculate_spawn": calculate_spawn,
    "spawn_workers": spawn,
    "launch_each": launch_each,
    "claim_job": claim_job,
    "complete_job": complete_job,
    "fail_job": fail_job,
    "register_worker": register_worker,
    "deregister_worker": deregister_worker,
    "heartbeat": heartbeat,
    "list_stale_workers": list_stale_workers,
    "reap_worker": reap_worker,
    "reap_stale_workers": reap_stale_workers,
}


def _execution_id(context: Context) -> str | None:
    machine = context.get("machine")
    return machine.get("execution_id") if isinstance(machine, Mapping) else None
