"""Whoever knows a seed finds its tables: its names, its columns, its words."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.pool import PoolKind
from drumbeat.store import open_store
from drumbeat.store.contract.given import W1, active, new_pool
from drumbeat.store.sql.queries import view_names
from servers.postgres import PostgresServer
from servers.snowflake import SnowflakeServer
from store.scene import CONFIG, EPOCH, RUN, STATE, PostgresSql, SnowflakeSql, Sql, SqliteSql, build, document, when

_LATENCIES = "p50_latency_ms p95_latency_ms p99_latency_ms"

COLUMNS: Mapping[str, str] = {
    "run_status": "run_id test_id template_id test_name scenario_config status phase start_time end_time warmup_start_time "
    "warmup_end_time total_workers_expected workers_registered workers_active workers_completed total_ops error_count "
    "current_qps find_max_state qps_controller_state worker_targets next_sequence_id cancellation_reason completion_reason "
    "custom_metrics created_at updated_at",
    "run_control_events": "event_id run_id event_type event_data sequence_id created_at",
    "worker_heartbeats": "run_id worker_id worker_group_id status phase last_heartbeat heartbeat_count active_connections "
    "target_connections cpu_percent memory_percent queries_processed last_error error_count created_at updated_at",
    "worker_metrics_snapshots": "snapshot_id run_id test_id worker_id worker_group_id worker_group_count timestamp "
    f"elapsed_seconds phase total_queries read_count write_count error_count qps {_LATENCIES} avg_latency_ms min_latency_ms "
    "max_latency_ms active_connections target_connections cpu_percent memory_percent custom_metrics created_at",
    "test_results": "test_id run_id worker_id worker_group_id template_id test_name scenario_name table_name table_type "
    "warehouse warehouse_size status start_time end_time duration_seconds concurrent_connections total_operations "
    "read_operations write_operations failed_operations qps reads_per_second writes_per_second avg_latency_ms "
    f"{_LATENCIES} p90_latency_ms min_latency_ms max_latency_ms error_count error_rate find_max_result failure_reason "
    "completion_reason enrichment_status enrichment_error test_config custom_metrics created_at",
    "query_executions": "execution_id test_id query_id query_text start_time end_time duration_ms rows_affected bytes_scanned "
    "warehouse success error connection_id custom_metadata query_kind worker_id warmup app_elapsed_ms",
    "find_max_step_history": "step_id run_id step_number step_type target_workers from_threads to_threads direction "
    f"step_start_time step_end_time step_duration_seconds total_queries qps target_qps {_LATENCIES} error_count error_rate "
    "qps_vs_prior_pct p95_vs_baseline_pct queue_detected qps_error_pct outcome stop_reason is_probe created_at",
    "test_logs": "log_id run_id test_id worker_id level message details timestamp created_at",
    "test_templates": "template_id template_name description config tags usage_count last_used_at created_at updated_at",
    "worker_registry": "worker_id status host pid capabilities pool_id started_at last_heartbeat current_task_id",
    "work_pool": "id pool_name data status claimed_by claimed_at attempts max_retries result error created_at",
    "orchestrator_status": "timestamp queued_tasks spawning_workers active_workers terminating_workers total_workers",
    "active_workers_health": "id status last_heartbeat heartbeat_age_seconds health_status vram_total_mb vram_used_mb",
    "worker_performance": "id total_tasks completed_tasks failed_tasks success_rate avg_processing_time_seconds uptime_hours",
}


@pytest.fixture(scope="module", params=["sqlite", "postgres", "snowflake"])
async def sql(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sql]:
    """The scene, on each database, for whoever comes without our store."""
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("views") / "drumbeat.db"
        async with open_store(f"sqlite:///{path}", create=True) as store:
            reader: Sql = SqliteSql(path)
            await build(store, reader)
    elif request.param == "snowflake":
        emulator: SnowflakeServer = request.getfixturevalue("_shared_snowflake")
        url = emulator.new_database()
        async with open_store(url, create=True) as store:
            reader = SnowflakeSql(emulator.connect(url.split("/")[3], paramstyle="qmark"))
            await build(store, reader)
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.new_database()
        async with open_store(url, create=True) as store:
            reader = await PostgresSql.connect(url)
            await build(store, reader)
    yield reader
    await reader.close()


async def one(sql: Sql, query: str) -> Mapping[str, Any]:
    (row,) = await sql.rows(query)
    return row


def test_there_is_a_list_of_columns_for_every_view() -> None:
    assert sorted(name.removeprefix("view_") for name in view_names()) == sorted(COLUMNS)


@pytest.mark.parametrize("view", COLUMNS)
async def test_a_view_has_the_seeds_columns(sql: Sql, view: str) -> None:
    columns = list(await sql.columns(view))

    assert sorted(set(COLUMNS[view].split()) - set(columns)) == []
    assert len(columns) == len(set(columns))


@pytest.mark.parametrize("view", COLUMNS)
async def test_a_view_is_found_however_its_name_is_written(sql: Sql, view: str) -> None:
    assert len(await sql.rows(f"SELECT * FROM {view.upper()}")) == len(await sql.rows(f"SELECT * FROM {view}")) > 0


FRACTIONS = {
    "run_status": ["current_qps"],
    "worker_metrics_snapshots": ["elapsed_seconds", "qps", "p95_latency_ms"],
    "test_results": ["duration_seconds", "qps", "reads_per_second", "writes_per_second", "error_rate"],
    "find_max_step_history": ["step_duration_seconds", "qps_error_pct"],
    "active_workers_health": ["heartbeat_age_seconds"],
    "worker_performance": ["uptime_hours"],
}


@pytest.mark.parametrize(("view", "columns"), FRACTIONS.items())
async def test_fractions_are_floats_whatever_the_driver(sql: Sql, view: str, columns: list[str]) -> None:
    row = (await sql.rows(f"SELECT * FROM {view}"))[0]

    assert {type(row[name]) for name in columns} == {float}


async def test_run_status(sql: Sql) -> None:
    row = await one(sql, "SELECT * FROM run_status")

    assert (row["run_id"], row["test_id"], row["test_name"], row["template_id"]) == (RUN, RUN, "a run", "t1")
    assert (row["status"], row["phase"]) == ("RUNNING", "MEASUREMENT")
    assert (row["total_ops"], row["error_count"], row["current_qps"]) == (100, 3, 12.5)
    assert document(row["scenario_config"]) == CONFIG
    assert document(row["find_max_state"]) == STATE["find_max"]
    assert document(row["qps_controller_state"]) == STATE["qps"]
    assert document(row["custom_metrics"]) == {"note": "x"}
    assert when(row["created_at"]) <= when(row["start_time"]) <= when(row["warmup_start_time"]) <= when(row["warmup_end_time"])
    assert when(row["updated_at"]) >= when(row["start_time"])
    assert (row["end_time"], row["cancellation_reason"], row["completion_reason"]) == (None, None, None)


async def test_run_status_counts_its_workers(sql: Sql) -> None:
    row = await one(sql, "SELECT * FROM run_status")

    assert row["total_workers_expected"] == 8
    assert row["workers_registered"] == 7
    assert row["workers_active"] == 2
    assert row["workers_completed"] == 2


async def test_run_status_knows_the_next_event_and_every_target(sql: Sql) -> None:
    row = await one(sql, "SELECT * FROM run_status")
    told = await one(sql, "SELECT * FROM run_control_events WHERE event_type = 'SET_WORKER_TARGET'")
    last = await one(sql, "SELECT MAX(sequence_id) AS n FROM run_control_events")

    targets = document(row["worker_targets"])
    assert row["next_sequence_id"] == last["n"] + 1
    assert targets["active"] == {"target": 5, "target_connections": 5, "seq": told["sequence_id"]}
    assert targets["waiting"]["target_connections"] == 0


@pytest.mark.parametrize(
    ("event_type", "expected"),
    [
        ("START", {"expected_workers": 8, "scope": "RUN", "worker_id": None, "worker_group_id": None}),
        ("X", {"answer": 42, "nothing": None, "scope": "WORKER_GROUP", "worker_id": None, "worker_group_id": 2}),
        (
            "SET_WORKER_TARGET",
            {
                "target_connections": 5,
                "ramp_seconds": 1.0,
                "reason": "more",
                "scope": "WORKER",
                "worker_id": "active",
                "worker_group_id": None,
            },
        ),
    ],
)
async def test_an_events_scope_is_in_its_data(sql: Sql, event_type: str, expected: Mapping[str, Any]) -> None:
    row = await one(sql, f"SELECT * FROM run_control_events WHERE event_type = '{event_type}'")

    assert document(row["event_data"]) == expected
    assert row["event_id"] == f"{RUN}/{row['sequence_id']}"


async def test_what_an_event_says_itself_counts_more(sql: Sql) -> None:
    """A worker's move is told to all, and names the worker in its payload; its first one came from nowhere."""
    rows = await sql.rows("SELECT * FROM run_control_events WHERE event_type = 'WORKER_MOVED' ORDER BY sequence_id")

    first = document(rows[0]["event_data"])
    assert (first["scope"], first["worker_id"], first["worker_group_id"]) == ("RUN", "spawning", 0)
    assert (first["from"], first["to"]) == (None, "spawning")


