"""What the database counted itself while a run was measured: all of a short run, and by kind of operation."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.bench import bench, document, fill, output, sql
from servers.places import memory_folder
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

_CONNECTIONS = 8  #: as many operations may end while workers drain


@pytest.fixture
def counting_postgres() -> Iterator[PostgresServer]:
    settings = {"fsync": "off", "shared_preload_libraries": "pg_stat_statements"}
    with PostgresServer(settings=settings, folder=memory_folder()) as server:
        yield server


async def test_a_short_runs_totals_are_whole_and_told_by_kind(counting_postgres: PostgresServer, tmp_path: Path) -> None:
    target = await fill(counting_postgres.new_database())
    await sql(target, "CREATE EXTENSION pg_stat_statements")
    async with bench(f"sqlite:///{tmp_path}/drumbeat.db", tmp_path) as made:
        code, _, err = await output(made.run(document(target, timing={"warmup_seconds": 0, "duration_seconds": 3})))
        results = await made.results()

    assert code == 0, err
    whole = next(row for row in results if row.worker_id is None and row.kind is None)
    kinds = {row.kind: row.operations for row in results if row.worker_id is None and row.kind is not None}
    counted = whole.custom_metrics["server"]["measurement"]
    assert 0 <= counted["database.tup_inserted"] - kinds["INSERT"] <= _CONNECTIONS, (counted, kinds)
    for kind, operations in kinds.items():
        assert 0 <= counted[f"{kind}.calls"] - operations <= _CONNECTIONS, (kind, counted, kinds)
        assert counted[f"{kind}.exec_ms"] > 0
