"""One reader for many listeners, on a clock that moves when told."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import DrumbeatError, NotFound, StoreUnavailable
from drumbeat.web.feeds import BROKEN, FIRST_LOGS, GONE, UNAVAILABLE, Feed, Feeds, FeedUpdate, Listener

SECOND = timedelta(seconds=1)


class Counting:
    """A source that counts its looks, and says or raises what it is told to."""

    def __init__(self) -> None:
        self.looks = 0
        self.caught_up = 0
        self.raises: Exception | None = None
        self.last_at: int | None = None
        self.logs: list[dict[str, Any]] = []

    async def read(self) -> Sequence[FeedUpdate[int]]:
        self.looks += 1
        if self.raises is not None:
            raise self.raises
        logs, self.logs = self.logs, []
        told = FeedUpdate(
            event="UPDATE", data={"look": self.looks}, seen=self.looks, logs=logs, is_last=self.looks == self.last_at
        )
        if not told.is_last:
            return [told]
        return [FeedUpdate(event="UPDATE", data={"look": -1}, seen=-1, must_be_seen=True), told]

    async def catch_up(self) -> bool:
        self.caught_up += 1
        return False


@asynccontextmanager
async def feeding(clock: ManualClock) -> AsyncIterator[tuple[Feed[int], Counting]]:
    source = Counting()
    async with asyncio.TaskGroup() as group:
        feed = Feed(source, clock, group)
        try:
            yield feed, source
        finally:
            feed.close()
            await clock.advance(2 * SECOND)


async def heard(listener: Listener[int]) -> list[int | None]:
    """Everything until there is no more."""
    found = []
    while (frame := await listener.next()) is not None:
        found.append(frame.told.seen)
    return found


async def test_two_hundred_listeners_cost_one_look_a_second(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, source):
        listeners = [feed.subscribe() for _ in range(200)]
        await clock.advance(3 * SECOND)
        frames = [await listener.next() for listener in listeners]

    assert source.looks == 4
    assert {frame and frame.told.seen for frame in frames} == {4}


async def test_everybody_gets_every_frame_who_keeps_up(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, _):
        listener, got = feed.subscribe(), []
        for _ in range(4):
            frame = await listener.next()
            got.append(frame and frame.told.seen)
            await clock.advance(SECOND)

    assert got == [1, 2, 3, 4]


async def test_whoever_is_slow_gets_the_newest_and_no_queue(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, _):
        slow = feed.subscribe()
        await slow.next()
        await clock.advance(100 * SECOND)

        frame = await slow.next()

        assert (frame and frame.told.seen, slow.take()) == (101, None)


async def test_nobody_listening_is_nobody_reading(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, source):
        with feed.listening() as listener:
            await listener.next()
        await clock.advance(60 * SECOND)

    assert source.looks <= 2


async def test_who_comes_back_later_gets_a_fresh_look(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, source):
        with feed.listening() as listener:
            await listener.next()
        await clock.advance(60 * SECOND)
        before = source.looks
        with feed.listening() as listener:
            frame = await listener.next()

    assert frame is not None
    assert frame.told.seen == before + 1


async def test_who_comes_while_the_reader_leaves_is_still_served(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, _):
        for _ in range(50):
            with feed.listening() as listener:
                await listener.next()
            await clock.advance(SECOND, settle=1)
        with feed.listening() as listener:
            frame = await listener.next()

    assert frame is not None


@pytest.mark.parametrize("listens", [True, False])
async def test_the_last_frame_ends_it_and_nobody_misses_the_one_before(clock: ManualClock, listens: bool) -> None:
    async with feeding(clock) as (feed, source):
        source.last_at = 3
        listener = feed.subscribe()
        first = await listener.next()
        if listens:
            await clock.advance(SECOND)
            await listener.next()
        await clock.advance(10 * SECOND)

        assert (first and first.told.seen, await heard(listener)) == (1, [-1, 3])
        assert source.looks == 3


async def test_who_comes_after_the_end_gets_the_last_frame_alone(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, source):
        source.last_at = 1

        assert await heard(feed.subscribe()) == [1]


async def test_a_store_that_is_away_is_told_and_looked_for_again(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, source):
        source.raises = StoreUnavailable("it does not answer")
        listener = feed.subscribe()
        away = await listener.next()
        source.raises = None
        await clock.advance(SECOND)
        back = await listener.next()

    assert away is not None
    assert back is not None
    assert (away.told.event, away.told.data, away.told.seen) == (UNAVAILABLE, {"message": "it does not answer"}, None)
    assert back.told.event == "UPDATE"
    assert source.caught_up == 1


@pytest.mark.parametrize(("error", "event"), [(NotFound("no such run"), GONE), (RuntimeError("a bug"), BROKEN)])
async def test_what_cannot_go_on_ends(clock: ManualClock, error: Exception, event: str) -> None:
    async with feeding(clock) as (feed, source):
        source.raises = error
        listener = feed.subscribe()
        frame = await listener.next()

        assert frame is not None
        assert (frame.told.event, frame.told.is_last, await listener.next()) == (event, True, None)


async def test_what_went_before_is_asked_for_until_the_store_answers(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, source):
        failing: list[DrumbeatError] = [StoreUnavailable("not yet"), StoreUnavailable("not yet")]

        async def catch_up() -> bool:
            if failing:
                raise failing.pop()
            source.caught_up += 1
            return source.caught_up < 3

        source.catch_up = catch_up  # type: ignore[method-assign]
        feed.subscribe()
        await clock.advance(5 * SECOND)

        assert (source.caught_up, failing) == (3, [])


def line(n: int) -> dict[str, Any]:
    return {"log_id": n, "message": f"line {n}"}


def logs_of(text: bytes) -> list[int]:
    return [each["log_id"] for each in json.loads(text)["data"]["logs"]]


async def test_every_log_line_is_told_once_to_those_who_keep_up(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, source):
        source.logs = [line(1), line(2)]
        quick, told = feed.subscribe(), []
        for n in range(3, 7):
            frame = await quick.next()
            assert frame is not None
            told.append(logs_of(quick.text(frame)))
            source.logs = [line(n)]
            await clock.advance(SECOND)

    assert told == [[1, 2], [3], [4], [5]]


async def test_and_none_is_lost_to_those_who_do_not(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, source):
        source.logs = [line(1)]
        slow = feed.subscribe()
        first = await slow.next()
        assert first is not None
        early = logs_of(slow.text(first))
        for n in range(2, 9):
            source.logs = [line(n)]
            await clock.advance(SECOND)
        frame = await slow.next()
        assert frame is not None

        assert (early, logs_of(slow.text(frame))) == ([1], [2, 3, 4, 5, 6, 7, 8])


async def test_who_says_what_they_know_is_told_the_rest(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, source):
        source.logs = [line(n) for n in range(1, 501)]
        new, back = feed.subscribe(), feed.subscribe(logs_to=497)
        told = []
        for listener in (new, back):
            frame = await listener.next()
            assert frame is not None
            told.append(logs_of(listener.text(frame)))

    assert told == [list(range(501 - FIRST_LOGS, 501)), [498, 499, 500]]


async def test_a_text_is_written_once_for_all(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, _):
        listeners = [feed.subscribe(logs_to=0) for _ in range(3)]
        texts = [listener.text(frame) for listener in listeners if (frame := await listener.next())]

    assert texts[0] is texts[1] is texts[2]
    assert json.loads(texts[0]) == {"event": "UPDATE", "data": {"look": 1, "logs": []}}


async def test_a_feed_that_is_closed_ends_for_everybody(clock: ManualClock) -> None:
    async with feeding(clock) as (feed, _):
        listener = feed.subscribe()
        await listener.next()
        feed.close()

        assert await listener.next() is None
        assert await feed.subscribe().next() is None or feed.newest is not None


async def test_the_last_few_feeds_are_remembered_and_the_rest_forgotten(clock: ManualClock) -> None:
    async with asyncio.TaskGroup() as group:
        feeds = Feeds(clock=clock, group=group)
        made = [feeds.get(f"run {n}", Counting) for n in range(40)]

        assert feeds.get("run 39", Counting) is made[39]
        assert feeds.get("run 0", Counting) is not made[0]


async def test_a_feed_is_made_also_while_all_others_have_listeners(clock: ManualClock) -> None:
    async with asyncio.TaskGroup() as group:
        feeds = Feeds(clock=clock, group=group)
        listeners = [feeds.get(f"run {n}", Counting).subscribe() for n in range(20)]

        one_more = feeds.get("run 20", Counting)

        assert feeds.get("run 20", Counting) is one_more
        assert len(listeners) == 20
        feeds.close()


async def test_feeds_of_a_server_that_leaves_are_over(clock: ManualClock) -> None:
    async with asyncio.TaskGroup() as group:
        feeds = Feeds(clock=clock, group=group)
        before = feeds.get("a", Counting)
        feeds.close()

        assert (before.is_over, feeds.get("b", Counting).is_over) == (True, True)
        assert await feeds.get("b", Counting).subscribe().next() is None
