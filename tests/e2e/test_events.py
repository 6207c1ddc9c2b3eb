"""Events from many processes arrive at every reader, in order, without a gap or a repeat."""

import asyncio
import json

from drumbeat.core.pool import PoolKind, pool
from drumbeat.store import open_store
from e2e.processes import cleared_away, finished, start
from thorough import some

WRITERS, EACH, READERS = 8, some(1200), 4


async def test_readers_that_poll_while_eight_processes_write_see_every_event_once_and_in_order(url: str) -> None:
    async with open_store(url) as store:
        await store.pools.create(pool("p", PoolKind.BENCH))
    readers = [start("read_events", url, "p", WRITERS * EACH) for _ in range(READERS)]
    writers = [start("write_events", url, "p", f"w{n}", EACH) for n in range(WRITERS)]

    with cleared_away([*readers, *writers]):
        for writer in writers:
            await asyncio.to_thread(finished, writer)
        seen = [json.loads(await asyncio.to_thread(finished, reader)) for reader in readers]

    assert seen == [{"gapless": True, "in_order": True, "writers": WRITERS}] * READERS