async def test_events_are_numbered_without_a_gap(sql: Sql) -> None:
    rows = await sql.rows("SELECT sequence_id FROM run_control_events ORDER BY sequence_id")

    assert [row["sequence_id"] for row in rows] == list(range(1, len(rows) + 1))


BENCH_WORDS = {
    "starting": "STARTING",
    "waiting": "WAITING",
    "active": "RUNNING",
    "draining": "DRAINING",
    "terminated": "COMPLETED",
    "error": "DEAD",
    "lost": "DEAD",
}
POOL_WORDS = {
    "starting": "active",
    "waiting": "active",
    "active": "active",
    "draining": "terminating",
    "terminated": "terminated",
    "error": "lost",
    "lost": "lost",
}
FLEET_COUNTS = ("spawning_workers", "active_workers", "terminating_workers", "total_workers")
FLEET_WORDS = {"starting": "spawning", "waiting": "active", "active": "active", "draining": "terminating"}


@pytest.mark.parametrize(
    ("view", "name", "words"),
    [
        ("worker_heartbeats", "worker_id", BENCH_WORDS),
        ("worker_registry", "worker_id", POOL_WORDS),
        ("active_workers_health", "id", FLEET_WORDS),
    ],
)
async def test_every_state_has_its_word_in_each_seed(sql: Sql, view: str, name: str, words: Mapping[str, str]) -> None:
    """Rows that no process ever joined are not shown: in the seeds a worker's row begins with its first heartbeat."""
    rows = await sql.rows(f"SELECT * FROM {view}")

    assert {row[name]: row["status"] for row in rows} == words


