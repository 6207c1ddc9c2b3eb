"""Append events one by one: write_events.py URL POOL WRITER COUNT"""

import asyncio
import sys

from drumbeat.core.event import NewEvent
from drumbeat.core.pool import PoolId
from drumbeat.store import open_store


async def write(url: str, pool: str, writer: str, count: int) -> None:
    async with open_store(url) as store:
        for n in range(count):
            await store.events.append(PoolId(pool), [NewEvent(type="TOLD", payload={"writer": writer, "n": n})])


asyncio.run(write(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
