"""Schedules that are added again and changed, on every store: an unchanged one stays as it is, and no change is lost."""

from enum import IntEnum
from typing import Any

import pytest

from drumbeat.core.job import Backoff, RateLimit
from drumbeat.store.interface import Store
from pool.schedules.given import HOUR, Planned


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("payload", "options"),
    [
        ({"ids": (1, (2, 3))}, {}),
        ({"ids": {2: 2, None: 3, True: 4, 1.5: 5}}, {}),
        ({"colour": Colour.RED, "big": 1e22, "small": 1e-7, "whole": 2.0, "text": "ä\u2028"}, {}),
        ({"huge": 1e300}, {}),
        (None, {"after": [], "after_any": False}),
        (None, {"timeout": 90.5, "delay": HOUR, "group": "g", "group_rate": RateLimit(count=1, per=HOUR)}),
        (None, {"backoff": Backoff(first=HOUR), "priority": 2, "if_failed": "skip"}),
    ],
    ids=["tuples", "keys that are no text", "numbers and text", "a huge number", "no parents", "durations", "backoff"],
)
async def test_an_unchanged_schedule_that_is_added_again_keeps_its_missed_ticks(
    any_store: Store, payload: Any, options: dict[str, Any]
) -> None:
    plan = Planned(any_store)
    first = await plan.schedules.add("s", payload, every=HOUR, exist_ok=True, **options)
    plan.go_to("2026-01-01 03:10")

    again = await plan.schedules.add("s", payload, every=HOUR, exist_ok=True, **options)

    assert again.since == first.since
    assert again == (await plan.schedules.get("s")).schedule
    assert await plan.look_at("2026-01-01 03:20") == ["01T0300"]


@pytest.mark.parametrize(
    ("before", "after"),
    [({"n": 1}, {"n": 2}), ({"n": 1}, {"n": True}), ([0], [False]), ({"n": [1]}, {"n": [1, 1]}), ({"n": None}, {})],
)
async def test_a_changed_payload_counts_as_a_change(any_store: Store, before: Any, after: Any) -> None:
    plan = Planned(any_store)
    await plan.schedules.add("s", before, every=HOUR)

    plan.go_to("2026-01-01 00:10")
    await plan.schedules.add("s", after, every=HOUR, exist_ok=True)

    plan.go_to("2026-01-01 01:00")
    await plan.look()
    assert repr((await plan.jobs())[0].payload) == repr(after)