async def test_worker_heartbeats(sql: Sql) -> None:
    row = await one(sql, "SELECT * FROM worker_heartbeats WHERE worker_id = 'active'")

    assert (row["run_id"], row["worker_group_id"], row["phase"]) == (RUN, 3, "COOLDOWN")
    assert (row["active_connections"], row["target_connections"], row["heartbeat_count"]) == (0, 5, 5)
    assert (row["queries_processed"], row["error_count"], row["last_error"]) == (50, 2, "timeout")
    assert (row["cpu_percent"], row["memory_percent"]) == (12.5, 34.5)
    assert when(row["created_at"]) <= when(row["last_heartbeat"]) == when(row["updated_at"])


async def test_snapshots_count_from_the_beginning_of_measurement(sql: Sql) -> None:
    rows = await sql.rows("SELECT * FROM worker_metrics_snapshots ORDER BY snapshot_id")

    counts = ("total_queries", "read_count", "write_count", "error_count")
    assert [(row["phase"], *(row[name] for name in counts)) for row in rows] == [
        ("WARMUP", 0, 0, 0, 0),
        ("MEASUREMENT", 20, 15, 5, 1),
        ("MEASUREMENT", 50, 40, 10, 1),
        ("COOLDOWN", 50, 40, 10, 1),
    ]


async def test_snapshots_tell_rate_and_latency_of_their_own_interval(sql: Sql) -> None:
    row = (await sql.rows("SELECT * FROM worker_metrics_snapshots ORDER BY snapshot_id"))[1]

    assert (row["run_id"], row["test_id"], row["worker_id"]) == (RUN, f"{RUN}/active", "active")
    assert (row["worker_group_id"], row["worker_group_count"]) == (3, 8)
    assert (row["qps"], row["active_connections"], row["target_connections"], row["cpu_percent"]) == (20, 4, 5, 50)
    for name in ("p50", "p95", "p99", "avg", "min", "max"):
        assert row[f"{name}_latency_ms"] == pytest.approx(2, rel=0.01)
    assert 0 <= row["elapsed_seconds"] < 3600


