"""Schedules and the gate, on a clock that moves only when told."""

from dataclasses import dataclass, field

import pytest

from drumbeat.bench.driver.pacing import AT_ONCE, STOP, FixedSchedule, PacingGate

SECOND = 1_000_000_000


@dataclass(slots=True)
class Moment:
    ns: int = 0

    def __call__(self) -> int:
        return self.ns


@dataclass(slots=True, eq=False)
class Waiting:
    woken: list[int] = field(default_factory=list)

    def wake(self, due: int) -> None:
        self.woken.append(due)


@pytest.fixture
def now() -> Moment:
    return Moment(5 * SECOND)


@pytest.fixture
def gate(now: Moment) -> PacingGate:
    return PacingGate(now=now)


class TestSchedule:
    def test_dues_do_not_drift_however_odd_the_rate(self) -> None:
        schedule = FixedSchedule(0, 3)

        dues = [schedule.take(10**18) for _ in range(3_000_001)]

        assert dues[:4] == [0, SECOND // 3, SECOND * 2 // 3, SECOND]
        assert dues[-1] == 1_000_000 * SECOND

    def test_nothing_is_taken_before_it_is_due(self) -> None:
        schedule = FixedSchedule(100, 10)

        assert [schedule.take(100), schedule.take(101), schedule.take(100 + SECOND // 10)] == [100, None, 100 + SECOND // 10]

    @pytest.mark.parametrize(("now", "overdue"), [(0, 1), (SECOND // 10 - 1, 1), (SECOND // 10, 2), (SECOND, 11)])
    def test_what_is_due_and_not_taken_is_counted(self, now: int, overdue: int) -> None:
        assert FixedSchedule(0, 10).overdue(now) == overdue

    def test_an_ended_one_keeps_what_was_due(self) -> None:
        schedule = FixedSchedule(0, 10)
        schedule.take(0)
        schedule.end(SECOND)

        assert schedule.overdue(9 * SECOND) == 10
        assert [schedule.take(9 * SECOND) for _ in range(11)][-2:] == [SECOND, None]
        assert schedule.due is None


class TestGate:
    def test_it_is_closed_at_first(self, gate: PacingGate) -> None:
        waiter = Waiting()

        assert gate.turn(waiter) is None
        gate.accept(True)

        assert waiter.woken == [AT_ONCE]
        assert gate.free

    @pytest.mark.parametrize("rate", [None, 10])
    def test_a_rate_that_is_set_while_it_is_closed_lets_nobody_through(self, gate: PacingGate, rate: float | None) -> None:
        waiter = Waiting()
        gate.set_rate(5)
        gate.set_rate(rate)
        gate.fire()

        assert gate.turn(waiter) is None
        assert (gate.free, waiter.woken) == (False, [])

    def test_a_turn_is_given_when_it_is_due(self, gate: PacingGate, now: Moment) -> None:
        gate.set_rate(10)
        gate.accept(True)
        first, second = Waiting(), Waiting()

        assert gate.turn(first) == 5 * SECOND
        assert gate.turn(second) is None
        gate.fire()
        assert second.woken == []
        now.ns += SECOND // 10
        gate.fire()
        assert second.woken == [5 * SECOND + SECOND // 10]

    @pytest.mark.parametrize(("hottest_first", "order"), [(False, [0, 1, 2]), (True, [2, 1, 0])])
    def test_who_has_waited_longest_is_first_unless_the_hottest_is(
        self, now: Moment, hottest_first: bool, order: list[int]
    ) -> None:
        gate = PacingGate(hottest_first=hottest_first, now=now)
        waiters = [Waiting() for _ in range(3)]
        for waiter in waiters:
            gate.turn(waiter)
        gate.set_rate(1)
        gate.accept(True)

        given = []
        for _ in range(3):
            gate.fire()
            given.append(next(n for n, waiter in enumerate(waiters) if waiter.woken and n not in given))
            now.ns += SECOND

        assert given == order

    def test_what_is_overdue_goes_to_whoever_comes_free(self, gate: PacingGate, now: Moment) -> None:
        gate.set_rate(10)
        gate.accept(True)
        now.ns += SECOND

        assert gate.backlog == 11
        assert [gate.turn(Waiting()) for _ in range(12)][-2:] == [6 * SECOND, None]
        assert gate.backlog == 0

    @pytest.mark.parametrize(("again", "upcoming"), [(10, 6.1), (100, 6.01), (5, 6.1), (0, None)])
    def test_what_is_overdue_stays_so_whatever_rate_is_set(
        self, gate: PacingGate, now: Moment, again: float, upcoming: float | None
    ) -> None:
        gate.set_rate(10)
        gate.accept(True)
        now.ns += SECOND
        gate.set_rate(again)

        assert gate.backlog == 11
        assert [gate.turn(Waiting()) for _ in range(12)] == [5 * SECOND + n * SECOND // 10 for n in range(11)] + [None]
        assert gate.next_fire(now.ns) == (None if upcoming is None else int(upcoming * SECOND))

    def test_nothing_begins_at_a_rate_of_nothing(self, gate: PacingGate, now: Moment) -> None:
        gate.set_rate(0)
        gate.accept(True)
        now.ns += 60 * SECOND
        waiter = Waiting()

        assert gate.turn(waiter) is None
        gate.fire()
        assert (waiter.woken, gate.free, gate.next_fire(now.ns)) == ([], False, None)

    def test_what_is_forgiven_is_owed_no_more_and_the_rate_goes_on(self, gate: PacingGate, now: Moment) -> None:
        gate.set_rate(10)
        gate.accept(True)
        now.ns += SECOND
        gate.set_rate(20)
        now.ns += SECOND
        assert gate.backlog == 31

        gate.drop_overdue()

        assert gate.backlog == 0
        now.ns += SECOND // 2
        assert gate.backlog == 10

    def test_a_closed_gate_owes_nothing_when_it_opens_again(self, gate: PacingGate, now: Moment) -> None:
        gate.set_rate(10)
        gate.accept(True)
        gate.accept(False)
        now.ns += 60 * SECOND

        assert (gate.backlog, gate.next_fire(now.ns)) == (0, None)
        waiting = [Waiting(), Waiting()]
        assert [gate.turn(each) for each in waiting] == [None, None]
        gate.accept(True)
        assert gate.backlog == 0, "whoever waits for work is no backlog"
        gate.fire()
        assert [each.woken for each in waiting] == [[now.ns], []]

    def test_a_backlog_is_what_is_due_while_nobody_waits_for_it(self, gate: PacingGate, now: Moment) -> None:
        gate.set_rate(10)
        gate.accept(True)
        now.ns += SECOND

        assert gate.backlog == 11

    def test_as_fast_as_possible_wakes_everybody(self, gate: PacingGate) -> None:
        gate.set_rate(0.001)
        gate.accept(True)
        waiters = [Waiting() for _ in range(3)]
        given = [gate.turn(waiter) for waiter in waiters]
        gate.set_rate(None)

        assert given[1:] == [None, None]
        assert [waiter.woken for waiter in waiters] == [[], [AT_ONCE], [AT_ONCE]]

    def test_who_is_no_longer_wanted_is_woken_once(self, gate: PacingGate) -> None:
        waiter = Waiting()
        gate.turn(waiter)

        gate.leave(waiter)
        gate.leave(waiter)
        gate.accept(True)

        assert waiter.woken == [STOP]
