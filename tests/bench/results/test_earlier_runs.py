"""The run to compare with is found, whatever else ran or failed since."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.bench.results.compare import last_good
from drumbeat.bench.results.record import read_candidates
from drumbeat.bench.results.summaries import read_previous
from drumbeat.bench.results.trend import read_trend
from drumbeat.core.clock import ManualClock
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.run import Result, Run, RunId, RunStatus
from drumbeat.store.interface import RunChange, Store
from drumbeat.store.memory import MemoryStore

MISSED = {"verdict": {"verdict": "MISSED", "reason": "p95", "exit_code": 4}}
PASSED = {"verdict": {"verdict": "PASSED", "reason": "", "exit_code": 0}}
KINDS = [
    ({"config": {"config_hash": "mine"}}, {"config": {"config_hash": "other"}}),
    ({"config": {}, "name": "mine"}, {"config": {}, "name": "mine too"}),
    ({"config": {}, "template_id": "mine"}, {"config": {}, "template_id": "other"}),
]


async def ended(store: Store, clock: ManualClock, run_id: str, verdict: Mapping[str, Any], **known: Any) -> Run:
    run = Run(**{"run_id": RunId(run_id), "name": run_id, **known})
    run = await store.runs.create(run, pool(run_id, PoolKind.BENCH))
    for status in (RunStatus.STARTING, RunStatus.RUNNING, RunStatus.STOPPING):
        run = await store.runs.update(run, RunChange(status=status))
    await store.results.save([Result(run_id=run.run_id, status=RunStatus.COMPLETED, operations=10, qps=1.0)])
    run = await store.runs.update(run, RunChange(status=RunStatus.COMPLETED, ended=True, custom_metrics=verdict))
    await clock.advance(timedelta(minutes=1))
    return run


@pytest.mark.parametrize(("mine", "other"), KINDS, ids=["configuration", "name", "template"])
async def test_other_benchmarks_do_not_hide_the_run_before(
    store: MemoryStore, clock: ManualClock, mine: dict[str, Any], other: dict[str, Any]
) -> None:
    await ended(store, clock, "yesterday", PASSED, **mine)
    for n in range(201):
        await ended(store, clock, f"other-{n}", PASSED, **other)
    today = await ended(store, clock, "today", PASSED, **mine)

    good, previous = last_good(await read_candidates(store, today), today), await read_previous(store, today)

    assert good is not None
    assert previous is not None
    assert (good.run_id, previous.run.run_id) == ("yesterday", "yesterday")
    assert [point.run.run_id for point in (await read_trend(store, today.run_id)).points] == ["yesterday", "today"]


async def test_runs_that_missed_their_objectives_do_not_hide_the_last_good_one(store: MemoryStore, clock: ManualClock) -> None:
    mine: dict[str, Any] = {"config": {"config_hash": "mine"}}
    await ended(store, clock, "older", PASSED, **mine)
    await ended(store, clock, "good", PASSED, **mine)
    for n in range(101):
        await ended(store, clock, f"missed-{n}", MISSED, **mine)
    today = await ended(store, clock, "today", PASSED, **mine)

    candidates = await read_candidates(store, today)

    assert (len(candidates), candidates[-1].run.run_id) == (102, "good")
    assert last_good(candidates, today) == candidates[-1].run
