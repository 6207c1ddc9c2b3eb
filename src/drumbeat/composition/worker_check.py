"""Checks whether an engine, or one of its hosts, can run workers: starts a worker, which joins the store and leaves."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from drumbeat.composition.base import ControlPlaneBase, process_name
from drumbeat.composition.check_steps import CLEAN_UP, CheckStepFailed, StepRunner
from drumbeat.composition.workers import CLOCK_SHOWN, REPORT_CLOCK_VARIABLE
from drumbeat.core.errors import DrumbeatError, NotFound, SpawnError, StaleWrite
from drumbeat.core.event import start as start_event
from drumbeat.core.lease import Lease
from drumbeat.core.plain import time_span
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, Thresholds, pool, with_heartbeat
from drumbeat.core.worker import ExitCode, Worker, WorkerId, WorkerStatus
from drumbeat.spawn.interface import Instance, InstanceState, Order, ReadsLogs, Spawner, list_reachable

WORKER: Final = WorkerId("worker-0")
MOST_CLOCK_OFFSET: Final = timedelta(seconds=2)
_POLL: Final = timedelta(milliseconds=100)
_LIST_EVERY: Final = 10  #: while waiting, the engine is asked at every n-th poll of the store
_SHORTEST: Final = timedelta(seconds=60)
_CLOCK_WITHIN: Final = timedelta(seconds=5)
_ROW_WITHIN: Final = timedelta(seconds=30)  #: how long after the worker's instance is gone its row may still change
_LINES: Final = 50
#: what the last line of a worker's output means: patterns with hints; the first match is reported
_HINTS: Final = (
    (r"drumbeat\[(\w+)\]", "an extra of drumbeat is missing where the worker runs"),
    (r"No module named '?drumbeat|drumbeat: (command )?not found", "drumbeat is not installed where the worker runs"),
    (r"No module named", "a Python package is missing where the worker runs"),
    (r"requires Python|SyntaxError|python[0-9.]*: (command )?not found|directory: '.*python", "Python is missing or too old"),
    (r"executable file not found|No such file or directory|not found", "a command or file is missing where the worker runs"),
    (r"password authentication failed|WRONGPASS|NOAUTH", "the store refuses the user or password"),
    (
        r"refused|timed? ?out|unreachable|could not (connect|translate)|did not answer|Name or service|resolve|No route",
        "the store cannot be reached from there",
    ),
)


class WorkerCheck:
    """Runs one worker in a temporary pool. Removes both at the end, also after a failure; reports what it could not remove."""

    def __init__(
        self, base: ControlPlaneBase, engine: str, spawner: Spawner, steps: StepRunner, within: timedelta | None = None
    ) -> None:
        """``spawner`` must be open; ``within``: time limit for the worker's start, and for its end."""
        self._base = base
        self._store = base.store
        self._clock = base.clock
        self._engine = engine
        self._spawner = spawner
        self._steps = steps
        self._within = within
        self._pool_id = PoolId(f"engine-check-{engine}-{uuid4().hex[:8]}")
        self._asked = False  #: whether the engine was asked for a worker

    async def run(self) -> bool:
        """Run all steps until one fails. Returns whether all succeeded."""
        try:
            async with self._scratch_pool():
                await self._steps.run("start", self._start)
                row = await self._steps.run("join", self._join)
                await self._steps.run("clock", lambda: self._check_clock(row))
                await self._steps.run("drain", self._drain)
                await self._steps.run("leave", self._leave)
        except CheckStepFailed:
            return False
        return True

    async def _start(self) -> tuple[None, str]:
        row = Worker(pool_id=self._pool_id, worker_id=WORKER, slot=0, provider=self._spawner.traits.name)
        await self._store.workers.add([row])
        order = Order(
            pool_id=self._pool_id,
            worker_id=WORKER,
            slot=0,
            group_count=1,
            environment={REPORT_CLOCK_VARIABLE: "1"},
            is_first=True,
        )
        self._asked = True
        instance = await self._spawner.spawn(order)
        place = instance.meta.get("host") or instance.meta.get("location")
        return None, f"instance {instance.ref} is {instance.state}" + (f" at {place}" if place else "")

    async def _join(self) -> tuple[Worker, str]:
        deadline, polls = self._clock.elapsed() + self._limit(), 0
        while True:
            row = await self._store.workers.get(self._pool_id, WORKER)
            if row.heartbeat_at is not None and row.is_live:
                return row, f"joined from host {row.host}, process {row.pid}"
            instance = await self._instance() if polls % _LIST_EVERY == 0 else None
            if not row.is_live or (instance is not None and instance.state is InstanceState.EXITED):
                raise CheckStepFailed(await self._why_ended(row, instance))
            if self._clock.elapsed() > deadline:
                raise CheckStepFailed(await self._why_late())
            polls += 1
            await self._clock.sleep(_POLL)

    async def _check_clock(self, row: Worker) -> tuple[None, str]:
        """Compare the worker's clock with the store's. Raises CheckStepFailed if they differ by more than MOST_CLOCK_OFFSET."""
        deadline = self._clock.elapsed() + _CLOCK_WITHIN
        while (offset := await self._clock_offset()) is None:
            if self._clock.elapsed() > deadline:
                return None, "the worker did not report its clock"
            await self._clock.sleep(_POLL)
        if abs(offset) > MOST_CLOCK_OFFSET:
            ahead = "ahead of" if offset > timedelta() else "behind"
            raise CheckStepFailed(
                f"the clock of host {row.host} is {time_span(abs(offset))} {ahead} the store's, expected at most "
                f"{time_span(MOST_CLOCK_OFFSET)}; synchronise it (NTP)"
            )
        return None, f"{time_span(abs(offset))} from the store's clock"

    async def _clock_offset(self) -> timedelta | None:
        for line in await self._store.logs.list(self._pool_id, worker_id=WORKER, limit=_LINES):
            if line.message.startswith(CLOCK_SHOWN):
                return datetime.fromisoformat(line.message.removeprefix(CLOCK_SHOWN)) - line.at
        return None

    async def _drain(self) -> tuple[None, str]:
        await self._spawner.drain(self._pool_id, WORKER)
        return None, "asked to finish and leave"

    async def _leave(self) -> tuple[None, str]:
        deadline, gone_since = self._clock.elapsed() + self._limit(), None
        while True:
            instance = await self._instance()
            row = await self._store.workers.get(self._pool_id, WORKER)
            is_gone = instance is None or instance.state is InstanceState.EXITED
            if not row.is_live and is_gone:
                code = f" with exit code {row.exit_code}" if row.exit_code is not None else ""
                return None, f"left as {row.status}{code}, and its instance is gone"
            now = self._clock.elapsed()
            gone_since = (gone_since or now) if is_gone else None
            if gone_since is not None and now - gone_since > _ROW_WITHIN:
                raise CheckStepFailed(
                    f"its instance is gone, but the worker did not record its end: its row is still {row.status}"
                    + _said(None, await self._last_line())
                )
            if now > deadline:
                left = "its instance still runs" if not is_gone else f"its row is still {row.status}"
                raise CheckStepFailed(f"the worker did not leave within {time_span(self._limit())}: {left}")
            await self._clock.sleep(_POLL)

    @asynccontextmanager
    async def _scratch_pool(self) -> AsyncIterator[None]:
        """Create a pool for the check, and hold its lease, so that no controller acts on it. Afterwards remove everything."""
        limit = self._limit()
        row = pool(
            self._pool_id,
            PoolKind.FLEET,
            _thresholds(limit, self._store.traits.shortest_beat),
            policy="fixed",
            workers=0,
            provider=self._engine,
        )
        lease = await self._store.leases.acquire(self._pool_id, process_name(), limit * 4)
        try:
            await self._store.pools.create(row)
            await self._store.events.append(self._pool_id, [start_event(expected_workers=1)])
            yield
        finally:
            began = self._clock.elapsed()
            problems = await self._clean_up(lease)
            if problems:
                self._steps.report(CLEAN_UP, began, "; ".join(problems), ok=False)
            else:
                self._steps.report(CLEAN_UP, began, "nothing is left", ok=True)

    async def _clean_up(self, lease: Lease | None) -> Sequence[str]:
        """End the worker and delete the pool. Returns a message for each thing that could not be removed."""
        problems = []
        if self._asked:
            try:
                await self._spawner.terminate(self._pool_id, WORKER)
                await self._close_row()
            except DrumbeatError as exc:
                problems.append(f"worker {WORKER} of pool {self._pool_id} might still run at {self._engine}: {exc}; end it")
        try:
            if not problems:
                await self._store.pools.delete(self._pool_id)
            if lease is not None:
                await self._store.leases.release(lease)
        except DrumbeatError as exc:
            problems.append(f"pool {self._pool_id} was not deleted: {exc}; run: drumbeat pool delete {self._pool_id}")
        return problems

    async def _close_row(self) -> None:
        """Record in the worker's row that the worker has ended and its instance is gone."""
        for _ in range(3):
            try:
                row = await self._store.workers.get(self._pool_id, WORKER)
                if row.is_live:
                    await self._store.workers.move(row, WorkerStatus.TERMINATED, "the engine's check is over")
                await self._store.workers.mark_reaped(self._pool_id, WORKER)
            except StaleWrite:
                continue
            except NotFound:
                return
            return

    def _limit(self) -> timedelta:
        return self._within or max(_SHORTEST, self._spawner.traits.usual_start * 3)

    async def _instance(self) -> Instance | None:
        """Return the worker's instance, a running one if there are several; None if the engine lists none."""
        listed = (await list_reachable(self._spawner, self._pool_id)).instances
        found = [one for one in listed if one.worker_id == WORKER]
        return next((one for one in found if one.state is not InstanceState.EXITED), found[0] if found else None)

    async def _why_ended(self, row: Worker, instance: Instance | None) -> str:
        code = row.exit_code if row.exit_code is not None else instance.exit_code if instance is not None else None
        last = row.error or await self._last_line()
        known = f" with exit code {code}" if code is not None else ""
        hint = _told(instance) or _hint(last)
        hint = hint or ("the store cannot be reached from there" if code == ExitCode.STORE_LOST else None)
        return f"the worker ended{known} before it joined" + _said(hint, last)

    async def _why_late(self) -> str:
        instance, within = await self._instance(), time_span(self._limit())
        if instance is None:
            return f"the worker did not join within {within}, and the engine no longer lists its instance"
        if instance.state is InstanceState.PENDING:
            why = _told(instance) or "the engine's queue is full, or its image is being loaded"
            return f"the worker is still pending after {within}: {why}"
        last = await self._last_line()
        hint = _hint(last) or "it probably cannot reach the store from there"
        return f"the worker runs, but did not join the store within {within}" + _said(hint, last)

    async def _last_line(self) -> str | None:
        """Return the last line that the worker wrote; None if there is none, or the engine cannot return it."""
        if not isinstance(self._spawner, ReadsLogs):
            return None
        try:
            lines = [line.strip() for line in (await self._spawner.logs(self._pool_id, WORKER, lines=_LINES)).splitlines()]
        except (NotFound, SpawnError):
            return None
        return next((line for line in reversed(lines) if line), None)


def _thresholds(limit: timedelta, shortest_beat: timedelta) -> Thresholds:
    """Return thresholds for the check: a heartbeat each second, or as often as the store allows; the worker leaves if this
    process is gone for ``limit``."""
    every = max(timedelta(seconds=1), shortest_beat)
    return replace(with_heartbeat(PRESETS[PoolKind.FLEET], every), controller_gone_after=limit)


def _told(instance: Instance | None) -> str | None:
    """Return the engine's reason why an instance does not run; None if it gives none."""
    meta = {} if instance is None else instance.meta
    return meta.get("problem") or meta.get("reason")


def _hint(line: str | None) -> str | None:
    return next((hint for pattern, hint in _HINTS if re.search(pattern, line or "", re.IGNORECASE)), None)


def _said(hint: str | None, last: str | None) -> str:
    return (f": {hint}" if hint else "") + (f"; its last line: {last}" if last else "; it wrote nothing that can be read")
