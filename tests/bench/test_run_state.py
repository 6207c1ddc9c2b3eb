"""What a run's row keeps is read back as it was, and what cannot be read is said."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from drumbeat.bench.model import ControllerState, LoadMode, Objective, RunPlan
from drumbeat.bench.run_state import plan_or_default, state_document, stored_plan, stored_state
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Run, RunId

PLAN = RunPlan(load_mode=LoadMode.QPS, objectives={"read": Objective(p95_ms=5)}, duration=timedelta(seconds=12))
UNREADABLE: list[dict[str, Any]] = [{}, {"plan": None}, {"plan": {"load_mode": "SIDEWAYS"}}, {"plan": 3}]


def run(config: dict[str, Any], **kept: Any) -> Run:
    return Run(run_id=RunId("r"), name="r", config=config, **kept)


def test_the_plan_is_the_one_the_run_was_made_with() -> None:
    made = run({"plan": msgspec.to_builtins(PLAN)})

    assert stored_plan(made) == PLAN
    assert plan_or_default(made) == (PLAN, [])


@pytest.mark.parametrize("config", UNREADABLE)
def test_a_plan_that_cannot_be_read_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"run r: its configuration has no valid plan: .*; create the run again"):
        stored_plan(run(config))


@pytest.mark.parametrize("config", UNREADABLE)
def test_without_a_plan_that_can_be_read_there_is_the_usual_one_and_a_note(config: dict[str, Any]) -> None:
    plan, notes = plan_or_default(run(config))

    assert plan == RunPlan()
    assert len(notes) == 1


def test_a_state_is_read_back_as_it_was() -> None:
    state = ControllerState(snapshots={"before_warmup": {"commits": 3.0}})

    assert stored_state(run({}, controller_state=state_document(state))) == state
    assert stored_state(run({})) == ControllerState()
