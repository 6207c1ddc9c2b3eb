"""Whole runs by real processes: whoever is killed, the run ends as it should and its figures are those of every operation."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from drumbeat.core.run import Phase, RunStatus
from drumbeat.core.worker import WorkerId, WorkerStatus
from e2e.bench import Bench, bench, document, fill, left, output, sql
from e2e.processes import eventually
from servers.postgres import PostgresServer
from thorough import THOROUGH

pytestmark = pytest.mark.slow

EVERY_PHASE = [Phase.PREPARING, Phase.WARMUP, Phase.MEASUREMENT, Phase.COOLDOWN, Phase.PROCESSING]
PHASES = EVERY_PHASE if THOROUGH else EVERY_PHASE[::2]  #: every call of every phase is died at in simulate/test_bench_faults.py


async def check_figures(made: Bench) -> None:
    """The run's totals are the operations that were recorded, and so is its p99."""
    run, results, operations = await made.the_run(), await made.results(), await made.operations()
    whole = results[0]
    assert whole.operations == run.operations == len(operations) > 0
    each = [row for row in results if row.worker_id is not None and row.kind is None]
    assert whole.operations == sum(row.operations for row in each)
    times = [row["response_us"] * 1000 for row in operations if row["ok"]]
    assert whole.latency.percentiles_ns([99])[0] == pytest.approx(np.percentile(times, 99, method="inverted_cdf"), rel=0.01)


async def killed_in(phase: Phase, made: Bench, target: str) -> None:
    """Kill -9 the orchestrator in a phase; another one, in another process, brings the run to its end."""
    first = made.run(document(target), "--json")
    await made.reaches(phase)
    first.kill()
    before = {row.worker_id: row.pid for row in await made.workers() if row.pid is not None}

    code, out, err = await output(made.command("orchestrate", "--once"))

    run = await made.the_run()
    assert (code, run.status, run.completion_reason) == (0, RunStatus.COMPLETED, "DURATION"), (phase, out, err, run)
    after = {row.worker_id: row.pid for row in await made.workers()}
    assert before.items() <= after.items()
    assert len(after) == 2
    assert not left(run.run_id)
    await check_figures(made)


async def test_an_orchestrator_killed_in_any_phase_is_succeeded_and_every_operation_is_counted(
    new_database: Callable[[], str], tmp_path: Path
) -> None:
    async def go(phase: Phase, name: str, url: str) -> None:
        async with bench(url, tmp_path / name) as made:
            await killed_in(phase, made, await fill(new_database()))

    await asyncio.gather(
        *(go(phase, phase, f"sqlite:///{tmp_path / phase}/drumbeat.db") for phase in PHASES),
        go(Phase.MEASUREMENT, "store on PostgreSQL", new_database()),
    )


async def test_ctrl_c_cancels_the_run_and_leaves_nobody(postgres_url: str, tmp_path: Path) -> None:
    async with bench(f"sqlite:///{tmp_path}/drumbeat.db", tmp_path) as made:
        command = made.run(document(await fill(postgres_url), timing={"warmup_seconds": 0, "duration_seconds": 600}), "--json")
        await made.all_active(2)
        command.send_signal(signal.SIGINT)
        code, out, err = await output(command)
        run = await made.the_run()

    assert (code, run.status, run.completion_reason) == (3, RunStatus.CANCELLED, "USER"), err
    assert json.loads(out)["run"]["status"] == "CANCELLED"
    assert not left(run.run_id)
    assert "Traceback" not in err


@pytest.mark.soak
async def test_workers_left_by_a_killed_orchestrator_end_when_the_run_is_stopped(postgres_url: str, tmp_path: Path) -> None:
    async with bench(f"sqlite:///{tmp_path}/drumbeat.db", tmp_path) as made:
        command = made.run(document(await fill(postgres_url), timing={"warmup_seconds": 0, "duration_seconds": 600}), "--json")
        await made.all_active(2)
        command.kill()
        code, out, err = await output(made.command("stop", (await made.the_run()).run_id))
        run = await made.the_run()

    assert (code, run.status) == (0, RunStatus.CANCELLED), err
    assert f"{run.run_id} is CANCELLED" in out
    assert not left(run.run_id)


