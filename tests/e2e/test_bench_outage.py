"""A database that goes away while it is measured: the run says for how long, and is judged by it."""

import json
from pathlib import Path

import pytest

from drumbeat.core.run import RunStatus
from e2e.bench import bench, document, fill, output
from servers.postgres import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.soak]


async def test_an_outage_shows_in_availability_and_misses_its_objective(
    private_postgres: PostgresServer, tmp_path: Path
) -> None:
    given = document(
        await fill(private_postgres.new_database()),
        timing={"warmup_seconds": 1, "duration_seconds": 18},
        slo={"overall": {"min_availability_pct": 99}},
    )
    async with bench(f"sqlite:///{tmp_path}/drumbeat.db", tmp_path) as made:
        command = made.run(given, "--json")
        await made.measures("operations", 3)
        private_postgres.kill()
        await made.measures("failed_connects", 8)  # of two workers: for about four seconds
        private_postgres.start()
        code, out, err = await output(command)
        run, (whole, *_) = await made.the_run(), await made.results()

    found = whole.custom_metrics["availability"]
    assert (code, run.status) == (4, RunStatus.COMPLETED), err
    assert found["without_service"] >= 1, found
    assert found["percent"] == pytest.approx(100 * (1 - found["without_service"] / found["seconds"]))
    assert found["failed_connects"] > 0
    assert "OUTAGE" in whole.custom_metrics["flags"]
    assert whole.custom_metrics["corrected"]["p99_ms"] > (whole.latency.percentile_ns(99) or 0) / 1e6 + 100
    server = whole.custom_metrics["server"]
    assert min(server["measurement"].values()) >= 0, server
    assert server["measurement"]["database.tup_inserted"] > 0
    assert "totals were reset" in server.get("note", ""), server["measurement"]["server.resets"]
    assert any("OUTAGE: no operation succeeded" in warning for warning in json.loads(out)["warnings"]), out
