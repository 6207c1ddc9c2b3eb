"""What the web's tests begin with: an application in this process, with something in its store, and callers of it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from drumbeat.composition.offline import prepare
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.beat import NewBeat
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.log import NewLog
from drumbeat.core.pool import PoolId
from drumbeat.core.run import Result, RunStatus, Step, StepType
from drumbeat.core.worker import WorkerStatus
from drumbeat.settings import Settings
from drumbeat.store.contract.given import heartbeat, joined, moved, sample
from drumbeat.store.interface import RunChange
from drumbeat.web.app import make_app
from drumbeat.web.app_state import AppState
from drumbeat.web.server import open_app_state
from drumbeat.web.settings import WebSettings

TOKEN = "operator-token-0123456789"
READ_TOKEN = "reader-token-0123456789"
KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
LOCKED = WebSettings(token=TOKEN, read_token=READ_TOKEN, conduct=False)
OPEN = WebSettings(conduct=False)
HERE = "http://127.0.0.1:8321"
MS = 1_000_000


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """An application and its state."""

    state: AppState
    app: Any
    folder: Path

    @property
    def plane(self) -> ControlPlane:
        return self.state.plane

    @property
    def target(self) -> str:
        """The URL of a small database under test."""
        return f"sqlite:///{self.folder}/target.db"

    def client(self, headers: Mapping[str, str] | None = None, address: str = "127.0.0.1") -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False, client=(address, 4711))
        return httpx.AsyncClient(transport=transport, base_url=HERE, headers=headers)


@asynccontextmanager
async def web(
    folder: Path,
    settings: WebSettings = OPEN,
    *,
    clock: Clock | None = None,
    store: str | None = None,
    large: str | None = None,
) -> AsyncIterator[Web]:
    """The API without its pages, over a store of its own in ``folder``."""
    where = Settings(store=store or f"sqlite:///{folder}/drumbeat.db", state_dir=folder / "state")
    where = replace(where, pool=replace(where.pool, large=large))
    stop = asyncio.Event()
    async with (
        open_control_plane(where, create=True) as plane,
        open_app_state(plane, settings, clock or SystemClock(), stop) as state,
    ):
        yield Web(state=state, app=make_app(state, with_pages=False), folder=folder)


async def furnish(made: Web) -> None:
    """A database under test, a template, a run of each sort, a pool with jobs, a fleet: something of everything."""
    await prepare(made.target, "read-only", 0.01, fresh=True, on_progress=lambda *_: None)
    desk = made.plane.bench()
    await desk.add_template(document(made), "kept")
    for name in ("first", "second"):
        await ended_run(made, name)
    jobs = made.plane.pool("jobs")
    await jobs.create(max_workers=1)
    await jobs.push({"n": 1}, job_id="one", max_attempts=1)
    await jobs.push({"n": 2}, job_id="two")
    claimed = await jobs.claim()
    assert claimed is not None
    await jobs.fail(claimed, "it broke", fatal=True)
    await fleet(made)


def document(made: Web, **more: Any) -> str:
    import json

    told = {
        "name": "kept",
        "target": {"url": made.target},
        "workload": {"standard": "read-only", "scale": 0.01},
        "concurrent_connections": 2,
        "timing": {"warmup_seconds": 0, "duration_seconds": 1},
    }
    return json.dumps({**told, **more})


async def ended_run(made: Web, name: str, *, operations: int = 15, errors: int = 0, **more: Any) -> str:
    """A run that measured five seconds and completed; ``more`` goes into its document."""
    desk, store = made.plane.bench(), made.plane.store
    run, _ = await desk.create(await desk.document(document(made, name=name, **more), is_text=True))
    home = await store.pools.get(PoolId(run.run_id))
    worker = await moved(store, await joined(store, home), WorkerStatus.WAITING, WorkerStatus.ACTIVE)
    run = await store.runs.update(run, RunChange(status=RunStatus.STARTING, phase="PREPARING", started=True))
    run = await store.runs.update(run, RunChange(status=RunStatus.RUNNING, phase="MEASUREMENT", warmup_ended=True))
    for n in range(1, 6):
        taken = sample(n, 2 * MS, 3 * MS, 9 * MS, phase="MEASUREMENT", active=2, target=2)
        measured = replace(taken, interval=timedelta(microseconds=100))
        await store.membership.beat(heartbeat(worker, sample=measured))
    await moved(store, worker, WorkerStatus.TERMINATED)
    at = await store.now()
    step = Step(run_id=run.run_id, type=StepType.FIND_MAX, n=1, from_target=None, to_target=2, started_at=at, outcome="STABLE")
    await store.steps.save([step])
    result = Result(
        run_id=run.run_id, status=RunStatus.COMPLETED, operations=operations, reads=operations, errors=errors, qps=3.0
    )
    await store.results.save([result])
    await store.beats.append(home.pool_id, NewBeat(owner="o", epoch=1, view={"seen": 1}, why_not="nothing to do"))
    await store.logs.append(home.pool_id, [NewLog(level="WARNING", logger="a", message="said")])
    run = await store.runs.update(run, RunChange(status=RunStatus.STOPPING, phase="PROCESSING"))
    await store.runs.update(run, RunChange(status=RunStatus.COMPLETED, operations=15, qps=3.0, ended=True))
    return str(run.run_id)


async def fleet(made: Web, name: str = "fleet") -> None:
    """One with a worker at work."""
    from drumbeat.composition.offline import fleet_policy

    await made.plane.fleets.scale_pool(
        name, fleet_policy(None, {"policy": "lag_aware", "min_workers": "0", "max_workers": "1", "price_per_hour": "2"})
    )
    home = await made.plane.store.pools.get(PoolId(name))
    await moved(made.plane.store, await joined(made.plane.store, home), WorkerStatus.WAITING, WorkerStatus.ACTIVE)
