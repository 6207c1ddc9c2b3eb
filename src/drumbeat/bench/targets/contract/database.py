"""Tests that every ``Target`` must pass: describe, check, load rows, fetch, and server statistics."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.model import (
    KeyValue,
    Statement,
    ValueType,
)
from drumbeat.bench.targets.contract.given import (
    COLUMNS,
    DDL,
    INSERT,
    LOOKUP,
    LOOKUPS,
    MOMENT,
    ROWS,
    SET_N,
    TABLE,
    ContractFixtures,
    draw,
    fetched,
    load,
    operation,
    rows,
)
from drumbeat.bench.targets.interface import Target
from drumbeat.core.errors import InvalidInput

_COUNT_ROWS = """
import asyncio, sys
from drumbeat.bench.targets.open import open_target

async def main():
    async with open_target(sys.argv[1]) as target:
        print((await target.fetch("SELECT COUNT(*) FROM contract_items"))[0][0])

asyncio.run(main())
"""


class DatabaseContract(ContractFixtures):
    """Tests that every ``Target`` (the adapter of a database under test) must pass."""

    @pytest.mark.parametrize("name", ["contract_absent", "nowhere.contract_absent", "no.where.", "#\x01."])
    async def test_a_table_that_is_not_there_is_said_to_be_missing(self, target: Target, name: str) -> None:
        await target.define(DDL)

        with pytest.raises(InvalidInput, match="has no table"):
            await target.describe(name)

    async def test_a_table_is_described_by_its_columns_key_and_time(self, target: Target, table: str) -> None:
        described = await target.describe(table)

        types = {column.name: column.type for column in described.columns}
        assert list(types) == list(COLUMNS)
        assert types["id"] is ValueType.BIGINT
        assert types["n"] in {ValueType.INT, ValueType.BIGINT}
        assert (types["amount"], types["price"]) == (ValueType.FLOAT, ValueType.FLOAT)
        assert (types["name"], types["code"], types["note"]) == (ValueType.TEXT,) * 3
        assert (described.key, described.key_low, described.key_high) == ("id", 1, ROWS)
        assert (types["made_at"], described.time_column) == (ValueType.TIMESTAMP, "made_at")
        assert [column.nullable for column in described.columns[:2]] == [False, True]

    async def test_a_table_without_rows_has_a_key_without_bounds(self, target: Target) -> None:
        await target.define(DDL)

        described = await target.describe(TABLE)

        assert (described.key, described.key_low, described.key_high) == ("id", None, None)

    async def test_a_query_that_the_database_refuses_is_said_to_be_invalid(self, target: Target, table: str) -> None:
        with pytest.raises(InvalidInput, match="no_such_column"):
            await target.fetch("SELECT no_such_column FROM contract_items")

        assert await fetched(target, "SELECT COUNT(*) FROM contract_items") == [(ROWS,)]

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
            await target.load_rows(table, COLUMNS, [*rows(ROWS + 1, 5000), *rows(3, 1)])
        with pytest.raises(RuntimeError, match="test error after 1500 rows"):
            await target.load_rows(table, COLUMNS, _broken())

        assert await fetched(target, "SELECT COUNT(*) FROM contract_items") == [(ROWS,)]
        assert await target.load_rows(table, COLUMNS, rows(ROWS + 1, 3)) == 3

    async def test_a_placeholder_may_be_used_twice_and_in_any_order(self, target: Target, table: str) -> None:
        sql = "SELECT id FROM contract_items WHERE id >= $2 AND (id = $1 OR id = $1 + 1) AND name <> '$3' ORDER BY id"

        assert await fetched(target, sql, [40, 7]) == [(40,), (41,)]

    async def test_fetch_takes_moments(self, target: Target, table: str) -> None:
        found = await fetched(
            target,
            "SELECT id FROM contract_items WHERE made_at < $1 ORDER BY id",
            [MOMENT + timedelta(seconds=3)],
        )

        assert [row[0] for row in found] == [1, 2]

    async def test_a_second_process_may_use_it_where_that_is_declared(self, target: Target, table: str) -> None:
        if target.traits.networked:
            assert target.traits.processes
            return
        async with self.running(target, LOOKUPS) as running:
            await running.recorded(20)
            command = [sys.executable, "-c", _COUNT_ROWS, target.location]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)

        assert (done.returncode == 0) is target.traits.processes, done.stderr
        assert done.stdout.strip() == (str(ROWS) if target.traits.processes else "")

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
            assert (signals.sessions is not None) is target.traits.sessions
            assert signals.sessions is None or signals.sessions >= max(4, signals.active or 0)
            assert 0 <= (signals.waiting or 0) <= (signals.active or 0)
            assert signals.wait_events.keys() == {event for event, count in signals.wait_events.items() if count > 0}
            assert any(after[name] > before[name] for name in before) is target.traits.totals

    async def test_sessions_that_have_nothing_to_do_are_not_waiting(self, target: Target, table: str) -> None:
        if not target.traits.signals:
            assert await target.signals() is None
            return
        async with self.running(target, LOOKUPS) as running:
            await running.drained()
            signals = await self.signals_when(target, lambda seen: not seen.active)

        assert (signals.sessions is not None) is target.traits.sessions
        assert signals.sessions is None or signals.sessions >= 4
        assert (signals.active, signals.waiting, signals.lock_waits or 0) == (0, 0, 0)


def _broken() -> Iterator[Sequence[object]]:
    yield from rows(ROWS + 1, 1500)
    raise RuntimeError("test error after 1500 rows")
