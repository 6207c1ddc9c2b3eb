"""A run's summary read from the store: the same wherever it is shown, against the right run before."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.bench.results.record import read_short_record
from drumbeat.bench.results.summaries import read_previous, read_summary
from drumbeat.bench.results.summary import summarise
from drumbeat.bench.results.watch import RunWatch
from drumbeat.core.clock import ManualClock
from drumbeat.core.histogram import Histogram
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.run import Result, Run, RunId, RunStatus
from drumbeat.store.interface import RunChange
from drumbeat.store.memory import MemoryStore

PATH = (RunStatus.STARTING, RunStatus.RUNNING, RunStatus.STOPPING)


class Runs:
    """A store with runs a minute apart."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)

    async def ended(self, run_id: str, qps: float = 100.0, ends: RunStatus = RunStatus.COMPLETED, **known: Any) -> Run:
        self.clock.jump(timedelta(minutes=1))
        made = Run(**{"run_id": RunId(run_id), "name": "k", "config": {}, "template_id": "t", **known})
        run = await self.store.runs.create(made, pool(run_id, PoolKind.BENCH))
        for status in PATH:
            run = await self.store.runs.update(run, RunChange(status=status, started=True))
        latency = Histogram()
        latency.record_all([1_000_000] * 10)
        if qps:
            await self.store.results.save([Result(run_id=run.run_id, operations=int(60 * qps), qps=qps, latency=latency)])
        return await self.store.runs.update(run, RunChange(status=ends, ended=True))

    async def before(self, run: Run) -> str | None:
        found = await read_previous(self.store, run)
        return None if found is None else str(found.run.run_id)


@pytest.fixture
def runs() -> Runs:
    return Runs()


async def test_the_run_before_is_the_newest_earlier_one_of_the_template(runs: Runs) -> None:
    await runs.ended("oldest")
    await runs.ended("older")
    run = await runs.ended("this")
    await runs.ended("later")

    assert await runs.before(run) == "older"


@pytest.mark.parametrize(
    "other",
    [
        {"template_id": "other"},
        {"template_id": None},
        {"ends": RunStatus.FAILED},
        {"qps": 0.0},
        {"config": {"load_mode": "QPS"}},
    ],
)
async def test_other_runs_are_not_compared_with(runs: Runs, other: dict[str, Any]) -> None:
    await runs.ended("good")
    await runs.ended("other", **other)

    assert await runs.before(await runs.ended("this")) == "good"


async def test_without_a_template_the_configuration_counts_and_then_the_name(runs: Runs) -> None:
    await runs.ended("named", template_id=None)
    await runs.ended("configured", template_id=None, config={"config_hash": "a"}, name="x")
    this = await runs.ended("this", template_id=None, config={"config_hash": "a"}, name="y")

    assert await runs.before(this) == "configured"
    assert await runs.before(await runs.ended("bare", template_id=None)) == "named"


async def test_there_may_be_none(runs: Runs) -> None:
    assert await runs.before(await runs.ended("this")) is None


async def test_the_summary_is_the_same_wherever_it_is_shown(runs: Runs) -> None:
    await runs.ended("before", qps=50.0)
    run = await runs.ended("this")

    read = await read_summary(runs.store, run)

    watch = RunWatch(runs.store, run.run_id)
    assert (await watch.poll()).summary == read
    assert (await watch.poll()).summary == read
    before = await read_previous(runs.store, run)
    assert summarise(await read_short_record(runs.store, run), before) == read
    assert "operations/s 50 → 100 (+100.0 %)" in " ".join(read)


async def test_a_run_under_way_has_none(runs: Runs) -> None:
    run = await runs.ended("this")

    assert await read_summary(runs.store, replace(run, status=RunStatus.RUNNING)) == ()
