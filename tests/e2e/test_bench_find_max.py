"""Searches for the most connections by real processes on a real PostgreSQL."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumbeat.core.pool import PoolId
from drumbeat.core.run import RunStatus
from e2e.bench import INSERT, bench, document, fill, output
from servers.places import memory_folder
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

_SLOW_FLUSH = {"fsync": "on", "commit_delay": "50000", "commit_siblings": "1"}  #: microseconds in which others join a flush


@pytest.fixture
def slow_disk_postgres() -> Iterator[PostgresServer]:
    with PostgresServer(settings=_SLOW_FLUSH, folder=memory_folder()) as server:
        yield server


async def test_sessions_that_commit_in_groups_are_no_queue(slow_disk_postgres: PostgresServer, tmp_path: Path) -> None:
    """Five of six sessions wait for the flush that commits them all, and the search finds its level nevertheless."""
    given = document(
        await fill(slow_disk_postgres.new_database()),
        workload={"operations": [{**INSERT, "weight": 100}]},
        load_mode="FIND_MAX_CONCURRENCY",
        find_max={"start_connections": 6, "step_duration_seconds": 3},
        scaling={"mode": "BOUNDED", "max_workers": 1, "max_connections": 6},
        guardrails={"enabled": False},
        timing={"warmup_seconds": 1},
    )
    async with bench(f"sqlite:///{tmp_path}/drumbeat.db", tmp_path) as made:
        code, _, err = await output(made.run(given))
        assert code != 1, err
        run, (whole, *_) = await made.the_run(), await made.results()
        steps = await made.store.steps.list(run.run_id)
        beats = await made.store.beats.list(PoolId(run.run_id), limit=1000)

    waits = Counter[str]()
    for beat in beats:
        waits.update(((beat.view or {}).get("probe") or {}).get("wait_events") or {})
    assert waits["LWLock:WALWrite"] > 0, waits
    assert run.status is RunStatus.COMPLETED
    assert {step.outcome for step in steps} <= {"STABLE", "HELD"}, [step.reason for step in steps]
    assert (whole.find_max_result or {}).get("best_connections") == 6
