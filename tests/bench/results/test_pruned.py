"""What is said of an ended run stays the same when its samples, beats, logs and workers are deleted later."""

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from drumbeat.bench.control.act import RunActor
from drumbeat.bench.model import ALL_KINDS, Conclude, ExitStatus, Objective, RunEnding, RunPlan, RunRecord, RunVerdict
from drumbeat.bench.model.plan import Prices
from drumbeat.bench.results.compare.sides import costs
from drumbeat.bench.results.cost import cost_of
from drumbeat.bench.results.record import judgement_of_ended, read_record
from drumbeat.bench.results.report.junit import junit
from drumbeat.bench.results.report.plain import as_json
from drumbeat.bench.results.report.prometheus import prometheus
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.core.clock import ManualClock
from drumbeat.core.histogram import Histogram
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.run import Result, Run, RunId, RunStatus
from drumbeat.core.sample import Sample
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.interface import JoinRequest, RunChange
from drumbeat.store.memory import MemoryStore

SECOND = timedelta(seconds=1)
RUN, POOL = RunId("r"), PoolId("r")
PRICES = Prices(worker_hour=100.0, target_hour=1.0)
STAYS = (
    "passed", "verdict", "verdict_reason", "exit_code", "verdicts", "availability", "corrected_latency", "client_limited",
    "warnings", "most_frequent_error", "totals", "kinds", "cost",
)  # fmt: skip


def latencies(*milliseconds: float) -> Histogram:
    found = Histogram()
    found.record_all([int(each * 1e6) for each in milliseconds])
    return found


def sample(n: int, *, is_out: bool) -> Sample:
    latency = latencies(*[2.0] * (0 if is_out else 100))
    operations = 0 if is_out else 100
    block = {"operations": operations, "errors": 0, "response": base64.b64encode(latency.to_bytes()).decode()}
    failing: dict[str, Any] = {"failed_connects": 7, "client": {"was_the_limit": True}} if is_out else {}
    return Sample(
        n=n, interval=SECOND, phase="MEASUREMENT", operations=operations, reads=operations, latency=latency, target=5,
        extra={"kinds": {"read": block}, "held": 5, **failing},
    )  # fmt: skip


async def end_run(store: MemoryStore, clock: ManualClock, objective: Objective) -> None:
    """A minute with two workers; no operation succeeds from the 5th to the 15th second. Worker b counts as lost."""
    plan = RunPlan(duration=60 * SECOND, objectives={ALL_KINDS: objective}, prices=PRICES)
    run = Run(run_id=RUN, name="r", config={"plan": msgspec.to_builtins(plan)})
    run = await store.runs.create(run, pool(RUN, PoolKind.BENCH))
    run = await store.runs.update(run, RunChange(status=RunStatus.STARTING, started=True))
    await store.runs.update(run, RunChange(status=RunStatus.RUNNING, warmup_started=True, warmup_ended=True))
    for slot, name in enumerate("ab"):
        await store.membership.join(
            JoinRequest(pool_id=POOL, worker_id=WorkerId(name), slot=slot, instance=name, host="h", pid=1)
        )
    for n in range(60):
        await clock.advance(SECOND)
        for name in "ab":
            await store.samples.append(POOL, WorkerId(name), name, [sample(n, is_out=5 <= n < 15)])
    run = await store.runs.update(await store.runs.get(RUN), RunChange(status=RunStatus.STOPPING, phase="COOLDOWN"))
    for name, end in (("a", WorkerStatus.TERMINATED), ("b", WorkerStatus.LOST)):
        counted = Result(
            run_id=RUN, worker_id=WorkerId(name), status=RunStatus.COMPLETED, operations=4990, reads=4990, qps=4990 / 60,
            latency=latencies(*[2.0] * 4990),
        )  # fmt: skip
        await store.results.save([counted])
        worker = await store.workers.get(POOL, WorkerId(name))
        path = [WorkerStatus.WAITING, WorkerStatus.ACTIVE]
        for status in (*path, *([WorkerStatus.DRAINING] if end is WorkerStatus.TERMINATED else []), end):
            worker = await store.workers.move(worker, status, "left")
    lease = await store.leases.acquire("controller", "me", timedelta(hours=1))
    assert lease is not None
    ending = RunEnding(status=RunStatus.COMPLETED, completion_reason="DURATION", reason="measured for 60 s")
    await RunActor(store, FakeSpawner(clock), RUN).act(Conclude(ending=ending, reason="over"), lease.fence)
    await clock.advance(timedelta(hours=1))


