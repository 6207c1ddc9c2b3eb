"""Two stores that share a state folder or an engine never take each other's workers for their own, whatever their URLs say."""

import sys
from pathlib import Path

import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import SystemClock
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.fleet.sweep import Sweep
from drumbeat.settings import Settings, store_name
from drumbeat.spawn.interface import InstanceState, ListsPools, Order, Spawner
from drumbeat.spawn.kubernetes import KubernetesSettings, KubernetesSpawner
from drumbeat.store.interface import Store, StoreTraits
from drumbeat.store.memory import MemoryStore
from spawn.kubernetes.conftest import server as server
from spawn.kubernetes.server import ApiServer

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


NOWHERE = "postgresql://drumbeat@postgres:5432/drumbeat"


def on_cluster(server: ApiServer, folder: Path, store: Store, url: str = NOWHERE) -> ControlPlane:
    """A control plane on a store, with the simulated cluster as its engine ``k8s``."""
    engine = {"kind": "kubernetes", "image": "drumbeat/worker:1", "kubeconfig": str(folder / "kubeconfig")}
    return ControlPlane(Settings(store=url, state_dir=folder / "state", engines={"k8s": engine}), store, SystemClock())


def networked() -> MemoryStore:
    store = MemoryStore()
    store.traits = StoreTraits(name="postgresql", shared=True, networked=True)
    return store


def order(pool_id: PoolId, *, is_first: bool = True) -> Order:
    return Order(pool_id=pool_id, worker_id=W0, slot=0, group_count=1, command=SLEEPS, is_first=is_first)


def sweep(store: Store, spawner: Spawner) -> Sweep:
    return Sweep(store=store, spawner=spawner, clock=SystemClock(), owner=lambda: "sweeper", place="here")


async def test_two_stores_with_one_url_leave_each_others_workers_alone(server: ApiServer, tmp_path: Path) -> None:
    """As two Compose projects do, whose databases are both called postgres."""
    one, two = networked(), networked()
    async with on_cluster(server, tmp_path, one).spawner("k8s") as a, on_cluster(server, tmp_path, two).spawner("k8s") as b:
        await a.spawn(order(POOLS[0]))

        await sweep(two, b).all_but(POOLS[1])
        await b.spawn(order(POOLS[0]))
        await b.terminate(POOLS[0], W0)

        assert [one.state is InstanceState.EXITED for one in await a.list(POOLS[0])] == [False]
        await a.terminate(POOLS[0], W0)


async def test_a_store_finds_its_workers_under_another_url(server: ApiServer, tmp_path: Path) -> None:
    """Such as by an address instead of a name, or through PgBouncer."""
    store = networked()
    other = on_cluster(server, tmp_path, store, "postgresql://drumbeat@10.0.0.5:6432/drumbeat")
    async with on_cluster(server, tmp_path, store).spawner("k8s") as direct, other.spawner("k8s") as bouncer:
        started = await direct.spawn(order(POOLS[0]))

        assert (await bouncer.spawn(order(POOLS[0], is_first=False))).ref == started.ref
        assert [one.ref for one in await bouncer.list(POOLS[0])] == [started.ref]
        await bouncer.terminate(POOLS[0], W0)
        assert await direct.list(POOLS[0]) == []


async def test_workers_from_before_the_store_had_an_id_are_found_and_ended(server: ApiServer, tmp_path: Path) -> None:
    store, settings = networked(), KubernetesSettings(image="drumbeat/worker:1", kubeconfig=tmp_path / "kubeconfig")
    await store.pools.create(pool(POOLS[0], PoolKind.JOBS))
    await store.workers.add([Worker(pool_id=POOLS[0], worker_id=W0, slot=0, provider="k8s")])
    async with KubernetesSpawner(settings, {}, f"{store_name(NOWHERE)}#k8s", name="k8s") as former:
        started = await former.spawn(order(POOLS[0]))
        await former.spawn(order(POOLS[1]))

    async with on_cluster(server, tmp_path, store).spawner("k8s") as spawner:
        assert (await spawner.spawn(order(POOLS[0], is_first=False))).ref == started.ref
        assert isinstance(spawner, ListsPools)
        assert await spawner.pools() == set(), "a worker without a row may be that of another store with this URL"
        await spawner.terminate(POOLS[0], W0)
        assert await spawner.list(POOLS[0]) == []
        again = await spawner.spawn(order(POOLS[0]))
        await spawner.terminate(POOLS[0], W0)
    assert again.ref != started.ref
