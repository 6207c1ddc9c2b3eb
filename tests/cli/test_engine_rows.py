"""Tables of workers say where they run, and which were not started; a full engine is no error."""

import asyncio
import json
from pathlib import Path

import pytest

from cli.given import POOL, SLOW, eventually, processes_of, ran
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store import open_store
from drumbeat.store.interface import WorkerChange

FULL = "engine node has no free slot (5 of 5 in use)"
REFUSED = {"reason": FULL, "cause": "no_capacity", "at": "2026-01-01T00:00:00+00:00"}
SMALL = '[engines.here]\nkind = "local"\nslots = 2\n'


async def _fill(url: str, provider: str) -> None:
    """One worker that was asked for, one that was refused, one without an answer, and one that was refused for good."""
    metas: tuple[dict[str, object], ...] = (
        {"engine": "node", "host": "node1"} if provider != "local" else {},
        {"refused": REFUSED},
        {"unanswered": "connection lost"},
        {},
    )
    rows = [
        Worker(pool_id=POOL, worker_id=WorkerId(f"worker-{n}"), slot=n, provider=provider, meta=meta)
        for n, meta in enumerate(metas)
    ]
    async with open_store(url, create=True) as store:
        await store.pools.create(pool(POOL, PoolKind.FLEET, SLOW, policy="fixed", workers=4))
        await store.workers.add(rows)
        change = WorkerChange(error="no such image", meta={"spawn_failed": True, "cause": "bad_request"})
        await store.workers.move(rows[3], WorkerStatus.TERMINATED, "could not be started", change)


@pytest.fixture(params=["node", "local"])
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    asyncio.run(_fill(f"sqlite:///{tmp_path}/d.db", request.param))
    return str(request.param)


def cells(output: str) -> dict[str, str]:
    """The lines of a table by their first word."""
    return {line.split()[0]: line for line in output.splitlines() if line.strip()}


@pytest.mark.parametrize("command", [("workers", "list"), ("fleet", "workers", "--all")])
def test_a_table_of_workers_tells_those_that_were_not_started(command: tuple[str, ...], provider: str, tmp_path: Path) -> None:
    lines = cells(ran(*command, POOL, cwd=tmp_path, DRUMBEAT_STORE=f"sqlite:///{tmp_path}/d.db").output)

    assert [word in lines["worker-0"] for word in ("spawning", "healthy", "not started")] == [True, True, False]
    for name, reason in (("worker-1", FULL), ("worker-2", "connection lost"), ("worker-3", "no such image")):
        assert [word in lines[name] for word in ("not started", reason, "healthy")] == [True, True, False]


@pytest.mark.parametrize("command", [("workers", "list"), ("fleet", "workers")])
def test_a_table_of_workers_shows_engine_and_host_if_they_run_elsewhere(
    command: tuple[str, ...], provider: str, tmp_path: Path
) -> None:
    lines = cells(ran(*command, POOL, cwd=tmp_path, DRUMBEAT_STORE=f"sqlite:///{tmp_path}/d.db").output)

    is_elsewhere = provider != "local"
    assert ("engine" in lines["worker"], "host" in lines["worker"]) == (is_elsewhere, is_elsewhere)
    assert ("node1" in lines["worker-0"]) is is_elsewhere


def test_a_fleets_status_tells_workers_that_were_not_started(provider: str, tmp_path: Path) -> None:
    done = ran("fleet", "status", POOL, cwd=tmp_path, DRUMBEAT_STORE=f"sqlite:///{tmp_path}/d.db")

    assert f"worker-1 not started ({FULL})" in done.output
    assert "worker-0 spawning (healthy" in done.output


def test_a_check_of_a_pool_at_a_full_engine_says_how_many_workers_were_started(tmp_path: Path) -> None:
    (tmp_path / "engines.toml").write_text(SMALL)
    waits = f"command:sh -c 'while [ ! -e {tmp_path}/go ]; do sleep 0.1; done'"
    ran("pool", "create", "jobs", "--handler", waits, "--engine", "here", cwd=tmp_path)
    for n in range(4):
        ran("pool", "push", "jobs", json.dumps({"n": n}), cwd=tmp_path)
    try:
        first = ran("pool", "check", "jobs", cwd=tmp_path)
        second = ran("pool", "check", "jobs", cwd=tmp_path)
        rows = json.loads(ran("workers", "list", "jobs", "--json", cwd=tmp_path).output)
    finally:
        (tmp_path / "go").touch()

    assert first.code == 0, first.output
    assert "spawned 2" in first.output
    assert "started 2 of 4 workers: engine here has no free slot (2 of 2 in use)" in first.output
    assert (second.code, "engine here has no free slot" in second.output) == (0, True)
    assert [row["not_started"] is None for row in rows] == [True, True, False]
    eventually(lambda: processes_of(tmp_path) == [], "the workers end")
