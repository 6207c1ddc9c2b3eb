"""The PostgreSQL engine against a real server, with its compiled core and with the one in Python."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

import asyncpg
import numpy as np
import pytest

from drumbeat.bench.driver import engine as engine_module
from drumbeat.bench.driver.core_c import library
from drumbeat.bench.driver.engine import PostgresEngine
from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.postgres_terms import classify
from drumbeat.bench.driver.records import FAILED, LOST, OK, TIMED_OUT, Records
from drumbeat.bench.driver.session import address_of
from drumbeat.bench.model import (
    ErrorClass,
    KeyValue,
    Load,
    NewKey,
    Operation,
    RandomNumber,
    SameAs,
    Statement,
    ValueType,
)
from drumbeat.bench.values.draw import Draw
from drumbeat.core.errors import InvalidInput, InvalidSettings
from servers.postgres import PostgresServer

KEY = KeyValue(low=1, high=1000, type=ValueType.INT)
BY_KEY = Statement(sql="SELECT v FROM t WHERE k = $1", values=(KEY,))
LOOKUP = Operation(kind="LOOKUP", weight=100, statements=(BY_KEY,), reads=True)
TABLE = ("CREATE TABLE t (k int PRIMARY KEY, v int)", "INSERT INTO t SELECT k, 0 FROM generate_series(1, 1000) k")


@pytest.fixture(params=["c", "python"])
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which core drives."""
    if request.param == "c" and library() is None:
        pytest.skip("the compiled core was not built: no C compiler")
    if request.param == "python":
        monkeypatch.setattr(engine_module, "library", lambda: None)
    return str(request.param)


@pytest.fixture
async def url(new_database: Callable[[], str]) -> str:
    address = new_database()
    await run_sql(address, *TABLE)
    return address


