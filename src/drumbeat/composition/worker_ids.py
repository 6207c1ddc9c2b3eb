"""Finds a free worker id for a worker that a user starts with a fixed id, again and again, for example by systemd.

The row of an ended worker is never used again, so that the store can refuse late writes of the worker's old process. Each
later start under the same id therefore gets a new row, whose id has a number: ``w1``, ``w1.2``, ``w1.3``. The last number is
in a note of the store, so that an id is not given out again after its row was pruned: samples of it may still be stored.
"""

import os
import re
import socket
from datetime import datetime

import psutil

from drumbeat.core.errors import NotFound, Refused, StaleWrite
from drumbeat.core.plain import time_span
from drumbeat.core.pool import PoolRow
from drumbeat.core.recovery import stays
from drumbeat.core.worker import CRASH, Health, Worker, WorkerId, WorkerStatus, judge, silence
from drumbeat.spawn.state_dir import check_file_name
from drumbeat.store.interface import Store, WorkerChange


async def find_free_id(store: Store, pool: PoolRow, wanted: str) -> WorkerId:
    """Return the id for the next start of the worker ``wanted``: the id itself, or with the next number if it was used before.

    Marks the worker's row as lost if its process is gone. Raises InvalidInput for an id that cannot be a file name, because
    engines name files after workers; Refused if the worker still runs in another process.
    """
    check_file_name("worker", wanted)
    now = await store.now()
    for row in await store.workers.list(pool.pool_id, live=True):
        if row.status is not WorkerStatus.SPAWNING and _is_start_of(row.worker_id, wanted):
            await _end_if_gone(store, pool, row, now)
    return await _next_unused(store, pool, wanted)


def _is_start_of(worker_id: str, wanted: str) -> bool:
    return worker_id == wanted or re.fullmatch(re.escape(wanted) + r"\.[0-9]+", worker_id) is not None


async def _end_if_gone(store: Store, pool: PoolRow, row: Worker, now: datetime) -> None:
    reason = _why_gone(pool, row, now)
    try:
        if reason is not None:
            await store.workers.move(row, WorkerStatus.LOST, reason, WorkerChange(meta={CRASH: stays(row)}))
            return
    except StaleWrite:
        pass  # it has just sent a heartbeat, so it runs
    raise Refused(
        f"worker {row.worker_id} of pool {pool.pool_id} runs in another process ({row.host} pid {row.pid}, last heartbeat "
        f"{time_span(silence(row, now))} ago); choose another --worker-id, or end that process; without heartbeats its id is "
        f"free after {time_span(pool.thresholds.lost_after)}"
    )


def _why_gone(pool: PoolRow, row: Worker, now: datetime) -> str | None:
    """Return why a live row's process is known to be gone; None if the process may run."""
    is_here = row.host == socket.gethostname() and row.pid is not None
    if is_here and (row.pid == os.getpid() or not psutil.pid_exists(row.pid or 0)):  # in a container, each start can be pid 1
        return f"its process {row.pid} no longer runs on {row.host}; the worker was started again"
    if judge(row, now, pool.thresholds) is Health.LOST:
        return f"no heartbeat for {time_span(silence(row, now))}; the worker was started again"
    return None


async def _next_unused(store: Store, pool: PoolRow, wanted: str) -> WorkerId:
    """Return the next unused id. If no process has joined yet under the id that was given out last, returns that id again."""
    name = f"worker-id/{pool.pool_id}/{wanted}"
    note = await store.notes.find(name)
    last = 0 if note is None else int(note.value["last"])
    if last and await _status(store, pool, _numbered(wanted, last)) is WorkerStatus.SPAWNING:
        return _numbered(wanted, last)
    number = await _first_unused(store, pool, wanted, last)
    await store.notes.put(name, {"last": number})
    return _numbered(wanted, number)


async def _first_unused(store: Store, pool: PoolRow, wanted: str, last: int) -> int:
    """Return the first number after ``last`` whose id no process has used. Tries numbers by doubling and then bisecting,
    because earlier versions, which did not count, may have started the worker many times."""
    used, unused = last, last + 1
    while await _is_used(store, pool, _numbered(wanted, unused)):
        used, unused = unused, 2 * unused
    while unused - used > 1:
        middle = (used + unused) // 2
        if await _is_used(store, pool, _numbered(wanted, middle)):
            used = middle
        else:
            unused = middle
    return unused


def _numbered(wanted: str, start: int) -> WorkerId:
    return WorkerId(wanted if start == 1 else f"{wanted}.{start}")


async def _is_used(store: Store, pool: PoolRow, worker_id: WorkerId) -> bool:
    """Whether a process has joined as this worker. A row in status SPAWNING is unused: its process has not joined yet."""
    return await _status(store, pool, worker_id) not in (None, WorkerStatus.SPAWNING)


async def _status(store: Store, pool: PoolRow, worker_id: WorkerId) -> WorkerStatus | None:
    try:
        return (await store.workers.get(pool.pool_id, worker_id)).status
    except NotFound:
        return None
