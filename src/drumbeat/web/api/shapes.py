"""What all of the API's shapes are made of, and the shapes of problems and of pages of rows."""

import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Path, Query
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

T = TypeVar("T")

_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
LARGEST_INT = 2**31 - 1


class Shape(BaseModel):
    """An answer, made from the value it shows."""

    model_config = ConfigDict(from_attributes=True)


class RequestBody(BaseModel):
    """What is sent. A field it does not have is refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


Seconds = Annotated[float, BeforeValidator(_seconds)]
Id = Annotated[str, Path(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=1, max_length=200)]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at the most.")]
Offset = Annotated[int, Query(ge=0, le=LARGEST_INT, description="Pass over so many.")]
After = Annotated[int, Query(ge=0, le=LARGEST_INT, description="Only those numbered above this.")]


def _is_rfc3339(value: Any) -> Any:
    if not isinstance(value, datetime) and not (isinstance(value, str) and _MOMENT.fullmatch(value)):
        raise ValueError("expected a moment such as 2026-01-31T12:00:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_is_rfc3339)]


class Page(Shape, Generic[T]):
    """Some rows, and where the next are."""

    items: list[T]
    next: str | None = Field(default=None, description="The path of the next page; null: this is the last.")


class WrongField(Shape):
    """What is wrong with one field."""

    field: str
    detail: str


class Problem(Shape):
    """What went wrong (RFC 9457): what was expected, what was got, what to do."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[WrongField] = Field(default=[], description="The fields that are wrong, where there are any.")
