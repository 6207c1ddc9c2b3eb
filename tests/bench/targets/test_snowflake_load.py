"""A load on Snowflake: tags, result cache, kinds of tables and names, errors told apart, and what becomes of a lost server."""

import logging
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from types import SimpleNamespace

import pytest

from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.records import FAILED, LOST, OK, TIMED_OUT
from drumbeat.bench.model import ErrorClass, KeyValue, Kind, Load, Statement
from drumbeat.bench.targets.contract import Running, draw, load, operation
from drumbeat.bench.targets.placeholders import scripts
from drumbeat.bench.targets.snowflake import SnowflakeTarget
from drumbeat.bench.targets.snowflake_address import quoted_stored, stored_name
from drumbeat.bench.targets.snowflake_session import IfRunning, TaggedSession, classify, failure_of
from drumbeat.bench.targets.snowflake_tables import quoted, shown_name, snowflake_ddl
from drumbeat.bench.workloads.columns import dialect_of
from drumbeat.bench.workloads.sql_generation import PRESETS, Subject, generate
from drumbeat.core.errors import InvalidInput
from servers.snowflake import PASSWORD, SnowflakeServer

PATIENCE = timedelta(seconds=120)
READ = Statement(sql="SELECT v FROM t WHERE k = $1", values=(KeyValue(low=1, high=3),))


@pytest.fixture
async def target(snowflake: SnowflakeServer) -> AsyncIterator[SnowflakeTarget]:
    async with SnowflakeTarget(snowflake.new_database() + "&tables=hybrid") as opened:
        await opened.define(["CREATE TABLE t (k BIGINT NOT NULL, v INTEGER, PRIMARY KEY (k))"])
        await opened.load_rows("t", ["k", "v"], [(1, 10), (2, 20), (3, 30)])
        yield opened


async def run(target: SnowflakeTarget, given: Load, settings: EngineSettings, count: int = 5) -> Running:
    engine = target.engine(given, draw(), settings)
    await engine.open()
    running = Running(engine, PATIENCE)
    try:
        engine.set_target(1)
        engine.accept(True)
        await running.recorded(count)
        await running.drained()
    finally:
        await engine.close()
    return running


class TestSessions:
    async def test_every_statement_has_a_tag_with_run_worker_and_kind(
        self, snowflake: SnowflakeServer, target: SnowflakeTarget
    ) -> None:
        given = load(operation("LOOKUP", 50, READ), operation("BOTH", 50, READ, READ))

        await run(target, given, EngineSettings(tag="run-7:worker-2"))

        tags = {each.tag for each in snowflake.statements() if each.sql.startswith("SELECT v FROM t")}
        assert tags == {"drumbeat:run-7:worker-2:LOOKUP", "drumbeat:run-7:worker-2:BOTH"}
        assert {each.tag for each in snowflake.statements() if each.sql in ("BEGIN", "COMMIT")} == {
            "drumbeat:::",
            "drumbeat:run-7:worker-2:BOTH",
        }

    @pytest.mark.parametrize(("said", "used"), [(None, "false"), (False, "false"), (True, "true")])
    async def test_results_come_from_the_cache_only_where_that_is_asked_for(
        self, snowflake: SnowflakeServer, target: SnowflakeTarget, said: bool | None, used: str
    ) -> None:
        engine = target.engine(load(operation("LOOKUP", 100, READ)), draw(), EngineSettings(cached_results=said, tag="r:w"))
        await engine.open()
        engine.set_target(1)
        running = Running(engine, PATIENCE)
        await running.until(lambda: engine.open_connections == 1)
        sessions = [each for each in snowflake.state()["sessions"] if each["tag"].startswith("drumbeat:r:w")]
        await engine.close()

        assert [str(each["parameters"]["USE_CACHED_RESULT"]).lower() for each in sessions] == [used]

    async def test_the_server_has_the_timeout_too(self, snowflake: SnowflakeServer, target: SnowflakeTarget) -> None:
        engine = target.engine(
            load(operation("LOOKUP", 100, READ)), draw(), EngineSettings(limit=timedelta(seconds=7.2), tag="r:w")
        )
        await engine.open()
        engine.set_target(1)
        await Running(engine, PATIENCE).until(lambda: engine.open_connections == 1)
        sessions = [each for each in snowflake.state()["sessions"] if each["tag"].startswith("drumbeat:r:w")]
        await engine.close()

        assert [str(each["parameters"]["STATEMENT_TIMEOUT_IN_SECONDS"]) for each in sessions] == ["8"]

    async def test_a_server_that_goes_away_loses_operations_and_is_found_again(
        self, private_snowflake: SnowflakeServer
    ) -> None:
        server = private_snowflake
        async with SnowflakeTarget(server.new_database()) as target:
            engine = target.engine(
                load(operation("ONE", 100, Statement(sql="SELECT 1"))), draw(), EngineSettings(limit=timedelta(seconds=3))
            )
            await engine.open()
            running = Running(engine, PATIENCE)
            engine.set_target(1)
            engine.accept(True)
            await running.recorded(3)
            server.kill()
            await running.until(lambda: bool((running.records["outcome"] != OK).any()))
            server.start()
            failed = len(running.records)
            await running.until(lambda: bool((running.records[failed:]["outcome"] == OK).any()))
            await engine.close()

        bad = running.records[running.records["outcome"] != OK]
        assert set(bad["outcome"].tolist()) <= {LOST, TIMED_OUT}

    def test_a_late_cancellation_does_not_hit_the_next_operation(self) -> None:
        asked: list[IfRunning] = []
        sent: list[str] = []
        made = scripts(load(operation("ONE", 100, Statement(sql="SELECT 1"))))
        session = TaggedSession(_Idle(), made, "r:w", lambda session_id, if_running: asked.append(if_running))

        session.execute(0, [()])
        session.interrupt()
        asked[0](lambda: sent.append("in time"))
        session.interrupt()
        session.execute(0, [()])
        asked[1](lambda: sent.append("too late"))

        assert sent == ["in time"]


