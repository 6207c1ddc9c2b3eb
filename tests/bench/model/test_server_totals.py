import pytest

from drumbeat.bench.model import ControllerState
from drumbeat.bench.model.server_totals import RESETS, RunningTotals, rise
from drumbeat.bench.results.conclusion import enrichment

Totals = dict[str, float]

LOOKS: list[tuple[str, list[Totals], float, float]] = [
    ("they rise", [{"db.commits": 100}, {"db.commits": 150}], 50, 0),
    ("a crash begins them again", [{"db.commits": 100}, {"db.commits": 150}, {"db.commits": 20}], 70, 1),
    ("a young server is started again", [{"db.commits": 100, "Uptime": 60}, {"db.commits": 80, "Uptime": 3}], 80, 1),
    ("so do two", [{"db.commits": 100}, {"db.commits": 10}, {"db.commits": 4}, {"db.commits": 9}], 19, 2),
    ("one that is known by its mark", [{"db.commits": 10, "db.since": 1}, {"db.commits": 9, "db.since": 2}], 9, 1),
    ("one after which they rose higher", [{"db.commits": 10, "db.since": 1}, {"db.commits": 15, "db.since": 2}], 15, 1),
    ("a server that is away for a look", [{"db.commits": 100}, {}, {"db.commits": 130}], 30, 0),
]


@pytest.mark.parametrize(("looks", "risen", "resets"), [row[1:] for row in LOOKS], ids=[row[0] for row in LOOKS])
def test_running_totals_rise_by_what_was_counted_although_they_are_begun_again(
    looks: list[Totals], risen: float, resets: float
) -> None:
    running = RunningTotals()
    seen = [told for look in looks if (told := running.update(look))]

    found = rise(seen[0], seen[-1])

    assert (found["db.commits"], found[RESETS]) == (risen, resets)
    assert "db.since" not in found


def test_totals_that_forget_a_little_go_on() -> None:
    assert rise({"statements.calls": 1000}, {"statements.calls": 990}) == {"statements.calls": 0}


def test_two_looks_of_two_orchestrators_never_come_to_less_than_nothing() -> None:
    assert rise({"db.commits": 1000}, {"db.commits": 30}) == {"db.commits": 30}


def test_a_result_says_that_totals_were_begun_again() -> None:
    moments = {"before_warmup": 5.0, "after_warmup": 900.0, "after_measurement": 70.0}
    looks = {moment: {"db.commits": commits} for moment, commits in moments.items()}

    status, error, parts = enrichment(ControllerState(snapshots=looks))

    assert (status, error) == ("COMPLETED", None)
    assert (parts["measurement"], parts["warmup"]) == ({"db.commits": 70}, {"db.commits": 895})
    assert "totals were reset" in parts["note"]


def test_totals_begun_again_before_the_first_look_at_the_measurement_are_told_too() -> None:
    """The look that was to be the measurement's first may come late: after the server was gone and back."""
    moments = {"before_warmup": 0.0, "after_warmup": 1.0, "after_measurement": 1.0}
    looks = {moment: {"db.commits": 100.0, RESETS: resets} for moment, resets in moments.items()}

    _, _, parts = enrichment(ControllerState(snapshots=looks))

    assert "totals were reset" in parts["note"]
