"""Creates a run with an hour of samples in a store, as real workers and a real orchestrator would write it."""

import base64
import sqlite3
from datetime import timedelta
from pathlib import Path
from random import Random

import msgspec

from drumbeat.bench.model import ControllerState, RunEnding, RunPlan
from drumbeat.bench.results.conclusion import whole_run, with_metrics
from drumbeat.bench.results.record import read_record
from drumbeat.core.beat import NewBeat
from drumbeat.core.histogram import Histogram
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.run import Result, Run, RunId, RunStatus
from drumbeat.core.sample import Sample
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface import JoinRequest, RunChange, Store

KINDS = ("POINT_LOOKUP", "RANGE_SCAN", "INSERT", "UPDATE")
SECOND = timedelta(seconds=1)
_BATCH = 300


def histograms(chance: Random, count: int = 50) -> list[Histogram]:
    """Return latency histograms of a thousand operations each, around two milliseconds."""
    found = []
    for _ in range(count):
        each = Histogram()
        each.record_all([int(chance.lognormvariate(0, 0.6) * 2e6) for _ in range(1000)])
        found.append(each)
    return found


def sample(n: int, age: timedelta, latency: Histogram) -> Sample:
    packed = base64.b64encode(latency.to_bytes()).decode()
    kinds = {kind: {"operations": 250, "errors": 0, "response": packed, "service": packed} for kind in KINDS}
    return Sample(
        n=n, interval=SECOND, age=age, phase="MEASUREMENT", operations=1000, reads=500, writes=500, latency=latency, active=5,
        target=5, cpu_percent=50.0, memory_percent=30.0, extra={"held": 5, "kinds": kinds},
    )  # fmt: skip


async def long_run(store: Store, file: Path, name: str, seconds: int, workers: int, *, ended: bool) -> RunId:
    """Create the run. Its start is moved back to its first sample; an ended run also has its stored curves."""
    run_id, chance = RunId(name), Random(7)
    plan = msgspec.to_builtins(RunPlan(duration=timedelta(seconds=seconds)), str_keys=True)
    run = await store.runs.create(Run(run_id=run_id, name=name, config={"plan": plan}), pool(run_id, PoolKind.BENCH))
    run = await store.runs.update(run, RunChange(status=RunStatus.STARTING, phase="PREPARING", started=True))
    run = await store.runs.update(run, RunChange(status=RunStatus.RUNNING, phase="MEASUREMENT", warmup_ended=True))
    _put_back(file, run_id, seconds)
    known = histograms(chance)
    for slot in range(workers):
        await _worker(store, PoolId(run_id), slot, seconds, known, chance)
    for _ in range(seconds):
        view = {"probe": {"sessions": 20, "active": 8, "waiting": 1, "wait_events": {"Lock:tuple": 1}}}
        await store.beats.append(PoolId(run_id), NewBeat(owner="o", epoch=1, view=view, why_not="all is well"))
    if ended:
        await _end(store, run_id, workers, known[0])
    return run_id


def _put_back(file: Path, run_id: RunId, seconds: int) -> None:
    """Move the run's start back. The store sets times itself, and waiting an hour takes too long."""
    with sqlite3.connect(file) as database:
        database.execute(
            "UPDATE runs SET started_at = started_at - :by, warmup_ended_at = warmup_ended_at - :by WHERE run_id = :run",
            {"by": (seconds + 2) * 1_000_000, "run": run_id},
        )
    database.close()


async def _worker(store: Store, pool_id: PoolId, slot: int, seconds: int, known: list[Histogram], chance: Random) -> None:
    name = WorkerId(f"worker-{slot}")
    await store.membership.join(JoinRequest(pool_id=pool_id, worker_id=name, slot=slot, instance=name, host="h", pid=1))
    for first in range(0, seconds, _BATCH):
        batch = [sample(n, SECOND * (seconds - n), chance.choice(known)) for n in range(first, min(first + _BATCH, seconds))]
        await store.samples.append(pool_id, name, str(name), batch)


async def _end(store: Store, run_id: RunId, workers: int, latency: Histogram) -> None:
    run = await store.runs.update(await store.runs.get(run_id), RunChange(status=RunStatus.STOPPING, phase="PROCESSING"))
    record = await read_record(store, run_id)
    ending = RunEnding(status=RunStatus.COMPLETED, completion_reason="DURATION", reason="measured")
    rows = [
        Result(run_id=run_id, worker_id=WorkerId(f"worker-{n}"), kind=kind, operations=1000, qps=1000.0, latency=latency)
        for n in range(workers)
        for kind in (None, *KINDS)
    ]
    whole = with_metrics(whole_run(run_id, rows, ending, await store.now()), record, ControllerState(), ending)
    await store.results.save(whole)
    await store.runs.update(run, RunChange(status=RunStatus.COMPLETED, completion_reason="DURATION", ended=True))
