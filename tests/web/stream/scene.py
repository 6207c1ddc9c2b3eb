"""Runs as their workers and orchestrators leave them in a store, made on a clock that a test moves."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec

from drumbeat.bench.model import ControllerState, FindMaxPlan, LoadMode, Objective, RunPlan, Scaling, ScalingMode
from drumbeat.bench.model.plan import ALL_KINDS
from drumbeat.core.beat import NewBeat
from drumbeat.core.clock import ManualClock
from drumbeat.core.histogram import Histogram
from drumbeat.core.log import NewLog
from drumbeat.core.pool import PoolId, PoolKind, pool as pool_of
from drumbeat.core.run import Result, Run, RunId, RunStatus
from drumbeat.core.sample import Sample
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store.interface import Heartbeat, JoinRequest, RunChange, Store

SECOND = timedelta(seconds=1)
RUN, POOL = RunId("run-1"), PoolId("run-1")
PLAN = RunPlan(
    connections=10,
    warmup=timedelta(seconds=2),
    duration=timedelta(seconds=20),
    objectives={ALL_KINDS: Objective(p95_ms=1.0), "read": Objective(p95_ms=50.0)},
    scaling=Scaling(mode=ScalingMode.BOUNDED, min_workers=1, max_workers=2, max_connections=5),
)
SEARCH = replace(PLAN, load_mode=LoadMode.FIND_MAX_CONCURRENCY, find_max=FindMaxPlan(), objectives={})

_STEPS: Mapping[RunStatus, RunChange] = {
    RunStatus.STARTING: RunChange(status=RunStatus.STARTING, phase="PREPARING", started=True),
    RunStatus.RUNNING: RunChange(status=RunStatus.RUNNING, phase="MEASUREMENT", warmup_started=True, warmup_ended=True),
    RunStatus.STOPPING: RunChange(status=RunStatus.STOPPING, phase="COOLDOWN"),
    RunStatus.CANCELLING: RunChange(status=RunStatus.CANCELLING, phase="COOLDOWN"),
    RunStatus.COMPLETED: RunChange(status=RunStatus.COMPLETED, completion_reason="DURATION", ended=True),
    RunStatus.FAILED: RunChange(status=RunStatus.FAILED, completion_reason="RESOURCE_EXHAUSTION", ended=True),
    RunStatus.CANCELLED: RunChange(status=RunStatus.CANCELLED, completion_reason="USER", ended=True),
}


def latencies(*milliseconds: float) -> Histogram:
    found = Histogram()
    found.record_all([int(each * 1e6) for each in milliseconds])
    return found


class Scene:
    """One run in a store."""

    def __init__(self, store: Store, clock: ManualClock, run_id: RunId = RUN) -> None:
        self.store, self.clock, self.run_id = store, clock, run_id
        self.pool_id = PoolId(run_id)
        self._n = 0
        self.workers: list[Worker] = []

    async def made(self, plan: RunPlan = PLAN, **config: Any) -> "Scene":
        kept = {"plan": msgspec.to_builtins(plan, str_keys=True), **config}
        run = Run(run_id=self.run_id, name="a run", config=kept)
        await self.store.runs.create(run, pool_of(self.run_id, PoolKind.BENCH))
        return self

    async def led_to(self, *path: RunStatus) -> Run:
        run = await self.store.runs.get(self.run_id)
        for status in path:
            run = await self.store.runs.update(run, _STEPS[status])
        return run

    async def changed(self, **change: Any) -> Run:
        return await self.store.runs.update(await self.store.runs.get(self.run_id), RunChange(**change))

    async def joined(self, *names: str) -> None:
        """Workers that are at work."""
        for name in names:
            who = JoinRequest(
                pool_id=self.pool_id, worker_id=WorkerId(name), slot=len(self.workers), instance=name, host="h", pid=1
            )
            worker = await self.store.membership.join(who)
            for status in (WorkerStatus.WAITING, WorkerStatus.ACTIVE):
                worker = await self.store.membership.move(self.pool_id, worker.worker_id, name, status, "ready")
            self.workers.append(worker)

    async def worked(
        self,
        seconds: int,
        names: Sequence[str] = (),
        phase: str = "MEASUREMENT",
        slow: float = 2.0,
        *,
        failing: bool = True,
        failed_connects: int = 0,
    ) -> None:
        """Each second of each worker: ten reads of two milliseconds and one failed write, unless none fails."""
        for _ in range(seconds):
            await self.clock.advance(SECOND)
            self._n += 1
            for worker in self.workers:
                if not names or worker.worker_id in names:
                    await self.store.membership.beat(self._beat(worker, phase, slow, int(failing), failed_connects))

    def _beat(self, worker: Worker, phase: str, slow: float, errors: int = 1, failed_connects: int = 0) -> Heartbeat:
        found = latencies(*[slow] * 10)
        packed = base64.b64encode(found.to_bytes()).decode()
        kinds = {"read": {"operations": 10, "errors": 0, "response": packed}, "write": {"operations": 1, "errors": errors}}
        extra: dict[str, Any] = {"kinds": kinds, "held": 5, **({"failed_connects": failed_connects} if failed_connects else {})}
        sample = Sample(
            n=self._n, interval=SECOND, phase=phase, operations=11, errors=errors, reads=10, writes=1, latency=found,
            active=4, target=5, cpu_percent=40.0, memory_percent=20.0, extra=extra,
        )  # fmt: skip
        return Heartbeat(
            pool_id=self.pool_id, worker_id=worker.worker_id, instance=str(worker.instance), read_to=0, phase=phase,
            applied_target=5, active=4, operations=11 * self._n, errors=self._n, cpu_percent=40.0, memory_percent=20.0,
            sample=sample,
        )  # fmt: skip

    async def decided(self, kind: str, reason: str, **more: Any) -> None:
        actions = [{"type": kind, "reason": reason, **more}, {"type": "Remember", "reason": "every beat"}]
        await self.store.beats.append(self.pool_id, NewBeat(owner="o", epoch=1, view=more.get("view") or {}, actions=actions))

    async def logged(self, *messages: str, level: str = "INFO", worker: str | None = None) -> None:
        who = WorkerId(worker) if worker else None
        await self.store.logs.append(
            self.pool_id, [NewLog(level=level, logger="l", message=each, worker_id=who) for each in messages]
        )

    async def resulted(self, **more: Any) -> None:
        whole = Result(
            run_id=self.run_id, status=RunStatus.COMPLETED, operations=220, reads=200, writes=20, errors=20, qps=22.0,
            latency=latencies(*[2.0] * 200), connections=10, enrichment_status="SKIPPED", **more,
        )  # fmt: skip
        kind = replace(whole, kind="read", operations=200, errors=0, enrichment_status=None)
        await self.store.results.save([whole, kind])


def search_state(**known: Any) -> dict[str, Any]:
    """A controller's state in the middle of a search."""
    plain: dict[str, Any] = msgspec.to_builtins(ControllerState(), str_keys=True)
    return {**plain, "find_max": {"status": "STEPPING", "step": 2, "connections": 15, "next_connections": 25, **known}}


async def under_way(store: Store, clock: ManualClock) -> Scene:
    """A run that runs, with two workers."""
    made = await Scene(store, clock).made()
    await made.led_to(RunStatus.STARTING, RunStatus.RUNNING)
    await made.joined("a", "b")
    return made
