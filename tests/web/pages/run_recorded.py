"""Runs that are over, as their rows: nothing need run for tests that only read."""

import base64
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec

from drumbeat.bench.model import Objective, RunPlan, Scaling, ScalingMode
from drumbeat.bench.model.plan import ALL_KINDS, Prices
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.beat import NewBeat
from drumbeat.core.histogram import Histogram
from drumbeat.core.log import NewLog
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.run import Execution, Result, Run, RunId, RunStatus
from drumbeat.core.sample import Sample
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.store.contract.given import joined, moved
from drumbeat.store.interface import RunChange

SECOND = timedelta(seconds=1)
READS, WRITES = "POINT_LOOKUP", "INSERT"


def latencies(milliseconds: float) -> Histogram:
    found = Histogram()
    found.record_all([int(milliseconds * 1e6 * (1 + n / 20)) for n in range(20)])
    return found


def plan_of(seconds: int) -> RunPlan:
    return RunPlan(
        connections=4,
        warmup=timedelta(),
        duration=timedelta(seconds=seconds),
        objectives={ALL_KINDS: Objective(p95_ms=50), READS: Objective(p95_ms=1.0, max_error_pct=1)},
        scaling=Scaling(mode=ScalingMode.FIXED, min_workers=1, min_connections=4),
        prices=Prices(worker_hour=0.5, target_hour=2.0),
    )


async def recorded(
    plane: ControlPlane,
    run_id: str,
    name: str,
    *,
    status: RunStatus = RunStatus.COMPLETED,
    seconds: int = 30,
    slow: float = 2.0,
) -> RunId:
    """A run of one worker that measured for so many seconds."""
    store, pool_id = plane.store, PoolId(run_id)
    plan = plan_of(seconds)
    document: dict[str, Any] = {
        "name": name,
        "load_mode": "CONCURRENCY",
        "target": {"url": "sqlite:///none.db"},
        "workload": {"standard": "read-only"},
        "scaling": {"mode": "FIXED", "min_workers": 1, "min_connections": 4},
        "timing": {"warmup_seconds": 0, "duration_seconds": seconds},
    }
    config = {"plan": msgspec.to_builtins(plan, str_keys=True), "document": document, "load_mode": "CONCURRENCY",
              "scaling": {"mode": "FIXED"}}  # fmt: skip
    home = pool(run_id, PoolKind.BENCH)
    run = await store.runs.create(Run(run_id=RunId(run_id), name=name, config=config), home)
    run = await store.runs.update(run, RunChange(status=RunStatus.STARTING, phase="PREPARING", started=True))
    run = await store.runs.update(run, RunChange(status=RunStatus.RUNNING, phase="MEASUREMENT", warmup_ended=True))
    worker = await moved(store, await joined(store, home, WorkerId("worker-0")), WorkerStatus.WAITING, WorkerStatus.ACTIVE)
    measured = [_sample(n, seconds, slow) for n in range(1, seconds + 1)]
    await store.samples.append(pool_id, worker.worker_id, str(worker.instance), measured)
    reason = [{"type": "Begin", "reason": "all 1 workers are ready", "phase": "MEASUREMENT"}]
    await store.beats.append(pool_id, NewBeat(owner="o", epoch=1, view={}, actions=reason))
    await store.logs.append(pool_id, [NewLog(level="WARNING", logger="l", message="it was slow", worker_id=worker.worker_id)])
    await moved(store, worker, WorkerStatus.TERMINATED)
    await store.results.save(_results(RunId(run_id), seconds, slow, status))
    await store.executions.load(_executions(RunId(run_id), await store.now()))
    ending = RunStatus.CANCELLING if status is RunStatus.CANCELLED else RunStatus.STOPPING
    run = await store.runs.update(run, RunChange(status=ending, phase="PROCESSING"))
    operations, reason_word = 20 * seconds, "USER" if status is RunStatus.CANCELLED else "DURATION"
    await store.runs.update(
        run,
        RunChange(status=status, completion_reason=reason_word, operations=operations, errors=seconds, qps=20.0, ended=True),
    )
    return RunId(run_id)


def _sample(n: int, seconds: int, slow: float) -> Sample:
    found = latencies(slow)
    packed = base64.b64encode(found.to_bytes()).decode()
    failure = {
        "kind": WRITES,
        "class": "DATABASE_ERROR",
        "sqlstate": "40001",
        "message": "could not serialize",
        "sql": "INSERT",
    }
    return Sample(
        n=n, interval=SECOND, age=SECOND * (seconds - n) - timedelta(seconds=seconds), phase="MEASUREMENT", operations=20,
        reads=10, writes=10, errors=1, latency=found, active=4, target=4, cpu_percent=30.0 + n % 5, memory_percent=20.0,
        extra={"held": 4, "kinds": {READS: {"operations": 10, "response": packed}, WRITES: {"operations": 10, "errors": 1}},
               **({"error_samples": [failure]} if n == 3 else {})},
    )  # fmt: skip


def _results(run_id: RunId, seconds: int, slow: float, status: RunStatus) -> list[Result]:
    whole = Result(
        run_id=run_id, status=status, operations=20 * seconds, reads=10 * seconds, writes=10 * seconds, errors=seconds,
        qps=20.0, latency=latencies(slow), connections=4, enrichment_status="SKIPPED",
        enrichment_error="the database says nothing of itself",
        custom_metrics={"cost": {"total": 0.021, "currency": "USD", "per_1000_operations": 0.035},
                        "doubts": ["120 operations were due and never sent by the end"],
                        "server": {"measurement": {"commits": 1234.0}},
                        "error_classes": {"CONNECTION": 1, "DATABASE_ERROR": seconds - 1}},
    )  # fmt: skip
    part = replace(whole, operations=10 * seconds, qps=10.0, enrichment_status=None, custom_metrics={})
    return [whole, replace(part, kind=READS, errors=0), replace(part, kind=WRITES)]


def _failed(n: int) -> dict[str, Any]:
    """Every third operation was refused; the connection of one was lost."""
    if n == 60:
        return {"error_class": "CONNECTION"}
    return {"error_class": "DATABASE_ERROR", "error": "40001"} if n % 3 == 0 else {}


def _executions(run_id: RunId, now: Any) -> list[Execution]:
    return [
        Execution(
            run_id=run_id, worker_id=WorkerId("worker-0"), n=n, connection=n % 4, kind=WRITES if n % 2 else READS,
            started_at=now, duration_ms=1.0 + n / 100, ok=n % 3 != 0,
            **_failed(n),
        )
        for n in range(120)
    ]  # fmt: skip
