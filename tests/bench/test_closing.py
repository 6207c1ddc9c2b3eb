"""The work after the end of a run is done once, however many processes conduct the run, and by another one if one dies."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drumbeat.bench import closing
from drumbeat.bench.closing import RunClosing
from drumbeat.bench.results.conclusion import SKIPPED
from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import LanguageModelFailed
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.run import Result, Run, RunId
from drumbeat.store import open_store
from drumbeat.store.interface import Store
from drumbeat.store.memory import MemoryStore

RUN = RunId("run-1")
CONFIG = {"target": {"url": "snowflake://ANNA@acme/SALES"}, "recording": {"load_into_store": True}}
PARTS = ["history", f"operations/{socket.gethostname()}", "explanation"]


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store with a run that has ended."""
    if request.param == "memory":
        yield await furnished(MemoryStore(SystemClock()))
    else:
        async with open_store(f"sqlite:///{tmp_path}/s.db", create=True) as opened:
            yield await furnished(opened)


async def furnished(store: Store) -> Store:
    await store.runs.create(Run(run_id=RUN, name="r", config=CONFIG), pool(RUN, PoolKind.BENCH))
    await store.results.save([Result(run_id=RUN, enrichment_status=SKIPPED)])
    return store


@dataclass
class Work:
    """Counts what is done, by part; each takes a moment. The model fails, so that nothing but the lease says it was asked."""

    store: Store
    done: list[str] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    settings: Any = field(default_factory=lambda: SimpleNamespace(automatic=True, max_characters=100, model="m"))

    async def enrich(self, run_id: RunId, limit: timedelta) -> Result:
        await self._do("history")
        [whole] = await self.store.results.list(run_id)
        await self.store.results.save([replace(whole, enrichment_status="COMPLETED")])
        return whole

    async def load(self, store: Store, run_id: RunId) -> None:
        await self._do(f"operations/{socket.gethostname()}")

    async def explain(self, store: Store, model: object, run_id: RunId) -> None:
        await self._do("explanation")
        raise LanguageModelFailed("no usable answer")

    async def _do(self, what: str) -> None:
        self.begun.set()
        await asyncio.sleep(0.05)
        self.done.append(what)

    def process(self, name: str, *, explains: bool = True) -> RunClosing:
        model = cast(Any, self) if explains else None
        return RunClosing(store=self.store, clock=SystemClock(), owner=name, language_model=lambda: model, enrich=self.enrich)


@pytest.fixture
def work(store: Store, monkeypatch: pytest.MonkeyPatch) -> Work:
    made = Work(store)
    monkeypatch.setattr(closing, "load_executions", made.load)
    monkeypatch.setattr(closing, "explain_run", made.explain)
    monkeypatch.setattr(closing, "_POLLED_EVERY", timedelta(milliseconds=20))
    return made


async def test_each_part_is_done_once_by_processes_that_conduct_a_run_together(work: Work) -> None:
    hurry = asyncio.Event()

    await asyncio.gather(*(work.process(name).close(RUN, hurry) for name in "abc"))
    await work.process("late").close(RUN, hurry)

    assert sorted(work.done) == sorted(PARTS)


@pytest.mark.parametrize("part", PARTS)
async def test_a_process_that_died_in_the_middle_is_replaced_when_its_lease_has_expired(
    store: Store, work: Work, part: str
) -> None:
    await store.leases.acquire(f"complete/{RUN}/{part}", "dead", timedelta(seconds=0.5))

    await work.process("alive").close(RUN, asyncio.Event())

    assert work.done == PARTS


async def test_a_process_that_is_cancelled_leaves_the_rest_to_the_next_one_at_once(work: Work) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work.process("first").close(RUN, asyncio.Event()))
        await work.begun.wait()
        task.cancel()

    async with asyncio.timeout(closing.HELD.total_seconds() / 2):
        await work.process("second").close(RUN, asyncio.Event())

    assert work.done == PARTS


async def test_a_process_in_a_hurry_does_not_wait_for_another_one(store: Store, work: Work) -> None:
    hurry = asyncio.Event()
    hurry.set()
    for part in PARTS[:2]:
        await store.leases.acquire(f"complete/{RUN}/{part}", "slow", closing.HELD)

    await work.process("hasty").close(RUN, hurry)

    assert work.done == []


async def test_a_process_without_a_language_model_leaves_the_explanation_to_one_with_it(work: Work) -> None:
    await work.process("plain", explains=False).close(RUN, asyncio.Event())
    await work.process("explaining").close(RUN, asyncio.Event())

    assert work.done == PARTS


async def test_each_host_loads_its_own_files(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    await work.process("here").close(RUN, asyncio.Event())
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")

    await work.process("there").close(RUN, asyncio.Event())

    assert work.done == [*PARTS, "operations/elsewhere"]
