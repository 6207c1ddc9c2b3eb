"""Pages of a list. Callers read one row more than ``limit``; if that extra row exists, there is a next page."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from fastapi import Request, Response

T = TypeVar("T")


def by_offset(request: Request, response: Response, rows: Sequence[T], limit: int, offset: int) -> dict[str, Any]:
    """Return a page of rows and the link to the next page, which starts at a row offset."""
    return _page(request, response, rows, limit, lambda last: {"offset": offset + limit})


def by_number(
    request: Request, response: Response, rows: Sequence[T], limit: int, number: Callable[[T], object]
) -> dict[str, Any]:
    """Return a page of rows and the link to the next page, which starts after the last row. ``number`` returns a row's id."""
    return _page(request, response, rows, limit, lambda last: {"after": number(last)})


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
