"""The general engine, over coroutines and over threads, against a database that does as it is told."""

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from bench.driver.fakes import LOAD, FakeDatabase, engine_of, outcomes, running, seconds
from drumbeat.bench.driver.connection import ConnectionSlot
from drumbeat.bench.driver.records import FAILED, LOST, OK, TIMED_OUT
from drumbeat.bench.driver.session_kinds import OperationFailure, Values
from drumbeat.bench.model import ErrorClass, Load, NewKey, Operation, Statement
from drumbeat.core.errors import InvalidInput, InvalidSettings

pytestmark = pytest.mark.parametrize("kind", ["coroutines", "threads"])


def failing(every: int, failure: Callable[[], Exception]) -> Callable[[int, Values], int]:
    """Every so many operations one fails."""
    numbers = itertools.count(1)

    def answer(operation: int, values: Values) -> int:
        if next(numbers) % every == 0:
            raise failure()
        return 1

    return answer


class TestLoad:
    async def test_every_operation_is_recorded_once(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind) as work:
            await work.recorded(2000)
            assert await work.engine.drain(seconds(10)) == 0
            records = work.records

        assert len(records) == len(database.done)
        assert Counter(records["kind"].tolist()) == Counter(operation for operation, _ in database.done)
        assert outcomes(records) == [OK]
        assert set(records["rows"].tolist()) == {1}

    async def test_the_mix_is_exact(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind, connections=1) as work:
            await work.recorded(4000)

        order = [operation for operation, _ in database.done]
        assert Counter(order[:4000]) == {0: 3000, 1: 1000}

    async def test_no_new_key_is_given_twice(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind, connections=8) as work:
            await work.recorded(4000)

        keys = [values[0][0] for operation, values in database.done if operation == 1]
        assert len(keys) == len(set(keys))

    async def test_values_come_as_drivers_take_them(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind, connections=1) as work:
            await work.recorded(10)

        types = {operation: [type(value) for value in values[0]] for operation, values in database.done}
        assert types == {0: [int], 1: [int, str]}

    async def test_little_s_law_holds(self, kind: str) -> None:
        async with running(FakeDatabase(), kind, connections=1) as work:
            records = np.sort(await work.recorded(3000), order="start")

        idle = records["start"][1:] - (records["start"] + records["duration"])[:-1]
        assert (idle >= 0).all()
        assert np.median(idle) < 1_000_000

    async def test_running_out_of_keys_ends_the_load_and_says_so(self, kind: str) -> None:
        few = Operation(kind="INSERT", weight=100, statements=(Statement(sql="$1", values=(NewKey(first=1, span=2000),)),))
        database = FakeDatabase()
        async with running(database, kind, load=Load(name="few", operations=(few,))) as work:
            await work.until(lambda: work.engine.failure is not None)
            await work.until(lambda: len(work.records) == len(database.done))  # those that others were in the middle of
            work.engine.accept(True)
        await work.until(lambda: database.open == 0)

        assert isinstance(work.engine.failure, InvalidInput)
        assert "span" in str(work.engine.failure)
        answered = work.records[work.records["outcome"] == OK]
        assert len(answered) == len(database.done) <= 2000


