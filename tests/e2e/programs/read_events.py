"""Read a pool's events as they come, until there are COUNT: read_events.py URL POOL COUNT. Prints what was seen, as JSON."""

import asyncio
import json
import sys
from collections import defaultdict

from drumbeat.core.pool import PoolId
from drumbeat.store import open_store


async def read(url: str, pool: str, count: int) -> None:
    numbers: list[int] = []
    by_writer: dict[str, list[int]] = defaultdict(list)
    async with open_store(url) as store:
        while len(numbers) < count:
            events = await store.events.read(PoolId(pool), numbers[-1] if numbers else 0)
            for event in events:
                numbers.append(event.sequence_id)
                by_writer[event.payload["writer"]].append(event.payload["n"])
            if not events:
                await asyncio.sleep(0.01)
    in_order = all(told == list(range(len(told))) for told in by_writer.values())
    print(json.dumps({"gapless": numbers == list(range(1, count + 1)), "in_order": in_order, "writers": len(by_writer)}))


asyncio.run(read(sys.argv[1], sys.argv[2], int(sys.argv[3])))
