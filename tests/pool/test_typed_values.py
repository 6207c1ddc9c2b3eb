"""JSON becomes what an annotation names, and what is JSON already stays as it is."""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from drumbeat.core.errors import InvalidInput
from drumbeat.pool.payload import as_json
from drumbeat.pool.typed_values import converter


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    colour: Colour | None = None


class Paper(BaseModel):
    title: str
    read: date | None = None


class Other: ...


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Point, Point(1, Colour.RED)),
        (list[Point], [Point(1), Point(2)]),
        (Point | None, None),
        (dict[str, Point], {"a": Point(1)}),
        (Paper, Paper(title="Queues", read=date(2026, 11, 17))),
        (list[Paper], [Paper(title="a")]),
        (Paper | None, None),
        (datetime, datetime(2026, 11, 17, tzinfo=UTC)),
        (UUID, UUID(int=7)),
        (Colour, Colour.RED),
        (tuple[int, str], (1, "a")),
        (tuple[Point, ...], (Point(1),)),
    ],
)
def test_a_value_comes_back_as_it_was_sent(hint: Any, value: Any) -> None:
    convert = converter("value", hint)

    assert convert is not None
    assert convert(as_json(value)) == value


@pytest.mark.parametrize("hint", [int, str, float, list[int], dict[str, Any], Any, None, object, "unknown", int | None])
def test_what_is_json_already_is_not_converted(hint: Any) -> None:
    assert converter("value", hint) is None


@pytest.mark.parametrize(
    ("hint", "value", "says"),
    [
        (Point, {"y": 1}, "value is not a valid Point: Object missing required field `x`"),
        (list[Point], [{"x": "a"}], "value is not a valid list.*: Expected `int`, got `str` - at `.*x`"),
        (Paper, {}, "value is not a valid Paper: .*title.*Field required"),
        (Colour, "blue", "value is not a valid Colour: Invalid enum value 'blue'"),
        (datetime, "soon", "value is not a valid datetime: Invalid RFC3339"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(hint: Any, value: Any, says: str) -> None:
    convert = converter("value", hint)
    assert convert is not None

    with pytest.raises(InvalidInput, match=says) as refused:
        convert(value)

    assert "\n" not in str(refused.value)


def test_a_type_that_cannot_be_built_gets_plain_json() -> None:
    convert = converter("value", Point | Other)
    assert convert is not None

    assert convert({"x": 1}) == {"x": 1}


def test_a_dict_of_another_kind_is_left_as_json() -> None:
    assert converter("x", OrderedDict[int, str]) is None
