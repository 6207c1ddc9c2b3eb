"""Schedules that are added again and changed, on every store: an unchanged one stays as it is, and no change is lost."""

from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Any

import pytest

from drumbeat.core.errors import AlreadyExists, NotFound
from drumbeat.core.job import Backoff, RateLimit
from drumbeat.pool.schedules.service import Schedules
from drumbeat.store.interface import PoolChange, Store
from pool.schedules.given import HOUR, MAIL, MINUTE, Planned


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
        (None, {"backoff": Backoff(first=HOUR), "priority": 2}),
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


class Meanwhile:
    """The pools of a store; another process does something between the read and the first change of this one."""

    def __init__(self, inner: Any, act: Callable[[], Awaitable[object]]) -> None:
        self._inner = inner
        self._act: Callable[[], Awaitable[object]] | None = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def change(self, *given: Any, **named: Any) -> Any:
        if act := self._act:
            self._act = None
            await act()
        return await self._inner.change(*given, **named)


def meanwhile(plan: Planned, act: Callable[[Schedules], Awaitable[object]]) -> Schedules:
    """Return the schedules as one process sees them, while another one does this in between."""
    other = Planned(plan.store)
    other.store.time = plan.store.time + MINUTE
    mine = Planned(plan.store)
    mine.store.time = plan.store.time
    mine.store.pools = Meanwhile(plan.store.pools, lambda: act(other.schedules))
    return mine.schedules


@pytest.mark.parametrize("action", ["pause", "resume"])
async def test_a_pause_does_not_bring_a_removed_schedule_back(any_store: Store, action: str) -> None:
    plan = Planned(any_store)
    await plan.schedules.add("s", every=HOUR)
    if action == "resume":
        await plan.schedules.pause("s")

    with pytest.raises(NotFound, match="has no schedule 's'"):
        await getattr(meanwhile(plan, lambda other: other.remove("s")), action)("s")

    assert await plan.schedules.list() == []


@pytest.mark.parametrize("action", ["pause", "resume"])
async def test_a_pause_does_not_undo_a_change_of_the_schedule(any_store: Store, action: str) -> None:
    plan = Planned(any_store)
    await plan.schedules.add("s", 1, every=HOUR, missed="skip")
    if action == "resume":
        await plan.schedules.pause("s")
    changing = meanwhile(plan, lambda other: other.add("s", 2, every=2 * HOUR, missed="skip", exist_ok=True))

    changed = await getattr(changing, action)("s")

    found = (await plan.schedules.get("s")).schedule
    assert found == changed
    assert (found.payload, found.every, found.paused) == (2, 2 * HOUR, action == "pause")
    assert found.since == plan.store.time + MINUTE  # when it was changed: ticks before that do not count


async def test_a_change_does_not_undo_a_pause(any_store: Store) -> None:
    plan = Planned(any_store)
    await plan.schedules.add("s", 1, every=HOUR)

    await meanwhile(plan, lambda other: other.pause("s")).add("s", 2, every=HOUR, exist_ok=True)

    found = (await plan.schedules.get("s")).schedule
    assert (found.payload, found.paused) == (2, True)


async def test_of_two_processes_that_add_a_schedule_at_once_only_one_does(any_store: Store) -> None:
    plan = Planned(any_store)
    await plan.pool.create()

    with pytest.raises(AlreadyExists, match="already has a schedule 's'"):
        await meanwhile(plan, lambda other: other.add("s", 2, every=HOUR)).add("s", 1, every=HOUR)

    assert (await plan.schedules.get("s")).schedule.payload == 2


async def test_a_module_removes_no_schedule_that_another_module_has_taken_over(any_store: Store) -> None:
    plan = Planned(any_store)
    for name in ("old", "moved", "kept"):
        await plan.schedules.add(name, every=HOUR, module="a")
    removing = meanwhile(plan, lambda other: other.add("moved", every=HOUR, module="b", exist_ok=True))

    assert await removing.remove_undefined(lambda each: each.module == "a" and each.name != "kept") == ["old"]

    assert [each.name for each in await plan.schedules.list()] == ["kept", "moved"]


async def test_a_schedule_that_another_module_adds_unchanged_keeps_its_missed_ticks(any_store: Store) -> None:
    plan = Planned(any_store)
    await plan.schedules.add("s", every=HOUR, module="a", file="/srv/a.py")

    plan.go_to("2026-01-01 01:30")
    await plan.schedules.add("s", every=HOUR, module="b", file="/srv/b.py", exist_ok=True)

    assert await plan.look_at("2026-01-01 01:40") == ["01T0100"]
    found = (await plan.schedules.get("s")).schedule
    assert (found.module, found.file) == ("b", "/srv/b.py")


async def test_a_schedule_that_cannot_be_read_can_be_removed_or_replaced(any_store: Store) -> None:
    plan = Planned(any_store)
    await plan.schedules.add("good", every=HOUR, module="a")
    broken = {"schedule/one": {"cron": "x"}, "schedule/two": {"cron": "x"}}
    await plan.store.pools.change(MAIL, PoolChange(policy=broken))

    await plan.schedules.remove("one")
    await plan.schedules.add("two", every=HOUR, exist_ok=True)
    await plan.schedules.remove_undefined(lambda each: each.module == "a")

    assert [each.name for each in await plan.schedules.list()] == ["two"]
