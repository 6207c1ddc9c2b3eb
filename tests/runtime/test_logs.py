"""Log lines reach the store without ever being in the way."""

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence

import pytest

from drumbeat.core.errors import InvalidInput
from drumbeat.core.log import LONGEST_MESSAGE, Log, NewLog
from drumbeat.runtime.logs import LogShipper, StoreLogHandler
from runtime.given import ME, POOL, Slow, World, seconds


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger of the test's own."""
    own = logging.getLogger("drumbeat.test_logs")
    own.setLevel(logging.INFO)
    yield own
    own.handlers.clear()
    own.setLevel(logging.NOTSET)


def shipper(world: World, logger: logging.Logger, capacity: int = 10_000) -> LogShipper:
    return LogShipper(world.store, POOL, world.clock, worker_id=ME, logger=logger, capacity=capacity)


async def stored(world: World) -> Sequence[Log]:
    return await world.store.logs.list(POOL)


async def messages(world: World) -> list[str]:
    return [line.message for line in await stored(world)]


async def test_info_waits_five_seconds(world: World, logger: logging.Logger) -> None:
    async with shipper(world, logger):
        logger.info("hello %s", "world")
        await world.passes(4.9)
        assert await stored(world) == []
        await world.passes(0.1)
        (line,) = await stored(world)
    assert (line.level, line.logger, line.message, line.worker_id) == ("INFO", "drumbeat.test_logs", "hello world", ME)
    assert line.at == world.clock.now() - seconds(5)


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR, logging.CRITICAL])
async def test_warnings_go_at_once_and_take_along_what_waits(world: World, logger: logging.Logger, level: int) -> None:
    async with shipper(world, logger):
        logger.info("before")
        await world.passes(1)
        logger.log(level, "now")
        await world.passes(0)
        lines = await stored(world)
    assert [line.message for line in lines] == ["before", "now"]
    assert [line.at for line in lines] == [world.clock.now() - seconds(1), world.clock.now()]


async def test_debug_stays_here(world: World, logger: logging.Logger) -> None:
    logger.setLevel(logging.DEBUG)
    async with shipper(world, logger):
        logger.debug("detail")
        logger.info("fact")
    assert [line.message for line in await stored(world)] == ["fact"]


async def test_what_waits_is_sent_on_leaving(world: World, logger: logging.Logger) -> None:
    async with shipper(world, logger):
        logger.info("last words")
    assert await messages(world) == ["last words"]
    logger.info("too late")
    await world.passes(10)
    assert await messages(world) == ["last words"]


async def test_an_error_in_the_block_passes_as_it_is(world: World, logger: logging.Logger) -> None:
    async def fail() -> None:
        async with shipper(world, logger):
            logger.info("before")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await messages(world) == ["before"]


async def test_exceptions_and_extras_go_into_details(world: World, logger: logging.Logger) -> None:
    async with shipper(world, logger):
        try:
            raise ValueError("boom")
        except ValueError:
            logger.exception("failed", extra={"worker": "w7", "limit": seconds(30), "thing": object})
        await world.passes(0)
    (line,) = await stored(world)
    assert line.details is not None
    assert line.details["worker"] == "w7"
    assert line.details["limit"] == "PT30S"
    assert line.details["thing"] == repr(object)
    assert "ValueError: boom" in line.details["exception"]
    assert "test_logs.py" in line.details["exception"]


async def test_a_plain_line_has_no_details(world: World, logger: logging.Logger) -> None:
    async with shipper(world, logger):
        logger.info("plain")
    assert (await stored(world))[0].details is None


async def test_a_long_message_is_cut(world: World, logger: logging.Logger) -> None:
    async with shipper(world, logger):
        logger.info("x" * (LONGEST_MESSAGE + 1))
        logger.info("x" * 100)
    lengths = [len(message) for message in await messages(world)]
    assert lengths == [LONGEST_MESSAGE, 100]


async def test_an_outage_keeps_lines_and_their_times(world: World, logger: logging.Logger) -> None:
    async with shipper(world, logger):
        with world.store.unavailable():
            for n in range(20):
                logger.warning("line %d", n)
                await world.passes(1)
        await world.passes(20)
        lines = await stored(world)
    assert [line.message for line in lines] == [f"line {n}" for n in range(20)]
    assert [line.at for line in lines] == [world.clock.now() - seconds(40 - n) for n in range(20)]


