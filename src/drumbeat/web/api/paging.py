"""Pages of a list. Callers read one row more than ``limit``; if that extra row exists, there is a next page."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, TypeVar
from urllib.parse import urlencode

from fastapi import Request, Response

from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Execution
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface import ExecutionOrder, ExecutionPosition

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_POSITION = re.compile(r"(?P<by>[0-9.e+-]{1,30}):(?P<n>[0-9]{1,18}):(?P<worker>.+)", re.DOTALL)


def by_offset(request: Request, response: Response, rows: Sequence[T], limit: int, offset: int) -> dict[str, Any]:
    """Return a page of rows and the link to the next page, which starts at a row offset."""
    return _page(request, response, rows, limit, lambda last: {"offset": offset + limit})


def by_number(
    request: Request, response: Response, rows: Sequence[T], limit: int, number: Callable[[T], object]
) -> dict[str, Any]:
    """Return a page of rows and the link to the next page, which starts after the last row. ``number`` returns a row's id."""
    return _page(request, response, rows, limit, lambda last: {"after": number(last)})


def execution_position_text(execution: Execution, order: ExecutionOrder) -> str:
    """Return the position of an operation in the list of a run's operations, for the parameter ``after``: its start in
    microseconds since 1970 or its duration in milliseconds, then its number and its worker."""
    started = (execution.started_at - _EPOCH) // timedelta(microseconds=1)
    by = started if order == "started_at" else execution.duration_ms
    return f"{by}:{execution.n}:{execution.worker_id}"


def execution_position(text: str, order: ExecutionOrder) -> ExecutionPosition:
    """Read a position that ``execution_position_text`` wrote for the same order. Raises InvalidInput."""
    try:
        found = _POSITION.fullmatch(text)
        if found is None:
            raise ValueError(text)
        by = float(found["by"]) if order == "duration_ms" else _EPOCH + timedelta(microseconds=int(found["by"]))
        if isinstance(by, float) and not isfinite(by):
            raise ValueError(text)
    except (ValueError, OverflowError) as exc:
        raise InvalidInput(
            f"after: expected a position from the field next of the page before, in the order {order}, got {text!r}; "
            "follow next, or leave after out to begin with the first page"
        ) from exc
    return ExecutionPosition(by, WorkerId(found["worker"]), int(found["n"]))


def _page(
    request: Request, response: Response, rows: Sequence[T], limit: int, following: Callable[[T], dict[str, object]]
) -> dict[str, Any]:
    shown = list(rows[:limit])
    if len(rows) <= limit:
        return {"items": shown, "next": None}
    query = [(name, value) for name, value in request.query_params.multi_items() if name not in ("offset", "after", "limit")]
    path = f"{request.url.path}?{urlencode([*query, ('limit', limit), *following(shown[-1]).items()])}"
    response.headers["Link"] = f'<{path}>; rel="next"'
    return {"items": shown, "next": path}
