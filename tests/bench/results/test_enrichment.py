"""What a database recorded about a run's statements is added to its result; late rows are waited for, up to a limit."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from bench.recorded import BEGAN, record
from drumbeat.bench.model.plan import Prices, RunPlan
from drumbeat.bench.model.record import WorkerRecord
from drumbeat.bench.results.conclusion import stored_cost
from drumbeat.bench.results.enrichment import enrich
from drumbeat.bench.targets.interface import RecordedStatements, Target
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.run import Result, Run, RunId, RunStatus
from drumbeat.core.worker import WorkerId
from drumbeat.store.memory import MemoryStore

RUN = RunId("run-1")
URL = "snowflake://ANNA@acme/SALES"
LOOKUP = {"kind": "POINT_LOOKUP", "weight": 50, "sql": "SELECT 1"}
BOTH = {"kind": "BOTH", "weight": 50, "statements": [{"sql": "SELECT 1"}, {"sql": "SELECT 2"}]}


@dataclass
class RecordingTarget:
    """A target whose history grows with each reading."""

    counts: list[int]
    used: Mapping[str, float] = field(default_factory=dict)
    asked: list[tuple[str, datetime, datetime, int]] = field(default_factory=list)
    refuses: bool = False
    note: str | None = None

    async def recorded_statements(self, run: str, since: datetime, until: datetime, expected: int) -> RecordedStatements:
        self.asked.append((run, since, until, expected))
        if self.refuses:
            raise InvalidInput("no privilege")
        found = self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]
        totals = {"statements": found, "queued_overload_time": 7.0}
        return RecordedStatements(statements=found, totals=totals, note=self.note)

    async def credits_used(self, since: datetime, until: datetime) -> Mapping[str, float]:
        return self.used

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Target]:
        yield cast(Target, self)


@pytest.fixture
async def ended(store: MemoryStore, clock: ManualClock) -> MemoryStore:
    """A run that ended: 10 lookups and 5 operations of two statements, which a transaction makes four."""
    config: dict[str, Any] = {
        "workload": {"operations": [LOOKUP, BOTH]},
        "plan": {"prices": {"credit": 2.0}},
        "target": {"url": URL},
    }
    await store.runs.create(Run(run_id=RUN, name="r", config=config), pool(RUN, PoolKind.BENCH))
    now = await store.now()
    whole = Result(run_id=RUN, status=RunStatus.COMPLETED, operations=15, started_at=now, ended_at=now + timedelta(minutes=1))
    kinds = [Result(run_id=RUN, kind=kind, operations=count) for kind, count in (("POINT_LOOKUP", 10), ("BOTH", 5))]
    await store.results.save([whole, *kinds])
    return store


async def test_the_history_is_read_once_where_it_is_complete(ended: MemoryStore, clock: ManualClock) -> None:
    target = RecordingTarget([30], {"estimated": 0.5})

    found = await enrich(ended, RUN, target.opened, clock)

    assert (found.enrichment_status, found.enrichment_error) == ("COMPLETED", None)
    assert found.custom_metrics["server"]["measurement"]["queued_overload_time"] == 7.0
    assert found.custom_metrics["cost"] == {"total": 1.0, "currency": "USD", "per_1000_operations": 1000 / 15, "credits": 1.0}
    assert [(run, expected) for run, _, _, expected in target.asked] == [("run-1", 30)]


async def test_a_database_with_a_price_per_hour_and_per_credit_is_charged_once(ended: MemoryStore, clock: ManualClock) -> None:
    prices = Prices(worker_hour=1.0, target_hour=6.0, credit=2.0)
    hour = replace(record(), plan=RunPlan(prices=prices), ended=BEGAN + timedelta(hours=1))
    worker = WorkerRecord(worker_id=WorkerId("a"), began=BEGAN, ended=hour.ended)
    [whole] = [row for row in await ended.results.list(RUN) if not row.kind]
    stored = stored_cost(replace(hour, workers=(worker,)))
    assert stored is not None
    await ended.results.save([replace(whole, custom_metrics={"cost": stored})])

    found = await enrich(ended, RUN, RecordingTarget([30], {"estimated": 0.5}).opened, clock)

    assert stored["total"] == 7.0
    assert found.custom_metrics["cost"]["total"] == 1.0 + 2.0 * 0.5


async def test_late_rows_are_waited_for(ended: MemoryStore, clock: ManualClock) -> None:
    target = RecordingTarget([0, 12, 30])

    found = await enrich(ended, RUN, target.opened, _Skipping(clock))

    assert (found.enrichment_status, len(target.asked)) == ("COMPLETED", 3)


async def test_after_the_limit_the_result_says_what_is_missing(ended: MemoryStore, clock: ManualClock) -> None:
    target = RecordingTarget([12])

    found = await enrich(ended, RUN, target.opened, _Skipping(clock), timedelta(seconds=20))

    assert found.enrichment_status == "PENDING"
    assert "held 12 of about 30 statements" in str(found.enrichment_error)
    assert found.custom_metrics["server"]["measurement"]["statements"] == 12
    assert len(target.asked) == 5, "at once, and every 5 s until 20 s are over"


async def test_a_history_that_is_not_complete_says_why(ended: MemoryStore, clock: ManualClock) -> None:
    target = RecordingTarget([12], note="others used the account too")

    found = await enrich(ended, RUN, target.opened, clock, timedelta())

    assert "held 12 of about 30 statements" in str(found.enrichment_error)
    assert "others used the account too" in str(found.enrichment_error)


async def test_a_history_that_cannot_be_read_is_no_reason_to_lose_the_result(ended: MemoryStore, clock: ManualClock) -> None:
    found = await enrich(ended, RUN, RecordingTarget([0], refuses=True).opened, clock)

    assert (found.enrichment_status, found.operations) == ("FAILED", 15)
    assert "no privilege" in str(found.enrichment_error)


class _Skipping(ManualClock):
    """A clock that goes on by itself whenever somebody sleeps."""

    def __init__(self, like: ManualClock) -> None:
        super().__init__(like.now())
        self._passed = timedelta()

    async def sleep(self, duration: timedelta) -> None:
        self._passed += duration

    def elapsed(self) -> timedelta:
        return self._passed
