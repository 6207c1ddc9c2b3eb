"""Base classes and common types of the API's request and response models."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

T = TypeVar("T")

_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
LARGEST_INT = 2**31 - 1
_FIRST_START, _AFTER_STARTS = datetime(1, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


class Shape(BaseModel):
    """Base class of responses; reads its fields from the attributes of an object."""

    model_config = ConfigDict(from_attributes=True)


class RequestBody(BaseModel):
    """Base class of request bodies. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


Seconds = Annotated[float, BeforeValidator(_seconds)]
Id = Annotated[str, Path(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=1, max_length=200)]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of rows.")]
Offset = Annotated[int, Query(ge=0, le=LARGEST_INT, description="Number of rows to skip.")]
After = Annotated[int, Query(ge=0, le=LARGEST_INT, description="Only rows with a higher number than this.")]


def _is_rfc3339(value: Any) -> Any:
    if not isinstance(value, datetime) and not (isinstance(value, str) and _MOMENT.fullmatch(value)):
        raise ValueError("expected a time with time zone, such as 2026-01-31T12:00:00Z")
    return value


def _before_9000(moment: datetime) -> datetime:
    if not _FIRST_START <= moment < _AFTER_STARTS:
        raise ValueError(f"expected a time in the years 1 to 8999 (UTC), got {moment.isoformat()}")
    return moment


Moment = Annotated[AwareDatetime, BeforeValidator(_is_rfc3339)]
Start = Annotated[Moment, AfterValidator(_before_9000)]  #: when a job starts at the earliest


class Page(Shape, Generic[T]):
    """One page of a list, and the path of the next page."""

    items: list[T]
    next: str | None = Field(default=None, description="Path of the next page; null on the last page.")


class WrongField(Shape):
    """A wrong field of the request, and what is wrong with it."""

    field: str
    detail: str


class Problem(Shape):
    """An error response (RFC 9457). `detail` says what was expected, what was got and what to do."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[WrongField] = Field(default=[], description="The fields that are wrong, if any.")
