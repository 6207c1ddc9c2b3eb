"""What the dashboard's tests look at: something on every page."""

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import SystemClock
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.run import Run, RunId, RunStatus
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.pool.worker.options import WorkPlan
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.contract.given import heartbeat, joined, moved
from drumbeat.store.interface import RunChange

_TO_WORK = (WorkerStatus.WAITING, WorkerStatus.ACTIVE)
MAIL, RENDER = PoolId("mail"), PoolId("render")
TABLE = """
CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT, balance REAL, changed_at TIMESTAMP);
INSERT INTO accounts SELECT value, 'owner ' || value, value, '2026-01-01 00:00:00' FROM
  (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 500) SELECT value FROM n);
"""
TRIGGERS = """\
triggers:
  - name: nightly
    type: cron
    schedule: "0 3 * * *"
    machine: stale_worker_reaper
  - name: yearly-mail
    type: cron
    schedule: "5 0 1 1 *"
    machine: parallelization_checker
    input: {pool_id: mail, max_workers: 0}
"""


def under_test(folder: Path) -> str:
    """A database to aim templates at; answers with its URL."""
    file = folder / "under-test.db"
    if not file.exists():
        with closing(sqlite3.connect(file)) as database:
            database.executescript(TABLE)
    return f"sqlite:///{file}"


def triggers_yml(folder: Path) -> None:
    (folder / "triggers.yml").write_text(TRIGGERS)


async def build(plane: ControlPlane) -> None:
    """Templates, runs, a pool of jobs in every state, and a fleet with beats behind it."""
    await _templates(plane)
    await _mail(plane)
    await _render(plane)


async def _templates(plane: ControlPlane) -> None:
    desk = plane.bench()
    folder = plane.settings.state_dir.parent
    target = under_test(folder)
    document: dict[str, Any] = {
        "name": "accounts, read-heavy",
        "description": "How many connections the accounts' table takes",
        "tags": ["nightly", "sqlite"],
        "target": {"url": target, "table": "accounts"},
        "workload": {"preset": "read-heavy"},
        "load_mode": "FIND_MAX_CONCURRENCY",
        "scaling": {"mode": "BOUNDED", "min_workers": 1, "max_workers": 2, "max_connections": 50},
        "slo": {"overall": {"p95_ms": 20}},
    }
    await desk.add_template(json.dumps(document))
    used = await desk.add_template(json.dumps({**document, "name": "used once", "tags": ["sqlite"]}))
    await plane.store.templates.note_use(used.template_id)
    run = Run(run_id=RunId("run-1"), name="used once", config={"load_mode": "QPS"}, template_id=used.template_id)
    made = await plane.store.runs.create(run, pool("run-1", PoolKind.BENCH))
    await plane.store.runs.update(made, RunChange(status=RunStatus.STARTING, started=True))


async def _mail(plane: ControlPlane) -> None:
    """Jobs pending, delayed, claimed, done, poisoned and cancelled."""
    desk = plane.pool(MAIL)
    home = await desk.create(WorkPlan(handlers={"": "command:true"}))
    await desk.push_many([{"to": f"user-{n}@example.org"} for n in range(40)], type="welcome")
    for _ in range(12):
        job = await desk.claim()
        assert job is not None
        await desk.complete(job, {"sent": True})
    for _ in range(4):
        job = await desk.claim()
        assert job is not None
        await desk.fail(job, "SMTP 550: no such mailbox", fatal=True)
    await desk.push({"to": "later@example.org"}, type="digest", delay=timedelta(hours=2))
    gone = await desk.push({"to": "never@example.org"}, type="digest")
    await desk.cancel(gone)
    worker = await moved(plane.store, await joined(plane.store, home, WorkerId("mail-1")), *_TO_WORK)
    await desk.claim(worker_id="mail-1")
    await plane.store.membership.beat(heartbeat(worker, active=1, operations=12))


async def _render(plane: ControlPlane) -> None:
    """A fleet that a policy has scaled up, with its reasons kept."""
    policy = FleetPolicy(
        policy=PolicyName.QUEUE_RATIO, min_workers=1, max_workers=6, price_per_hour=0.5, max_per_day=40.0, max_per_month=900.0
    )
    await plane.fleets.scale_pool(RENDER, policy, WorkPlan(handlers={"": "command:true"}))
    await plane.pool(RENDER).push_many([{"frame": n} for n in range(9)])
    async with FakeSpawner(SystemClock()) as spawner:
        loop = plane.fleets.loop(RENDER, spawner, timedelta(seconds=30))
        for _ in range(3):
            await loop.beat()
            await asyncio.sleep(0)
        await loop.resign()
    home = await plane.store.pools.get(RENDER)
    for each in await plane.store.workers.list(RENDER):
        worker = await moved(plane.store, await joined(plane.store, home, each.worker_id), *_TO_WORK)
        await plane.store.membership.beat(heartbeat(worker, operations=3))
