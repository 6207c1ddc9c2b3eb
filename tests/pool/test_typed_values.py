"""JSON becomes what an annotation names, and what is JSON already stays as it is."""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Any, NewType
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, computed_field
from typing_extensions import TypedDict

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


class Level(Enum):
    HALF = 0.5
    FULL = 1.0


class Aliased(BaseModel):
    user_id: int = Field(alias="userId")
    seen: datetime = Field(validation_alias="seenAt", serialization_alias="seen_at")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    at: datetime
    key: UUID

    @computed_field
    def year(self) -> int:
        return self.at.year


@dataclass
class Shelf:
    papers: list[Paper]
    next: "Shelf | None" = None


@dataclass
class Circle:
    radius: int


class Ticket(TypedDict):
    due: date


Key = NewType("Key", UUID)
NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)
ALIASED = Aliased.model_validate({"userId": 7, "seenAt": NOON})


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
        (time, time(12, 30)),
        (date, NOON),
        (date, NOON.date()),
        (Key, Key(UUID(int=7))),
        (Level, Level.HALF),
        (Ticket, Ticket(due=NOON.date())),
        (Point | Circle, Circle(3)),
        (list[Point | Circle], [Circle(3), Point(1)]),
        (Shelf, Shelf([Paper(title="a")], Shelf([]))),
        (Aliased, ALIASED),
        (list[Aliased], [ALIASED]),
        (Strict, Strict(at=NOON, key=UUID(int=7))),
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


def test_a_model_may_be_written_by_hand_with_its_aliases() -> None:
    convert = converter("value", Aliased)
    assert convert is not None

    assert convert({"userId": 7, "seenAt": NOON.isoformat()}) == ALIASED


def test_a_secret_of_a_model_is_refused_instead_of_sent_as_asterisks() -> None:
    class Account(BaseModel):
        name: str
        tokens: list[SecretStr]

    with pytest.raises(InvalidInput, match=r"expected payload.tokens\[0\] to be JSON, got SecretStr") as refused:
        as_json(Account(name="a", tokens=[SecretStr("hunter2")]))

    assert "hunter2" not in str(refused.value)
