"""A table such as people have, on any target."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from drumbeat.bench.targets.interface import TableDescription, Target

_PEOPLE = (
    "CREATE TABLE people (id INTEGER NOT NULL PRIMARY KEY, seen_at TIMESTAMP, team_id INTEGER NOT NULL, name VARCHAR(12),"
    " height DOUBLE PRECISION, pay NUMERIC(8,2))"
)
_COLUMNS = ("id", "seen_at", "team_id", "name", "height", "pay")
BEGAN = datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None)


async def people(target: Target, count: int, every: int = 1) -> TableDescription:
    rows = [(n * every, BEGAN + timedelta(hours=n), n % 3 + 40, f"p{n}", 1.5, 9.25) for n in range(1, count + 1)]
    await target.define([_PEOPLE])
    await target.load_rows("people", _COLUMNS, rows)
    return declared(await target.describe("people"), name="character varying(12)", pay="numeric(8,2)")


def declared(description: TableDescription, **sizes: str) -> TableDescription:
    """With the sizes the table was made with, whether or not the target tells them."""
    columns = [replace(each, native_type=sizes.get(each.name, each.native_type)) for each in description.columns]
    return replace(description, columns=tuple(columns))
