"""Runs the driver alone, without the connection that a target has of its own: bare_child.py URL CONNECTIONS SECONDS [RATE].

Prints the measured figures as JSON.
"""

import asyncio
import json
import os
import sys
import threading
from contextlib import suppress
from datetime import timedelta

import numpy as np

from drumbeat.bench.driver.engine import PostgresEngine
from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.runner import MEASUREMENT, LoadRunner
from drumbeat.bench.driver.session import address_of
from drumbeat.bench.driver.tally import latency_figures
from drumbeat.bench.values.draw import Draw
from drumbeat.core.clock import SystemClock
from kit.drive_child import point_select


def goes_first(engine: PostgresEngine) -> None:
    """Give the driving thread real-time priority over the programs that keep the processors awake, if permitted."""
    driving = next(each.native_id for each in threading.enumerate() if each.ident == engine.driving_thread)
    assert driving is not None
    with suppress(PermissionError):
        os.sched_setscheduler(driving, os.SCHED_FIFO, os.sched_param(1))


async def main(url: str, connections: int, seconds: float, rate: float | None) -> None:
    clock, load = SystemClock(), point_select()
    draw = Draw(slot=0, chance=np.random.default_rng(1), now_us=lambda: 0)
    engine = PostgresEngine(address_of(url), load, draw, EngineSettings(most_connections=connections))
    runner = LoadRunner(engine, load, clock)
    await runner.open()
    goes_first(engine)
    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(runner.run())
        runner.set_target(connections, timedelta())
        while engine.open_connections < connections:
            await asyncio.sleep(0.01)
        runner.set_rate(rate)
        runner.start("WARMUP", connections)
        await asyncio.sleep(0.5)
        runner.set_phase(MEASUREMENT)
        await asyncio.sleep(seconds)
        await runner.drain(timedelta(seconds=10))
        ticking.cancel()
    await runner.close()
    found = runner.measured
    told = {"service": found.service, "response": found.response, "send_lag": found.lag}
    print(json.dumps({name: latency_figures(each) for name, each in told.items()} | {"throughput": found.operations / seconds}))


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]) if len(sys.argv) > 4 else None))
