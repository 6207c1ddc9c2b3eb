"""Who watches for jobs that come due: a process of its own, which a check starts, and those that run anyway."""

import asyncio
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from drumbeat.composition.plane import ControlPlane, process_name, triggers_file
from drumbeat.core.pool import PoolId
from drumbeat.pool.due_jobs import DueWatch
from drumbeat.settings import STATE_DIR_VARIABLE
from drumbeat.triggers.detached import ON_ITS_WAY, start_detached
from drumbeat.triggers.model import Firing

log = logging.getLogger(__name__)

Pools = Callable[[], Awaitable[Sequence[PoolId]]]
Wake = Callable[[PoolId], Awaitable[object]]

LONGEST_WATCH = timedelta(
    days=1
)  #: after so long a process that only watches leaves: others look, or the next check starts one
_FIRST_LOOK = timedelta(seconds=10)
_MODULE = "drumbeat.cli.watch_due"


async def start_watching(plane: ControlPlane, pool_id: PoolId, firing: Firing | None = None) -> None:
    """Start a process that watches a pool, unless one is on its way; it fires ``firing``, or checks. Raises SpawnFailed."""
    if not plane.store.traits.shared:
        return
    if await plane.store.leases.acquire(f"due/coming/{pool_id}", process_name(), ON_ITS_WAY) is None:
        return
    folder = plane.settings.state_dir
    variables = {**plane.settings.for_children(), STATE_DIR_VARIABLE: str(folder)}
    command = (sys.executable, "-m", _MODULE, pool_id, *(() if firing is None else (json.dumps(firing.to_json()),)))
    await asyncio.to_thread(start_detached, command, variables, folder / "triggers" / "due.log")


async def watch_pool(plane: ControlPlane, pool_id: PoolId, firing: Firing | None = None) -> None:
    """Be the process that watches a pool: it fires or checks when jobs come due, and leaves when none are pending."""

    async def wake(pool_id: PoolId) -> object:
        return await (plane.checker().check(pool_id) if firing is None else plane.fired(firing))

    await DueWatch(plane.store, plane.clock, process_name(), wake).watch(pool_id, LONGEST_WATCH)


@asynccontextmanager
async def watching(plane: ControlPlane) -> AsyncIterator[None]:
    """Inside the block the pools of this folder's triggers are watched too."""
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_keep(plane))
        try:
            yield
        except Exception as exc:
            failure = exc  # raised outside the group, so that it comes as it is
        finally:
            task.cancel()
    if failure is not None:
        raise failure


async def _keep(plane: ControlPlane) -> None:
    """The first look comes late: most processes that come and go need not read the file. Never fails what runs beside it."""
    await plane.clock.sleep(_FIRST_LOOK)
    try:
        desk = await asyncio.to_thread(plane.triggers, triggers_file())
        await desk.keep_due()
    except Exception:
        log.exception("jobs that come due are not watched for in this process")


async def keep_due(plane: ControlPlane, pools: Pools, wake: Wake, file: Path) -> None:
    """Watch pools in this process, until cancelled; of all processes that go by the same file on this machine one does."""
    watch = DueWatch(plane.store, plane.clock, process_name(), wake)
    await watch.keep(pools, f"{socket.gethostname()}{file}")
