"""Two stores that share a state folder never take each other's workers for their own, whatever their names."""

import sys
from pathlib import Path

import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import SystemClock
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.settings import Settings, store_name
from drumbeat.spawn.interface import Order
from drumbeat.store.memory import MemoryStore

POOLS, W0 = (PoolId("p"), PoolId("q")), WorkerId("worker-0")
SLEEPS = (sys.executable, "-c", "import time; time.sleep(600)")


def plane(folder: Path, name: str) -> ControlPlane:
    return ControlPlane(
        Settings(store=f"sqlite:///{folder}/{name}.db", state_dir=folder / "state"), MemoryStore(), SystemClock()
    )


async def test_workers_of_two_stores_and_two_pools_with_one_name_are_told_apart(tmp_path: Path) -> None:
    async with plane(tmp_path, "a").local_spawner() as first, plane(tmp_path, "b").local_spawner() as second:
        refs = set()
        for spawner in (first, second):
            for pool_id in POOLS:
                order = Order(pool_id=pool_id, worker_id=W0, slot=0, group_count=1, command=SLEEPS)
                refs.add((await spawner.spawn(order)).ref)
        assert len(refs) == 4
        assert first.log_path(POOLS[0], W0) != second.log_path(POOLS[0], W0)

        await second.terminate(POOLS[0], W0)

        listed = [[one.ref for one in await spawner.list(pool_id)] for spawner in (first, second) for pool_id in POOLS]
        running = [[one.state for one in await spawner.list(pool_id)] for spawner in (first, second) for pool_id in POOLS]
        assert sorted(ref for refs_of_one in listed for ref in refs_of_one) == sorted(refs)
        assert [states == ["running"] for states in running] == [True, True, False, True]


async def test_a_store_finds_its_workers_again_however_its_url_is_written(tmp_path: Path) -> None:
    other = ControlPlane(
        Settings(store=f"sqlite:///{tmp_path}/a.db?busy_timeout=60", state_dir=tmp_path / "state"), MemoryStore(), SystemClock()
    )
    async with plane(tmp_path, "a").local_spawner() as first, other.local_spawner(survive=True) as again:
        started = await first.spawn(Order(pool_id=POOLS[0], worker_id=W0, slot=0, group_count=1, command=SLEEPS))

        assert [one.ref for one in await again.list(POOLS[0])] == [started.ref]


@pytest.mark.parametrize(
    ("one", "another", "same"),
    [
        ("postgresql://ann:secret@db/jobs", "postgresql://bob@db/jobs?connections=3", True),
        ("postgresql://db/jobs", "postgresql://db/other", False),
        ("postgresql://db:5433/jobs", "postgresql://db/jobs", False),
        ("postgresql://db:5432/jobs", "postgres://ann:secret@DB/jobs", True),
        ("postgresql:///jobs?host=/cloudsql/acme:eu:staging", "postgresql:///jobs?host=/cloudsql/acme:eu:prod", False),
        ("postgresql://ann:secret@/jobs?host=db2", "postgresql:///jobs?connections=3&host=db2", True),
        ("postgresql:///jobs?host=db&port=5433", "postgresql:///jobs?host=db", False),
        ("postgresql://db/?dbname=jobs", "postgresql://db/?dbname=other", False),
        ("postgresql://ann:secret@db", "postgresql://bob@db", False),
        ("postgresql://ann:secret@db", "postgresql://bob@db/ann", True),
        ("redis://db:6379", "redis://db/0", True),
        ("redis://db/1", "redis://db/0", False),
        ("redis://db/0?prefix=a", "redis://db/0?prefix=b", False),
        ("redis://db/0?prefix=a&connections=2", "redis://db/0?prefix=a", True),
        ("sqlite:///a.db", "sqlite:///b.db", False),
    ],
)
def test_stores_are_told_apart_by_where_they_are(one: str, another: str, same: bool) -> None:
    assert (store_name(one) == store_name(another)) is same
    assert "secret" not in store_name(one)