async def prune(store: MemoryStore, keep: timedelta) -> RunRecord:
    await store.upkeep.prune(keep)
    return await read_record(store, RUN)


def said(record: RunRecord) -> Mapping[str, Any]:
    found = json.loads(as_json(record))
    return {name: found[name] for name in STAYS}


@pytest.mark.parametrize(
    "objective", [Objective(min_availability_pct=95.0), Objective(max_error_pct=1.0)], ids=["availability", "failed connects"]
)
@pytest.mark.parametrize("keep", [timedelta(hours=1, seconds=40), timedelta(minutes=1)], ids=["partly", "all"])
async def test_a_run_that_missed_its_objective_does_not_pass_once_it_is_pruned(
    store: MemoryStore, clock: ManualClock, objective: Objective, keep: timedelta
) -> None:
    await end_run(store, clock, objective)
    before = await read_record(store, RUN)

    after = await prune(store, keep)

    assert len(after.timeline) < len(before.timeline)
    assert judge_run(after) == judge_run(before) == await judgement_of_ended(store, after.run)
    assert (judge_run(after).verdict, judge_run(after).gate) == (RunVerdict.MISSED, ExitStatus.OBJECTIVES_MISSED)
    assert said(after) == said(before)
    assert (junit(after), prometheus(after)) == (junit(before), prometheus(before))


async def test_the_cost_of_a_pruned_run_is_the_one_that_was_stored(store: MemoryStore, clock: ManualClock) -> None:
    await end_run(store, clock, Objective())

    record = await prune(store, timedelta(minutes=1))

    stored = record.stored_metrics["cost"]
    found = cost_of(record)
    assert (found.total, found.per_1000_operations) == pytest.approx((stored["total"], stored["per_1000_operations"]))
    assert (found.total, found.workers, found.target) == pytest.approx((2 * 100 / 60 + 1 / 60, 2 * 100 / 60, 1 / 60))
    assert next(pair.before for pair in costs(record, record)) == found.total


@pytest.mark.parametrize(("part", "workers"), [("target", 4.0), ("credits", 4.0), ("per_1000_operations", 0.0)])
async def test_the_workers_part_of_a_cost_stored_without_hours_is_the_rest_of_it(
    store: MemoryStore, clock: ManualClock, part: str, workers: float
) -> None:
    await end_run(store, clock, Objective())
    record = await prune(store, timedelta(minutes=1))
    assert record.result is not None
    row = replace(record.result, custom_metrics={"cost": {"total": 5.0, "currency": "USD", part: 1.0}})

    assert cost_of(replace(record, results=(row,), workers=())).workers == pytest.approx(workers)


async def test_workers_of_whom_only_results_are_left_are_listed(store: MemoryStore, clock: ManualClock) -> None:
    await end_run(store, clock, Objective())

    record = await prune(store, timedelta(minutes=1))

    assert [(each.worker_id, each.status, each.measured.operations) for each in record.workers] == [
        ("a", None, 4990),
        ("b", None, 4990),
    ]


async def test_a_result_counts_what_the_workers_counted_not_the_samples(store: MemoryStore, clock: ManualClock) -> None:
    """Samples also hold operations that began before the measurement, so they count more: 10,000 here."""
    await end_run(store, clock, Objective(max_error_pct=1.0))

    record = await read_record(store, RUN)

    stored = record.stored_metrics
    assert stored["phases"]["MEASUREMENT"]["operations"] == record.whole.operations == 9980
    assert stored["cost"]["per_1000_operations"] == pytest.approx(cost_of(record).per_1000_operations)
    assert [each["found"] for each in stored["slo"]] == [pytest.approx(record.whole.error_rate * 100)]
