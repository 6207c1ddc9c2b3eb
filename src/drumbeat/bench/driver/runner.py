"""Runs one worker's load: changes phases and connections, and counts operations and the client's CPU cost."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from drumbeat.bench.driver.cost import ClientCost, CpuMeter
from drumbeat.bench.driver.executions import ClosedFile, ExecutionWriter
from drumbeat.bench.driver.interface import Engine
from drumbeat.bench.driver.littles_law_check import LittlesLawCheck
from drumbeat.bench.driver.records import Records
from drumbeat.bench.driver.tally import LoadTally
from drumbeat.bench.model import Load
from drumbeat.core.clock import Clock

MEASUREMENT = "MEASUREMENT"
TICK = timedelta(milliseconds=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """A number of connections that changes linearly from ``begin`` to ``end``."""

    begin: int = 0
    end: int = 0
    began: timedelta = timedelta()
    lasts: timedelta = timedelta()

    def at(self, moment: timedelta) -> int:
        passed = moment - self.began
        if passed >= self.lasts:
            return self.end
        return self.begin + int((self.end - self.begin) * (passed / self.lasts))


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverInterval:
    """Operations, connections, and CPU use and delays of this process, in the time since the previous interval."""

    seconds: float
    phase: str | None
    tally: LoadTally
    cost: ClientCost
    held: int
    in_flight: int
    target: int


@dataclass(slots=True)
class _Phases:
    """Numbers the phases from 1 to 255, then from 1 again. An operation's epoch is the number of the phase in which it began;
    0 is the time before the first phase, which is never measured."""

    current: int = 0
    names: dict[int, str | None] = field(default_factory=lambda: {0: None})

    def enter(self, phase: str | None) -> int:
        self.current = self.current % 255 + 1
        self.names[self.current] = phase
        return self.current

    @property
    def name(self) -> str | None:
        return self.names[self.current]

    def is_measured(self, phase: str | None) -> bool:
        """Whether operations of this phase are measured: only those of MEASUREMENT. Until MEASUREMENT is entered, operations
        outside any phase (None) are measured instead."""
        return phase == (MEASUREMENT if MEASUREMENT in self.names.values() else None)

    @property
    def measured(self) -> list[int]:
        """The numbers of the phases whose operations are measured."""
        return [epoch for epoch, name in self.names.items() if self.is_measured(name) and epoch]


class LoadRunner:
    """Controls an engine and counts its operations. Keep ``run`` running, or call ``tick`` often."""

    def __init__(
        self, engine: Engine, load: Load, clock: Clock, executions: ExecutionWriter | None = None, *, is_paced: bool = False
    ) -> None:
        self.engine = engine
        self.is_paced = is_paced  #: whether operations must wait until a rate is set
        self._load = load
        self._clock = clock
        self._executions = executions
        self._phases = _Phases()
        self._ramp = Ramp()
        self._rate: float | None = None
        self._pace = 1.0  #: the last rate above 0, in operations per second
        self._interval = LoadTally(load)
        self.measured = LoadTally(load)  #: operations that began in MEASUREMENT; without phases, all operations
        self.drained = LoadTally(load)  #: operations that ended while draining
        self._draining = False
        self._measuring_since: timedelta | None = None
        self._measured_for = timedelta()
        self._interval_began = clock.elapsed()
        self._cpu = CpuMeter()
        self._lag = timedelta()
        self._little = LittlesLawCheck()
        self.unsent = 0  #: operations that were due but unsent when measuring ended

    async def open(self) -> None:
        await self.engine.open()

    def start(self, phase: str | None, target: int) -> None:
        self.set_phase(phase)
        self.set_target(target, timedelta())
        self.engine.accept(True)

    def set_phase(self, phase: str | None) -> None:
        """Enter a phase: operations that begin from now on belong to it. Entering MEASUREMENT first resets the totals."""
        if self._phases.name == phase and self._phases.current:
            return
        self._absorb(self.engine.take())
        first = MEASUREMENT not in self._phases.names.values()
        self.engine.set_epoch(self._phases.enter(phase))
        if self._phases.is_measured(phase) and first:
            self._restart_totals()
        self._note_measuring(self._phases.is_measured(phase))

    def _restart_totals(self) -> None:
        self.measured = LoadTally(self._load)
        self._little = LittlesLawCheck()
        self._cpu.mark()
        self._measuring_since, self._measured_for, self.unsent = None, timedelta(), 0

    def _note_measuring(self, measuring: bool) -> None:
        now = self._clock.elapsed()
        if measuring and self._measuring_since is None:
            self._measuring_since = now
        elif not measuring and self._measuring_since is not None:
            self._measured_for += now - self._measuring_since
            self._measuring_since = None
            self._note_unsent(self.engine.backlog)

    def _note_unsent(self, count: int) -> None:
        """Count operations that were due but not sent. Their waits are estimated: 0 for the newest, 1/rate for the one before
        it, 2/rate for the one before that, and so on."""
        self.unsent += count
        if count:
            self.measured.absorb_unsent((np.arange(count) * (1e9 / self._pace)).astype(np.int64))

    @property
    def is_measuring(self) -> bool:
        return self._measuring_since is not None

    def set_target(self, connections: int, ramp: timedelta) -> None:
        now = self._clock.elapsed()
        self._ramp = Ramp(begin=self._ramp.at(now), end=max(connections, 0), began=now, lasts=ramp)
        self.engine.set_target(self._ramp.at(now))

    def set_rate(self, per_second: float | None) -> None:
        self._rate = per_second
        self._pace = per_second or self._pace
        self.engine.set_rate(per_second)

    def drop_overdue(self, most: float) -> None:
        """Drop the overdue operations (due but not sent yet) if they are more than ``most``. Does nothing while measuring."""
        if not self.is_measuring and self.engine.backlog > most:
            self.engine.drop_overdue()

    @property
    def target(self) -> int:
        return self._ramp.at(self._clock.elapsed())

    @property
    def measured_seconds(self) -> float:
        """For how many seconds operations have been measured."""
        current = self._clock.elapsed() - self._measuring_since if self._measuring_since is not None else timedelta()
        return (self._measured_for + current).total_seconds()

    async def run(self) -> None:
        """Call ``tick`` ten times a second until cancelled. Raises the error that stopped the engine, if any."""
        while True:
            due = self._clock.elapsed() + TICK
            await self._clock.sleep(TICK)
            self._lag = max(self._lag, self._clock.elapsed() - due)
            self.tick()
            if self.engine.failure is not None:
                raise self.engine.failure

    def tick(self) -> None:
        """Set the number of connections that the ramp requires now, and count new records."""
        target = self.target
        self.engine.set_target(target)
        if self._measuring_since is not None:
            self._little.sample(self.engine.open_connections)
        self._absorb(self.engine.take())

    def _absorb(self, records: Records) -> None:
        if not len(records):
            return
        self._interval.absorb(records)
        is_measured = _in_epochs(records, self._phases.measured)
        if self._draining:
            self.drained.absorb(records)
        self.measured.absorb(records[is_measured])
        if self._is_closed:
            self._little.absorb(records[is_measured])
        self._keep(records, is_measured)

    def _keep(self, records: Records, is_measured: NDArray[np.bool_]) -> None:
        if self._executions is not None:
            self._executions.keep(records[is_measured], warmup=False)
            self._executions.keep(records[~is_measured], warmup=True)

    def interval(self) -> DriverInterval:
        """Return the operations, client cost and connections since the last call."""
        self._absorb(self.engine.take())
        now = self._clock.elapsed()
        seconds = (now - self._interval_began).total_seconds()
        tally, self._interval = self._interval, LoadTally(self._load)
        lag, self._lag, self._interval_began = self._lag, timedelta(), now
        return DriverInterval(
            seconds=seconds,
            phase=self._phases.name,
            tally=tally,
            cost=self._cost(tally, lag),
            held=self.engine.open_connections,
            in_flight=self.engine.in_flight,
            target=self.target,
        )

    def _cost(self, tally: LoadTally, lag: timedelta) -> ClientCost:
        cpu, busy = self._cpu.since_last(self.engine.driving_thread)
        return ClientCost(
            cpu_us_per_operation=cpu * 1e6 / tally.operations if tally.operations else None,
            busy=busy,
            loop_lag_ms=lag.total_seconds() * 1000,
            send_lag_p99_ms=_ms(tally.lag.percentile_ns(99)) if self._rate is not None else None,
            backlog=self.engine.backlog,
        )

    def begin_drain(self) -> None:
        """End the measurement and send no new operations. Those still running are counted as drained when they end."""
        self._note_measuring(False)
        self.engine.accept(False)
        self._absorb(self.engine.take())
        self._draining = True

    async def drain(self, within: timedelta) -> int:
        """Wait until the running operations end, for at most ``within``. Returns how many still ran then and were abandoned."""
        if not self._draining:
            self.begin_drain()
        abandoned = await self.engine.drain(within)
        self._absorb(self.engine.take())
        return abandoned

    async def close(self) -> None:
        await self.engine.close()
        self._absorb(self.engine.take())
        if self._executions is not None:
            await asyncio.to_thread(self._executions.close)

    @property
    def _is_closed(self) -> bool:
        """Whether this is a closed loop without think time."""
        return self._rate is None and not self._load.think

    def littles_law(self) -> Mapping[str, float] | None:
        """Return the figures of the Little's law check; None unless this is a closed loop without think time."""
        return self._little.check(self.measured_seconds) if self._is_closed else None

    @property
    def files(self) -> Sequence[ClosedFile]:
        """The finished Parquet files with a row for each operation."""
        return self._executions.files if self._executions is not None else []

    def recorded_rows(self) -> Mapping[str, float | str]:
        """Return how many rows were written to Parquet files, and how many were lost and why; empty without such files."""
        if self._executions is None:
            return {}
        files, loss = self._executions.files, self._executions.loss
        rows = sum(file.rows for file in files)
        return {"files": len(files), "rows": rows, "lost": loss.rows, "why": "; ".join(loss.reasons)}

    def cpu_us_per_operation(self) -> float | None:
        """Return this process's CPU time per measured operation, in microseconds; None if nothing was measured."""
        operations = self.measured.operations
        return self._cpu.since_mark() * 1e6 / operations if operations else None


def _in_epochs(records: Records, epochs: list[int]) -> NDArray[np.bool_]:
    return np.isin(records["epoch"], epochs)


def _ms(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6