class TestConnections:
    async def test_connects_are_bounded(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind, connections=40, parallel_connects=3) as work:
            await work.until(lambda: work.engine.open_connections == 40)

        assert 1 <= database.most_connecting <= 3

    async def test_no_more_are_held_than_allowed(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind, connections=50, most_connections=5) as work:
            await work.until(lambda: work.engine.open_connections == 5)
            await work.recorded(100)

            assert (work.engine.open_connections, database.open) == (5, 5)

    async def test_the_target_may_change_at_any_moment(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind, connections=1) as work:
            for target in (30, 3, 17, 0, 8):
                work.engine.set_target(target)
                await work.until(lambda expected=target: work.engine.open_connections == expected == database.open)  # type: ignore[misc]
            await work.engine.drain(seconds(10))
            records = work.records

        assert database.open == 0
        assert outcomes(records) == [OK]
        assert len(records) == len(database.done)

    async def test_a_target_that_changes_while_connecting_is_kept(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind, connections=1, parallel_connects=2) as work:
            for target in (40, 2, 40, 4):
                work.engine.set_target(target)
                await asyncio.sleep(0.001)
            await work.until(lambda: work.engine.open_connections == 4 == database.open)
            await work.until(lambda: database.connecting == 0)

            assert (work.engine.open_connections, database.open) == (4, 4)

    async def test_one_that_is_too_many_finishes_its_operation(self, kind: str) -> None:
        database = FakeDatabase(hangs=True)
        async with running(database, kind, connections=4) as work:
            await work.until(lambda: work.engine.in_flight == 4)
            work.engine.set_target(1)
            assert (work.engine.in_flight, work.engine.open_connections) == (4, 4)
            database.let_go.set()
            await work.until(lambda: work.engine.open_connections == 1)
            records = work.records

        assert outcomes(records) == [OK]
        assert len(set(records["connection"].tolist())) == 4

    async def test_a_lost_one_is_replaced_and_the_load_goes_on(self, kind: str) -> None:
        database = FakeDatabase(answer=failing(100, lambda: OperationFailure(LOST, "gone", "the server went away")))
        async with running(database, kind, connections=2) as work:
            await work.until(lambda: int((work.records["outcome"] == LOST).sum()) >= 4)
            records = work.records

        assert database.connects > 4
        assert outcomes(records) == [OK, LOST]
        assert {sample.error_class for sample in work.engine.error_samples} == {ErrorClass.CONNECTION}

    async def test_connects_that_fail_are_counted_and_tried_again(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind, connections=0) as work:
            database.refusals = 3
            work.engine.set_target(1)
            await work.until(lambda: work.engine.open_connections == 1)

            assert work.engine.failed_connects == 3
            assert [sample.message for sample in work.engine.error_samples] == ["nobody there"] * 3

    async def test_pauses_grow_until_something_was_done(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        pauses: list[float] = []

        async def rest(self: ConnectionSlot, pause: float) -> None:
            pauses.append(pause)
            await asyncio.sleep(0)

        database = FakeDatabase(answer=failing(50, lambda: OperationFailure(LOST, "gone", "the server went away")))
        async with running(database, kind, connections=0) as work:
            monkeypatch.setattr(ConnectionSlot, "rest", rest)
            database.refusals = 8
            work.engine.set_target(1)
            await work.until(lambda: len(pauses) >= 11)

        assert pauses[:11] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.1, 0.1, 0.1]

    async def test_a_connect_that_does_not_end_is_given_up(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind, connections=0, connect_limit=seconds(1)) as work:
            database.connects_hang = True
            work.engine.set_target(2)
            await work.until(lambda: work.engine.failed_connects >= 2)
            assert work.engine.open_connections == 0
            database.connects_hang = False
            await work.until(lambda: work.engine.open_connections == 2)

        assert work.engine.error_samples[0].message == "no answer within 1 s"

    async def test_closing_does_not_wait_for_a_connect(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind, connections=0) as work:
            database.connects_hang = True
            work.engine.set_target(2)
            await work.until(lambda: database.connecting == 2)
            async with asyncio.timeout(60):
                await work.engine.close()

        assert (work.engine.failed_connects, work.engine.open_connections) == (0, 0)

    async def test_open_makes_one_and_says_when_it_cannot(self, kind: str) -> None:
        with pytest.raises(InvalidSettings, match="nobody there"):
            await engine_of(FakeDatabase(refusals=1), kind).open()
        with pytest.raises(InvalidInput, match="not SQL"):
            await engine_of(FakeDatabase(refusals=1, refusal=lambda: InvalidInput("not SQL")), kind).open()

    async def test_closing_leaves_no_connection_and_no_thread(self, kind: str) -> None:
        before = own_threads()
        database = FakeDatabase()
        async with running(database, kind, connections=5) as work:
            await work.recorded(10)

        assert database.open == 0
        await work.until(lambda: own_threads() <= before)

    async def test_closing_twice_or_unopened_is_closing_once(self, kind: str) -> None:
        unopened, database = FakeDatabase(), FakeDatabase()
        await engine_of(unopened, kind).close()

        async with running(database, kind) as work:
            await work.recorded(1)
            await work.engine.close()
            held = (work.engine.open_connections, database.open)

        assert held == (0, 0)
        assert (unopened.open, database.open) == (0, 0)