async def test_tries_grow_rarer_during_an_outage_and_begin_anew_after(
    world: World, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(world.store.logs, world.clock)
    monkeypatch.setattr(world.store, "logs", slow)
    async with shipper(world, logger):
        for _ in range(2):
            slow.asked.clear()
            began = world.clock.elapsed()
            with world.store.unavailable():
                logger.warning("hello")
                for _ in range(100):
                    logger.warning("still here")
                    await world.passes(1)
            tries = [at - began for _, at in slow.asked if at - began < seconds(100)]
            await world.passes(60)
            assert tries == [seconds(at) for at in (0, 1, 3, 7, 15, 31, 61, 91)]


async def test_beyond_the_bound_the_oldest_go_and_their_number_is_told(world: World, logger: logging.Logger) -> None:
    async with shipper(world, logger, capacity=10):
        for n in range(25):
            logger.info("line %d", n)
    lines = await stored(world)
    assert [line.message for line in lines[1:]] == [f"line {n}" for n in range(15, 25)]
    assert (lines[0].level, lines[0].message.split(":")[0]) == ("WARNING", "15 log lines were dropped before this one")


async def test_more_lines_than_one_batch_all_arrive_in_order(world: World, logger: logging.Logger) -> None:
    async with shipper(world, logger):
        for n in range(1234):
            logger.info("line %d", n)
        await world.passes(5)
        lines = await world.store.logs.list(POOL, limit=5000)
    assert [line.message for line in lines] == [f"line {n}" for n in range(1234)]


async def test_lines_of_other_threads_arrive_too(world: World, logger: logging.Logger) -> None:
    def chatter(name: str) -> None:
        for n in range(200):
            logger.info("%s %d", name, n)
        logger.warning("%s done", name)

    async with shipper(world, logger):
        threads = [threading.Thread(target=chatter, args=(f"t{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        await world.passes(0)
        lines = await messages(world)
    assert len(lines) == 804
    assert [line for line in lines if line.startswith("t2 ")] == [*(f"t2 {n}" for n in range(200)), "t2 done"]


async def test_a_line_that_cannot_be_made_never_reaches_the_work(
    world: World, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    async with shipper(world, logger):
        logger.info("expected %d", "a number")
        logger.info("fine")
    assert await messages(world) == ["fine"]


async def test_what_the_store_refuses_is_dropped_and_the_rest_goes_on(
    world: World, logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    async with shipper(world, logger):
        world.store.fail_next(error=InvalidInput("not storable"))
        logger.warning("poison")
        await world.passes(0)
        logger.warning("fine")
        await world.passes(0)
        assert await messages(world) == ["fine"]
    assert "dropped 1 log lines, the store refused them: not storable" in caplog.text


async def test_lines_of_a_replaced_process_are_not_sent_as_its_successors(world: World, logger: logging.Logger) -> None:
    """A log line names only its worker, so those of an earlier process with this id would look like the new one's."""
    replaced = False
    own = LogShipper(world.store, POOL, world.clock, worker_id=ME, logger=logger, may_send=lambda: not replaced)
    async with own:
        logger.warning("mine")
        await world.passes(0)
        replaced = True
        logger.warning("not mine any more")
        await world.passes(5)
        logger.info("last words")
    assert await messages(world) == ["mine"]


async def test_a_store_that_hangs_holds_nobody_up(
    world: World, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(world.store.logs, world.clock)
    slow.before = seconds(86_400)
    monkeypatch.setattr(world.store, "logs", slow)
    async with asyncio.TaskGroup() as group:
        leaving = group.create_task(_log_and_leave(world, logger))
        await world.passes(5)
        assert leaving.done()


async def _log_and_leave(world: World, logger: logging.Logger) -> None:
    async with shipper(world, logger):
        logger.info("anyone there?")


async def test_failing_to_ship_is_said_here_and_never_shipped(
    world: World, logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    root = logging.getLogger("drumbeat")
    async with shipper(world, root):
        with world.store.unavailable():
            logger.warning("hello")
            await world.passes(3)
        await world.passes(30)
    assert "failed to store 1 log lines" in caplog.text
    assert await messages(world) == ["hello"]


def test_a_handler_without_a_loop_only_keeps(world: World) -> None:
    handler = StoreLogHandler(world.clock)
    handler.handle(logging.makeLogRecord({"name": "x", "levelno": logging.ERROR, "levelname": "ERROR", "msg": "early"}))
    (said,) = handler.fetch(10)
    assert said.line == NewLog(level="ERROR", logger="x", message="early")
    assert handler.fetch(10) == []
