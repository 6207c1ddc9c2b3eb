"""Checks an engine for real: reaches it, starts one worker, sees it join the store, drains it, and sees it leave."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar
from uuid import uuid4

from drumbeat.composition.base import ControlPlaneBase, process_name
from drumbeat.composition.engines import NamedEngine
from drumbeat.composition.workers import CLOCK_SHOWN, REPORT_CLOCK_VARIABLE
from drumbeat.core.errors import DrumbeatError, MissingExtra, NotFound, SpawnCause, SpawnError, StaleWrite
from drumbeat.core.event import start as start_event
from drumbeat.core.lease import Lease
from drumbeat.core.plain import time_span
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, Thresholds, pool, with_heartbeat
from drumbeat.core.worker import ExitCode, Worker, WorkerId, WorkerStatus
from drumbeat.spawn.interface import Instance, InstanceState, Order, ReadsLogs, Spawner

T = TypeVar("T")

WORKER: Final = WorkerId("worker-0")
MOST_CLOCK_OFFSET: Final = timedelta(seconds=2)
_POLL: Final = timedelta(milliseconds=100)
_LIST_EVERY: Final = 10  #: while waiting, the engine is asked at every n-th poll of the store
_SHORTEST: Final = timedelta(seconds=60)
_CLOCK_WITHIN: Final = timedelta(seconds=5)
_LINES: Final = 50
_CAUSES: Final = {
    SpawnCause.NO_CAPACITY: "the engine is full",
    SpawnCause.BAD_REQUEST: "the engine does not accept the request (image, settings or limits)",
    SpawnCause.AUTH: "the key, token or permission is wrong",
    SpawnCause.NO_MONEY: "the account has no money",
    SpawnCause.RATE_LIMITED: "the engine limits the rate of requests",
    SpawnCause.TRANSIENT: "the engine failed or cannot be reached (network)",
    SpawnCause.AMBIGUOUS: "the engine gave no answer to the start",
    SpawnCause.BOOT_CRASH: "the worker ended before it was ready",
}
#: what a worker's last words mean, in order; the first that matches is reported
_HINTS: Final = (
    (r"drumbeat\[(\w+)\]", "an extra of drumbeat is missing where the worker runs"),
    (r"No module named '?drumbeat|drumbeat: (command )?not found", "drumbeat is not installed where the worker runs"),
    (r"No module named", "a Python package is missing where the worker runs"),
    (r"requires Python|SyntaxError|python[0-9.]*: (command )?not found|directory: '.*python", "Python is missing or old there"),
    (r"executable file not found|No such file or directory|not found", "a command or file is missing where the worker runs"),
    (r"password authentication failed|WRONGPASS|NOAUTH", "the store refuses the user or password"),
    (
        r"refused|timed? ?out|unreachable|could not (connect|translate)|did not answer|Name or service|resolve|No route",
        "the store cannot be reached from there",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStep:
    """One step of a check: how long it took, and what was found or why it failed."""

    step: str
    ok: bool
    took: timedelta
    detail: str


class _Failed(Exception):
    """A step failed; the message says why."""


class EngineCheck:
    """Checks one engine with one worker in a pool of its own. Whatever happens, the worker and the pool are removed."""

    def __init__(
        self, base: ControlPlaneBase, engine: NamedEngine, on_step: Callable[[CheckStep], None], within: timedelta | None = None
    ) -> None:
        """``on_step`` is called after each step; ``within`` limits the start of the worker, and its end."""
        self._base = base
        self._store = base.store
        self._clock = base.clock
        self._engine = engine
        self._on_step = on_step
        self._within = within
        self._pool_id = PoolId(f"engine-check-{engine.name}-{uuid4().hex[:8]}")
        self._asked = False  #: whether the engine was asked for a worker

    async def run(self) -> bool:
        """Run all steps until one fails. Returns whether all succeeded. Each step is passed to ``on_step``."""
        async with AsyncExitStack() as stack:
            try:
                spawner = await self._step("settings", self._open)
                await self._step("reach", lambda: self._reach(stack, spawner))
                await stack.enter_async_context(self._scratch_pool(spawner))
                await self._step("start", lambda: self._start(spawner))
                row = await self._step("join", lambda: self._join(spawner))
                await self._step("clock", lambda: self._check_clock(row))
                await self._step("drain", lambda: self._drain(spawner))
                await self._step("leave", lambda: self._leave(spawner))
            except _Failed:
                return False
        return True

    async def _step(self, name: str, work: Callable[[], Awaitable[tuple[T, str]]]) -> T:
        """Run one step and report it. ``work`` returns a result and what was found. Raises _Failed if the step failed."""
        began = self._clock.elapsed()
        try:
            result, detail = await work()
        except (DrumbeatError, _Failed) as exc:
            self._report(name, began, _reason(exc), ok=False)
            raise _Failed(str(exc)) from exc
        self._report(name, began, detail, ok=True)
        return result

    def _report(self, name: str, began: timedelta, detail: str, *, ok: bool) -> None:
        took = self._clock.elapsed() - began
        self._on_step(CheckStep(step=name, ok=ok, took=took, detail=" ".join(detail.split())))

    async def _open(self) -> tuple[Spawner, str]:
        spawner = self._base.spawner(self._engine.name)
        warning = self._base.engines.reach_warning(self._engine.name)
        return spawner, f"kind {self._engine.kind.name}" + (f"; note: {warning}" if warning else "")

    async def _reach(self, stack: AsyncExitStack, spawner: Spawner) -> tuple[None, str]:
        await stack.enter_async_context(spawner)
        await spawner.list(self._pool_id)
        return None, "the engine answers"

    async def _start(self, spawner: Spawner) -> tuple[None, str]:
        row = Worker(pool_id=self._pool_id, worker_id=WORKER, slot=0, provider=spawner.traits.name)
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
        instance = await spawner.spawn(order)
        place = instance.meta.get("host") or instance.meta.get("location")
        return None, f"instance {instance.ref} is {instance.state}" + (f" at {place}" if place else "")

    async def _join(self, spawner: Spawner) -> tuple[Worker, str]:
        deadline, polls = self._clock.elapsed() + self._limit(spawner), 0
        while True:
            row = await self._store.workers.get(self._pool_id, WORKER)
            if row.heartbeat_at is not None and row.is_live:
                return row, f"joined from host {row.host}, process {row.pid}"
            instance = await self._instance(spawner) if polls % _LIST_EVERY == 0 else None
            if not row.is_live or (instance is not None and instance.state is InstanceState.EXITED):
                raise _Failed(await self._why_ended(spawner, row, instance))
            if self._clock.elapsed() > deadline:
                raise _Failed(await self._why_late(spawner))
            polls += 1
            await self._clock.sleep(_POLL)

    async def _check_clock(self, row: Worker) -> tuple[None, str]:
        """Compare the worker's clock with the store's. Raises _Failed if they differ by more than MOST_CLOCK_OFFSET."""
        deadline = self._clock.elapsed() + _CLOCK_WITHIN
        while (offset := await self._clock_offset()) is None:
            if self._clock.elapsed() > deadline:
                return None, "the worker did not report its clock"
            await self._clock.sleep(_POLL)
        if abs(offset) > MOST_CLOCK_OFFSET:
            ahead = "ahead of" if offset > timedelta() else "behind"
            raise _Failed(
                f"the clock of host {row.host} is {time_span(abs(offset))} {ahead} the store's, expected at most "
                f"{time_span(MOST_CLOCK_OFFSET)}; synchronise it (NTP)"
            )
        return None, f"{time_span(abs(offset))} from the store's clock"

    async def _clock_offset(self) -> timedelta | None:
        for line in await self._store.logs.list(self._pool_id, worker_id=WORKER, limit=_LINES):
            if line.message.startswith(CLOCK_SHOWN):
                return datetime.fromisoformat(line.message.removeprefix(CLOCK_SHOWN)) - line.at
        return None

    async def _drain(self, spawner: Spawner) -> tuple[None, str]:
        await spawner.drain(self._pool_id, WORKER)
        return None, "asked to finish and leave"

    async def _leave(self, spawner: Spawner) -> tuple[None, str]:
        deadline = self._clock.elapsed() + self._limit(spawner)
        while True:
            row, instance = await self._store.workers.get(self._pool_id, WORKER), await self._instance(spawner)
            is_gone = instance is None or instance.state is InstanceState.EXITED
            if not row.is_live and is_gone:
                code = f" with exit code {row.exit_code}" if row.exit_code is not None else ""
                return None, f"left as {row.status}{code}, and its instance is gone"
            if self._clock.elapsed() > deadline:
                left = "its instance still runs" if not is_gone else f"its row is still {row.status}"
                raise _Failed(f"the worker did not leave within {time_span(self._limit(spawner))}: {left}")
            await self._clock.sleep(_POLL)

    @asynccontextmanager
    async def _scratch_pool(self, spawner: Spawner) -> AsyncIterator[None]:
        """Create a pool for the check, and hold its lease, so that no controller acts on it. Afterwards remove everything."""
        limit = self._limit(spawner)
        row = pool(self._pool_id, PoolKind.FLEET, _thresholds(limit), policy="fixed", workers=0, provider=self._engine.name)
        lease = await self._store.leases.acquire(self._pool_id, process_name(), limit * 4)
        try:
            await self._store.pools.create(row)
            await self._store.events.append(self._pool_id, [start_event(expected_workers=1)])
            yield
        finally:
            began = self._clock.elapsed()
            problems = await self._clean_up(spawner, lease)
            if problems:
                self._report("clean up", began, "; ".join(problems), ok=False)
            else:
                self._report("clean up", began, "nothing is left", ok=True)

    async def _clean_up(self, spawner: Spawner, lease: Lease | None) -> Sequence[str]:
        """End the worker and delete the pool. Returns what could not be done."""
        problems = []
        if self._asked:
            try:
                await spawner.terminate(self._pool_id, WORKER)
                await self._close_row()
            except DrumbeatError as exc:
                problems.append(f"worker {WORKER} of pool {self._pool_id} may still run at {self._engine.name}: {exc}; end it")
        try:
            if not problems:
                await self._store.pools.delete(self._pool_id)
            if lease is not None:
                await self._store.leases.release(lease)
        except DrumbeatError as exc:
            problems.append(f"pool {self._pool_id} was not deleted: {exc}; run: drumbeat pool delete {self._pool_id}")
        return problems

    async def _close_row(self) -> None:
        """Close the row of the worker, whose instance is gone."""
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

    def _limit(self, spawner: Spawner) -> timedelta:
        return self._within or max(_SHORTEST, spawner.traits.usual_start * 3)

    async def _instance(self, spawner: Spawner) -> Instance | None:
        """Return the worker's instance, a running one if there are several; None if the engine lists none."""
        found = [one for one in await spawner.list(self._pool_id) if one.worker_id == WORKER]
        return next((one for one in found if one.state is not InstanceState.EXITED), found[0] if found else None)

    async def _why_ended(self, spawner: Spawner, row: Worker, instance: Instance | None) -> str:
        code = row.exit_code if row.exit_code is not None else instance.exit_code if instance is not None else None
        last = row.error or await self._last_line(spawner)
        known = f" with exit code {code}" if code is not None else ""
        hint = _hint(last) or ("the store cannot be reached from there" if code == ExitCode.STORE_LOST else None)
        return f"the worker ended{known} before it joined" + _said(hint, last)

    async def _why_late(self, spawner: Spawner) -> str:
        instance, within = await self._instance(spawner), time_span(self._limit(spawner))
        if instance is None:
            return f"the worker did not join within {within}, and the engine does not list its instance any more"
        if instance.state is InstanceState.PENDING:
            reason = instance.meta.get("reason") or "the engine's queue is full, or its image is being loaded"
            return f"the worker is still pending after {within}: {reason}"
        last = await self._last_line(spawner)
        hint = _hint(last) or "the store may not be reachable from there"
        return f"the worker runs, but did not join the store within {within}" + _said(hint, last)

    async def _last_line(self, spawner: Spawner) -> str | None:
        """Return the last line that the worker wrote; None if there is none, or the engine cannot return it."""
        if not isinstance(spawner, ReadsLogs):
            return None
        try:
            lines = [line.strip() for line in (await spawner.logs(self._pool_id, WORKER, lines=_LINES)).splitlines()]
        except (NotFound, SpawnError):
            return None
        return next((line for line in reversed(lines) if line), None)


def _thresholds(limit: timedelta) -> Thresholds:
    """Return limits for a worker that is watched closely: a heartbeat each second, and gone soon after its controller."""
    return replace(with_heartbeat(PRESETS[PoolKind.FLEET], timedelta(seconds=1)), controller_gone_after=limit)


def _hint(line: str | None) -> str | None:
    return next((hint for pattern, hint in _HINTS if re.search(pattern, line or "", re.IGNORECASE)), None)


def _said(hint: str | None, last: str | None) -> str:
    return (f": {hint}" if hint else "") + (f"; its last line: {last}" if last else "; it wrote nothing that can be read")


def _reason(error: Exception) -> str:
    """Return why a step failed, beginning with the kind of cause if it is known."""
    if isinstance(error, MissingExtra):
        return f"an extra is missing here: {error}"
    if isinstance(error, SpawnError):
        return f"{_CAUSES[error.cause]}: {error}"
    return str(error)
