"""MariaDB as a target keeps the contract; over TLS, with passwords, and when it goes away."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.records import FAILED, LOST, OK, TIMED_OUT
from drumbeat.bench.model import ErrorClass, KeyValue, Statement
from drumbeat.bench.targets.contract import Running, TargetContract, draw, load, operation, seconds
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.mysql import MysqlTarget, classify, mysql_ddl, signals_of
from drumbeat.bench.targets.mysql_session import failure_of
from drumbeat.core.errors import InvalidInput, InvalidSettings
from servers.mariadb import PASSWORD, MariaDbServer
from servers.places import memory_folder

ONE = load(operation("ONE", 100, Statement(sql="SELECT $1", values=(KeyValue(low=1, high=9),))))


class TestMariaDb(TargetContract):
    slow_sql = "SELECT SLEEP(60)"

    @pytest.fixture
    async def target(self, mariadb_url: str) -> AsyncIterator[Target]:
        async with MysqlTarget(mariadb_url) as target:
            yield target


@pytest.fixture
def private_mariadb() -> Iterator[MariaDbServer]:
    """A server of the test's own, to stop, kill and pause; there is one only where the shared one could be had."""
    with MariaDbServer(folder=memory_folder()) as server:
        yield server


class TestLogin:
    async def test_a_wrong_password_is_refused_and_never_shown(self, mariadb: MariaDbServer, mariadb_url: str) -> None:
        target = MysqlTarget(mariadb_url.replace(mariadb.url("x").split("@")[0], "mysql://bench:hunter2"))

        with pytest.raises(InvalidSettings, match="refused user 'bench'") as caught:
            await target.__aenter__()
        with pytest.raises(InvalidSettings, match="refused user 'bench'"):
            await target.engine(ONE, draw(), EngineSettings()).open()

        assert "hunter2" not in "".join(traceback.format_exception(caught.value))

    async def test_without_a_password_it_says_where_to_give_one(
        self, mariadb: MariaDbServer, mariadb_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("DRUMBEAT_TARGET_PASSWORD", raising=False)
        database = mariadb_url.rpartition("/")[2]

        with pytest.raises(InvalidSettings, match="if a password is needed, set DRUMBEAT_TARGET_PASSWORD"):
            await MysqlTarget(mariadb.url(database, password=None)).__aenter__()

    async def test_a_password_comes_from_the_environment_too(
        self, mariadb: MariaDbServer, mariadb_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DRUMBEAT_TARGET_PASSWORD", PASSWORD)
        database = mariadb_url.rpartition("/")[2]

        async with MysqlTarget(mariadb.url(database, password=None)) as target:
            assert await target.fetch("SELECT DATABASE()") == [(database,)]

    async def test_a_database_that_is_not_there_is_refused(self, mariadb: MariaDbServer) -> None:
        with pytest.raises(InvalidSettings, match="no_such_database"):
            await MysqlTarget(mariadb.url("no_such_database")).__aenter__()

    async def test_a_server_that_is_not_there_is_refused(self) -> None:
        with pytest.raises(InvalidSettings, match="is the database server running"):
            await MysqlTarget("mysql://bench@127.0.0.1:1/x").__aenter__()

    @pytest.mark.parametrize(
        ("host", "options", "is_encrypted"),
        [
            ("127.0.0.1", "", False),
            ("127.0.0.1", "?ssl-mode=REQUIRED", True),
            ("127.0.0.1", "?ssl-ca={ca}", True),
            ("127.0.0.1", "?ssl-mode=VERIFY_IDENTITY&ssl-ca={ca}", True),
        ],
    )
    async def test_traffic_is_encrypted_where_it_is_asked_for(
        self, mariadb: MariaDbServer, mariadb_url: str, host: str, options: str, is_encrypted: bool
    ) -> None:
        if mariadb.certificate is None:
            pytest.skip("there is no openssl here to make a certificate with")
        url = mariadb_url + options.format(ca=mariadb.certificate)

        async with MysqlTarget(url) as target:
            [(_, cipher)] = await target.fetch("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
            engine = target.engine(ONE, draw(), EngineSettings())
            await engine.open()
            await engine.close()

        assert bool(cipher) is is_encrypted

    async def test_a_certificate_nobody_vouches_for_is_refused(self, mariadb: MariaDbServer, mariadb_url: str) -> None:
        if mariadb.certificate is None:
            pytest.skip("there is no openssl here to make a certificate with")
        with pytest.raises(InvalidSettings, match="certificate"):
            await MysqlTarget(f"{mariadb_url}?ssl-mode=VERIFY_CA").__aenter__()


async def test_a_small_buffer_grows_with_what_is_read(mariadb_url: str) -> None:
    wide = load(operation("WIDE", 100, Statement(sql="SELECT REPEAT('x', 3000000) UNION ALL SELECT 'y'")))
    async with MysqlTarget(mariadb_url) as target:
        engine = target.engine(wide, draw(), EngineSettings())
        running = Running(engine, seconds(30))
        await engine.open()
        engine.set_target(2)
        engine.accept(True)
        await running.recorded(10)
        records = await running.drained()
        await engine.close()

    assert set(records["outcome"].tolist()) == {OK}
    assert set(records["rows"].tolist()) == {2}


@pytest.mark.parametrize(("cached", "rows"), [(True, 0), (False, 1)])
async def test_the_query_cache_is_bypassed_once_it_is_switched_off(mariadb_url: str, cached: bool, rows: int) -> None:
    is_off = "SELECT 1 FROM DUAL WHERE @@session.query_cache_type = 'OFF'"
    async with MysqlTarget(mariadb_url) as target:
        engine = target.engine(
            load(operation("OFF", 100, Statement(sql=is_off))), draw(), EngineSettings(cached_results=cached)
        )
        running = Running(engine, seconds(30))
        await engine.open()
        engine.set_target(1)
        engine.accept(True)
        await running.recorded(3)
        records = await running.drained()
        await engine.close()

    assert set(records["rows"].tolist()) == {rows}


class TestFaults:
    async def test_load_goes_on_after_the_server_was_killed(self, private_mariadb: MariaDbServer) -> None:
        async with MysqlTarget(private_mariadb.new_database()) as target:
            engine = target.engine(ONE, draw(), EngineSettings())
            running = Running(engine, seconds(60))
            await engine.open()
            engine.set_target(8)
            await running.until(lambda: engine.open_connections == 8)
            engine.accept(True)
            await running.recorded(100)

            await asyncio.to_thread(private_mariadb.kill)
            await running.until(lambda: engine.open_connections == 0)
            lost = running.records[running.records["outcome"] != OK]
            assert await target.signals() is None
            await running.until(lambda: engine.failed_connects > 0)
            await asyncio.to_thread(private_mariadb.start)
            await running.until(lambda: engine.open_connections == 8)
            before = len(running.records)
            await running.recorded(before + 100)

            assert await target.signals() is not None
            await running.drained()
            await engine.close()

        assert set(lost["outcome"].tolist()) == {LOST}
        assert len(lost) == 8
        assert {sample.error_class for sample in engine.error_samples} == {ErrorClass.CONNECTION}

    async def test_a_server_that_does_not_answer_makes_timeouts_not_a_hang(self, private_mariadb: MariaDbServer) -> None:
        async with MysqlTarget(private_mariadb.new_database()) as target:
            engine = target.engine(ONE, draw(), EngineSettings(limit=seconds(1), connect_limit=seconds(1)))
            running = Running(engine, seconds(60))
            await engine.open()
            engine.set_target(4)
            engine.accept(True)
            await running.recorded(100)

            with private_mariadb.paused():
                await running.until(lambda: int((running.records["outcome"] == TIMED_OUT).sum()) >= 4)
                await running.until(lambda: engine.failed_connects > 0)
            await running.until(lambda: engine.open_connections == 4)
            before = len(running.records)
            again = (await running.recorded(before + 100))[before:]
            await engine.close()

        assert engine.failure is None
        assert OK in again["outcome"]

    async def test_sessions_that_wait_for_a_row_are_counted(self, mariadb_url: str) -> None:
        async with MysqlTarget(mariadb_url) as target, MysqlTarget(mariadb_url) as other:
            await target.define(["CREATE TABLE t (id BIGINT, n INTEGER, PRIMARY KEY (id))"])
            await target.load_rows("t", ["id", "n"], [[1, 0]])
            update = Statement(sql="UPDATE t SET n = n + 1 WHERE id = $1", values=(KeyValue(low=1, high=1),))
            engine = target.engine(load(operation("UPDATE", 100, update)), draw(), EngineSettings())
            running = Running(engine, seconds(30))
            await engine.open()
            engine.set_target(3)
            await other.fetch("SET autocommit = 0")
            await other.fetch("SELECT * FROM t WHERE id = $1 FOR UPDATE", [1])
            engine.accept(True)
            await running.until(lambda: engine.in_flight == 3)

            async with asyncio.timeout(30):
                while (seen := await target.signals()) is None or (seen.active, seen.lock_waits) != (3, 3):
                    await asyncio.sleep(0.01)
            assert (seen.sessions, seen.waiting) == (4, 3)
            assert seen.wait_events == {"Lock:row": 3}
            await other.fetch("ROLLBACK")
            await running.recorded(10)
            await engine.close()


def test_states_that_wait_are_told_from_those_that_work_and_those_that_sleep() -> None:
    states = [
        (1, "Waiting for table metadata lock", 2),
        (1, "Waiting for someone to read", 3),
        (1, "Sending data", 4),
        (0, "", 8),
    ]

    seen = signals_of(states, row_waits=1)

    assert (seen.sessions, seen.active, seen.waiting, seen.lock_waits) == (17, 9, 6, 3)
    assert seen.wait_events == {"Waiting for table metadata lock": 2, "Waiting for someone to read": 3, "Lock:row": 1}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["CREATE TABLE t (a TEXT, at TIMESTAMP)"], ["CREATE TABLE t (a TEXT, at DATETIME(6))"]),
        (
            ["CREATE TABLE t (a TEXT NOT NULL, b TEXT, PRIMARY KEY (a))"],
            ["CREATE TABLE t (a VARCHAR(255) NOT NULL, b TEXT, PRIMARY KEY (a))"],
        ),
        (["CREATE TABLE t (a TEXT PRIMARY KEY, b INTEGER)"], ["CREATE TABLE t (a VARCHAR(255) PRIMARY KEY, b INTEGER)"]),
        (
            ["CREATE TABLE t (a TEXT, b TEXT)", "CREATE INDEX i ON t (b, a)"],
            ["CREATE TABLE t (a VARCHAR(255), b VARCHAR(255))", "CREATE INDEX i ON t (b, a)"],
        ),
        (["DROP TABLE IF EXISTS t"], ["DROP TABLE IF EXISTS t"]),
    ],
)
def test_ddl_is_put_into_its_words(given: list[str], expected: list[str]) -> None:
    assert mysql_ddl(given) == expected


