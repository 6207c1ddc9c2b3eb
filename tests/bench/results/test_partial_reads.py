"""Parts of a run read from a store: what is asked for and nothing else, the same as its whole record tells."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from threading import Event
from typing import Any, cast

import pytest

from drumbeat.bench.model import RunRecord
from drumbeat.bench.model.capacity import HostCapacity
from drumbeat.bench.results import report
from drumbeat.bench.results.partial_reads import read_errors, read_seconds
from drumbeat.bench.results.record import read_decisions, read_record
from drumbeat.bench.results.timeline import Timeline
from drumbeat.bench.results.yielding import FEW, iterate_yielding
from drumbeat.bench.service import BenchService
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import NotFound
from drumbeat.core.run import RunId, RunStatus
from drumbeat.core.sample import StoredSample
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.interface import Store
from drumbeat.store.memory import MemoryStore
from web.stream.scene import RUN, Scene, under_way

UNDER_WAY = (RunStatus.STARTING, RunStatus.RUNNING)
OVER = (RunStatus.STOPPING, RunStatus.COMPLETED)


@pytest.fixture
async def scene(store: MemoryStore, clock: ManualClock) -> Scene:
    return await under_way(store, clock)


class Noting:
    """A store that notes which samples were asked of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.samples = self
        self.read: list[StoredSample] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def list(self, *given: Any, **more: Any) -> Any:
        found = await self._store.samples.list(*given, **more)
        self.read += found
        return found


def noting(store: Store) -> tuple[Store, Noting]:
    made = Noting(store)
    return cast(Store, made), made


class TestSeconds:
    @pytest.mark.parametrize(("since", "until"), [(0, None), (30, 40), (0, 1), (55, 90), (40, 40), (70, None)])
    async def test_a_stretch_is_the_same_as_in_the_record(
        self, scene: Scene, store: Store, since: int, until: int | None
    ) -> None:
        await scene.worked(60)

        origin, found = await read_seconds(store, RUN, since, until)

        record = await read_record(store, RUN)
        assert origin == record.origin
        assert [each.offset for each in found] == [
            each.offset for each in record.timeline if since <= each.offset < (until if until is not None else 60)
        ]
        assert [(each.qps, each.p95_ms, each.held) for each in found] == [
            (each.qps, each.p95_ms, each.held) for each in record.timeline if each in found
        ]

    async def test_samples_of_other_times_are_not_read(self, scene: Scene, store: Store) -> None:
        await scene.worked(600)
        origin = (await store.runs.get(RUN)).started_at
        assert origin is not None
        watched, noted = noting(store)

        await read_seconds(watched, RUN, 300, 310)

        offsets = [(sample.at - origin).total_seconds() for sample in noted.read]
        assert (min(offsets), max(offsets)) == (301, 320)

    async def test_a_run_that_never_began_has_none(self, store: MemoryStore, clock: ManualClock) -> None:
        await Scene(store, clock, RunId("fresh")).made()

        assert await read_seconds(store, RunId("fresh")) == (None, ())