async def run_sql(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def value_of(url: str, sql: str) -> object:
    connection = await asyncpg.connect(url)
    found = await connection.fetchval(sql)
    await connection.close()
    return found


def load(*operations: Operation, think: timedelta = timedelta()) -> Load:
    return Load(name="test", operations=operations or (LOOKUP,), think=think)


def draw(slot: int = 0) -> Draw:
    return Draw(slot=slot, chance=np.random.default_rng(slot), now_us=lambda: 0)


@asynccontextmanager
async def driven(
    url: str, work: Load, connections: int, settings: EngineSettings | None = None
) -> AsyncIterator[PostgresEngine]:
    """An engine with all its connections open, taking operations."""
    engine = PostgresEngine(address_of(url), work, draw(), settings or EngineSettings())
    await engine.open()
    try:
        engine.set_target(connections)
        await until(lambda: engine.open_connections == connections, "all connections are open")
        engine.accept(True)
        yield engine
    finally:
        await engine.close()


async def until(happened: Callable[[], bool], what: str, within: float = 90) -> None:
    deadline = asyncio.get_running_loop().time() + within
    while not happened():
        assert asyncio.get_running_loop().time() < deadline, f"expected within {within:g} s: {what}"
        await asyncio.sleep(0.01)


async def records_of(engine: PostgresEngine, at_least: int) -> Records:
    taken = [engine.take()]
    await until(lambda: taken.append(engine.take()) or sum(map(len, taken)) >= at_least, "records come")  # type: ignore[func-returns-value]
    return np.concatenate(taken)


async def test_every_operation_is_recorded_once_and_well(url: str, core: str) -> None:
    async with driven(url, load(), 4) as engine:
        found = await records_of(engine, 2000)
        assert await engine.drain(timedelta(seconds=10)) == 0
        found = np.concatenate([found, engine.take()])
        assert engine.in_flight == 0
        assert engine.compiled == (core == "c")

    assert set(found["outcome"].tolist()) == {OK}
    assert set(found["rows"].tolist()) == {1}
    assert set(found["connection"].tolist()) == {0, 1, 2, 3}
    assert (found["duration"] > 0).all()
    assert (found["start"] == found["due"]).all()


async def test_what_was_recorded_as_written_is_written(url: str, core: str) -> None:
    insert = Statement(
        sql="INSERT INTO t VALUES ($1, $2)", values=(NewKey(first=2000, type=ValueType.INT, span=100_000), RandomNumber())
    )
    work = load(Operation(kind="INSERT", weight=100, statements=(insert,)))
    async with driven(url, work, 8) as engine:
        found = await records_of(engine, 1000)
        await engine.drain(timedelta(seconds=10))
        found = np.concatenate([found, engine.take()])

    assert (found["outcome"] == OK).all()
    assert await value_of(url, "SELECT count(*) FROM t WHERE k >= 2000") == len(found)


async def test_a_transaction_is_all_or_nothing_and_one_operation(url: str, core: str) -> None:
    values = (KEY, SameAs(index=0, type=ValueType.INT))
    steps = (
        Statement(sql="BEGIN"),
        Statement(sql="UPDATE t SET v = v + 1 WHERE k = $1", values=values[:1]),
        Statement(sql="UPDATE t SET v = v + 1 WHERE k = $1", values=values[1:]),
        Statement(sql="COMMIT"),
    )
    async with driven(url, load(Operation(kind="TX", weight=100, statements=steps)), 4) as engine:
        found = await records_of(engine, 300)
        await engine.drain(timedelta(seconds=10))
        found = np.concatenate([found, engine.take()])

    well = int((found["outcome"] == OK).sum())
    assert await value_of(url, "SELECT sum(v) FROM t") == 2 * well
    assert set(found["rows"][found["outcome"] == OK].tolist()) == {2}


async def test_a_statement_that_fails_inside_a_transaction_is_rolled_back_and_load_goes_on(url: str, core: str) -> None:
    steps = (
        Statement(sql="BEGIN"),
        Statement(sql="UPDATE t SET v = v + 1 WHERE k = $1", values=(KEY,)),
        Statement(sql="SELECT 1 / ($1 - 1)", values=(KeyValue(low=1, high=2, type=ValueType.INT),)),
        Statement(sql="COMMIT"),
    )
    async with driven(url, load(Operation(kind="TX", weight=100, statements=steps)), 4) as engine:
        found = await records_of(engine, 400)
        await engine.drain(timedelta(seconds=10))
        found = np.concatenate([found, engine.take()])
        samples = engine.error_samples

    failed = found[found["outcome"] == FAILED]
    assert 0 < len(failed) < len(found)
    assert {bytes(state) for state in failed["sqlstate"]} == {b"22012"}
    assert await value_of(url, "SELECT sum(v) FROM t") == len(found) - len(failed)
    assert samples[0].error_class is ErrorClass.DATABASE_ERROR
    assert "BEGIN; UPDATE t" in samples[0].sql
    assert samples[0].message == "division by zero (SQLSTATE 22012)"


async def test_the_target_goes_up_and_down_under_load_and_no_query_is_cut(
    url: str, core: str, postgres: PostgresServer
) -> None:
    async with driven(url, load(), 10, EngineSettings(most_connections=200)) as engine:
        for target in (120, 20, 60):
            engine.set_target(target)
            await until(lambda target=target: engine.open_connections == target, f"{target} connections are held")  # type: ignore[misc]
        await engine.drain(timedelta(seconds=10))
        found = engine.take()
        await comes_to(url, 60)
        engine.set_target(0)
        await until(lambda: engine.open_connections == 0, "all are closed")

    assert (found["outcome"] == OK).all()
    await comes_to(url, 0)


async def sessions(url: str) -> int:
    counted = await value_of(
        url, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'drumbeat'"
    )
    return int(str(counted))


async def test_an_open_loop_sends_what_is_due_and_counts_from_then(url: str, core: str) -> None:
    async with driven(url, load(), 4) as engine:
        await engine.drain(timedelta(seconds=10))
        engine.take()
        engine.set_rate(500)
        engine.accept(True)
        found = await records_of(engine, 600)
        assert await engine.drain(timedelta(seconds=10)) == 0
        found = np.concatenate([found, engine.take()])

    gaps = np.diff(np.sort(found["due"]))
    assert np.allclose(gaps, 2_000_000, atol=2)
    assert (found["start"] >= found["due"]).all()


async def test_an_operation_over_its_limit_is_given_up_and_its_connection_replaced(url: str, core: str) -> None:
    slow = Operation(kind="SLOW", weight=100, statements=(Statement(sql="SELECT pg_sleep(5)"),))
    async with driven(url, load(slow), 2, EngineSettings(limit=timedelta(milliseconds=300))) as engine:
        found = await records_of(engine, 2)
        await until(lambda: engine.open_connections == 2, "both are there again")
        again = await records_of(engine, 2)

    assert {int(each) for each in (*found["outcome"], *again["outcome"])} == {TIMED_OUT}
    assert classify(TIMED_OUT, "") is ErrorClass.QUERY_TIMEOUT


async def test_a_server_that_is_killed_and_comes_back_finds_the_load_again(private_postgres: PostgresServer, core: str) -> None:
    url = private_postgres.new_database()
    await run_sql(url, *TABLE)
    async with driven(url, load(), 4) as engine:
        await records_of(engine, 100)
        private_postgres.kill()
        lost = await records_of(engine, 1)
        private_postgres.start()
        await until(lambda: engine.open_connections == 4, "all connections are back", within=60)
        engine.take()
        again = await records_of(engine, 100)

    failures = lost[lost["outcome"] != OK]
    assert {classify(int(each["outcome"]), bytes(each["sqlstate"]).decode()) for each in failures} <= {ErrorClass.CONNECTION}
    assert (again["outcome"][-50:] == OK).all()


async def test_a_server_that_does_not_answer_means_timeouts_not_a_hang(private_postgres: PostgresServer, core: str) -> None:
    url = private_postgres.new_database()
    await run_sql(url, *TABLE)
    settings = EngineSettings(limit=timedelta(seconds=1), connect_limit=timedelta(seconds=3))
    async with driven(url, load(), 4, settings) as engine:
        await records_of(engine, 50)
        with private_postgres.paused():
            await until(lambda: TIMED_OUT in engine.take()["outcome"], "operations are given up")
        await until(lambda: engine.open_connections == 4, "all connections are back")
        again = await records_of(engine, 50)

    assert engine.failure is None
    assert OK in again["outcome"]


async def test_epochs_tell_which_phase_an_operation_began_in(url: str, core: str) -> None:
    async with driven(url, load(), 2) as engine:
        before = await records_of(engine, 50)
        engine.set_epoch(3)
        await until(lambda: (engine.take()["epoch"] == 3).any(), "operations of the new epoch")
        found = np.concatenate([before, await records_of(engine, 50)])

    epochs = found["epoch"][np.argsort(found["start"])].tolist()
    assert epochs == sorted(epochs)
    assert set(epochs) == {0, 3}


async def test_an_epoch_and_an_end_take_effect_at_once(url: str, core: str) -> None:
    async with driven(url, load(), 2) as engine:
        found = [await records_of(engine, 50)]
        engine.set_epoch(3)
        changed = time.monotonic_ns()
        found.append(await records_of(engine, 200))
        engine.accept(False)
        ended = time.monotonic_ns()
        await engine.drain(timedelta(seconds=10))
        found.append(engine.take())

    records = np.concatenate(found)
    assert set(records["epoch"][records["start"] > changed].tolist()) == {3}
    assert (records["start"] <= ended).all()


async def test_an_engine_leaves_the_process_s_switch_interval_as_it_was(url: str, core: str) -> None:
    before = sys.getswitchinterval()
    async with driven(url, load(), 1) as engine:
        await records_of(engine, 10)
        assert sys.getswitchinterval() < before, "the driving thread waits for no other"

    assert sys.getswitchinterval() == before


async def test_think_time_is_kept_between_operations(url: str, core: str) -> None:
    async with driven(url, load(think=timedelta(milliseconds=50)), 1) as engine:
        found = await records_of(engine, 5)

    ordered = found[np.argsort(found["start"])]
    pauses = ordered["start"][1:] - (ordered["start"] + ordered["duration"])[:-1]
    assert (pauses >= 50_000_000).all()


async def test_what_is_wrong_is_known_before_load_begins(url: str, postgres: PostgresServer) -> None:
    absent = load(Operation(kind="WRONG", weight=100, statements=(Statement(sql="SELECT x FROM nowhere"),)))
    nonsense = load(Operation(kind="WRONG", weight=100, statements=(Statement(sql="SELEKT 1"),)))
    for work in (absent, nonsense):
        engine = PostgresEngine(address_of(url), work, draw(), EngineSettings())
        with pytest.raises(InvalidInput, match="WRONG"):
            await engine.open()
        await engine.close()


@pytest.fixture
def bencher(postgres: PostgresServer) -> str:
    """A user who must give a password."""
    name = f"bencher_{uuid4().hex[:8]}"
    postgres.add_password_user(name, "right-secret")
    return name


@pytest.mark.parametrize("given", [":wrong", ""])
async def test_a_wrong_password_is_said_and_not_shown(url: str, bencher: str, given: str) -> None:
    address = address_of(url.replace("postgres@", f"{bencher}{given}@"), {})
    engine = PostgresEngine(address, load(), draw(), EngineSettings())

    with pytest.raises(InvalidSettings, match="password") as caught:
        await engine.open()
    await engine.close()
    assert "wrong" not in str(caught.value)


async def test_the_right_password_by_scram_is_let_in(url: str, bencher: str, core: str) -> None:
    await run_sql(url, f"GRANT SELECT ON t TO {bencher}")

    async with driven(url.replace("postgres@", f"{bencher}:right-secret@"), load(), 2) as engine:
        assert (await records_of(engine, 10))["outcome"].max() == OK


@pytest.mark.parametrize(
    ("outcome", "sqlstate", "told"),
    [
        (OK, "", None),
        (FAILED, "23505", ErrorClass.DATABASE_ERROR),
        (FAILED, "57014", ErrorClass.QUERY_TIMEOUT),
        (FAILED, "57P01", ErrorClass.CONNECTION),
        (LOST, "", ErrorClass.CONNECTION),
        (TIMED_OUT, "", ErrorClass.QUERY_TIMEOUT),
    ],
)
def test_errors_are_told_apart(outcome: int, sqlstate: str, told: ErrorClass | None) -> None:
    assert classify(outcome, sqlstate) is told


ENDLESS = Operation(kind="ENDLESS", weight=100, statements=(Statement(sql="SELECT pg_sleep(3600)"),))


async def comes_to(url: str, count: int) -> None:
    """Wait until the server has no more sessions of ours than this: a backend takes a moment to notice that its client left."""
    async with asyncio.timeout(90):
        while await sessions(url) > count:
            await asyncio.sleep(0.02)


async def test_what_was_given_up_does_not_go_on_in_the_server(url: str, core: str) -> None:
    async with driven(url, load(ENDLESS), 2, EngineSettings(limit=timedelta(milliseconds=100))) as engine:
        found = await records_of(engine, 8)
        await comes_to(url, 2)
    await comes_to(url, 0)

    assert {int(each) for each in found["outcome"]} == {TIMED_OUT}


@pytest.mark.parametrize("drained", [True, False])
async def test_what_runs_at_the_end_does_not_go_on_in_the_server(url: str, core: str, drained: bool) -> None:
    async with driven(url, load(ENDLESS), 2) as engine:
        await until(lambda: engine.in_flight == 2, "both are at work")
        abandoned = await engine.drain(timedelta()) if drained else 0
        await engine.close()
        found = engine.take()
    await comes_to(url, 0)

    assert (abandoned, found["outcome"].tolist()) == (2 * drained, [TIMED_OUT, TIMED_OUT])
