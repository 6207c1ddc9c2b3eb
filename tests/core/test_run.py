"""A run's legal moves."""

import pytest

from drumbeat.core.errors import IllegalMove
from drumbeat.core.run import RUN_ENDED, RUN_MOVES, Phase, Run, RunId, RunStatus, check_run_move

STATES = ("PREPARED", "STARTING", "RUNNING", "STOPPING", "CANCELLING", "COMPLETED", "FAILED", "CANCELLED")
DIAGRAM = {
    "PREPARED":   ".>..>.>>",
    "STARTING":   "..>>>.>.",
    "RUNNING":    "...>>.>.",
    "STOPPING":   "....>>>.",
    "CANCELLING": "......>>",
    "COMPLETED":  "........",
    "FAILED":     "........",
    "CANCELLED":  "........",
}  # fmt: skip

ARROWS = [(before, after, row[n] == ">") for before, row in DIAGRAM.items() for n, after in enumerate(STATES)]


@pytest.mark.parametrize(("before", "after"), [(before, after) for before, after, legal in ARROWS if legal])
def test_a_move_along_an_arrow_is_legal(before: str, after: str) -> None:
    assert RunStatus(after) in RUN_MOVES[RunStatus(before)]
    check_run_move("r1", RunStatus(before), RunStatus(after))


@pytest.mark.parametrize(("before", "after"), [(before, after) for before, after, legal in ARROWS if not legal])
def test_a_move_without_an_arrow_is_refused(before: str, after: str) -> None:
    with pytest.raises(IllegalMove, match=f"r1 cannot move from {before} to {after}"):
        check_run_move("r1", RunStatus(before), RunStatus(after))


def test_the_diagram_has_every_state() -> None:
    assert set(STATES) == set(RunStatus) == set(RUN_MOVES)


def test_an_ended_run_goes_nowhere_and_every_other_can_end() -> None:
    assert {status for status, arrows in RUN_MOVES.items() if not arrows} == RUN_ENDED
    assert all(RunStatus.FAILED in RUN_MOVES[status] for status in set(RunStatus) - RUN_ENDED)


def test_a_refusal_names_the_moves_there_are() -> None:
    with pytest.raises(IllegalMove, match="CANCELLING, FAILED, RUNNING"):
        check_run_move("r1", RunStatus.STARTING, RunStatus.COMPLETED)
    with pytest.raises(IllegalMove, match="end state"):
        check_run_move("r1", RunStatus.COMPLETED, RunStatus.RUNNING)


def test_a_new_run_is_prepared_and_has_counted_nothing() -> None:
    run = Run(run_id=RunId("r1"), name="a", config={})

    assert (run.status, run.phase, run.operations, run.errors, run.qps) == (RunStatus.PREPARED, None, 0, 0, 0.0)
    assert (run.created_at, run.started_at, run.ended_at, run.completion_reason) == (None, None, None, None)


def test_the_phases_are_the_seeds() -> None:
    assert list(Phase) == ["PREPARING", "WARMUP", "MEASUREMENT", "COOLDOWN", "PROCESSING"]
