"""Watches pools for delayed jobs that become ready, in a separate process or beside other work of this process."""

import asyncio
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from drumbeat.composition.base import ControlPlaneBase, process_name
from drumbeat.core.pool import PoolId
from drumbeat.pool.due_jobs import DueJobWatcher
from drumbeat.runtime.task_group import plain_task_group
from drumbeat.triggers.detached import ON_ITS_WAY, start_detached
from drumbeat.triggers.model import Firing

log = logging.getLogger(__name__)

Pools = Callable[[], Awaitable[Sequence[PoolId]]]
Wake = Callable[[PoolId], Awaitable[object]]

LONGEST_WATCH = timedelta(days=1)  #: a process that only watches exits after this; the next check starts another
_START_AFTER = timedelta(seconds=10)
_MODULE = "drumbeat.cli.watch_due"


async def start_watching(base: ControlPlaneBase, pool_id: PoolId, firing: Firing | None = None) -> None:
    """Start a process that, once delayed jobs are due, runs the trigger ``firing``, or checks the pool if that is None.

    Does nothing if such a process was just started, or if other processes cannot use the store. Raises SpawnFailed."""
    if not base.store.traits.shared:
        return
    if await base.store.leases.acquire(f"due/coming/{pool_id}", process_name(), ON_ITS_WAY) is None:
        return
    command = (sys.executable, "-m", _MODULE, pool_id, *(() if firing is None else (json.dumps(firing.to_json()),)))
    log_file = base.settings.state_dir / "triggers" / "due.log"
    await asyncio.to_thread(start_detached, command, base.worker_environment, log_file)


async def watch_pool(base: ControlPlaneBase, pool_id: PoolId, wake: Wake) -> None:
    """Call ``wake`` whenever delayed jobs of a pool become ready. Returns when no job is pending, or after a day."""
    await DueJobWatcher(base.store, base.clock, process_name(), wake).watch(pool_id, LONGEST_WATCH)


@asynccontextmanager
async def watching(base: ControlPlaneBase, keep: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """While the block runs, also run ``keep``, which starts workers when delayed jobs come due. Its errors are only logged."""
    async with plain_task_group() as group:
        task = group.create_task(_keep(base, keep))
        try:
            yield
        finally:
            task.cancel()


async def _keep(base: ControlPlaneBase, keep: Callable[[], Awaitable[None]]) -> None:
    """Run ``keep``, which watches for delayed jobs, but only after ten seconds: short-lived processes need not watch.

    Errors are logged.
    """
    await base.clock.sleep(_START_AFTER)
    try:
        await keep()
    except Exception:
        log.exception("failed to watch for delayed jobs; this process stops watching and continues its work")


async def keep_due(base: ControlPlaneBase, pools: Pools, wake: Wake, file: Path) -> None:
    """Watch pools for delayed jobs that become ready, until cancelled. Of all processes with this triggers file on this
    machine, only one watches at a time."""
    watch = DueJobWatcher(base.store, base.clock, process_name(), wake)
    await watch.keep(pools, f"{socket.gethostname()}{file}")
