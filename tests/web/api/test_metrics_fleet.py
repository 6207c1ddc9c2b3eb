"""What Prometheus reads of fleets: three of one store, whose workers have the same names, each with a trouble of its own."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.core.beat import CHECK, NewBeat
from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import SpawnCause
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, pool
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.fleet.model import FleetPolicy
from drumbeat.spawn.fake import FakeSpawner, Fault, ListFails, SpawnFails
from drumbeat.spawn.interface import SpawnerTraits
from drumbeat.store.contract.given import joined, moved
from drumbeat.web.settings import WebSettings
from web.given import Web, web

NAMES = WELL, REFUSED, BROKEN = (PoolId("well"), PoolId("refused"), PoolId('broken "one"'))
POLICY = FleetPolicy(workers=2, provider="runpod", failure_min=1)
_SERIES = re.compile(r'^([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.e+-]+|NaN|[+-]Inf)$')


class Renting(FakeSpawner):
    """RunPod as far as money goes."""

    @property
    def traits(self) -> SpawnerTraits:
        return replace(super().traits, name="runpod", price_per_hour=0.5, billing_granule=timedelta(minutes=1))


async def beat(made: Web, name: PoolId, *faults: Fault) -> None:
    loop = made.plane.fleets.loop(name, Renting(SystemClock(), faults), POLICY.every)
    await loop.beat()
    await loop.resign()


def read(text: str) -> dict[str, float]:
    """Every series by its name and labels; fails where Prometheus would refuse to read it."""
    kinds: dict[str, str] = {}
    found: dict[str, float] = {}
    described = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            described = line.split()[2]
            assert described not in kinds, f"{described} is described twice"
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert (name, kind) == (described, "counter" if name.endswith("_total") else "gauge")
            kinds[name] = kind
        else:
            match = _SERIES.match(line)
            assert match, line
            assert match[1] == described, f"{match[1]} is told among {described}"
            series = line.rpartition(" ")[0]
            assert series not in found, f"{series} is told twice"
            found[series] = float(match[3])
    assert text.endswith("\n")
    return found


@pytest.fixture
async def figures(tmp_path: Path) -> dict[str, float]:
    async with web(tmp_path, WebSettings()) as made:
        store = made.plane.store
        for name in NAMES:
            limits = replace(PRESETS[PoolKind.FLEET], stale_after=timedelta(hours=1), lost_after=timedelta(hours=2))
            await store.pools.create(pool(name, PoolKind.FLEET, limits, **POLICY.to_json()))
        await beat(made, WELL)
        for worker_id in (WorkerId("worker-0"), WorkerId("worker-1")):
            home = await store.pools.get(WELL)
            row = await joined(store, home, worker_id, int(worker_id[-1]))
            await moved(store, row, WorkerStatus.WAITING, WorkerStatus.ACTIVE)
        await made.plane.fleet(WELL).drain(["worker-1"])
        for _ in range(2):
            await beat(made, REFUSED, SpawnFails(reason="HTTP 401", cause=SpawnCause.AUTH, times=9), ListFails())
        home = await store.pools.get(BROKEN)
        for slot in (0, 1):
            row = await joined(store, home, WorkerId(f"worker-{slot}"), slot)
            await moved(store, row, WorkerStatus.ERROR)
        await beat(made, BROKEN)
        async with made.client() as client:
            return read((await client.get("/metrics")).text)


def test_every_fleet_tells_what_it_wants_and_what_holds_it_back(figures: dict[str, float]) -> None:
    def told(metric: str) -> list[float]:
        labels = [name.replace('"', '\\"') for name in NAMES]
        return [figures[f'{metric}{{pool="{name}"}}'] for name in labels]

    assert told("drumbeat_workers_wanted") == [2, 0, 0]
    assert told("drumbeat_workers_terminating") == [1, 0, 0]
    assert told("drumbeat_breaker_open") == [0, 0, 1]
    assert told("drumbeat_breaker_failed_workers") == [0, 0, 2]
    assert told("drumbeat_provider_faults") == [0, 1, 0]
    assert told("drumbeat_spawns_failed") == [0, 0, 0]
    assert told("drumbeat_spawns_failed_total") == [0, 1, 0]
    assert told("drumbeat_alarms") == [0, 2, 1]
    assert told("drumbeat_last_beat_failed") == [0, 1, 0]
    healthy, refused, broken = told("drumbeat_provider_backoff_seconds")
    assert (healthy, broken) == (0, 0)
    assert 0 < refused <= POLICY.backoff_most.total_seconds()
    assert figures['drumbeat_workers{pool="well",state="draining"}'] == 1
    assert figures['drumbeat_workers{pool="well",state="active"}'] == 1


def test_rented_workers_cost_what_they_cost_though_no_provider_is_asked(figures: dict[str, float]) -> None:
    spent = [figures[f'drumbeat_spent{{pool="well",period="{each}"}}'] for each in ("hour", "day", "month")]

    assert figures['drumbeat_burn_per_hour{pool="well"}'] == pytest.approx(2 * 0.5)
    assert all(each >= 0.5 / 60 for each in spent)
    assert figures['drumbeat_burn_per_hour{pool="refused"}'] == 0
    assert figures['drumbeat_spent{pool="refused",period="month"}'] == 0


async def test_a_beat_whose_start_was_refused_has_failed(tmp_path: Path) -> None:
    async with web(tmp_path, WebSettings()) as made:
        await made.plane.store.pools.create(pool(WELL, PoolKind.FLEET, **POLICY.to_json()))
        await beat(made, WELL, SpawnFails(times=9))
        async with made.client() as client:
            figures = read((await client.get("/metrics")).text)

    assert figures['drumbeat_last_beat_failed{pool="well"}'] == 1
    assert (figures['drumbeat_spawns_failed{pool="well"}'], figures['drumbeat_alarms{pool="well"}']) == (1, 1)


async def test_a_beat_that_saw_nothing_hides_no_trouble(tmp_path: Path) -> None:
    """Its summary is empty; and a checker that comes after it saw nothing of the fleet."""
    async with web(tmp_path, WebSettings()) as made:
        store = made.plane.store
        await store.pools.create(pool(WELL, PoolKind.FLEET, **POLICY.to_json()))
        for _ in range(2):
            await beat(made, WELL, SpawnFails(reason="HTTP 401", cause=SpawnCause.AUTH, times=9))
        lease = await store.leases.acquire(WELL, "another", timedelta(minutes=1))
        assert lease is not None
        failed = NewBeat(owner="another", epoch=lease.epoch, view=None, error="observe: no answer")
        row = await store.beats.append(WELL, failed, fence=lease.fence)
        check = NewBeat(owner="another", epoch=lease.epoch, view=None, summary={"kind": CHECK})
        await store.beats.append(WELL, check, fence=lease.fence)
        async with made.client() as client:
            figures = read((await client.get("/metrics")).text)

    told = {name: figures[f'drumbeat_{name}{{pool="well"}}'] for name in ("last_beat", "last_beat_failed", "provider_faults")}
    assert told == {"last_beat": row.n, "last_beat_failed": 1, "provider_faults": 1}
    assert figures['drumbeat_spawns_failed_total{pool="well"}'] == 1
    assert figures['drumbeat_alarms{pool="well"}'] == 1
    assert 'drumbeat_burn_per_hour{pool="well"}' in figures
