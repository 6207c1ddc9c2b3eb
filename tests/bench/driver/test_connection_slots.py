"""Which connections are opened when: those that failed wait, and none waits for another."""

import math
from typing import Any, cast

from drumbeat.bench.driver.connection_slots import ConnectionSlots

SESSION = cast("Any", object())


def slots(wanted: int) -> ConnectionSlots:
    made = ConnectionSlots(wanted=wanted)
    made.changed = False
    return made


def test_a_slot_that_failed_waits_twice_as_long_each_time_up_to_five_seconds() -> None:
    made = slots(1)
    waits = []
    for _ in range(8):
        made.note_failure(0, now=100.0)
        waits.append(round(made.retry_at[0] - 100.0, 3))

    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_slot_that_failed_for_days_still_waits_five_seconds() -> None:
    made = slots(1)
    made.tries[0] = 100_000  # after 1,024 failures, 85 minutes, the next doubling would be too large for a float

    made.note_failure(0, now=100.0)

    assert made.retry_at[0] == 105.0


def test_slots_that_wait_keep_no_other_slot_from_opening() -> None:
    made = slots(4)
    for slot in (0, 1):
        made.note_failure(slot, now=100.0)

    assert made.missing(100.0) == [2, 3]
    assert (made.is_check_due(100.05), made.is_check_due(100.1)) == (False, True)
    assert made.missing(100.1) == [0, 1, 2, 3]
    assert made.next_retry == math.inf


def test_a_slot_that_opened_forgets_its_failures() -> None:
    made = slots(2)
    made.note_failure(0, now=100.0)
    made.note_failure(0, now=100.0)

    made.note_opened(0, SESSION)
    del made.open[0]
    made.note_failure(0, now=200.0)

    assert made.missing(200.0) == [1]
    assert made.missing(200.1) == [0, 1]
