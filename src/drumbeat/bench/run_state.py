"""What a run's rows keep for whoever conducts it or reads it: the plan it was made with, the state it has come to, examples."""

from collections.abc import Sequence

import msgspec

from drumbeat.bench.model import ControllerState, FailureExample, RunPlan
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Result, Run


def kept_plan(run: Run) -> RunPlan:
    """The plan a run was created with. Raises InvalidInput when its row keeps none that can be read."""
    try:
        return msgspec.convert(run.config.get("plan"), RunPlan)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"run {run.run_id}: expected a plan in its configuration, got: {exc}; create it anew") from exc


def plan_or_usual(run: Run) -> tuple[RunPlan, list[str]]:
    """The plan a run was created with; the usual one, and a note, where its row keeps none that can be read."""
    if run.config.get("plan") is None:
        return RunPlan(), ["the run keeps no plan: limits, prices and load mode are not known"]
    try:
        return kept_plan(run), []
    except InvalidInput as exc:
        return RunPlan(), [f"the run's plan cannot be read: {exc.__cause__}"]


def whole_row(results: Sequence[Result]) -> Result | None:
    """Of a run's results the one of the whole run."""
    return next((row for row in results if row.worker_id is None and row.kind is None), None)


def kept_failures(whole: Result | None) -> tuple[FailureExample, ...]:
    """The examples of what failed that a result keeps; none where it keeps none that can be read."""
    try:
        return msgspec.convert((whole.custom_metrics if whole else {}).get("failures") or (), tuple[FailureExample, ...])
    except msgspec.ValidationError:
        return ()


def kept_state(run: Run) -> ControllerState:
    """What an orchestrator left to remember."""
    return msgspec.convert(run.controller_state or {}, ControllerState)


def state_document(state: ControllerState) -> dict[str, object]:
    """A state as a run's row keeps it."""
    plain: dict[str, object] = msgspec.to_builtins(state, str_keys=True)
    return plain
