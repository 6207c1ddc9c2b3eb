"""The check of an engine says which step failed and why, and leaves nothing behind."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.composition.check_steps import CheckStep
from drumbeat.composition.engine_check import EngineCheck
from drumbeat.composition.plane import ControlPlane
from drumbeat.composition.worker_check import WORKER
from drumbeat.composition.workers import CLOCK_SHOWN, REPORT_CLOCK_VARIABLE
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidSettings, MissingExtra, NotFound, SpawnCause, SpawnError
from drumbeat.core.log import NewLog
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.settings import Settings
from drumbeat.spawn.fake import (
    AnswerLost,
    DrainIgnored,
    ExitsAtOnce,
    FakeSpawner,
    Fault,
    ListFails,
    SpawnFails,
    StartDelayed,
    TerminateRefused,
)
from drumbeat.spawn.interface import Instance, Order, Spawner
from drumbeat.store.interface import Heartbeat, JoinRequest, Store
from drumbeat.store.memory import MemoryStore

MINUTE = timedelta(minutes=1)
ALL = ["settings", "reach", "start", "join", "clock", "drain", "leave", "clean up"]


class Leaping(ManualClock):
    """A clock on which waiting takes no time."""

    async def sleep(self, duration: timedelta) -> None:
        self.jump(duration)
        await asyncio.sleep(0)


class WorkingEngine(FakeSpawner):
    """An engine whose worker joins the store, tells the time, and leaves when it is drained."""

    def __init__(self, clock: ManualClock, store: Store, faults: Sequence[Fault] = ()) -> None:
        super().__init__(clock, faults, name="fake")
        self.store = store
        self.joins = True
        self.ahead = timedelta()  #: how wrong the worker's clock is
        self.tells_time = True
        self.leaves = True
        self.drain_error: SpawnError | None = None
        self.output = ""
        self._time = clock

    async def spawn(self, order: Order) -> Instance:
        instance = await super().spawn(order)
        assert order.environment == {REPORT_CLOCK_VARIABLE: "1"}
        if self.joins:
            await self._join(order.pool_id, order.worker_id)
        return instance

    async def _join(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        joining = JoinRequest(pool_id=pool_id, worker_id=worker_id, slot=0, instance="i", host="node7", pid=17)
        await self.store.membership.join(joining)
        await self.store.membership.beat(Heartbeat(pool_id=pool_id, worker_id=worker_id, instance="i", read_to=0))
        if self.tells_time:
            shown = (self._time.now() + self.ahead).isoformat()
            line = NewLog(level="WARNING", logger="drumbeat", message=f"{CLOCK_SHOWN}{shown}", worker_id=worker_id)
            await self.store.logs.append(pool_id, [line])

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        if self.drain_error is not None:
            raise self.drain_error
        await super().drain(pool_id, worker_id)
        if self.leaves:
            await self.store.membership.move(pool_id, worker_id, "i", WorkerStatus.TERMINATED, "drained")

    async def logs(self, pool_id: PoolId, worker_id: WorkerId, *, lines: int = 200) -> str:
        if not self.output:
            raise NotFound("no output")
        return self.output


@pytest.fixture
def clock() -> Leaping:
    return Leaping()


@pytest.fixture
def plane(clock: Leaping, tmp_path: Path) -> ControlPlane:
    engines = {"gpu": {"kind": "local"}}
    return ControlPlane(Settings(store="memory:", state_dir=tmp_path, engines=engines), MemoryStore(clock), clock)


@pytest.fixture
def engine(plane: ControlPlane, clock: Leaping) -> WorkingEngine:
    found = WorkingEngine(clock, plane.store)
    plane.spawner = lambda engines: found  # type: ignore[method-assign]
    return found


async def checked(plane: ControlPlane, host: str | None = None) -> list[CheckStep]:
    """Check the engine, and make sure that whatever came of it, nothing is left in the store."""
    steps: list[CheckStep] = []
    passed = await EngineCheck(plane, plane.engines.get("gpu"), steps.append, host=host).run()
    assert passed == all(step.ok for step in steps if step.step != "clean up")
    return steps


async def nothing_left(plane: ControlPlane, engine: FakeSpawner) -> bool:
    pools = await plane.store.pools.list()
    return pools == [] and await engine.pools() == set()


async def test_an_engine_that_works_passes_every_step(plane: ControlPlane, engine: WorkingEngine) -> None:
    steps = await checked(plane)

    assert [(step.step, step.ok) for step in steps] == [(name, True) for name in ALL]
    assert "joined from host node7, process 17" in steps[3].detail
    assert await nothing_left(plane, engine)


async def failing(plane: ControlPlane, engine: FakeSpawner, step: str) -> str:
    """Check the engine, which fails at this step, and return what is said."""
    steps = await checked(plane)
    assert [one.step for one in steps if not one.ok] == [step]
    assert [one.step for one in steps] == [*ALL[: ALL.index(step) + 1], *(["clean up"] if step not in ALL[:2] else [])]
    assert await nothing_left(plane, engine)
    (detail,) = [one.detail for one in steps if not one.ok]
    assert "\n" not in detail
    return detail


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InvalidSettings("engine gpu: expected hosts, got none"), "engine gpu: expected hosts, got none"),
        (MissingExtra("the engine kind ssh", "ssh"), "an extra is missing here: .* run: pip install 'drumbeat[ssh]'"),
    ],
)
async def test_wrong_settings_fail_the_first_step(
    plane: ControlPlane, engine: WorkingEngine, error: Exception, said: str
) -> None:
    def refuse(engines: str) -> Spawner:
        raise error

    plane.spawner = refuse  # type: ignore[method-assign]

    detail = await failing(plane, engine, "settings")

    assert all(part in detail for part in said.split(".*"))


async def test_an_engine_that_does_not_answer_fails_to_be_reached(plane: ControlPlane, engine: WorkingEngine) -> None:
    engine.faults.append(ListFails(reason="no route to host"))

    detail = await failing(plane, engine, "reach")

    assert detail.startswith("the engine failed or cannot be reached (network): ")
    assert "no route to host" in detail


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (SpawnCause.NO_CAPACITY, "the engine is full"),
        (SpawnCause.BAD_REQUEST, "the engine does not accept the request (image, settings or limits)"),
        (SpawnCause.AUTH, "the key, token or permission is wrong"),
        (SpawnCause.NO_MONEY, "the account has no money"),
        (SpawnCause.RATE_LIMITED, "the engine limits the rate of requests"),
        (SpawnCause.TRANSIENT, "the engine failed or cannot be reached (network)"),
    ],
)
async def test_a_refused_start_says_which_cause(
    plane: ControlPlane, engine: WorkingEngine, cause: SpawnCause, said: str
) -> None:
    engine.faults.append(SpawnFails(reason="because of X", cause=cause))

    detail = await failing(plane, engine, "start")

    assert detail.startswith(said)
    assert "because of X" in detail


async def test_a_start_without_an_answer_is_cleaned_up(plane: ControlPlane, engine: WorkingEngine) -> None:
    engine.faults.append(AnswerLost(started=True))

    assert (await failing(plane, engine, "start")).startswith("the engine did not say whether it started the worker")


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("python: No module named drumbeat\n", "drumbeat is not installed where the worker runs; its last line: python: No"),
        ("Traceback\nModuleNotFoundError: No module named 'yaml'\n", "a Python package is missing where the worker runs"),
        ("drumbeat: x needs …; run: pip install 'drumbeat[postgres]'\n\n", "an extra of drumbeat is missing where"),
        ("sh: python3: not found\n", "Python is missing or too old"),
        (
            "drumbeat: PostgreSQL at db: connection refused\n",
            "the store cannot be reached from there; its last line: drumbeat:",
        ),
        ("could not translate host name\n", "the store cannot be reached from there"),
        ("password authentication failed for user ann\n", "the store refuses the user or password"),
        ("it rained\n", "before it joined; its last line: it rained"),
        ("", "before it joined; it wrote nothing that can be read"),
    ],
)
async def test_a_worker_that_ends_before_it_joins_says_why(
    plane: ControlPlane, engine: WorkingEngine, output: str, said: str
) -> None:
    engine.joins, engine.output = False, output
    engine.faults.append(ExitsAtOnce(exit_code=1))

    detail = await failing(plane, engine, "join")

    assert detail.startswith("the worker ended with exit code 1 before it joined")
    assert said in detail


async def test_the_exit_code_of_a_lost_store_is_enough(plane: ControlPlane, engine: WorkingEngine) -> None:
    engine.joins = False
    engine.faults.append(ExitsAtOnce(exit_code=2))

    assert "the store cannot be reached from there" in await failing(plane, engine, "join")


async def test_a_worker_that_stays_pending_says_so(plane: ControlPlane, engine: WorkingEngine) -> None:
    engine.joins = False
    engine.faults.append(StartDelayed(by=60 * MINUTE))

    assert "the worker is still pending after 60.0 s: the engine's queue is full" in await failing(plane, engine, "join")


@pytest.mark.parametrize("key", ["problem", "reason"])
async def test_a_pending_worker_says_what_its_engine_says(plane: ControlPlane, engine: WorkingEngine, key: str) -> None:
    engine.joins = False
    engine.faults.append(StartDelayed(by=60 * MINUTE))
    listed = engine.list

    async def list_with_reason(pool_id: PoolId) -> Sequence[Instance]:
        return [replace(one, meta={key: "no node has a GPU"}) for one in await listed(pool_id)]

    engine.list = list_with_reason  # type: ignore[method-assign]

    assert "the worker is still pending after 60.0 s: no node has a GPU" in await failing(plane, engine, "join")


async def test_a_worker_that_runs_and_does_not_join_says_so(plane: ControlPlane, engine: WorkingEngine) -> None:
    engine.joins, engine.output = False, "waiting for the database: timed out\n"

    detail = await failing(plane, engine, "join")

    assert "the worker runs, but did not join the store within 60.0 s: the store cannot be reached from there" in detail
    assert detail.endswith("its last line: waiting for the database: timed out")


async def test_a_worker_that_vanishes_says_so(plane: ControlPlane, engine: WorkingEngine) -> None:
    engine.joins = False
    spawn = engine.spawn

    async def spawn_and_vanish(order: Order) -> Instance:
        instance = await spawn(order)
        engine._machines.clear()
        return instance

    engine.spawn = spawn_and_vanish  # type: ignore[method-assign]

    assert "the engine no longer lists its instance" in await failing(plane, engine, "join")


@pytest.mark.parametrize(("seconds", "said"), [(30, "30.0 s ahead of the store's"), (-5, "5.0 s behind the store's")])
async def test_a_wrong_clock_is_seen(plane: ControlPlane, engine: WorkingEngine, seconds: int, said: str) -> None:
    engine.ahead = timedelta(seconds=seconds)

    assert f"the clock of host node7 is {said}" in await failing(plane, engine, "clock")


async def test_a_worker_that_tells_no_time_passes(plane: ControlPlane, engine: WorkingEngine) -> None:
    engine.tells_time = False

    steps = await checked(plane)

    assert [step.detail for step in steps if step.step == "clock"] == ["the worker did not report its clock"]
    assert all(step.ok for step in steps)


async def test_an_engine_that_cannot_drain_says_so(plane: ControlPlane, engine: WorkingEngine) -> None:
    engine.drain_error = SpawnError("permission denied", cause=SpawnCause.AUTH)

    assert "permission is wrong: permission denied" in await failing(plane, engine, "drain")


async def test_an_instance_that_does_not_end_says_so(plane: ControlPlane, engine: WorkingEngine) -> None:
    engine.faults.append(DrainIgnored())

    assert "did not leave within 60.0 s: its instance still runs" in await failing(plane, engine, "leave")


async def test_a_worker_that_does_not_leave_the_store_says_so(
    plane: ControlPlane, engine: WorkingEngine, clock: Leaping
) -> None:
    engine.leaves = False
    began = clock.elapsed()

    said = await failing(plane, engine, "leave")

    assert "its instance is gone, but the worker did not record its end: its row is still starting" in said
    assert clock.elapsed() - began < timedelta(seconds=60), "it does not wait for a process that has ended"


async def test_a_worker_that_cannot_be_ended_is_named(plane: ControlPlane, engine: WorkingEngine) -> None:
    engine.faults += [DrainIgnored(), TerminateRefused(reason="not today")]

    steps = await checked(plane)

    assert [step.step for step in steps if not step.ok] == ["leave", "clean up"]
    assert f"worker {WORKER} of pool engine-check-gpu-" in steps[-1].detail
    assert "not today; end it" in steps[-1].detail


async def test_an_interrupted_check_leaves_nothing(plane: ControlPlane, engine: WorkingEngine, clock: Leaping) -> None:
    engine.joins = False
    steps: list[CheckStep] = []
    waiting = asyncio.Event()

    async def sleep(duration: timedelta) -> None:
        waiting.set()
        await asyncio.Event().wait()

    clock.sleep = sleep  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(EngineCheck(plane, plane.engines.get("gpu"), steps.append).run())
        await waiting.wait()
        task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert steps[-1].step == "clean up"
    assert steps[-1].ok
    assert await nothing_left(plane, engine)
