"""What every target and its engine must do, as tests. A target's test file is a subclass and a fixture or two.

``target``: an open target, on a database that has no table of the names used here.
``slow_sql``: a class attribute, a query without values that runs for a minute unless it is stopped.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import numpy as np
import pytest

from drumbeat.bench.driver.interface import Engine, EngineSettings
from drumbeat.bench.driver.records import FAILED, OK, TIMED_OUT, Records
from drumbeat.bench.model import (
    ErrorClass,
    KeyValue,
    Load,
    NewKey,
    Now,
    Operation,
    RandomText,
    SameAs,
    ServerSignals,
    Statement,
    ValueType,
)
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.values import Draw
from drumbeat.core.errors import InvalidInput

TABLE = "contract_items"
ROWS = 500
NEW = 1_000_000  #: where new keys begin
_MOMENT = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_DDL = (
    "DROP TABLE IF EXISTS contract_items",
    "CREATE TABLE contract_items (id BIGINT NOT NULL, name VARCHAR(40), amount DOUBLE PRECISION, made_at TIMESTAMP,"
    " price NUMERIC(10,2), code CHAR(3), note TEXT, n INTEGER, PRIMARY KEY (id))",
    "CREATE INDEX contract_items_by_name ON contract_items (name)",
)
_COLUMNS = ("id", "name", "amount", "made_at", "price", "code", "note", "n")

LOOKUP = Statement(sql="SELECT name, amount FROM contract_items WHERE id = $1", values=(KeyValue(low=1, high=ROWS),))
INSERT = Statement(
    sql="INSERT INTO contract_items (id, name, made_at) VALUES ($1, $2, $3)",
    values=(NewKey(first=NEW), RandomText(length=12), Now()),
)
DUPLICATE = Statement(sql="INSERT INTO contract_items (id, name) VALUES ($1, 'again')", values=(KeyValue(low=77, high=77),))
BEGIN, COMMIT = Statement(sql="BEGIN"), Statement(sql="COMMIT")
SET_N = Statement(
    sql="UPDATE contract_items SET n = n + 1 WHERE id = $1",
    values=(KeyValue(low=1, high=1),),
)


_COUNT_ROWS = """
import asyncio, sys
from drumbeat.bench.targets.open import open_target

async def main():
    async with open_target(sys.argv[1]) as target:
        print((await target.fetch("SELECT COUNT(*) FROM contract_items"))[0][0])

asyncio.run(main())
"""


def rows(first: int, count: int) -> list[Sequence[object]]:
    return [
        (number, f"name {number}", number / 2, _MOMENT + timedelta(seconds=number), number / 4, "abc", "é'\"%$1?", number)
        for number in range(first, first + count)
    ]


def operation(kind: str, weight: int, *statements: Statement) -> Operation:
    return Operation(kind=kind, weight=weight, statements=statements, reads=kind == "LOOKUP")


def load(*operations: Operation, think: timedelta = timedelta()) -> Load:
    return Load(name="contract", operations=operations, think=think)


MIXED = load(operation("LOOKUP", 60, LOOKUP), operation("INSERT", 40, INSERT))
LOOKUPS = load(operation("LOOKUP", 100, LOOKUP))


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def draw() -> Draw:
    return Draw.seeded(0, 7, lambda: 1_767_225_600_000_000)


@dataclass(slots=True)
class Running:
    """An engine at work, and what it has recorded."""

    engine: Engine
    patience: timedelta
    taken: list[Records] = field(default_factory=list)

    @property
    def records(self) -> Records:
        self.taken.append(self.engine.take())
        return np.concatenate(self.taken)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something to be so."""
        async with asyncio.timeout(self.patience.total_seconds()):
            while not holds():
                assert self.engine.failure is None, self.engine.failure
                await asyncio.sleep(0.005)

    async def recorded(self, count: int) -> Records:
        await self.until(lambda: len(self.records) >= count)
        return self.records

    async def drained(self) -> Records:
        assert await self.engine.drain(self.patience) == 0
        return self.records


