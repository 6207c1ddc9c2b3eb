"""Tests that every ``Engine`` must pass: hold connections, keep mix and rate, record each operation once, drain."""

from datetime import timedelta

import numpy as np
import pytest

from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.records import FAILED, OK, TIMED_OUT
from drumbeat.bench.model import (
    ErrorClass,
    KeyValue,
    Operation,
    RandomText,
    SameAs,
    Statement,
)
from drumbeat.bench.targets.contract.given import (
    BEGIN,
    COMMIT,
    DUPLICATE,
    INSERT,
    LOOKUP,
    LOOKUPS,
    MIXED,
    SET_N,
    ContractFixtures,
    Running,
    fetched,
    load,
    operation,
)
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.values.draw import Draw


class EngineContract(ContractFixtures):
    """Tests that every ``Engine`` (which runs a load on a database) must pass."""

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
        both = [Running(engine, self.timeout) for engine in engines]
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
                await running.until(lambda expected=connections: running.engine.open_connections == expected)  # type: ignore[misc]
            before = len(running.records)
            records = await running.recorded(before + 50)

        assert set(records["outcome"].tolist()) == {OK}
        assert running.engine.open_connections == 0

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
