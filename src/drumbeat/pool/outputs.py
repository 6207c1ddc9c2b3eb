"""Arguments of a task's job that are results of its parents: kept as references in the payload, and filled in by the worker."""

from collections.abc import Mapping
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import whole_number

OUTPUTS = "outputs"
_FIELDS = frozenset({"args", "kwargs", OUTPUTS})


def has_outputs(payload: Any) -> bool:
    """Whether results of parents are arguments of the task: its payload is ``{"args", "kwargs", "outputs"}``."""
    return isinstance(payload, dict) and payload.keys() == _FIELDS and isinstance(payload[OUTPUTS], dict)


def filled_in(payload: Any, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return a payload with the results of parents as arguments. ``results`` are by job id.

    ``outputs`` maps the position or name of each such argument to the id of a parent or a list of ids. Raises InvalidInput
    for an id that is not in ``results``: that job is no parent, or has not ended.
    """
    args, kwargs = list(payload["args"]), dict(payload["kwargs"])
    for place, parent in payload[OUTPUTS].items():
        value = [_result(results, each) for each in parent] if isinstance(parent, list) else _result(results, parent)
        if (position := whole_number(place)) is None:
            kwargs[place] = value
        elif position < len(args):
            args[position] = value
        else:
            raise InvalidInput(f"outputs: expected a position below the number of arguments, {len(args)}, got {place}")
    return {"args": args, "kwargs": kwargs}


def _result(results: Mapping[str, Any], parent: Any) -> Any:
    if not isinstance(parent, str) or parent not in results:
        raise InvalidInput(f"outputs: expected the id of a job that this job waited for and that has ended, got {parent!r}")
    return results[parent]