class TargetContract:
    """Every sentence of ``Target`` and ``Engine``."""

    slow_sql: ClassVar[str]
    patience = timedelta(seconds=30)  #: how long anything may take

    @pytest.fixture
    async def table(self, target: Target) -> str:
        await target.define(_DDL)
        assert await target.load_rows(TABLE, _COLUMNS, iter(rows(1, ROWS))) == ROWS
        return TABLE

    @asynccontextmanager
    async def running(
        self, target: Target, given: Load, *, connections: int = 4, rate: float | None = None, limit: float = 30
    ) -> AsyncIterator[Running]:
        engine = target.engine(given, draw(), EngineSettings(limit=timedelta(seconds=limit)))
        await engine.open()
        running = Running(engine, self.patience)
        try:
            engine.set_target(connections)
            engine.set_rate(rate)
            await running.until(lambda: engine.held == connections)
            engine.accept(True)
            yield running
        finally:
            await engine.close()

    async def signals_when(self, target: Target, holds: Callable[[ServerSignals], bool]) -> ServerSignals:
        """What the server says of its sessions, once that is so."""
        async with asyncio.timeout(self.patience.total_seconds()):
            while True:
                signals = await target.signals()
                if signals is not None and holds(signals):
                    return signals
                await asyncio.sleep(0.005)

    # The target

    async def test_a_table_is_described_by_its_columns_key_and_time(self, target: Target, table: str) -> None:
        described = await target.describe(table)

        types = {column.name: column.type for column in described.columns}
        assert list(types) == list(_COLUMNS)
        assert types["id"] is ValueType.BIGINT
        assert types["n"] in {ValueType.INT, ValueType.BIGINT}
        assert (types["amount"], types["price"]) == (ValueType.FLOAT, ValueType.FLOAT)
        assert (types["name"], types["code"], types["note"]) == (ValueType.TEXT,) * 3
        assert (described.key, described.key_low, described.key_high) == ("id", 1, ROWS)
        assert (types["made_at"], described.time_column) == (ValueType.TIMESTAMP, "made_at")
        assert [column.nullable for column in described.columns[:2]] == [False, True]

    async def test_a_table_without_rows_has_a_key_without_bounds(self, target: Target) -> None:
        await target.define(_DDL)

        described = await target.describe(TABLE)

        assert (described.key, described.key_low, described.key_high) == ("id", None, None)

    async def test_a_key_of_several_columns_is_not_taken_for_one(self, target: Target) -> None:
        await target.define(
            ["DROP TABLE IF EXISTS contract_pairs", "CREATE TABLE contract_pairs (a INTEGER, b INTEGER, PRIMARY KEY (a, b))"]
        )

        assert (await target.describe("contract_pairs")).key is None

    @pytest.mark.parametrize("name", ["no_such_table", "x'; DROP TABLE contract_items; --", 'a"b`c'])
    async def test_a_table_that_is_not_there_is_named(self, target: Target, table: str, name: str) -> None:
        with pytest.raises(InvalidInput, match="no table"):
            await target.describe(name)

        assert await fetched(target, "SELECT COUNT(*) FROM contract_items") == [(ROWS,)]

    async def test_a_text_can_be_a_key(self, target: Target) -> None:
        await target.define(
            [
                "DROP TABLE IF EXISTS contract_words",
                "CREATE TABLE contract_words (word TEXT NOT NULL, other TEXT, PRIMARY KEY (word))",
                "CREATE INDEX contract_words_by_other ON contract_words (other)",
            ]
        )

        await target.load_rows("contract_words", ["word"], [["b"], ["a"]])

        assert await fetched(target, "SELECT word FROM contract_words ORDER BY word") == [("a",), ("b",)]

    async def test_check_accepts_what_can_be_run_and_runs_nothing(self, target: Target, table: str) -> None:
        delete = Statement(sql="DELETE FROM contract_items WHERE id >= $1", values=(KeyValue(low=1, high=1),))

        await target.check(load(operation("DELETE", 50, delete), operation("BOTH", 50, INSERT, SET_N)))

        assert await fetched(target, "SELECT COUNT(*), SUM(n) FROM contract_items") == [(ROWS, ROWS * (ROWS + 1) // 2)]

    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT name FROM no_such_table WHERE id = $1",
            "SELECT no_such_column FROM contract_items WHERE id = $1",
            "SELEC name FROM contract_items WHERE id = $1",
        ],
    )
    async def test_check_and_open_name_the_operation_that_is_wrong(self, target: Target, table: str, sql: str) -> None:
        wrong = Statement(sql=sql, values=(KeyValue(low=1, high=ROWS),))
        given = load(operation("LOOKUP", 50, LOOKUP), operation("WRONG_ONE", 50, wrong))

        with pytest.raises(InvalidInput, match="WRONG_ONE"):
            await target.check(given)
        engine = target.engine(given, draw(), EngineSettings())
        with pytest.raises(InvalidInput, match="WRONG_ONE"):
            await engine.open()
        await engine.close()

    async def test_rows_are_loaded_as_they_are(self, target: Target, table: str) -> None:
        found = await fetched(target, "SELECT name, amount, code, note, n FROM contract_items WHERE id = $1", [12])

        assert found == [("name 12", 6.0, "abc", "é'\"%$1?", 12)]

    async def test_rows_are_loaded_all_or_none(self, target: Target, table: str) -> None:
        with pytest.raises(InvalidInput, match=TABLE):
            await target.load_rows(table, _COLUMNS, [*rows(ROWS + 1, 5000), *rows(3, 1)])
        with pytest.raises(RuntimeError, match="in the middle"):
            await target.load_rows(table, _COLUMNS, _broken())

        assert await fetched(target, "SELECT COUNT(*) FROM contract_items") == [(ROWS,)]
        assert await target.load_rows(table, _COLUMNS, rows(ROWS + 1, 3)) == 3

    async def test_a_placeholder_may_be_used_twice_and_in_any_order(self, target: Target, table: str) -> None:
        sql = "SELECT id FROM contract_items WHERE id >= $2 AND (id = $1 OR id = $1 + 1) AND name <> '$3' ORDER BY id"

        assert await fetched(target, sql, [40, 7]) == [(40,), (41,)]

    async def test_fetch_takes_moments(self, target: Target, table: str) -> None:
        found = await fetched(
            target,
            "SELECT id FROM contract_items WHERE made_at < $1 ORDER BY id",
            [_MOMENT + timedelta(seconds=3)],
        )

        assert [row[0] for row in found] == [1, 2]

    async def test_a_second_process_may_use_it_where_that_is_declared(self, target: Target, table: str) -> None:
        if target.traits.networked:
            assert target.traits.processes
            return
        async with self.running(target, LOOKUPS) as running:
            await running.recorded(20)
            command = [sys.executable, "-c", _COUNT_ROWS, target.location]
            said = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)

        assert (said.returncode == 0) is target.traits.processes, said.stderr
        assert said.stdout.strip() == (str(ROWS) if target.traits.processes else "")

    async def test_signals_are_there_where_they_are_declared(self, target: Target, table: str) -> None:
        before = await target.counters()
        async with self.running(target, LOOKUPS) as running:
            await running.recorded(20)
            signals = await target.signals()
        after = await target.counters()

        if not target.traits.signals:
            assert (signals, before, after) == (None, {}, {})
        else:
            assert signals is not None
            assert signals.sessions is not None
            assert signals.sessions >= 4
            assert 0 <= (signals.waiting or 0) <= (signals.active or 0) <= signals.sessions
            assert signals.wait_events.keys() == {event for event, count in signals.wait_events.items() if count > 0}
            assert any(after[name] > before[name] for name in before)

    async def test_sessions_that_have_nothing_to_do_are_not_waiting(self, target: Target, table: str) -> None:
        if not target.traits.signals:
            assert await target.signals() is None
            return
        async with self.running(target, LOOKUPS) as running:
            await running.drained()
            signals = await self.signals_when(target, lambda seen: not seen.active)

        assert signals.sessions is not None
        assert signals.sessions >= 4
        assert (signals.active, signals.waiting, signals.lock_waits) == (0, 0, 0)

    # The engine

    async def test_every_operation_is_recorded_once_and_inserts_never_collide(self, target: Target, table: str) -> None:
        async with self.running(target, MIXED) as running:
            await running.until(lambda: len(running.records) >= 400 and len(set(running.records["connection"].tolist())) == 4)
            records = await running.drained()

        inserts = records[records["kind"] == 1]
        found = await fetched(target, "SELECT COUNT(*), COUNT(DISTINCT id) FROM contract_items WHERE id >= 1000000")
        assert found == [(len(inserts), len(inserts))]
        assert set(records["outcome"].tolist()) == {OK}
        assert len(set(records["connection"].tolist())) == 4
        assert (records["duration"] > 0).all()
        assert (records["start"] == records["due"]).all()
        assert (records["rows"] == 1).all()

    async def test_rows_are_those_read_or_changed(self, target: Target, table: str) -> None:
        ten = "SELECT id FROM contract_items WHERE id >= $1 AND id < $1 + 10"
        five = "UPDATE contract_items SET amount = amount + 1 WHERE id > $1 - 5 AND id <= $1"
        none = "DELETE FROM contract_items WHERE id = -$1"
        kinds = {"TEN": (ten, 40), "FIVE": (five, 40), "NONE": (none, 20)}
        given = [
            operation(kind, weight, Statement(sql=sql, values=(KeyValue(low=7, high=7),)))
            for kind, (sql, weight) in kinds.items()
        ]
        async with self.running(target, load(*given), connections=1) as running:
            records = await running.recorded(20)

        assert {int(kind): set(records["rows"][records["kind"] == kind].tolist()) for kind in (0, 1, 2)} == {
            0: {10},
            1: {5},
            2: {0},
        }

    async def test_the_mix_is_kept(self, target: Target, table: str) -> None:
        async with self.running(target, MIXED) as running:
            await running.recorded(300)
            records = await running.drained()

        assert abs(int((records["kind"] == 1).sum()) - 0.4 * len(records)) <= 5

    async def test_two_workers_insert_side_by_side(self, target: Target, table: str) -> None:
        inserts = load(operation("INSERT", 100, INSERT))
        engines = [target.engine(inserts, Draw.seeded(slot, 7, lambda: 0), EngineSettings()) for slot in (0, 1)]
        both = [Running(engine, self.patience) for engine in engines]
        for engine in engines:
            await engine.open()
            engine.set_target(2)
            engine.accept(True)

        for running in both:
            await running.recorded(50)
        records = np.concatenate([await running.drained() for running in both])
        for engine in engines:
            await engine.close()

        found = await fetched(target, "SELECT COUNT(DISTINCT id) FROM contract_items WHERE id >= 1000000")
        assert set(records["outcome"].tolist()) == {OK}
        assert found == [(len(records),)]

    async def test_connections_follow_their_target_up_and_down(self, target: Target, table: str) -> None:
        async with self.running(target, LOOKUPS, connections=1) as running:
            for connections in (8, 2, 0, 3):
                running.engine.set_target(connections)
                await running.until(lambda expected=connections: running.engine.held == expected)  # type: ignore[misc]
            before = len(running.records)
            records = await running.recorded(before + 50)

        assert set(records["outcome"].tolist()) == {OK}
        assert running.engine.held == 0

    async def test_a_rate_is_kept_by_an_absolute_schedule(self, target: Target, table: str) -> None:
        async with self.running(target, LOOKUPS, rate=200) as running:
            await running.recorded(200)
            records = await running.drained()

        dues = np.sort(records["due"])[:150]
        assert np.abs(np.diff(dues) - 5_000_000).max() <= 1000
        assert (records["start"] >= records["due"]).all()

    async def test_operations_wait_in_a_backlog_for_connections(self, target: Target, table: str) -> None:
        async with self.running(target, LOOKUPS, connections=0, rate=500) as running:
            await running.until(lambda: running.engine.backlog >= 50)
            assert len(running.records) == 0
            running.engine.set_target(4)
            records = await running.recorded(50)

        assert ((records["start"] - records["due"]) > 1_000_000).any()

    async def test_after_a_drain_nothing_runs_and_nothing_begins(self, target: Target, table: str) -> None:
        async with self.running(target, MIXED) as running:
            await running.recorded(50)
            records = await running.drained()

            assert running.engine.in_flight == 0
        inserted = int((records["kind"] == 1).sum())
        assert len(running.records) == len(records)
        assert await fetched(target, "SELECT COUNT(*) FROM contract_items WHERE id >= 1000000") == [(inserted,)]

    async def test_nothing_begins_until_it_is_accepted(self, target: Target, table: str) -> None:
        async with self.running(target, LOOKUPS) as running:
            await running.drained()
            before = len(running.records)
            running.engine.accept(True)
            await running.recorded(before + 10)

    async def test_operations_are_told_apart_by_the_epoch_they_began_in(self, target: Target, table: str) -> None:
        async with self.running(target, LOOKUPS) as running:
            await running.recorded(20)
            running.engine.set_epoch(7)
            await running.until(lambda: bool((running.records["epoch"] == 7).sum() >= 20))
            records = await running.drained()

        assert set(records["epoch"].tolist()) == {0, 7}
        last_before, first_after = (records["start"][records["epoch"] == epoch] for epoch in (0, 7))
        assert np.median(last_before) < np.median(first_after)

    async def test_a_statement_that_fails_is_told_apart_and_the_load_goes_on(self, target: Target, table: str) -> None:
        given = load(operation("LOOKUP", 50, LOOKUP), operation("AGAIN", 50, DUPLICATE))
        async with self.running(target, given) as running:
            await running.recorded(100)
            records = await running.drained()
            samples = running.engine.error_samples

        failed = records[records["kind"] == 1]
        states = {bytes(state).decode() for state in failed["sqlstate"]}
        assert set(failed["outcome"].tolist()) == {FAILED}
        assert set(records[records["kind"] == 0]["outcome"].tolist()) == {OK}
        assert {target.classify(FAILED, state) for state in states} == {ErrorClass.DATABASE_ERROR}
        assert "" not in states
        assert 1 <= len(samples) <= 10
        assert {(sample.kind, sample.error_class, sample.sql) for sample in samples} == {
            ("AGAIN", ErrorClass.DATABASE_ERROR, DUPLICATE.sql)
        }
        assert not any("77" in sample.message for sample in samples)
        assert running.engine.failed_connects == 0

    @pytest.mark.parametrize("is_written_out", [False, True])
    async def test_statements_of_one_operation_happen_together_or_not_at_all(
        self, target: Target, table: str, is_written_out: bool
    ) -> None:
        def together(kind: str, *statements: Statement) -> Operation:
            return operation(kind, 50, *((BEGIN, *statements, COMMIT) if is_written_out else statements))

        given = load(together("BOTH", INSERT, SET_N), together("BROKEN", INSERT, DUPLICATE))
        await target.check(given)
        async with self.running(target, given, connections=1) as running:
            await running.recorded(40)
            records = await running.drained()
            samples = running.engine.error_samples

        done = int((records["outcome"] == OK).sum())
        assert set(records[records["kind"] == 0]["outcome"].tolist()) == {OK}
        assert set(records[records["kind"] == 1]["outcome"].tolist()) == {FAILED}
        assert await fetched(target, "SELECT COUNT(*) FROM contract_items WHERE id >= 1000000") == [(done,)]
        assert await fetched(target, "SELECT n FROM contract_items WHERE id = 1") == [(done + 1,)]
        assert {sample.kind for sample in samples} == {"BROKEN"}

    async def test_a_value_may_be_used_again_in_a_later_statement(self, target: Target, table: str) -> None:
        again = Statement(sql="UPDATE contract_items SET name = $1 WHERE id = $2", values=(RandomText(), SameAs(index=0)))
        async with self.running(target, load(operation("BOTH", 100, INSERT, again)), connections=2) as running:
            await running.recorded(20)
            records = await running.drained()

        assert set(records["outcome"].tolist()) == {OK}
        found = await fetched(target, "SELECT COUNT(*) FROM contract_items WHERE id >= 1000000 AND LENGTH(name) = 16")
        assert found == [(len(records),)]

    async def test_a_connection_thinks_between_two_operations(self, target: Target, table: str) -> None:
        pause = timedelta(milliseconds=20)
        async with self.running(target, load(operation("LOOKUP", 100, LOOKUP), think=pause), connections=1) as running:
            records = await running.recorded(5)

        ends, starts = records["start"] + records["duration"], records["start"]
        assert (starts[1:] - ends[:-1] >= 19_000_000).all()

    async def test_what_takes_longer_than_the_limit_is_given_up(self, target: Target, table: str) -> None:
        given = load(operation("LOOKUP", 50, LOOKUP), operation("SLOW", 50, Statement(sql=self.slow_sql)))
        async with self.running(target, given, connections=2, limit=0.3) as running:
            await running.until(lambda: bool((running.records["outcome"] == TIMED_OUT).sum() >= 3))
            records = running.records

        slow = records[records["kind"] == 1]
        state = bytes(slow["sqlstate"][0]).decode()
        assert set(slow["outcome"].tolist()) == {TIMED_OUT}
        assert (slow["duration"] > 200_000_000).all()
        assert (slow["duration"] < 30_000_000_000).all()
        assert target.classify(TIMED_OUT, state) is ErrorClass.QUERY_TIMEOUT
        assert set(records[records["kind"] == 0]["outcome"].tolist()) == {OK}

    async def test_a_drain_that_takes_too_long_says_how_much_it_cut_off(self, target: Target, table: str) -> None:
        given = load(operation("SLOW", 100, Statement(sql=self.slow_sql)))
        async with self.running(target, given, connections=2) as running:
            await running.until(lambda: running.engine.in_flight == 2)

            assert await running.engine.drain(timedelta(milliseconds=50)) == 2

        assert running.records["outcome"].tolist() == [TIMED_OUT, TIMED_OUT]


async def fetched(target: Target, sql: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
    return [tuple(row) for row in await target.fetch(sql, values)]


def _broken() -> Iterator[Sequence[object]]:
    yield from rows(ROWS + 1, 1500)
    raise RuntimeError("in the middle")