@pytest.mark.parametrize(
    ("arguments", "outcome", "code", "error_class"),
    [
        ((1062, "Duplicate entry"), FAILED, "1062", ErrorClass.DATABASE_ERROR),
        ((1213, "Deadlock found"), FAILED, "1213", ErrorClass.DATABASE_ERROR),
        ((1146, "no such table"), FAILED, "1146", ErrorClass.CONFIGURATION),
        ((1969, "max_statement_time exceeded"), TIMED_OUT, "1969", ErrorClass.QUERY_TIMEOUT),
        ((3024, "maximum statement execution time exceeded"), TIMED_OUT, "3024", ErrorClass.QUERY_TIMEOUT),
        ((2013, "Lost connection"), LOST, "2013", ErrorClass.CONNECTION),
        ((1927, "Connection was killed"), LOST, "1927", ErrorClass.CONNECTION),
        ((0, "Not connected"), LOST, "", ErrorClass.CONNECTION),
        (("Packet sequence number wrong",), LOST, "", ErrorClass.CONNECTION),
    ],
)
def test_errors_are_told_apart(arguments: tuple[object, ...], outcome: int, code: str, error_class: ErrorClass) -> None:
    failure = failure_of(Exception(*arguments), 0)

    assert (failure.outcome, failure.code, str(failure)) == (outcome, code, arguments[-1])
    assert classify(failure.outcome, failure.code) is error_class


async def test_a_file_of_this_machine_is_never_sent_to_the_server(mariadb_url: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("7\n")
    async with MysqlTarget(mariadb_url) as target:
        await target.define(["DROP TABLE IF EXISTS contract_taken", "CREATE TABLE contract_taken (n INTEGER)"])

        with pytest.raises(InvalidInput, match="refused"):
            await target.define([f"LOAD DATA LOCAL INFILE '{secret}' INTO TABLE contract_taken"])

        assert list(await target.fetch("SELECT n FROM contract_taken")) == []
