"""The jobs of schedules pass through middleware like other jobs, and a hook cannot push them twice."""

import logging
from datetime import timedelta

import pytest

from drumbeat import testing
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolId
from drumbeat.pool.middleware import PushCall
from drumbeat.pool.plugins import NO_PLUGINS, PoolPlugins
from drumbeat.pool.schedules.tick_pusher import TickPusher
from drumbeat.pool.worker.context import JobContext

HOUR = timedelta(hours=1)


class Stamp:
    def before_push(self, push: PushCall) -> None:
        for job in push.jobs:
            job.headers["stamp"] = "pushed"


class Slow:
    """A hook that takes so long that another process may have the lease when it ends."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.errors: list[str] = []

    async def before_push(self, push: PushCall) -> None:
        await self.clock.advance(timedelta(seconds=12))

    def after_push(self, push: PushCall) -> None:
        self.errors.append(type(push.error).__name__)


async def test_the_job_of_a_schedule_has_the_headers_of_middleware() -> None:
    seen: list[dict[str, str]] = []
    async with testing.pool(middleware=[Stamp()]) as pool:
        await pool.schedules.add("hourly", {"n": 1}, every=HOUR)
        await pool.clock.advance(HOUR)
        await pool.push_due()

        def work(payload: dict[str, int], context: JobContext) -> None:
            seen.append({**context.headers, "n": str(payload["n"])})

        await pool.run_until_empty(work)

    assert seen == [{"stamp": "pushed", "n": "1"}]


async def test_a_tick_whose_hook_took_too_long_is_pushed_by_the_next_look(caplog: pytest.LogCaptureFixture) -> None:
    async with testing.pool() as pool:
        slow = Slow(pool.clock)
        plugins = NO_PLUGINS.with_middleware([slow])
        await pool.schedules.add("hourly", 1, every=HOUR)
        await pool.clock.advance(HOUR)

        with caplog.at_level(logging.WARNING):
            await TickPusher(pool.store, pool.clock, "slow", lambda: plugins).push_due(await pool.get())
        late = await pool.size()
        await pool.push_due()

        assert (late, await pool.size()) == (0, 1)
    assert slow.errors == ["_TooLate"]
    assert "were not pushed in time" in caplog.text


async def test_a_tick_waits_while_middleware_cannot_be_imported(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> PoolPlugins:
        raise InvalidInput("middleware 'nowhere:Hooks': cannot import 'nowhere'")

    async with testing.pool() as pool:
        await pool.schedules.add("hourly", 1, every=HOUR)
        await pool.clock.advance(HOUR)

        with caplog.at_level(logging.WARNING):
            await TickPusher(pool.store, pool.clock, "broken", broken).try_to_push_due(
                await pool.store.pools.get(PoolId("test"))
            )
        waiting = await pool.size()
        await pool.push_due()

        assert (waiting, await pool.size()) == (0, 1)
    assert "cannot import 'nowhere'" in caplog.text
