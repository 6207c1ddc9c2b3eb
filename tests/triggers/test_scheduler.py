"""The built-in scheduler: each trigger at its times, none in another's way."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import StoreUnavailable
from drumbeat.triggers.model import Trigger
from drumbeat.triggers.scheduler import Scheduler
from triggers.given import Beats, trigger

MINUTE = timedelta(minutes=1)
OFTEN, HOURLY = trigger("often", schedule="*/5 * * * *"), trigger("hourly", schedule="@hourly")


@asynccontextmanager
async def kept(triggers: Sequence[Trigger], beats: Beats) -> AsyncIterator[ManualClock]:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(Scheduler(triggers, beats, clock).keep())
        await asyncio.sleep(0)
        yield clock
        task.cancel()


async def test_each_comes_at_its_times() -> None:
    beats = Beats()

    async with kept([OFTEN, HOURLY, trigger("push", "subprocess")], beats) as clock:
        await clock.advance(MINUTE * 4)
        assert beats.names == []
        await clock.advance(MINUTE * 56)

    assert beats.names.count("often") == 12
    assert beats.names.count("hourly") == 1


async def test_a_slow_beat_delays_no_other_and_is_not_run_twice() -> None:
    beats = Beats(holds=asyncio.Event())

    async with kept([OFTEN, HOURLY], beats) as clock:
        await clock.advance(MINUTE * 61)
        assert beats.names == ["often", "hourly"]
        assert beats.holds is not None
        beats.holds.set()
        await clock.advance(MINUTE * 5)

    assert beats.names == ["often", "hourly", "often"]


async def test_a_beat_that_fails_is_tried_again_when_it_comes_due() -> None:
    beats = Beats(fails=[StoreUnavailable("away"), ValueError("odd")])

    async with kept([OFTEN], beats) as clock:
        await clock.advance(MINUTE * 15)

    assert beats.names == ["often"] * 3


async def test_a_zone_of_its_own_is_kept() -> None:
    beats = Beats()

    async with kept([trigger("nine", schedule="0 9 * * *", timezone="Europe/Vienna")], beats) as clock:
        await clock.advance(timedelta(hours=7, minutes=59))
        assert beats.names == []
        await clock.advance(MINUTE)

    assert beats.names == ["nine"]