async def test_snapshots_keep_custom_metrics(sql: Sql) -> None:
    rows = await sql.rows("SELECT * FROM worker_metrics_snapshots ORDER BY snapshot_id")

    assert [document(row["custom_metrics"]) for row in rows] == [{}, {}, {"k": 1}, {}]


async def test_results_have_a_row_for_the_run_and_one_for_each_worker(sql: Sql) -> None:
    parent, child = await sql.rows("SELECT * FROM test_results ORDER BY test_id")

    assert (parent["test_id"], parent["worker_id"], parent["worker_group_id"]) == (RUN, None, None)
    assert (child["test_id"], child["worker_id"], child["worker_group_id"]) == (f"{RUN}/active", "active", 3)
    assert {row["run_id"] for row in (parent, child)} == {RUN}


async def test_test_results(sql: Sql) -> None:
    row = await one(sql, f"SELECT * FROM test_results WHERE test_id = '{RUN}'")

    assert {name: row[name] for name in CONFIG} == CONFIG
    assert (row["total_operations"], row["read_operations"], row["write_operations"]) == (200, 150, 50)
    assert (row["failed_operations"], row["error_count"], row["error_rate"]) == (4, 4, pytest.approx(0.02))
    assert (row["qps"], row["reads_per_second"], row["writes_per_second"]) == (20, 15, 5)
    assert (row["duration_seconds"], row["p95_latency_ms"]) == (10, 9.5)
    assert (when(row["start_time"]), when(row["end_time"])) == (EPOCH, EPOCH + timedelta(seconds=10))
    assert document(row["test_config"]) == CONFIG


async def test_query_executions(sql: Sql) -> None:
    row = await one(sql, "SELECT * FROM query_executions")

    assert (row["execution_id"], row["test_id"]) == (f"{RUN}/active/1", f"{RUN}/active")
    assert row["query_id"].startswith("LOCAL_")
    assert (row["query_kind"], row["query_text"], row["connection_id"]) == ("POINT_LOOKUP", "SELECT 1", 3)
    assert (row["success"], row["warmup"], row["warehouse"]) == (1, 0, "wh")
    assert when(row["end_time"]) - when(row["start_time"]) == pytest.approx(
        timedelta(milliseconds=2.5), abs=timedelta(milliseconds=1)
    )


async def test_step_history_is_find_maxs_alone(sql: Sql) -> None:
    row = await one(sql, "SELECT * FROM find_max_step_history")

    assert (row["step_id"], row["step_number"], row["step_type"]) == (f"{RUN}/1", 1, "FIND_MAX")
    assert (row["from_threads"], row["to_threads"], row["target_workers"], row["direction"]) == (10, 20, 20, "up")
    assert (row["total_queries"], row["qps"], row["qps_error_pct"]) == (500, 90, -10)
    assert (row["p95_latency_ms"], row["error_count"], row["error_rate"]) == (7.5, 5, 0.01)
    assert (row["outcome"], row["stop_reason"], row["step_duration_seconds"]) == ("STABLE", "advanced", 10)
    assert (row["queue_detected"], row["is_probe"], when(row["step_start_time"])) == (0, 0, EPOCH)


async def test_test_logs(sql: Sql) -> None:
    failed, hello = await sql.rows("SELECT * FROM test_logs ORDER BY log_id")

    assert (failed["run_id"], failed["worker_id"], failed["test_id"]) == (RUN, "error", f"{RUN}/error")
    assert (failed["level"], failed["message"], failed["exception"]) == ("ERROR", "it broke", "E")
    assert document(failed["details"]) == {"exception": "E", "n": 1}
    assert (hello["worker_id"], hello["test_id"], hello["details"]) == (None, None, None)


async def test_test_templates(sql: Sql) -> None:
    row = await one(sql, "SELECT * FROM test_templates")

    assert (row["template_id"], row["template_name"], row["usage_count"]) == ("t1", "smoke", 2)
    assert (document(row["config"]), document(row["tags"])) == ({"a": 1}, ["x"])
    assert when(row["created_at"]) <= when(row["last_used_at"])


