"""A benchmark whose store is Snowflake, by ordinary commands: its orchestrator is killed, and another one ends it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drumbeat.core.run import Phase, RunStatus
from drumbeat.core.store_url import PASSWORD_VARIABLE
from e2e.bench import LOOKUP, bench, document, fill, left, output
from e2e.test_bench_runs import check_figures
from e2e.test_bench_snowflake import fill as fill_snowflake
from servers.snowflake import PASSWORD, SnowflakeServer

pytestmark = pytest.mark.slow

ON_SNOWFLAKE = {"operations": [{**LOOKUP, "weight": 100}], "think_time_ms": 200}
UNHURRIED = {"warmup_seconds": 5, "duration_seconds": 30}  #: workers and orchestrators beat every 5 s there


async def test_a_run_outlives_its_orchestrator(
    snowflake: SnowflakeServer, new_database: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    async with bench(snowflake.url("BENCH_STORE", password=None), tmp_path) as made:
        first = made.run(document(await fill(new_database()), timing=UNHURRIED), "--json")
        await made.reaches(Phase.MEASUREMENT)
        first.kill()

        code, out, err = await output(made.command("orchestrate", "--once"))

        run = await made.the_run()
        assert (code, run.status, run.completion_reason) == (0, RunStatus.COMPLETED, "DURATION"), (out, err, run)
        assert len(await made.workers()) == 2
        assert not left(run.run_id)
        await check_figures(made)
    assert PASSWORD not in out + err + "".join(map(str, snowflake.statements()))


async def test_store_and_target_may_be_of_one_account(
    snowflake: SnowflakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    monkeypatch.setenv("DRUMBEAT_TARGET_PASSWORD", PASSWORD)
    async with bench(snowflake.url("ONE_STORE", password=None), tmp_path) as made:
        target = fill_snowflake(snowflake)
        first = made.run(document(target, timing=UNHURRIED, workload=ON_SNOWFLAKE, guardrails={"enabled": False}))
        await made.reaches(Phase.MEASUREMENT)
        first.kill()

        code, out, err = await output(made.command("orchestrate", "--once"))

        run, (whole, *_) = await made.the_run(), await made.results()
    assert (code, run.status, run.completion_reason) == (0, RunStatus.COMPLETED, "DURATION"), (out, err, run)
    assert not left(run.run_id)
    assert whole.operations > 0
    assert whole.errors == 0
    assert {each.tag.split(":")[0] for each in snowflake.statements() if "FROM t " in each.sql} == {"drumbeat"}
    assert PASSWORD not in out + err + "".join(map(str, snowflake.statements()))
