"""Lead a pool, or stand by: control.py URL POOL EVERY_MS LEASE_MS. Each beat appends one event that names epoch and owner."""

import asyncio
import os
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta

from drumbeat.core.clock import SystemClock
from drumbeat.core.decision import Decision
from drumbeat.core.event import NewEvent
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.runtime.beat import ControlLoop
from drumbeat.runtime.lease import Leadership
from drumbeat.store import open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """There is nothing to see but the time."""

    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Say who acts."""

    reason: str = "it is my turn"


async def control(url: str, pool: PoolId, every: timedelta, lease: timedelta) -> None:
    owner = f"pid-{os.getpid()}"
    async with open_store(url) as store:

        async def observe(gap: timedelta) -> View:
            return View(now=await store.now())

        async def act(action: Tell, fence: Fence) -> None:
            await store.events.append(
                pool, [NewEvent(type="ACTED", payload={"owner": owner, "epoch": fence.epoch})], fence=fence
            )

        clock = SystemClock()
        loop: ControlLoop[View, Tell] = ControlLoop(
            store=store,
            pool_id=pool,
            leadership=Leadership(store, pool, owner, lease, clock),
            clock=clock,
            every=every,
            observe=observe,
            decide=lambda view: Decision(actions=[Tell()]),
            act=act,
        )
        await loop.run(asyncio.Event())


asyncio.run(
    control(
        sys.argv[1],
        PoolId(sys.argv[2]),
        timedelta(milliseconds=int(sys.argv[3])),
        timedelta(milliseconds=int(sys.argv[4])),
    )
)