class _Idle:
    """A connection whose statements do nothing."""

    session_id = 7
    description = ()
    rowcount = 0

    def cursor(self) -> "_Idle":
        return self

    def execute(self, *arguments: object, **options: object) -> None: ...

    def fetchall(self) -> list[object]:
        return []

    def __enter__(self) -> "_Idle":
        return self

    def __exit__(self, *error: object) -> None: ...


class TestTables:
    @pytest.mark.parametrize(("tables", "kind"), [("standard", "standard"), ("hybrid", "hybrid")])
    async def test_portable_tables_are_made_as_the_kind_that_is_asked_for(
        self, snowflake: SnowflakeServer, tables: str, kind: str
    ) -> None:
        url = snowflake.new_database() + f"&tables={tables}"
        database = url.split("/")[3]
        async with SnowflakeTarget(url) as opened:
            await opened.define(["CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT)", "CREATE INDEX by_v ON t (v)"])
            described = await opened.describe("t")

        assert snowflake.state()["table_kinds"][f"{database}.PUBLIC.T"] == kind
        assert (described.key, described.read_only) == ("k", None)
        assert any("INDEX" in each.sql for each in snowflake.statements()) is (tables == "hybrid")

    async def test_interactive_tables_are_read_and_not_prepared(self, snowflake: SnowflakeServer) -> None:
        async with SnowflakeTarget(snowflake.new_database()) as opened:
            await opened.define(["CREATE TABLE t (k BIGINT PRIMARY KEY, v INTEGER)"])
            await opened.load_rows("t", ["k", "v"], [(n, n) for n in range(1, 20)])
            await opened.define(
                ["CREATE INTERACTIVE TABLE seen (k BIGINT PRIMARY KEY, v INTEGER) CLUSTER BY (k) AS SELECT * FROM t"]
            )
            described = await opened.describe("seen")
            made = generate("mixed", Subject(table=described, dialect=dialect_of("snowflake")), PRESETS["mixed"])
        with pytest.raises(InvalidInput, match="interactive tables are created from a query"):
            async with SnowflakeTarget(snowflake.new_database() + "&tables=interactive") as opened:
                await opened.define(["CREATE TABLE t (k BIGINT PRIMARY KEY)"])

        assert {each.kind for each in made.load.operations} == {Kind.POINT_LOOKUP, Kind.RANGE_SCAN}
        assert made.left_out[Kind.INSERT] == "seen is an interactive table, which can only be read"

    async def test_the_four_standard_statements_run_on_any_table(self, target: SnowflakeTarget) -> None:
        await target.define(
            [
                "CREATE TABLE orders (order_id NUMBER(38,0) PRIMARY KEY, customer VARCHAR(20), total NUMBER(12,2),"
                ' at TIMESTAMP_NTZ, "Mixed Case" INTEGER)'
            ]
        )
        await target.load_rows("orders", ["order_id", "customer", "total"], [(n, f"c{n}", n / 4) for n in range(1, 50)])
        described = await target.describe("orders")
        made = generate("mixed", Subject(table=described, dialect=dialect_of("snowflake")), PRESETS["mixed"])

        running = await run(target, made.load, EngineSettings(), count=24)

        records = running.records
        assert made.left_out == {}
        assert set(records["outcome"].tolist()) == {OK}, running.engine.error_samples
        assert set(records["kind"].tolist()) == {0, 1, 2, 3}
        assert [column.name for column in described.columns][-1] == '"Mixed Case"'

    @pytest.mark.parametrize(
        "name", ["my-table", '"my-table"', '"lower"', '"dotted.name"', 'PUBLIC."my-table"', "public.plain"]
    )
    async def test_a_table_is_described_whether_or_not_its_name_needs_quotes(
        self, snowflake: SnowflakeServer, name: str
    ) -> None:
        async with SnowflakeTarget(snowflake.new_database()) as opened:
            await opened.define([f"CREATE INTERACTIVE TABLE {quoted(name)} CLUSTER BY (k) AS SELECT 1 AS k"])
            described = await opened.describe(name)

        assert described.rows == 1
        assert described.read_only == "is an interactive table, which can only be read"

    @pytest.mark.parametrize("stored", ["T", "lower", "my-table", "dotted.name", 'with "quotes"'])
    def test_a_stored_name_is_shown_as_it_can_be_written(self, stored: str) -> None:
        assert stored_name(shown_name(stored)) == stored
        assert quoted(shown_name(stored)) == quoted_stored(stored)

    @pytest.mark.parametrize(("column", "key"), [('"id"', '"id"'), ('"Order.Id"', '"Order.Id"'), ("id", "id")])
    async def test_the_range_of_a_key_is_found_whether_or_not_its_name_needs_quotes(
        self, target: SnowflakeTarget, column: str, key: str
    ) -> None:
        await target.define([f"CREATE TABLE keyed ({column} BIGINT PRIMARY KEY, v INTEGER)"])
        await target.load_rows("keyed", [column, "v"], [(7, 1), (9, 1)])

        described = await target.describe("keyed")

        assert (described.key, described.key_low, described.key_high) == (key, 7, 9)

    def test_a_table_without_a_key_stays_a_standard_table(self) -> None:
        keyed = ["CREATE TABLE t (k INT PRIMARY KEY)", "CREATE INDEX by_k ON t (k)"]
        keyless = ["create table if not exists h (k INT)", "CREATE INDEX by_h ON h (k)"]

        assert snowflake_ddl([*keyed, *keyless, "DROP TABLE x"], "hybrid") == [
            "CREATE HYBRID TABLE t (k INT PRIMARY KEY)",
            keyed[1],
            keyless[0],
            "DROP TABLE x",
        ]
        assert snowflake_ddl([*keyed, *keyless], "standard") == [keyed[0], keyless[0]]