async def test_a_worker_killed_means_what_the_policy_says(new_database: Callable[[], str], tmp_path: Path) -> None:
    async def go(policy: str, status: RunStatus, reason: str, code: int, workers: int) -> None:
        folder = tmp_path / policy.replace(":", "-")
        async with bench(f"sqlite:///{folder}/drumbeat.db", folder) as made:
            timing = {"warmup_seconds": 0, "duration_seconds": 6}
            command = made.run(document(await fill(new_database()), timing=timing, on_worker_lost=policy), "--json")
            await made.all_active(2)
            pids = {row.worker_id: row.pid or 0 for row in await made.workers()}
            os.kill(pids[WorkerId("worker-1")], signal.SIGKILL)
            ended, _, err = await output(command)
            run, rows = await made.the_run(), await made.workers()

        assert (run.status, run.completion_reason, ended) == (status, reason, code), (policy, err, run)
        assert [row.slot for row in rows] == list(range(workers))
        assert not left(run.run_id)

    await asyncio.gather(
        go("fail", RunStatus.FAILED, "WORKER_LOST", 3, 2),
        go("tolerate:1", RunStatus.COMPLETED, "DURATION", 0, 2),
        go("replace", RunStatus.COMPLETED, "DURATION", 0, 3),
    )


async def test_sharded_workers_ask_for_keys_of_their_own_partition(postgres_url: str, tmp_path: Path) -> None:
    await sql(postgres_url, "CREATE TABLE asked (k bigint, client int)")
    asked = {
        "kind": "ASK",
        "weight": 100,
        "sql": "INSERT INTO asked (k, client) VALUES ($1, pg_backend_pid())",
        "values": [{"key": {"low": 1, "high": 1000}}],
    }
    sharding = {"enabled": True, "total_partitions": 2, "key_column": "K", "key_range": [1, 1000]}
    given = document(postgres_url, workload={"operations": [asked], "think_time_ms": 20}, sharding=sharding)
    async with bench(f"sqlite:///{tmp_path}/drumbeat.db", tmp_path) as made:
        code, _, err = await output(made.run(given, "--json"))

    assert code == 0, err
    mixed = "SELECT count(*) FROM (SELECT client FROM asked GROUP BY client HAVING min(k) <= 500 AND max(k) > 500) both_halves"
    assert await sql(postgres_url, mixed) == 0
    assert await sql(postgres_url, "SELECT count(DISTINCT k <= 500) FROM asked") == 2


@pytest.mark.soak
async def test_a_missed_throughput_ends_run_and_watch_with_the_same_code(postgres_url: str, tmp_path: Path) -> None:
    """Eight connections that sleep between operations never reach a million operations a second."""
    missed = document(
        await fill(postgres_url), load_mode="QPS", target_qps=1_000_000, timing={"warmup_seconds": 0, "duration_seconds": 3}
    )
    async with bench(f"sqlite:///{tmp_path}/drumbeat.db", tmp_path) as made:
        attached, told, err = await output(made.run(missed, "--json"))
        started, out, _ = await output(made.run(missed, "--json", "--detach"))
        watching = made.command("watch", json.loads(out)["run_id"], "--exit-status")
        await output(made.command("orchestrate", "--once"))
        detached, shown, _ = await output(watching)

    assert (attached, started, detached) == (4, 0, 4), err
    assert json.loads(told)["verdict"] == "MISSED"
    assert "verdict: MISSED: throughput: " in shown


async def test_a_store_that_is_away_in_the_middle_and_at_the_end_costs_no_operation(
    private_postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    slow = {"operations": [{"kind": "NAP", "weight": 100, "sql": "SELECT pg_sleep(1.5)", "reads": True}]}
    timing = {"warmup_seconds": 1, "duration_seconds": 10}
    async with bench(private_postgres.new_database(), tmp_path) as made:
        command = made.run(document(postgres_url, workload=slow, timing=timing), "--json")
        await made.measures("operations", 1)
        await away(private_postgres)
        await eventually(partial(is_draining, made), "a worker drains")
        await away(private_postgres)
        code, _, err = await output(command)
        run, results = await made.the_run(), await made.results()

        assert (code, run.status, run.completion_reason) == (0, RunStatus.COMPLETED, "DURATION"), err
        assert not left(run.run_id)
        assert not any(row.custom_metrics.get("from_samples") for row in results), "every worker said itself what it did"
        await check_figures(made)


async def away(server: PostgresServer) -> None:
    server.stop()
    await asyncio.sleep(3)
    server.start()


async def is_draining(made: Bench) -> bool:
    """Whether a worker has been told to come to its end; on a busy machine it may have ended already."""
    return any(row.status is not WorkerStatus.ACTIVE for row in await made.workers())
