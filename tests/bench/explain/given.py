"""A run in which everything that could carry a name does, and stores to keep it in."""

from collections.abc import Mapping
from typing import Any

import msgspec

from drumbeat.bench.model import LoadMode, Objective, QpsPlan, RunPlan
from drumbeat.bench.model.plan import ALL_KINDS, Prices
from drumbeat.core.histogram import Histogram
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.run import Result, Run, RunId, RunStatus, Step, StepType
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface import RunChange, Store

MARK = "zq"  #: every name below begins with it, and nothing of ours contains it
PATH = (RunStatus.STARTING, RunStatus.RUNNING, RunStatus.STOPPING)


def mark(what: str) -> str:
    return f"{MARK}{what}"


def latencies(milliseconds: float) -> Histogram:
    found = Histogram()
    found.record_all([int(milliseconds * 1e6 * (1 + n / 20)) for n in range(20)])
    return found


def plan(mode: LoadMode) -> RunPlan:
    return RunPlan(
        load_mode=mode,
        qps=QpsPlan(target_qps=500),
        objectives={ALL_KINDS: Objective(p95_ms=1.0), mark("kind"): Objective(p99_ms=2.0)},
        prices=Prices(worker_hour=0.5, target_hour=2.0, currency=mark("currency")),
    )


def config(mode: LoadMode) -> dict[str, Any]:
    document = {
        "name": mark("run name"),
        "description": f"for {mark('a person')}",
        "tags": [mark("tag")],
        "target": {"connection": mark("connection"), "table": mark("table"), "url": _URL},
        "workload": {"operations": [{"name": mark("kind"), "sql": _SQL, "parameters": [mark("parameter")]}]},
        mark("setting"): mark("value"),
    }
    return {**document, "plan": msgspec.to_builtins(plan(mode), str_keys=True), "document": document, "load_mode": str(mode)}


_URL = f"postgresql://{mark('user')}:{mark('password')}@{mark('host')}/{mark('database')}"
_SQL = f"SELECT {mark('column')} FROM {mark('table')} WHERE id = {mark('parameter')}"
_FAILURE = {"kind": mark("kind"), "error_class": mark("class"), "sqlstate": mark("state"), "message": mark("row"), "sql": _SQL}


def metrics() -> dict[str, Any]:
    return {
        "client_limited": True,
        "flags": ["WORKERS_LOST", mark("flag")],
        "doubts": [f"{mark('worker')} stopped"],
        "cost": {"total": 0.25, "currency": mark("currency"), "per_1000_operations": mark("cost")},
        "availability": {"seconds": 60, "without_service": 2, "stretches": [[1, 3]]},
        "error_classes": {"QUERY_TIMEOUT": 12, mark("class"): 3},
        "failures": [_FAILURE],
        "server": {"measurement": {mark("counter"): 5}},
        "bounds": {"max_workers": mark("most"), "achieved_qps": 17},
        mark("metric"): mark("value"),
    }


FOUND: Mapping[str, Any] = {
    "best_connections": 40,
    "best_qps": 900.0,
    "max_type": mark("type"),
    "outcome": mark("outcome"),
    "reason": mark("reason"),
    "message": mark("message"),
    "usl": {"peak_connections": 44.5, "reason": mark("usl")},
    "best_kinds": {mark("kind"): {"operations": 5}},
}


async def marked_run(
    store: Store, name: str = "run", mode: LoadMode = LoadMode.CONCURRENCY, *, ends: RunStatus = RunStatus.COMPLETED,
    milliseconds: float = 5.0,
) -> Run:  # fmt: skip
    """An ended run; its every name is a mark."""
    run_id = RunId(mark(name))
    run = Run(run_id=run_id, name=mark("run name"), config=config(mode), template_id=mark("template"))
    run = await store.runs.create(run, pool(run_id, PoolKind.BENCH))
    for status in PATH:
        run = await store.runs.update(run, RunChange(status=status, started=True))
    await store.results.save([*_results(run_id, milliseconds)])
    at = await store.now()
    steps = [
        Step(run_id=run_id, type=StepType.FIND_MAX, n=n, from_target=None, to_target=20 * n, started_at=at, qps=450.0 * n,
             operations=100, p95_ms=5.0 * n, outcome="STABLE" if n < 3 else mark("outcome"), reason=mark("reason"))
        for n in (1, 2, 3)
    ]  # fmt: skip
    await store.steps.save(steps)
    guardrails = {"workers_over_cpu": [mark("worker")], "actions_taken": [{"action": "back_off", "worker_id": mark("worker")}]}
    change = RunChange(
        status=ends, completion_reason=mark("ending"), ended=True,
        custom_metrics={"soft_guardrails": guardrails, mark("metric"): mark("value")},
    )  # fmt: skip
    return await store.runs.update(run, change)


def _results(run_id: RunId, milliseconds: float) -> list[Result]:
    whole = Result(
        run_id=run_id, operations=60_000, reads=60_000, errors=15, qps=1234.5, latency=latencies(milliseconds), connections=8,
        find_max_result=FOUND, failure_reason=mark("failure"), enrichment_error=mark("enrichment"), custom_metrics=metrics(),
    )  # fmt: skip
    part = Result(run_id=run_id, operations=30_000, qps=617.25, latency=latencies(milliseconds))
    kinds = [mark("kind"), "POINT_LOOKUP"]
    return [
        whole,
        *(Result(run_id=run_id, kind=kind, operations=30_000, qps=617.25, latency=latencies(milliseconds)) for kind in kinds),
        Result(run_id=run_id, worker_id=WorkerId(mark("worker")), operations=60_000, qps=1234.5, latency=part.latency),
    ]
