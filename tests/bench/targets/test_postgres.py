"""PostgreSQL as a target keeps the contract, and tells of itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.model import KeyValue, Now, Statement, ValueType
from drumbeat.bench.targets.contract import Running, TargetContract, draw, load, operation, seconds
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.postgres import PostgresTarget, kinds_by_text, signals_of
from drumbeat.core.errors import InvalidInput, InvalidSettings
from servers.postgres import PostgresServer


class TestPostgres(TargetContract):
    slow_sql = "SELECT pg_sleep(60)"

    @pytest.fixture
    async def target(self, postgres_url: str) -> AsyncIterator[Target]:
        async with PostgresTarget(postgres_url) as target:
            yield target


async def test_the_server_says_how_many_sessions_there_are_and_what_was_done(postgres_url: str) -> None:
    async with PostgresTarget(postgres_url) as target, PostgresTarget(postgres_url):
        before = await target.counters()
        await target.define(["CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)"])
        signals = await target.signals()
        after = await target.counters()

    assert signals is not None
    assert signals.sessions == 1
    assert signals.lock_waits == 0
    assert after.keys() == before.keys()
    assert "database.xact_commit" in after


async def test_sessions_that_wait_for_a_row_are_counted_and_the_one_that_holds_it_is_not(postgres_url: str) -> None:
    update = Statement(sql="UPDATE t SET n = n + 1 WHERE k = $1", values=(KeyValue(low=1, high=1, type=ValueType.INT),))
    async with PostgresTarget(postgres_url) as target, PostgresTarget(postgres_url) as other:
        await target.define(["CREATE TABLE t (k int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 0)"])
        engine = target.engine(load(operation("UPDATE", 100, update)), draw(), EngineSettings())
        running = Running(engine, seconds(30))
        await engine.open()
        engine.set_target(3)
        await other.fetch("BEGIN")
        await other.fetch("SELECT * FROM t WHERE k = 1 FOR UPDATE")
        engine.accept(True)

        async with asyncio.timeout(30):
            while (seen := await target.signals()) is None or (seen.active, seen.lock_waits) != (3, 3):
                await asyncio.sleep(0.01)
        await other.fetch("ROLLBACK")
        await running.recorded(10)
        await engine.close()

    assert (seen.sessions, seen.waiting) == (4, 3)
    assert seen.wait_events["Client:ClientRead"] == 1
    assert sum(count for event, count in seen.wait_events.items() if event.startswith("Lock:")) == 3


@pytest.mark.parametrize(
    ("is_active", "kind", "event", "waiting", "lock_waits"),
    [
        (True, None, None, 0, 0),
        (True, "Lock", "transactionid", 5, 5),
        (True, "LWLock", "WALWrite", 5, 0),
        (True, "BufferPin", "BufferPin", 5, 0),
        (True, "IO", "DataFileRead", 0, 0),
        (True, "Timeout", "PgSleep", 0, 0),
        (True, "Client", "ClientWrite", 0, 0),
        (False, "Client", "ClientRead", 0, 0),
    ],
)
def test_only_sessions_that_are_held_up_by_others_wait(
    is_active: bool, kind: str | None, event: str | None, waiting: int, lock_waits: int
) -> None:
    seen = signals_of([(is_active, kind, event, 5), (False, "Client", "ClientRead", 2)])

    assert (seen.sessions, seen.active, seen.waiting, seen.lock_waits) == (7, 5 if is_active else 0, waiting, lock_waits)
    assert kind is None or seen.wait_events[f"{kind}:{event}"] >= 5


async def test_a_table_with_capital_letters_is_described_and_its_lower_case_name_is_another_table(postgres_url: str) -> None:
    async with PostgresTarget(postgres_url) as target:
        await target.define(['CREATE TABLE "Orders" ("Id" int PRIMARY KEY)', 'INSERT INTO "Orders" VALUES (3), (7)'])
        await target.define(["CREATE TABLE parts (id int PRIMARY KEY)"])
        described = await target.describe("Orders")

        with pytest.raises(InvalidInput, match="has no table 'PARTS'"):
            await target.describe("PARTS")

    assert (described.key, described.key_low, described.key_high) == ("Id", 3, 7)


async def test_the_options_of_the_url_hold_also_for_what_is_read_before_a_run(postgres_url: str) -> None:
    async with PostgresTarget(postgres_url) as target:
        await target.define(
            ["CREATE SCHEMA second", "CREATE TABLE t (k int PRIMARY KEY)", "CREATE TABLE second.t (k int PRIMARY KEY)"]
        )
        await target.define(["INSERT INTO t VALUES (1)", "INSERT INTO second.t VALUES (22)"])
    mark = "&" if "?" in postgres_url else "?"
    async with PostgresTarget(f"{postgres_url}{mark}search_path=second") as target:
        described = await target.describe("t")

    assert (described.key_low, described.key_high) == (22, 22)


async def test_times_are_those_of_utc_whatever_the_time_zone_of_the_user(postgres_url: str) -> None:
    moment = "INSERT INTO moments SELECT $1, CAST($2 AS timestamp with time zone)"
    insert = Statement(sql=moment, values=(KeyValue(low=1, high=1_000_000, type=ValueType.INT), Now()))
    async with PostgresTarget(postgres_url) as target:
        await target.define(["CREATE TABLE moments (k int, at timestamptz)"])
        [(user,)] = await target.fetch("SELECT current_user")
        await target.define([f"ALTER ROLE \"{user}\" SET timezone = 'America/New_York'"])
        try:
            engine = target.engine(load(operation("INSERT", 100, insert)), draw(), EngineSettings())
            running = Running(engine, seconds(30))
            await engine.open()
            engine.set_target(1)
            engine.accept(True)
            await running.recorded(10)
            await running.drained()
            await engine.close()
            written = await target.fetch("SELECT COUNT(*), MIN(at), MAX(at) FROM moments")
        finally:
            await target.define([f'ALTER ROLE "{user}" RESET timezone'])

    [(count, first, last)] = written
    assert count >= 10
    assert first == last == datetime(2026, 1, 1, tzinfo=UTC)  # the moment at which draw() says values are drawn


async def test_a_server_that_goes_away_says_nothing_until_it_is_back(private_postgres: PostgresServer) -> None:
    async with PostgresTarget(private_postgres.new_database()) as target:
        before = await target.counters()
        private_postgres.stop()
        private_postgres.start()
        await target.counters()
        assert (await target.counters())["database.since"] == before["database.since"], "a clean restart keeps its totals"
        private_postgres.kill()
        assert (await target.signals(), await target.counters()) == (None, {})

        private_postgres.start()
        signals, after = await target.signals(), await target.counters()

    assert signals is not None
    assert signals.sessions == 0
    assert after.keys() == before.keys()
    assert after["database.since"] > before["database.since"], "a crash begins its totals again"


async def test_a_server_that_is_not_there_is_said() -> None:
    with pytest.raises(InvalidSettings, match=r"127\.0\.0\.1:1/") as caught:
        async with PostgresTarget("postgresql://u:secret@127.0.0.1:1/x"):
            pass
    assert "secret" not in str(caught.value)


@asynccontextmanager
async def one_that_wants_a_password() -> AsyncIterator[int]:
    """A server that turns everybody away as PostgreSQL does with a wrong password, and its port."""
    fields = b'SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user "ann"\0\0'

    async def turn_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4), "big")
        if size == 8:  # asked for TLS, which there is none of
            writer.write(b"N")
            await reader.readexactly(4)
            size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size - 4)
        writer.write(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
        writer.close()

    async with await asyncio.start_server(turn_away, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("ann", "it asks for a password and none was given; set DRUMBEAT_TARGET_PASSWORD"),
        ("ann:wrong", 'password authentication failed for user "ann"'),
    ],
)
async def test_a_password_that_was_not_given_is_not_called_wrong(who: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DRUMBEAT_TARGET_PASSWORD", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)

    async with one_that_wants_a_password() as port:
        with pytest.raises(InvalidSettings) as refused:
            await PostgresTarget(f"postgresql://{who}@127.0.0.1:{port}/shop").__aenter__()

    assert str(refused.value) == f"postgresql://127.0.0.1:{port}/shop refused user 'ann': {said}"


def test_kinds_that_share_a_statement_are_not_told_apart() -> None:
    """pg_stat_statements has one row for both: nothing is told of them rather than nothing for one and all for the other."""
    found = kinds_by_text(
        {
            "HOT": ["SELECT v FROM t WHERE k = $1 LIMIT 10"],
            "COLD": ["select v  FROM t WHERE k = $1 LIMIT 100;", "SELECT 1"],
            "ADD": ["INSERT INTO t VALUES ($1)"],
        }
    )

    assert [*found.values()] == ["ADD"]
