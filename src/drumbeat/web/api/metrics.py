"""Prometheus metrics of queues, workers, runs, control loops and costs, for a limited number of pools and runs."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from fastapi import Response
from fastapi.responses import PlainTextResponse

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.pool import PoolKind, PoolRow
from drumbeat.core.run import RunStatus
from drumbeat.core.worker import WorkerStatus, shown_health
from drumbeat.web.api.entry import Plane
from drumbeat.web.api.metrics_fleet import FLEET_HELP, Line, fleet_lines
from drumbeat.web.api.route import router as checked

router = checked("health")

MOST_POOLS = 200  #: maximum number of pools with metrics: the newest, not counting the pools of benchmark runs
MOST_RUNS = 1000  #: maximum number of runs counted by status: the newest
_TYPE = "text/plain; version=0.0.4"
_NOT_STARTED = "not_started"  #: the health of a worker that its engine did not start
_HELP = {
    "drumbeat_up": "Whether the store answers.",
    "drumbeat_runs": "Runs by status, among the newest 1000.",
    "drumbeat_run_qps": "Operations per second of each run under way.",
    "drumbeat_jobs": "Jobs by state; ended jobs are counted exactly, the other counts stop at 10000.",
    "drumbeat_oldest_ready_seconds": "Seconds that the oldest ready job has waited.",
    "drumbeat_pool_paused": "Whether the pool is paused.",
    "drumbeat_workers": "Live workers by state; a worker counts as draining as soon as it is asked to stop.",
    "drumbeat_workers_terminating": "Live workers that were asked to stop.",
    "drumbeat_workers_health": "Live workers by health.",
    "drumbeat_last_beat": "Sequence number of a pool's last beat (one pass of its control loop).",
    "drumbeat_last_beat_age_seconds": "Seconds since a pool's last beat.",
    "drumbeat_last_beat_failed": "Whether part of a pool's last beat failed: a stage, an action, or listing the workers.",
    **FLEET_HELP,
}

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/metrics", operation_id="metrics", response_class=PlainTextResponse, responses=_RESPONSES)
async def metrics(plane: Plane) -> Response:
    """Return all metrics in the Prometheus text format."""
    now = await plane.store.now()
    pools = [each for each in await plane.store.pools.list() if each.kind is not PoolKind.BENCH][-MOST_POOLS:]
    lines: list[Line] = [("drumbeat_up", {}, 1.0), *await _runs(plane)]
    for pool in pools:
        lines += await _pool(plane, pool, now)
    return Response("\n".join(_written(lines)) + "\n", media_type=_TYPE)


async def _runs(plane: ControlPlane) -> list[Line]:
    if not plane.store.traits.keeps_runs:
        return []
    runs = await plane.store.runs.list(limit=MOST_RUNS)
    counts = Counter(run.status for run in runs)
    lines: list[Line] = [("drumbeat_runs", {"status": status}, float(counts[status])) for status in RunStatus]
    under_way = [run for run in runs if run.status is RunStatus.RUNNING]
    return lines + [("drumbeat_run_qps", {"run": run.run_id}, run.qps) for run in under_way]


async def _pool(plane: ControlPlane, pool: PoolRow, now: datetime) -> list[Line]:
    name = {"pool": str(pool.pool_id)}
    lines: list[Line] = [("drumbeat_pool_paused", name, float(pool.paused_until is not None and pool.paused_until > now))]
    if pool.kind is PoolKind.JOBS:
        lines += await _jobs(plane, pool, now)
    lines += await _workers(plane, pool, now)
    lines += await _beats(plane, pool, now)
    return lines + (await fleet_lines(plane, pool, now) if pool.is_scaled else [])


async def _jobs(plane: ControlPlane, pool: PoolRow, now: datetime) -> list[Line]:
    counts, name = await plane.store.jobs.counts(pool.pool_id), str(pool.pool_id)
    states = ("ready", "delayed", "waiting", "claimed", "done", "poisoned", "cancelled")
    oldest = 0.0 if counts.oldest_ready is None else max((now - counts.oldest_ready).total_seconds(), 0.0)
    lines: list[Line] = [("drumbeat_jobs", {"pool": name, "state": each}, float(getattr(counts, each))) for each in states]
    return [*lines, ("drumbeat_oldest_ready_seconds", {"pool": name}, oldest)]


async def _workers(plane: ControlPlane, pool: PoolRow, now: datetime) -> list[Line]:
    workers, name = await plane.store.workers.list(pool.pool_id, live=True), str(pool.pool_id)
    terminating = sum(worker.is_terminating for worker in workers)
    states = Counter(str(WorkerStatus.DRAINING if worker.is_terminating else worker.status) for worker in workers)
    health = Counter(str(shown_health(worker, now, pool.thresholds) or _NOT_STARTED) for worker in workers)
    lines: list[Line] = [("drumbeat_workers", {"pool": name, "state": each}, float(count)) for each, count in states.items()]
    lines += [("drumbeat_workers_health", {"pool": name, "health": each}, float(count)) for each, count in health.items()]
    return [*lines, ("drumbeat_workers_terminating", {"pool": name}, float(terminating))]


async def _beats(plane: ControlPlane, pool: PoolRow, now: datetime) -> list[Line]:
    """Return metrics of a pool's last beat (pass of a control loop). For a fleet, only the autoscaler's beats count."""
    name = {"pool": str(pool.pool_id)}
    last = await (plane.fleet(pool.pool_id).last_beat() if pool.is_scaled else plane.store.beats.last(pool.pool_id))
    if last is None:
        return []
    return [
        ("drumbeat_last_beat", name, float(last.n)),
        ("drumbeat_last_beat_age_seconds", name, max((now - last.at).total_seconds(), 0.0)),
        ("drumbeat_last_beat_failed", name, float(last.failed)),
    ]


def _written(lines: Iterable[Line]) -> Iterator[str]:
    by_name: dict[str, list[Line]] = {}
    for line in lines:
        by_name.setdefault(line[0], []).append(line)
    for name, of_name in by_name.items():
        yield f"# HELP {name} {_HELP[name]}"
        yield f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"
        for _, labels, value in of_name:
            pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"{name}{{{pairs}}} {value:.10g}" if pairs else f"{name} {value:.10g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