async def test_worker_registry_knows_who_holds_what(sql: Sql) -> None:
    rows = {row["worker_id"]: row for row in await sql.rows("SELECT * FROM worker_registry")}

    assert {name: row["current_task_id"] for name, row in rows.items() if row["current_task_id"]} == {"active": "j3"}
    assert (rows["active"]["host"], rows["active"]["pid"], rows["active"]["pool_id"]) == ("host-1", 4711, RUN)
    assert document(rows["active"]["capabilities"]) == []
    assert all(when(row["started_at"]) and when(row["last_heartbeat"]) for row in rows.values())


async def test_work_pool(sql: Sql) -> None:
    rows = {row["id"]: row for row in await sql.rows("SELECT * FROM work_pool")}

    assert {name: row["status"] for name, row in rows.items()} == {
        "j1": "pending",
        "j2": "pending",
        "j3": "claimed",
        "j4": "done",
        "j5": "poisoned",
    }
    assert (rows["j3"]["claimed_by"], when(rows["j3"]["claimed_at"])) == ("active", EPOCH + timedelta(seconds=1))
    assert (rows["j4"]["attempts"], rows["j4"]["max_retries"], document(rows["j4"]["result"])) == (2, 3, {"ok": True})
    assert (rows["j5"]["error"], document(rows["j5"]["data"]), rows["j5"]["pool_name"]) == ("bad", {"n": 1}, RUN)


async def test_orchestrator_status(sql: Sql) -> None:
    row = await one(sql, f"SELECT * FROM orchestrator_status WHERE pool_id = '{RUN}'")

    assert (row["queued_tasks"], row["in_progress_tasks"]) == (2, 1)
    assert (row["spawning_workers"], row["active_workers"], row["terminating_workers"]) == (2, 2, 1)
    assert (row["total_workers"], row["stale_workers"]) == (5, 2)
    assert isinstance(row["queued_tasks"], int)
    assert when(row["timestamp"]) >= when((await one(sql, "SELECT * FROM run_status"))["updated_at"])


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_whoever_is_told_to_leave_is_terminating(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Also while its row says active: it hears of it with its next heartbeat. Its namesake in another pool stays active."""
    path = tmp_path / "drumbeat.db"
    url = f"sqlite:///{path}" if database == "sqlite" else request.getfixturevalue("postgres").new_database()
    async with open_store(url, create=True) as store:
        homes = [await store.pools.create(new_pool(PoolKind.FLEET)) for _ in range(3)]
        for home in homes:
            await active(store, home)
        await store.workers.ask_to_drain(homes[1].pool_id, [W1], "no longer needed", timedelta(minutes=1))
        sql: Sql = SqliteSql(path) if database == "sqlite" else await PostgresSql.connect(url)
        counted = {row["pool_id"]: row for row in await sql.rows("SELECT * FROM orchestrator_status")}
        words = [
            {row["pool_id"]: row["status"] for row in await sql.rows(f"SELECT pool_id, status FROM {view}")}
            for view in ("worker_registry", "active_workers_health")
        ]
        await sql.close()

    figures = [[counted[home.pool_id][name] for name in FLEET_COUNTS] for home in homes]
    assert figures == [[0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 0, 1]]
    assert [[seen[home.pool_id] for home in homes] for seen in words] == [["active", "terminating", "active"]] * 2


async def test_active_workers_health(sql: Sql) -> None:
    rows = {row["id"]: row for row in await sql.rows("SELECT * FROM active_workers_health")}

    assert {name: row["health_status"] for name, row in rows.items()} == {
        "starting": "HEALTHY",
        "waiting": "STALE",
        "active": "HEALTHY",
        "draining": "DEAD",
    }
    assert 7200 <= rows["waiting"]["heartbeat_age_seconds"] < 10_800
    assert (rows["active"]["running_tasks"], rows["waiting"]["running_tasks"]) == (1, 0)
    assert [int(rows["active"][name]) for name in ("vram_total_mb", "vram_used_mb")] == [8000, 1000]


async def test_worker_performance(sql: Sql) -> None:
    rows = {row["id"]: row for row in await sql.rows("SELECT * FROM worker_performance")}

    active = rows["active"]
    assert (active["total_tasks"], active["completed_tasks"], active["failed_tasks"]) == (5, 1, 1), (
        "one runs, one was suspended, one was released"
    )
    assert (active["success_rate"], active["avg_processing_time_seconds"]) == (0.5, 2.0)
    assert 0 <= active["uptime_hours"] < 1
    assert (rows["waiting"]["total_tasks"], rows["waiting"]["success_rate"]) == (0, None)
