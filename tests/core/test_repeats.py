from datetime import UTC, datetime, timedelta

from drumbeat.bench.model.record import DecisionRecord, without_repeats
from drumbeat.core.repeats import collapsed

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def decided(second: float, what: str, reason: str = "why") -> DecisionRecord:
    return DecisionRecord(at=BEGAN + timedelta(seconds=second), offset=second, what=what, reason=reason)


def test_what_is_said_again_soon_is_told_once_whatever_came_between() -> None:
    said = [(0, "a"), (0, "b"), (1, "a"), (1, "b"), (9, "a"), (30, "a"), (31, "c")]

    found = collapsed(said, lambda each: each[1], lambda each: BEGAN + timedelta(seconds=each[0]))

    assert [(each.first, each.times) for each in found] == [((0, "a"), 3), ((0, "b"), 2), ((30, "a"), 1), ((31, "c"), 1)]


def test_a_decision_says_how_often_it_was_made() -> None:
    made = [decided(second, "Spawn worker-1", "no room") for second in range(5)]

    (told,) = without_repeats(made)

    assert (told.at, told.times, told.reason) == (BEGAN, 5, "no room (5 times in 4 s)")
    assert without_repeats([decided(0, "A"), decided(1, "A", "another")])[1].times == 1
