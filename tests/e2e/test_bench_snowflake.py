"""Runs on Snowflake by ordinary commands: real processes, the real connector, an emulated account, a store in PostgreSQL."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.run import RunStatus
from e2e.bench import INSERT, LOOKUP, Bench, bench, document, output, sql
from servers.snowflake import PASSWORD, SnowflakeServer

pytestmark = pytest.mark.slow

_SECRET = {"DRUMBEAT_TARGET_PASSWORD": PASSWORD}


def fill(server: SnowflakeServer) -> str:
    """A hybrid table with rows; answers with the URL of its database, without a password."""
    database = server.new_database().split("/")[3]
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE HYBRID TABLE t (k BIGINT PRIMARY KEY, v INT)")
        cursor.execute("INSERT INTO t SELECT SEQ4() + 1, 0 FROM TABLE(GENERATOR(ROWCOUNT => 1000))")
    server.forget()
    return server.url(database, password=None)


def given(url: str, **changes: Any) -> dict[str, Any]:
    one = {"mode": "FIXED", "min_workers": 1, "min_connections": 2}
    return {**document(url), "scaling": one, "guardrails": {"enabled": False}, **changes}


async def conducted(made: Bench, template: Mapping[str, Any], *options: str) -> tuple[int, str]:
    code, out, err = await output(made.run(template, *options))
    assert PASSWORD not in out + err
    return code, out + err


async def test_a_run_is_measured_tagged_enriched_and_priced(
    snowflake: SnowflakeServer, new_database: Callable[[], str], tmp_path: Path
) -> None:
    url = fill(snowflake)
    snowflake.command("warehouse", name="COMPUTE_WH", size="X-Small", changes=[])
    snowflake.queue("SELECT v FROM t", overload_ms=30)
    async with bench(new_database(), tmp_path, _SECRET) as made:
        template = given(url, prices={"credit": 3.0}, target={"url": url, "warehouse": {"size": "Small"}})
        code, said = await conducted(made, template)
        run, (whole, *_) = await made.the_run(), await made.results()
        stored = await everything_in(made.url)

    assert (code, run.status) == (0, RunStatus.COMPLETED), said
    assert whole.operations > 0
    assert whole.errors == 0
    tags = {each.tag for each in snowflake.statements() if each.sql.startswith("SELECT v FROM t")}
    worker = next(iter(tags)).split(":")[2]
    assert tags == {f"drumbeat:{run.run_id}:{worker}:POINT_LOOKUP"}
    server = whole.custom_metrics["server"]
    assert whole.enrichment_status == "COMPLETED", whole.enrichment_error
    assert server["measurement"]["POINT_LOOKUP.queued_overload_time"] >= 30
    assert server["credits"]["estimated"] > 0
    assert whole.custom_metrics["cost"]["total"] == pytest.approx(3.0 * server["credits"]["estimated"])
    assert snowflake.state()["warehouses"]["COMPUTE_WH"]["changes"] == [
        "ALTER WAREHOUSE \"COMPUTE_WH\" SET WAREHOUSE_SIZE = 'SMALL'"
    ]
    assert run.run_id in stored
    assert PASSWORD not in stored + json.dumps([each.sql + each.tag + str(each.error) for each in snowflake.statements()])


async def everything_in(url: str) -> str:
    """All rows of all tables of a store in PostgreSQL, as text."""
    names = await sql(url, "SELECT array_agg(table_name::text) FROM information_schema.tables WHERE table_schema = 'drumbeat'")
    return "".join([str(await sql(url, f"SELECT string_agg(t::text, ' ') FROM drumbeat.{name} t")) for name in names])


async def test_a_rate_is_held(snowflake: SnowflakeServer, new_database: Callable[[], str], tmp_path: Path) -> None:
    template = given(fill(snowflake), load_mode="QPS", target_qps=10, scaling={"mode": "BOUNDED", "max_workers": 1})
    async with bench(new_database(), tmp_path, _SECRET) as made:
        _, said = await conducted(made, template)
        run, (whole, *_) = await made.the_run(), await made.results()

    assert run.status is RunStatus.COMPLETED, said
    assert whole.operations > 0


async def test_a_search_ends_where_the_warehouse_queues(
    snowflake: SnowflakeServer, new_database: Callable[[], str], tmp_path: Path
) -> None:
    url = fill(snowflake).replace("COMPUTE_WH", "SEARCH_WH")
    snowflake.command("warehouse", name="SEARCH_WH", slots=2, service_seconds=0.3)
    template = given(
        url,
        workload={"operations": [{**LOOKUP, "weight": 50}, {**INSERT, "weight": 50}]},
        load_mode="FIND_MAX_CONCURRENCY",
        find_max={
            "start_connections": 2,
            "connections_increment": 8,
            "step_duration_seconds": 10,
            "qps_stability_pct": 50,
            "latency_stability_pct": 100,
        },
        scaling={"mode": "BOUNDED", "max_workers": 1, "max_connections": 10},
    )
    async with bench(new_database(), tmp_path, _SECRET) as made:
        _, said = await conducted(made, template)
        run, (whole, *_) = await made.the_run(), await made.results()
        steps = await made.store.steps.list(run.run_id)

    assert run.status is RunStatus.COMPLETED, said
    assert "QUEUE_DETECTED" in {step.outcome for step in steps}, [(step.to_target, step.outcome, step.reason) for step in steps]
    assert 2 <= (whole.find_max_result or {})["best_connections"] < 10


async def test_another_orchestrator_ends_a_run_whose_first_was_killed(
    snowflake: SnowflakeServer, new_database: Callable[[], str], tmp_path: Path
) -> None:
    async with bench(new_database(), tmp_path, _SECRET) as made:
        first = made.run(given(fill(snowflake), timing={"warmup_seconds": 1, "duration_seconds": 15}))
        await made.reaches("MEASUREMENT")
        first.kill()
        code, _, err = await output(made.command("orchestrate", "--once"))
        run, (whole, *_) = await made.the_run(), await made.results()

    assert code == 0, err
    assert run.status is RunStatus.COMPLETED
    assert whole.operations > 0
    assert whole.enrichment_status in ("COMPLETED", "PENDING"), whole.enrichment_error
