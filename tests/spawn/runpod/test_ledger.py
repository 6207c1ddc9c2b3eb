"""What one process was refused, the next one knows: single beats from cron do not ask the same places each minute."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.core.errors import SpawnCause, SpawnFailed
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Instance
from drumbeat.spawn.runpod import RunPodSettings
from drumbeat.spawn.runpod.ledger import MOST, RefusalFile
from drumbeat.spawn.runpod.placement import Failed
from drumbeat.spawn.runpod.spawner import RunPodSpawner
from spawn.runpod.faults import Answers, Fault
from spawn.runpod.machines import Card
from spawn.runpod.rig import STORE, LeapingClock, make_spawner, order
from spawn.runpod.simulator import KEY, NO_STOCK, RunPodSimulator

CARDS = (Card(id="L4", secure=0.4), Card(id="T4", secure=0.2))
STOCK = {("L4", "SECURE", "EU-1"): 9, ("T4", "SECURE", "US-1"): 9}
FULL = Answers(operation="createPod", status=400, detail=f"{NO_STOCK} {STORE['DRUMBEAT_STORE']} {KEY}")


class Account:
    """A simulated RunPod, and one process after the other that rents pods there."""

    def __init__(self, folder: Path) -> None:
        self.clock = LeapingClock()
        self.simulator = RunPodSimulator(self.clock, cards=CARDS, stock=dict(STOCK))
        self.folder = folder
        self._names = iter(range(99))

    @asynccontextmanager
    async def process(self, folder: Path | None = None) -> AsyncIterator[RunPodSpawner]:
        async with make_spawner(self.simulator, self.clock, folder or self.folder, tries_per_spawn=4) as spawner:
            yield spawner

    async def spawn(self, *faults: Fault, folder: Path | None = None) -> Instance:
        """One worker more, by a process of its own."""
        self.simulator.faults[:] = faults
        async with self.process(folder) as spawner:
            return await spawner.spawn(order(WorkerId(f"w{next(self._names)}")))

    def tried(self) -> Sequence[str]:
        return [call.body["gpu"]["id"] for call in self.simulator.asked("createPod")]


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account(tmp_path / "state")


async def test_the_next_process_passes_over_a_place_that_refused_until_its_time_is_over(account: Account) -> None:
    await account.spawn(FULL)
    await account.clock.sleep(timedelta(minutes=9))
    await account.spawn()
    assert account.tried() == ["T4", "L4", "L4"]

    await account.clock.sleep(timedelta(minutes=2))
    await account.spawn()
    assert account.tried() == ["T4", "L4", "L4", "T4"]


async def test_where_every_place_refused_the_next_process_asks_none_and_says_why(account: Account) -> None:
    with pytest.raises(SpawnFailed) as first:
        await account.spawn(FULL, FULL)
    await account.clock.sleep(timedelta(minutes=1))

    with pytest.raises(SpawnFailed) as second:
        await account.spawn()

    assert account.tried() == ["T4", "L4"]
    assert (first.value.cause, second.value.cause) == (SpawnCause.NO_CAPACITY, SpawnCause.NO_CAPACITY)
    assert second.value.retry_after == timedelta(minutes=9)


async def test_a_provider_that_fails_is_left_alone_by_the_next_process_too(account: Account) -> None:
    broken = Answers(operation="createPod", status=402, detail="no")
    for _ in range(4):
        with pytest.raises(SpawnFailed):
            await account.spawn(broken)
    with pytest.raises(SpawnFailed, match="pausing requests"):
        await account.spawn()
    assert len(account.tried()) == 4

    await account.clock.sleep(timedelta(minutes=10))
    await account.spawn()
    for _ in range(3):
        with pytest.raises(SpawnFailed):
            await account.spawn(broken)
    await account.spawn()
    assert len(account.tried()) == 9


async def test_another_folder_knows_nothing(account: Account, tmp_path: Path) -> None:
    await account.spawn(FULL)
    await account.spawn(folder=tmp_path / "other")

    assert account.tried() == ["T4", "L4", "T4"]


async def test_nothing_that_was_said_is_written_down(account: Account) -> None:
    await account.spawn(FULL)

    files = [path for path in account.folder.rglob("*") if path.is_file()]
    kept = "".join(path.read_text() for path in files)
    assert "T4" in kept
    assert not any(word in kept for word in (KEY, "hunter2secret", "instances"))


@pytest.mark.parametrize("damage", ["garbage", "[{}]", ""], ids=["no JSON", "other fields", "empty"])
async def test_what_cannot_be_read_is_not_known_and_hinders_nobody(account: Account, damage: str) -> None:
    await account.spawn(FULL)
    for path in account.folder.rglob("*.json"):
        path.write_text(damage)

    await account.spawn()

    assert account.tried() == ["T4", "L4", "T4"]


async def test_a_folder_that_cannot_be_made_hinders_nobody(account: Account, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    await account.spawn(FULL, folder=tmp_path / "file")

    assert account.tried() == ["T4", "L4"]


async def test_refusals_from_a_clock_that_ran_ahead_are_forgotten(account: Account) -> None:
    await account.spawn(FULL)
    for path in account.folder.rglob("refused-*.json"):
        path.write_text(path.read_text().replace("2026-", "2036-"))

    await account.spawn()

    assert account.tried() == ["T4", "L4", "T4"]


def test_a_ledger_is_bounded_and_each_prefix_has_its_own(tmp_path: Path) -> None:
    clock = LeapingClock()
    one, other = (
        RefusalFile(tmp_path, "failed", Failed, RunPodSettings(image="i", max_price_per_hour=1, prefix=prefix), clock)
        for prefix in ("one", "../other")
    )
    records = [Failed(pool_id=f"p{n}", at=clock.now()) for n in range(MOST + 5)]

    one.write(records)

    assert list(one.read()) == records[5:]
    assert list(other.read()) == []