class TestLoading:
    async def test_a_failed_rollback_does_not_hide_why_the_rows_were_refused(
        self, snowflake: SnowflakeServer, target: SnowflakeTarget
    ) -> None:
        snowflake.fail("^ROLLBACK", number=300002, message="rollback failed")

        with pytest.raises(InvalidInput, match="refused the rows of t: ") as caught:
            await target.load_rows("t", ["k", "v"], [(1, 10)])

        assert "rollback failed" not in str(caught.value)
        assert await target.load_rows("t", ["k", "v"], [(4, 40)]) == 1, "the failed transaction is over"
        assert await target.fetch("SELECT COUNT(*) FROM t") == [(4,)]

    async def test_a_failed_rollback_does_not_hide_an_error_of_the_rows(
        self, snowflake: SnowflakeServer, target: SnowflakeTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def rows() -> Iterator[tuple[int, int]]:
            yield (4, 40)
            raise ValueError("no more rows")

        monkeypatch.setattr("drumbeat.bench.targets.snowflake._ROWS_AT_ONCE", 1)
        snowflake.fail("^ROLLBACK", number=300002, message="rollback failed")

        with pytest.raises(ValueError, match="no more rows"):
            await target.load_rows("t", ["k", "v"], rows())

        assert await target.fetch("SELECT COUNT(*) FROM t") == [(3,)], "the row that was sent is not kept"


class TestErrors:
    @pytest.mark.parametrize(
        ("number", "sqlstate", "outcome", "kind"),
        [
            (200001, "22000", FAILED, ErrorClass.DATABASE_ERROR),  # a key that is there already
            (625, "57014", FAILED, ErrorClass.DATABASE_ERROR),  # a lock was not released in time
            (604, "57014", TIMED_OUT, ErrorClass.QUERY_TIMEOUT),  # cancelled
            (630, "57014", TIMED_OUT, ErrorClass.QUERY_TIMEOUT),  # statement timeout
            (1003, "42000", FAILED, ErrorClass.CONFIGURATION),  # invalid SQL
            (2003, "42S02", FAILED, ErrorClass.CONFIGURATION),  # no such table
            (904, "42000", FAILED, ErrorClass.CONFIGURATION),  # no such column
            (3001, "42501", FAILED, ErrorClass.CONFIGURATION),  # no privilege
            (606, "57P03", FAILED, ErrorClass.CONFIGURATION),  # no warehouse
            (390112, "08001", LOST, ErrorClass.CONNECTION),  # the session has expired
            (390111, None, LOST, ErrorClass.CONNECTION),  # the session is gone
            (-1, "08006", LOST, ErrorClass.CONNECTION),
            (250001, "08001", LOST, ErrorClass.CONNECTION),  # the session could not be renewed
            (4, None, LOST, ErrorClass.CONNECTION),  # the connector's own: no answer after retries
        ],
    )
    def test_errors_are_told_apart_by_number_and_sqlstate(
        self, number: int, sqlstate: str | None, outcome: int, kind: ErrorClass
    ) -> None:
        failure = failure_of(SimpleNamespace(errno=number, sqlstate=sqlstate, raw_msg="said\n so"), 1)

        assert (failure.outcome, failure.statement, str(failure)) == (outcome, 1, "said so")
        assert classify(failure.outcome, failure.code) is kind
        assert failure.code == (f"{number:06d}" if number > 0 else sqlstate)

    async def test_an_error_of_the_server_is_recorded_with_its_number(
        self, snowflake: SnowflakeServer, target: SnowflakeTarget
    ) -> None:
        snowflake.fail("SELECT v FROM t", number=300002, times=1)

        running = await run(target, load(operation("LOOKUP", 100, READ)), EngineSettings(), count=4)

        failed = running.records[running.records["outcome"] == FAILED]
        assert [bytes(state).decode() for state in failed["sqlstate"]] == ["300002"]


async def test_no_secret_is_in_statements_tags_logs_or_errors(
    snowflake: SnowflakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    snowflake.add_user("BENCH", password=PASSWORD)
    async with SnowflakeTarget(snowflake.new_database()) as target:
        await target.define(["CREATE TABLE t (k BIGINT PRIMARY KEY, v INTEGER)"])
        await target.load_rows("t", ["k", "v"], [(1, 1)])
        snowflake.fail("SELECT v FROM t", number=300002)
        running = await run(target, load(operation("LOOKUP", 100, READ)), EngineSettings(tag="r:w"))
        with pytest.raises(InvalidInput) as caught:
            await target.describe("absent")

    said = [f"{each.sql} {each.tag} {each.error}" for each in snowflake.statements()]
    told = [f"{each.message} {each.sql}" for each in running.engine.error_samples]
    parameters = [str(each) for each in snowflake.state()["sessions"]]
    assert len(said) > 5
    assert PASSWORD not in "\n".join([*said, *told, *parameters, str(caught.value), repr(target), caplog.text])
