"""A program that was asked to stop does not wait for an engine that does not answer."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import SpawnAmbiguous, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.runtime.prompt_spawner import PromptSpawner
from drumbeat.spawn.fake import AnswerLost, FakeSpawner, ListFails
from drumbeat.spawn.interface import ExpandsVolumes, ForgetsRefusals, Instance, ListsPools, Order

P, W = PoolId("p"), WorkerId("w")
ORDER = Order(pool_id=P, worker_id=W, slot=0, group_count=1)


class SilentEngine(FakeSpawner):
    """An engine that is asked, and never answers."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, name="silent")
        self.asked_now = asyncio.Event()

    async def spawn(self, order: Order) -> Instance:
        return await self._never()

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        return [await self._never()]

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        await self._never()

    async def _never(self) -> Instance:
        self.asked_now.set()
        await asyncio.Event().wait()
        raise AssertionError


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def interrupted(spawner: PromptSpawner, engine: SilentEngine, stop: asyncio.Event, clock: ManualClock, verb: str) -> None:
    """Call the engine, and ask the program to stop while it waits."""
    calls: Mapping[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "spawn": lambda: spawner.spawn(ORDER),
        "list": lambda: spawner.list(P),
        "terminate": lambda: spawner.terminate(P, W),
    }

    async def ask_to_stop() -> None:
        await engine.asked_now.wait()
        stop.set()
        await clock.advance(timedelta(seconds=3))

    await asyncio.gather(calls[verb](), ask_to_stop())


async def test_answers_are_passed_on(clock: ManualClock) -> None:
    engine, stop = FakeSpawner(clock), asyncio.Event()
    spawner = PromptSpawner(engine, stop, clock)

    started = await spawner.spawn(ORDER)

    assert await spawner.list(P) == [started]
    await spawner.terminate(P, W)
    assert engine.running(P) == []
    assert (spawner.silence, spawner.traits.name) == (None, "fake")


async def test_it_can_do_what_its_engine_can(clock: ManualClock) -> None:
    spawner = PromptSpawner(FakeSpawner(clock), asyncio.Event(), clock)

    assert isinstance(spawner, ListsPools)
    assert isinstance(spawner, ExpandsVolumes)
    assert not isinstance(spawner, ForgetsRefusals)


@pytest.mark.parametrize(("verb", "error"), [("spawn", SpawnAmbiguous), ("list", Unanswered), ("terminate", Unanswered)])
async def test_a_call_without_an_answer_ends_soon_after_the_program_was_asked_to_stop(
    verb: str, error: type[Exception], clock: ManualClock
) -> None:
    engine, stop = SilentEngine(clock), asyncio.Event()
    spawner = PromptSpawner(engine, stop, clock)

    with pytest.raises(error, match="gave no answer in time"):
        await interrupted(spawner, engine, stop, clock, verb)

    assert spawner.silence == "engine silent gave no answer in time"


async def test_no_worker_is_started_once_the_program_was_asked_to_stop(clock: ManualClock) -> None:
    engine, stop = FakeSpawner(clock), asyncio.Event()
    stop.set()

    with pytest.raises(Unanswered, match="no worker was started: this program was asked to stop"):
        await PromptSpawner(engine, stop, clock).spawn(ORDER)

    assert engine.asked("spawn") == []


async def test_it_knows_whether_the_engine_answered_last(clock: ManualClock) -> None:
    engine = FakeSpawner(clock, [AnswerLost(started=False), ListFails()])
    spawner = PromptSpawner(engine, asyncio.Event(), clock)

    with pytest.raises(SpawnAmbiguous):
        await spawner.spawn(ORDER)
    assert "gave no answer" in str(spawner.silence)

    await spawner.terminate(P, W)
    assert spawner.silence is None
