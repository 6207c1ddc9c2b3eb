"""An API that hangs is given up in time for a beat to hear of it."""

from datetime import timedelta

import httpx
import pytest

from drumbeat.core.errors import SpawnError
from drumbeat.spawn.runpod import RunPodSettings
from drumbeat.spawn.runpod.client import RunPodClient
from spawn.runpod.rig import LeapingClock


class Slow(httpx.AsyncBaseTransport):
    """Every call ends without an answer, after so long."""

    def __init__(self, clock: LeapingClock, after: timedelta) -> None:
        self.clock, self.after, self.calls = clock, after, 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.calls += 1
        await self.clock.sleep(self.after)
        raise httpx.ReadTimeout("no answer", request=request)


@pytest.mark.parametrize(("after", "calls"), [(0, 3), (30, 1)], ids=["fails at once", "hangs"])
async def test_what_may_be_repeated_is_repeated_while_there_is_time(after: int, calls: int) -> None:
    clock = LeapingClock()
    wire = Slow(clock, timedelta(seconds=after))
    client = RunPodClient("key", RunPodSettings(image="i", max_price_per_hour=1.0), clock, wire)

    with pytest.raises(SpawnError, match="ReadTimeout"):
        await client.pods()
    await client.close()

    assert wire.calls == calls
    assert clock.elapsed() <= timedelta(seconds=50)
