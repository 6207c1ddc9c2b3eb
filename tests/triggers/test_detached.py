"""Subprocess triggers: one checker per burst of work, in a process of its own that outlives the pusher."""

import asyncio
import json
import os
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import SpawnFailed
from drumbeat.spawn.leash import LEASH_FD
from drumbeat.spawn.names import POOL, WORKER
from drumbeat.spawn.tagged import SCOPE
from drumbeat.store.memory import MemoryStore
from drumbeat.triggers import detached
from drumbeat.triggers.detached import ON_ITS_WAY, CheckerLaunch, mark_checker_started, start_checker_once, start_detached
from drumbeat.triggers.model import Firing
from e2e.processes import eventually
from triggers.given import trigger

PUSH = trigger("push", "subprocess")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that would have been started."""
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(detached, "start_detached", lambda command, *_: commands.append(tuple(command)))
    return commands


def dispatch(clock: ManualClock, folder: Path) -> CheckerLaunch:
    leases = MemoryStore(clock).leases
    return CheckerLaunch(leases=leases, owner="me", environment={}, log=folder / "log")


async def test_a_burst_of_pushes_starts_one_checker(started: list[tuple[str, ...]], tmp_path: Path) -> None:
    sending = dispatch(ManualClock(), tmp_path)

    sent = [await start_checker_once(sending, PUSH, "papers") for _ in range(100)]

    assert sent.count(True) == 1
    ((*program, firing),) = started
    assert program == [sys.executable, "-m", "drumbeat.cli.fire"]
    assert Firing.from_json(json.loads(firing)) == PUSH.firing("papers")


async def test_once_it_has_begun_to_look_work_needs_another(started: list[tuple[str, ...]], tmp_path: Path) -> None:
    sending = dispatch(ManualClock(), tmp_path)
    await start_checker_once(sending, PUSH, "papers")

    await mark_checker_started(sending.leases, "push", "papers")

    assert await start_checker_once(sending, PUSH, "papers") is True
    assert len(started) == 2


async def test_one_that_never_begins_is_replaced(started: list[tuple[str, ...]], tmp_path: Path) -> None:
    clock = ManualClock()
    sending = dispatch(clock, tmp_path)
    await start_checker_once(sending, PUSH, "papers")
    await clock.advance(ON_ITS_WAY)

    assert await start_checker_once(sending, PUSH, "papers") is True


async def test_pools_and_triggers_have_their_own(started: list[tuple[str, ...]], tmp_path: Path) -> None:
    sending = dispatch(ManualClock(), tmp_path)

    assert await start_checker_once(sending, PUSH, "papers")
    assert await start_checker_once(sending, PUSH, "letters")
    assert await start_checker_once(sending, trigger("other", "subprocess"), "papers")
    assert len(started) == 3


async def test_where_a_server_shall_be_kept_warm_one_is_started_beside_the_checker(
    started: list[tuple[str, ...]], tmp_path: Path
) -> None:
    kept = trigger("push", "subprocess", keep_warm=timedelta(minutes=5))

    assert await start_checker_once(dispatch(ManualClock(), tmp_path), kept, "papers")

    assert [command[2] for command in started] == ["drumbeat.cli.fire", "drumbeat.cli.fork_server"]
    assert started[1][3] == "300"


async def test_one_that_cannot_be_started_leaves_the_way_free(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    sending = dispatch(ManualClock(), tmp_path)

    for _ in range(2):
        with pytest.raises(SpawnFailed, match="could not start"):
            await start_checker_once(sending, PUSH, "papers")


async def test_a_start_that_is_cancelled_leaves_the_way_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def start(*_: object) -> None:
        begun.set()
        may_end.wait(10)

    monkeypatch.setattr(detached, "start_detached", start)
    sending = dispatch(ManualClock(), tmp_path)
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(start_checker_once(sending, PUSH, "papers"))
        await asyncio.to_thread(begun.wait, 10)
        starting.cancel()
    may_end.set()

    assert await start_checker_once(sending, PUSH, "papers") is True


async def test_to_arrive_unsent_is_harmless() -> None:
    store = MemoryStore()

    await mark_checker_started(store.leases, "push", "papers")

    assert await store.leases.find("push") is None
    assert not (await store.upkeep.check()).rows["leases"]


async def test_the_process_is_on_its_own_and_not_taken_for_its_parents_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in os.environ if each.startswith("DRUMBEAT")]:  # how these tests are run
        monkeypatch.delenv(name)
    for name in (LEASH_FD, SCOPE, POOL, WORKER, "DRUMBEAT_TOKEN", "DRUMBEAT_READ_TOKEN"):
        monkeypatch.setenv(name, "17")
    said = "import os; print(os.getsid(0) == os.getpid(), [n for n in os.environ if n.startswith('DRUMBEAT')], flush=True)"

    log = tmp_path / "a" / "log"
    pid = start_detached((sys.executable, "-c", said), {"DRUMBEAT_STORE": "sqlite:///x"}, log)

    async def is_gone() -> bool:
        return not os.path.exists(f"/proc/{pid}")

    await eventually(is_gone, "it ends and leaves no zombie")
    assert log.read_text() == "True ['DRUMBEAT_STORE']\n"