def own_threads() -> set[threading.Thread]:
    """Every thread but those the event loop keeps for ``to_thread``."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}


class TestFailures:
    async def test_one_in_a_hundred_is_one_in_a_hundred(self, kind: str) -> None:
        database = FakeDatabase(answer=failing(100, lambda: OperationFailure(FAILED, "23505", "no")))
        async with running(database, kind, connections=1) as work:
            records = (await work.recorded(2000))[:2000]

        failed = records[records["outcome"] == FAILED]
        assert len(failed) == 20
        assert set(failed["sqlstate"].tolist()) == {b"23505"}
        assert database.connects == 2

    async def test_ten_of_each_class_are_kept_as_samples_without_their_values(self, kind: str) -> None:
        def answer(operation: int, values: Values) -> int:
            if operation == 1:
                key, text = values[0]
                raise OperationFailure(FAILED, "dup", f"Duplicate entry '{key}-{text}' for key 1000")
            return 1

        async with running(FakeDatabase(answer=answer), kind) as work:
            await work.recorded(1000)
            samples = work.engine.error_samples

        assert len(samples) == 10
        assert {sample.message for sample in samples} == {"Duplicate entry '?-?' for key 1000"}
        assert {(sample.kind, sample.sql, sample.sqlstate) for sample in samples} == {("INSERT", "INSERT $1, $2", "dup")}

    async def test_an_error_nobody_expected_is_recorded_and_its_session_replaced(self, kind: str) -> None:
        database = FakeDatabase(answer=failing(50, lambda: ZeroDivisionError("oh")))
        async with running(database, kind, connections=1) as work:
            await work.until(lambda: int((work.records["outcome"] == FAILED).sum()) >= 2)

        assert database.connects >= 3
        assert work.engine.error_samples[0].message == "ZeroDivisionError: oh"
        assert work.engine.failure is None


class TestLimit:
    async def test_what_takes_too_long_is_interrupted(self, kind: str) -> None:
        database = FakeDatabase(hangs=True)
        async with running(database, kind, connections=2, limit=seconds(0.05)) as work:
            await work.until(lambda: int((work.records["outcome"] == TIMED_OUT).sum()) >= 4)
            records = work.records

        assert outcomes(records[:4]) == [TIMED_OUT]
        assert (database.connects == 3) is (kind == "threads"), "a coroutine's session is closed to end it, a thread's is not"
        assert (records["duration"][:4] >= 50_000_000).all()

    async def test_what_cannot_be_interrupted_is_given_up_and_replaced(self, kind: str) -> None:
        database = FakeDatabase(hangs=True, heeds=False)
        async with running(database, kind, connections=2, limit=seconds(0.05)) as work:
            await work.until(lambda: int((work.records["outcome"] == TIMED_OUT).sum()) >= 2)
            given_up = len(work.records)
            database.let_go.set()
            await work.until(lambda: work.engine.open_connections == 2)
            await work.recorded(given_up + 20)
            assert await work.engine.drain(seconds(10)) == 0
            records = work.records

        counted = Counter(records["outcome"].tolist())
        late = len(database.done) - counted[OK]
        assert set(counted) == {OK, TIMED_OUT}
        assert 0 <= late <= counted[TIMED_OUT], "what was given up is not recorded again when it answers after all"

    async def test_a_drain_cuts_off_what_does_not_end(self, kind: str) -> None:
        database = FakeDatabase(hangs=True, heeds=False)
        async with running(database, kind, connections=3) as work:
            await work.until(lambda: work.engine.in_flight == 3)

            assert await work.engine.drain(seconds(0.02)) == 3
            assert work.engine.in_flight == 0
            assert outcomes(work.records) == [TIMED_OUT]
            assert len(work.records) == 3

    async def test_closing_does_not_wait_for_what_hangs(self, kind: str) -> None:
        database = FakeDatabase(hangs=True, heeds=False)
        engine = engine_of(database, kind)
        await engine.open()
        engine.set_target(2)
        engine.accept(True)
        async with asyncio.timeout(20):
            while engine.in_flight < 2:
                await asyncio.sleep(0.002)
            await engine.close()
        database.let_go.set()

        assert engine.take()["outcome"].tolist() == [TIMED_OUT, TIMED_OUT]


class TestOrders:
    async def test_nothing_begins_unless_it_is_accepted(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind) as work:
            work.engine.accept(False)
            await work.until(lambda: len(work.engine._gate._idle) == 4)
            begun = len(database.done)
            assert len(work.records) == begun

            work.engine.accept(True)
            await work.recorded(begun + 10)

    async def test_an_epoch_marks_what_begins_after_it(self, kind: str) -> None:
        database = FakeDatabase(hangs=True)
        async with running(database, kind, connections=2) as work:
            await work.until(lambda: work.engine.in_flight == 2)
            work.engine.set_epoch(3)
            database.let_go.set()
            await work.recorded(50)
            await work.engine.drain(seconds(10))
            records = work.records

        assert Counter(records["epoch"].tolist())[0] == 2
        assert set(records["epoch"].tolist()) == {0, 3}

    async def test_a_rate_is_kept_whatever_the_database_does(self, kind: str) -> None:
        async with running(FakeDatabase(), kind, connections=0) as work:
            work.engine.set_rate(1000)
            work.engine.set_target(4)
            await work.recorded(300)
            await work.engine.drain(seconds(10))
            records = work.records

        dues = np.sort(records["due"])[:250]
        assert np.abs(np.diff(dues) - 1_000_000).max() <= 1
        assert (records["start"] >= records["due"]).all()

    async def test_a_stall_is_paid_by_all_that_were_due(self, kind: str) -> None:
        database = FakeDatabase(hangs=True)
        async with running(database, kind, connections=2) as work:
            work.engine.set_rate(2000)
            await work.until(lambda: work.engine.backlog >= 100)
            waiting = work.engine.backlog
            database.let_go.set()
            await work.recorded(waiting + 50)
            await work.engine.drain(seconds(10))
            records = np.sort(work.records, order="due")

        late = records["start"] - records["due"]
        assert int((late > 1_000_000).sum()) >= waiting // 2
        assert np.abs(np.diff(records["due"][5:waiting]) - 500_000).max() <= 1, "none was left out"

    async def test_a_rate_may_change_and_end(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind, connections=2) as work:
            work.engine.set_rate(50)
            await work.until(lambda: len(work.engine._gate._idle) == 2)
            begun = len(work.records)
            work.engine.set_rate(5000)
            await work.recorded(begun + 200)
            work.engine.set_rate(None)
            records = await work.recorded(len(work.records) + 2000)

        assert (records["start"][-500:] == records["due"][-500:]).all()
        assert work.engine.backlog == 0

    async def test_a_rate_below_nothing_is_refused(self, kind: str) -> None:
        with pytest.raises(InvalidInput, match="at least 0"):
            engine_of(FakeDatabase(), kind).set_rate(-1)

    async def test_at_a_rate_of_nothing_nothing_begins(self, kind: str) -> None:
        async with running(FakeDatabase(), kind, connections=0) as work:
            work.engine.set_rate(0)
            work.engine.set_target(2)
            await work.until(lambda: len(work.engine._gate._idle) == 2)
            before = len(work.records)
            work.engine.set_rate(1000)
            await work.recorded(20)

        assert before == 0

    async def test_connections_take_turns_unless_the_hottest_is_wanted(self, kind: str) -> None:
        used = {}
        for hottest_first in (False, True):
            async with running(FakeDatabase(), kind, connections=0, hottest_first=hottest_first) as work:
                work.engine.accept(False)
                work.engine.set_target(4)
                await work.until(lambda: work.engine.open_connections == 4)
                work.engine.set_rate(100)
                work.engine.accept(True)
                records = await work.recorded(16)
                used[hottest_first] = Counter(records["connection"].tolist())

        assert len(used[False]) == 4
        assert max(used[False].values()) - min(used[False].values()) <= 3
        assert max(used[True].values()) > max(used[False].values())

    async def test_think_time_passes_between_two_operations(self, kind: str) -> None:
        thoughtful = Load(name="slow", operations=LOAD.operations, think=seconds(0.01))
        async with running(FakeDatabase(), kind, connections=1, load=thoughtful) as work:
            records = np.sort(await work.recorded(6), order="start")

        assert (records["start"][1:] - (records["start"] + records["duration"])[:-1] >= 9_000_000).all()

    async def test_whoever_does_not_take_records_slows_nobody(self, kind: str) -> None:
        database = FakeDatabase()
        async with running(database, kind) as work:
            await work.until(lambda: len(database.done) >= 20_000)
            await work.engine.drain(seconds(10))

            assert len(work.engine.take()) == len(database.done)
            assert len(work.engine.take()) == 0