class TestErrors:
    async def test_only_samples_that_count_errors_are_read(self, scene: Scene, store: Store) -> None:
        await scene.worked(40, failing=False)
        await scene.worked(3)
        await scene.worked(40, failing=False)
        watched, noted = noting(store)

        found = await read_errors(watched, RUN)

        assert [sample.n for sample in noted.read] == [41, 41, 42, 42, 43, 43]
        assert found.by_second == {40: 2, 41: 2, 42: 2}
        assert found.by_kind == {"write": 6}

    async def test_they_are_what_the_record_tells(self, scene: Scene, store: Store) -> None:
        await scene.worked(20)
        await scene.led_to(*OVER)
        await scene.resulted()

        found, record = await read_errors(store, RUN), await read_record(store, RUN)

        assert (found.operations, found.errors, found.error_rate) == (220, 20, record.whole.error_rate)
        assert found.by_second == {second.offset: round(second.errors) for second in record.timeline}

    async def test_examples_are_those_the_result_kept(self, scene: Scene, store: Store) -> None:
        kept = {"kind": "", "error_class": "CONNECTION", "sqlstate": "", "message": "refused", "sql": "", "worker_id": "a"}
        await scene.led_to(*OVER)
        await scene.resulted(custom_metrics={"failures": [kept]})

        assert [(each.error_class, each.message) for each in (await read_errors(store, RUN)).examples] == [
            ("CONNECTION", "refused")
        ]

    async def test_what_the_runs_row_counts_stands_until_there_is_a_result(self, scene: Scene, store: Store) -> None:
        await scene.changed(operations=500, errors=5)

        found = await read_errors(store, RUN)

        assert (found.operations, found.errors, found.error_rate) == (500, 5, 0.01)

    async def test_a_run_that_is_not_there_has_none(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await read_errors(store, RunId("nope"))


async def test_decisions_are_read_without_a_sample(scene: Scene, store: Store) -> None:
    await scene.worked(5)
    await scene.decided("Spawn", "0 of 2 workers are here", worker_id="a")
    watched, noted = noting(store)

    decisions, _ = await read_decisions(watched, await store.runs.get(RUN))

    assert decisions == (await read_record(store, RUN)).decisions
    assert "Spawn a" in [each.what for each in decisions]
    assert noted.read == []


class Held:
    """How much is done at one go, while somebody else waits for a turn on the same loop."""

    def __init__(self) -> None:
        self.longest = self.done = self.since_a_turn = 0

    def counted(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*given: Any) -> Any:
            self.done += 1
            self.since_a_turn += 1
            self.longest = max(self.longest, self.since_a_turn)
            return step(*given)

        return counting

    async def beside(self, work: Awaitable[object]) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(self._take_turns())
            await work
            waiting.cancel()

    async def _take_turns(self) -> None:
        while True:
            self.since_a_turn = 0
            await asyncio.sleep(0)


READERS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "record": lambda store: read_record(store, RUN),
    "seconds": lambda store: read_seconds(store, RUN),
}


@pytest.mark.parametrize("step", ["add", "second"])
@pytest.mark.parametrize("reader", list(READERS))
async def test_whoever_else_is_on_the_loop_gets_a_turn_every_few_steps(
    scene: Scene, store: Store, monkeypatch: pytest.MonkeyPatch, reader: str, step: str
) -> None:
    await scene.worked(300)
    held = Held()
    monkeypatch.setattr(Timeline, step, held.counted(getattr(Timeline, step)))

    await held.beside(READERS[reader](store))

    assert held.done >= 300
    assert held.longest <= FEW


async def test_going_in_turns_leaves_nothing_out_and_makes_things_when_they_are_due() -> None:
    held = Held()
    things = map(held.counted(lambda n: n), range(100))

    found: list[int] = []

    async def go() -> None:
        found.extend([n async for n in iterate_yielding(things, few=3)])

    await held.beside(go())

    assert found == list(range(100))
    assert held.longest <= 3


async def test_a_report_is_written_while_others_go_on(scene: Scene, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer waits for somebody on the loop; were it on the loop itself, nobody would come."""
    await scene.worked(2)
    began, came = Event(), Event()

    def written(record: RunRecord) -> str:
        began.set()
        return f"{record.run.run_id} {came.wait(timeout=10)}"

    monkeypatch.setitem(cast(dict[str, Any], report.FORMATS), "html", written)
    desk = BenchService(
        store, scene.clock, "me", HostCapacity(cpu_cores=1, memory_gb=1), lambda engine: FakeSpawner(scene.clock)
    )
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(desk.report(RUN, "html"))
        while not writing.done():
            if began.is_set():
                came.set()
            await asyncio.sleep(timedelta(milliseconds=1).total_seconds())

    assert writing.result() == f"{RUN} True"
