"""Tests of the log lines of a pool and its workers."""

import asyncio

import pytest

from drumbeat.core.log import LONGEST_MESSAGE, NewLog
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.store.contract.given import AWKWARD, SECOND, W1, W2, Given, new_pool
from drumbeat.store.interface import Store

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def line(message: str, level: str = "INFO") -> NewLog:
    return NewLog(level=level, logger="drumbeat.test", message=message)


class LogsContract(Given):
    async def test_a_line_comes_back_as_it_was(self, store: Store, pool: PoolRow) -> None:
        message = "Grüße 🥁\n\tat line 2: 100 % 'quoted' :named $1"
        given = NewLog(level="WARNING", logger="a.b", message=message, worker_id=W1, details=AWKWARD)
        before = await store.now()

        await store.logs.append(pool.pool_id, [given])

        [log] = await store.logs.list(pool.pool_id)
        assert (log.pool_id, log.level, log.logger, log.message) == (pool.pool_id, "WARNING", "a.b", message)
        assert (log.worker_id, log.details) == (W1, AWKWARD)
        assert before <= log.at <= await store.now()

    async def test_a_line_without_worker_or_details_has_none(self, store: Store, pool: PoolRow) -> None:
        await store.logs.append(pool.pool_id, [line("x" * LONGEST_MESSAGE)])

        [log] = await store.logs.list(pool.pool_id)

        assert (log.worker_id, log.details, len(log.message)) == (None, None, LONGEST_MESSAGE)

    async def test_a_line_sent_late_has_the_time_it_was_logged(self, store: Store, pool: PoolRow) -> None:
        before = await store.now()
        await store.logs.append(pool.pool_id, [NewLog(level="INFO", logger="a", message="m", age=5 * SECOND)])

        [log] = await store.logs.list(pool.pool_id)

        assert before - 5 * SECOND <= log.at <= await store.now() - 5 * SECOND

    async def test_lines_are_numbered_upwards_in_their_order(self, store: Store, pool: PoolRow) -> None:
        await store.logs.append(pool.pool_id, [line("a"), line("b")])
        other = await store.pools.create(new_pool())
        await store.logs.append(other.pool_id, [line("elsewhere")])
        await store.logs.append(pool.pool_id, [line("c")])

        a, b, c = await store.logs.list(pool.pool_id)

        assert [log.message for log in (a, b, c)] == ["a", "b", "c"]
        assert 0 < a.log_id < b.log_id < c.log_id

    async def test_lines_are_listed_above_a_number(self, store: Store, pool: PoolRow) -> None:
        await store.logs.append(pool.pool_id, [line(str(n)) for n in range(5)])
        logs = await store.logs.list(pool.pool_id)

        assert await store.logs.list(pool.pool_id, after=logs[1].log_id) == logs[2:]
        assert await store.logs.list(pool.pool_id, after=logs[0].log_id, limit=2) == logs[1:3]

    @pytest.mark.parametrize("least", LEVELS)
    async def test_lines_are_listed_from_a_level_up(self, store: Store, pool: PoolRow, least: str) -> None:
        await store.logs.append(pool.pool_id, [line(level, level) for level in reversed(LEVELS)])

        listed = [log.message for log in await store.logs.list(pool.pool_id, level=least)]

        assert listed == [level for level in reversed(LEVELS) if level in LEVELS[LEVELS.index(least) :]]

    async def test_lines_are_listed_by_worker(self, store: Store, pool: PoolRow) -> None:
        for name in (W1, W2, None):
            await store.logs.append(pool.pool_id, [NewLog(level="INFO", logger="a", message=str(name), worker_id=name)])

        assert [log.message for log in await store.logs.list(pool.pool_id, worker_id=W2)] == ["w2"]
        assert len(await store.logs.list(pool.pool_id)) == 3

    async def test_lines_written_at_once_are_all_kept(self, store: Store, pool: PoolRow) -> None:
        await asyncio.gather(*(store.logs.append(pool.pool_id, [line("a"), line("b")]) for _ in range(20)))

        logs = await store.logs.list(pool.pool_id)

        assert len({log.log_id for log in logs}) == 40

    async def test_appending_no_lines_adds_nothing(self, store: Store, pool: PoolRow) -> None:
        await store.logs.append(pool.pool_id, [])

        assert await store.logs.list(pool.pool_id) == []

    async def test_a_pool_nobody_made_has_no_lines(self, store: Store, pool: PoolRow) -> None:
        await store.logs.append(pool.pool_id, [NewLog(level="INFO", logger="x", message="another pool's")])

        assert await store.logs.list(PoolId("pool-nobody-made")) == []
