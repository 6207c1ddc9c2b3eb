"""Reads values stored in a run's rows: its plan, the orchestrator's state, and examples of failed operations."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from drumbeat.bench.model import ControllerState, FailureExample, RunPlan
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Result, Run


def stored_plan(run: Run) -> RunPlan:
    """Return the plan that a run was created with. Raises InvalidInput when its row has no valid plan."""
    try:
        return msgspec.convert(run.config.get("plan"), RunPlan)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"run {run.run_id}: its configuration has no valid plan: {exc}; create the run again") from exc


def plan_or_default(run: Run) -> tuple[RunPlan, list[str]]:
    """Return a run's plan and no notes; if its row has no valid plan, the default plan and a note that says so."""
    if run.config.get("plan") is None:
        return RunPlan(), ["the run has no stored plan: limits, prices and load mode are unknown"]
    try:
        return stored_plan(run), []
    except InvalidInput as exc:
        return RunPlan(), [f"the run's plan cannot be read: {exc.__cause__}"]


def stored_target(run: Run) -> Mapping[str, Any]:
    """Return the database under test as the run's configuration describes it; empty if it names none."""
    return run.config.get("target") or {}


def whole_row(results: Sequence[Result]) -> Result | None:
    """Return the result row of the whole run, for all workers and all kinds of operations together; None if there is none."""
    return next((row for row in results if row.worker_id is None and row.kind is None), None)


def stored_failures(whole: Result | None) -> tuple[FailureExample, ...]:
    """Return the examples of failed operations stored in a result; empty when there are none or they are invalid."""
    try:
        return msgspec.convert((whole.custom_metrics if whole else {}).get("failures") or (), tuple[FailureExample, ...])
    except msgspec.ValidationError:
        return ()


def stored_state(run: Run) -> ControllerState:
    """Return the state that the run's orchestrator stored last; the initial state if none is stored."""
    return msgspec.convert(run.controller_state or {}, ControllerState)


def state_document(state: ControllerState) -> dict[str, object]:
    """Return an orchestrator's state in the form stored in a run's row."""
    plain: dict[str, object] = msgspec.to_builtins(state, str_keys=True)
    return plain
