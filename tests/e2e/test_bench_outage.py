"""A database that goes away while it is measured: the run says for how long, and is judged by it."""

import json
from functools import partial
from pathlib import Path

import pytest

from drumbeat.core.pool import PoolId
from drumbeat.core.run import Phase, RunStatus
from e2e.bench import Bench, bench, document, fill, output
from e2e.processes import eventually
from servers.postgres import PostgresServer

pytestmark = pytest.mark.slow


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
        await made.reaches(Phase.MEASUREMENT)
        await eventually(partial(told, made, "operations", 3), 60, "three samples tell of operations")
        private_postgres.kill()
        await eventually(partial(told, made, "failed_connects", 4), 60, "four samples tell of connections that failed")
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
    assert "began its totals again" in server.get("note", ""), server["measurement"]["server.resets"]
    assert any("OUTAGE: no operation succeeded" in warning for warning in json.loads(out)["warnings"]), out


async def told(made: Bench, what: str, samples: int) -> bool:
    """Whether so many samples of the measurement tell of operations that went well, or of connections that failed."""
    run = await made.the_run()
    assert run.warmup_ended_at is not None
    found = await made.store.samples.list(PoolId(run.run_id), since=run.warmup_ended_at, limit=10_000)
    counted = [sample.operations if what == "operations" else int(sample.extra.get(what) or 0) for sample in found]
    return sum(count > 0 for count in counted) >= samples
