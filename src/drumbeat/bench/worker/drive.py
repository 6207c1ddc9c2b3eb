"""``bench drive``: puts load on a database from this process alone, and reports the result."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from drumbeat.bench.driver.executions import ExecutionWriter
from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.runner import MEASUREMENT, DriverInterval, LoadRunner
from drumbeat.bench.driver.tally import KindTally, LoadTally, latency_figures
from drumbeat.bench.model import DriveOutcome, DriveProgress, DriveRequest, Load
from drumbeat.bench.model.littles_law import explain_deviation
from drumbeat.bench.model.server_totals import rise
from drumbeat.bench.results.caveats import never_sent
from drumbeat.bench.results.top_errors import TopError, most_frequent_state
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.open import open_target
from drumbeat.bench.values.draw import Draw
from drumbeat.bench.workloads.new_keys import with_keys_above_existing
from drumbeat.bench.workloads.prepare import prepare
from drumbeat.bench.workloads.scale_check import size_warnings
from drumbeat.bench.workloads.standard import standard
from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidInput
from drumbeat.runtime.task_group import plain_task_group
from drumbeat.runtime.timeouts import pause

log = logging.getLogger(__name__)

_STALLED = timedelta(seconds=15)  #: if no connection opened for this long, no more are expected
_POLLED_EVERY = timedelta(milliseconds=20)
_DRAIN = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveSettings:
    """The settings of ``bench drive``: connections, times, rate, seed, recording and engine."""

    connections: int = 8
    duration: timedelta = timedelta(seconds=30)
    warmup: timedelta = timedelta(seconds=2)
    rate: float | None = None  #: operations per second (open loop); None: as fast as possible
    seed: int | None = None
    executions: Path | None = None  #: the folder for Parquet files with a row for each operation
    engine: EngineSettings = field(default_factory=EngineSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveResult:
    """The figures, caveats and most frequent error of ``bench drive``."""

    seconds: float
    tally: LoadTally
    connections: int  #: how many connections were requested
    held: int  #: how many connections were open, on average over the measurement
    skipped: int  #: open loop: operations that were due but never sent
    client_cpu_us_per_op: float | None
    little: Mapping[str, float] | None
    client_limited: bool
    marked_intervals: int  #: open loop: how many one-second intervals had operations that were sent late
    failed_connects: int
    server: Mapping[str, float]  #: by how much each of the server's own totals rose
    executions: Mapping[str, Any]
    warnings: tuple[str, ...]
    most_frequent_error: TopError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object; the documented fields come first."""
        response = _response(self.tally)
        return {
            "throughput": self.tally.operations / self.seconds if self.seconds else 0.0,
            "operations": self.tally.operations,
            "errors": self.tally.errors,
            "p50_ms": response["p50_ms"],
            "p95_ms": response["p95_ms"],
            "p99_ms": response["p99_ms"],
            "client_cpu_us_per_op": self.client_cpu_us_per_op,
            "seconds": self.seconds,
            "connections": self.connections,
            "held": self.held,
            "skipped": self.skipped,
            "response": response,
            "service": latency_figures(self.tally.service),
            "send_lag": latency_figures(self.tally.lag),
            "kinds": {
                name: {"operations": kind.operations, "errors": kind.errors, "rows": kind.rows, **_response(kind)}
                for name, kind in self.tally.by_kind().items()
            },
            "errors_by_state": {f"{outcome}:{state}": n for (outcome, state), n in self.tally.errors_by_state.items()},
            "most_frequent_error": asdict(self.most_frequent_error) if self.most_frequent_error else None,
            "little": dict(self.little) if self.little else None,
            "client_limited": self.client_limited,
            "marked_intervals": self.marked_intervals,
            "failed_connects": self.failed_connects,
            "server": dict(self.server),
            "executions": dict(self.executions),
            "warnings": list(self.warnings),
        }


def _response(tally: LoadTally | KindTally) -> dict[str, Any]:
    """Return the response time figures. The minimum is None if no operation succeeded, as it is not known then."""
    found = latency_figures(tally.response)
    return found if tally.service.count else found | {"min_ms": None}


async def drive_url(
    url: str,
    request: DriveRequest,
    clock: Clock,
    on_progress: Callable[[DriveProgress], None],
    on_note: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> DriveOutcome:
    """Run a standard workload on the database at a URL. Ends early if ``stop`` is set; ``on_note`` gets each warning."""
    chosen = standard(request.workload, request.scale)
    settings = DriveSettings(
        connections=request.connections,
        duration=request.duration,
        warmup=request.warmup,
        rate=request.rate,
        seed=request.seed,
        executions=Path(request.record) if request.record else None,
        engine=EngineSettings(limit=request.limit, most_connections=max(request.connections, 1)),
    )
    check_recording(settings.executions)  # before the database is opened
    async with open_target(url) as target:
        watcher = Watcher(
            on_interval=lambda interval: on_progress(_progress(interval)),
            on_note=on_note or log.warning,
            stop=stop or asyncio.Event(),
        )
        small = await size_warnings(target, chosen)
        for note in small:
            watcher.on_note(note)
        result = await drive(target, chosen.load, settings, clock, watcher)
    complete = replace(result, warnings=(*small, *result.warnings))
    return DriveOutcome(figures=complete.to_json(), warnings=complete.warnings)


async def prepare_url(
    url: str, workload: str, scale: float, *, fresh: bool, on_progress: Callable[[str, int, int], None]
) -> None:
    """Create and fill the tables of a standard workload in the database at a URL."""
    chosen = standard(workload, scale)
    async with open_target(url) as target:
        await prepare(target, chosen, fresh=fresh, on_progress=on_progress)


def _progress(interval: DriverInterval) -> DriveProgress:
    now = latency_figures(interval.tally.response)
    return DriveProgress(
        phase=interval.phase,
        operations_per_second=interval.tally.operations / interval.seconds if interval.seconds else 0.0,
        errors=interval.tally.errors,
        p50_ms=now["p50_ms"],
        p95_ms=now["p95_ms"],
        p99_ms=now["p99_ms"],
        connections=interval.held,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Callbacks that get each interval and warning of a load, and an event that ends the load early."""

    on_interval: Callable[[DriverInterval], None] = lambda interval: None
    on_note: Callable[[str], None] = log.warning
    stop: asyncio.Event = field(default_factory=asyncio.Event)


async def drive(
    target: Target, load: Load, settings: DriveSettings, clock: Clock, watcher: Watcher | None = None
) -> DriveResult:
    """Put the load on the database: warm up, measure, wait for the last operations. Raises InvalidInput, InvalidSettings."""
    check_recording(settings.executions)
    await target.check(load)
    runner = _runner(target, await with_keys_above_existing(target, load), settings, clock)
    try:
        await runner.open()
        result, before = await _drive(runner, target, settings, clock, watcher or Watcher())
    finally:
        await runner.close()
    totals = rise(before, await target.counters())  # complete only after the sessions are closed
    return _with_executions(replace(result, server=totals), runner.recorded_rows())


def check_recording(folder: Path | None) -> None:
    """Raise InvalidInput if ``folder`` is a file, or already contains Parquet files, which would be overwritten."""
    if folder is None or not folder.exists():
        return
    if not folder.is_dir():
        raise InvalidInput(f"--record: expected a folder, got the file {str(folder)!r}; name a folder (created if missing)")
    if earlier := sorted(path.name for path in folder.glob("*.parquet")):
        raise InvalidInput(
            f"--record: expected a folder without a recording, got {str(folder)!r}, which holds an earlier one "
            f"({earlier[0]} …); name another folder, or remove its files"
        )


def _with_executions(result: DriveResult, recorded: Mapping[str, Any]) -> DriveResult:
    """Return the result with the number of rows written to Parquet files, and a warning if some were lost."""
    warnings = [*result.warnings]
    if recorded.get("lost"):
        lost = f"{recorded['lost']} executions were not recorded: {recorded['why']}"
        warnings.append(f"{lost}; all other figures count every operation")
    return replace(result, executions=recorded, warnings=tuple(warnings))


def _runner(target: Target, load: Load, settings: DriveSettings, clock: Clock) -> LoadRunner:
    seed = settings.seed if settings.seed is not None else random.SystemRandom().getrandbits(64)
    draw = Draw(slot=0, chance=np.random.default_rng(seed), now_us=lambda: int(clock.now().timestamp() * 1e6))
    engine = target.engine(load, draw, settings.engine)
    executions = None
    if settings.executions is not None:
        offset = int(clock.now().timestamp() * 1e9) - time.monotonic_ns()
        executions = ExecutionWriter(settings.executions, [each.kind for each in load.used], wall_offset_ns=offset)
    return LoadRunner(engine, load, clock, executions)


async def _drive(
    runner: LoadRunner, target: Target, settings: DriveSettings, clock: Clock, watcher: Watcher
) -> tuple[DriveResult, Mapping[str, float]]:
    """Run the load. Returns its result, and the database server's statistics from just before the measurement."""
    watch = _Watch(runner, watcher)
    async with plain_task_group() as group:
        ticking = group.create_task(runner.run())
        runner.set_target(settings.connections, timedelta())
        too_few = await wait_for_connections(runner, settings.connections, clock, watcher)
        runner.set_rate(settings.rate)
        runner.start("WARMUP", settings.connections)
        await watch.during(settings.warmup, clock)
        before = await target.counters()
        runner.set_phase(MEASUREMENT)
        watch.intervals.clear()
        await watch.during(settings.duration, clock)
        too_few = too_few or _fewer(runner, settings.connections)
        runner.begin_drain()
        seconds, cost = runner.measured_seconds, runner.cpu_us_per_operation()
        await runner.drain(_DRAIN)
        ticking.cancel()
    result = _result(runner, settings, watch, seconds, cost)
    error = most_frequent_state(runner.measured.errors_by_state, target.classify, runner.engine.error_samples)
    notes = [error.words if error else None, *result.warnings, too_few]
    return replace(result, warnings=tuple(filter(None, notes)), most_frequent_error=error), before


async def wait_for_connections(runner: LoadRunner, connections: int, clock: Clock, watcher: Watcher) -> str | None:
    """Wait until all connections are open or no more come. Returns why some are missing; None if all are open, or if stopped.

    Raises InvalidInput if none could be opened.
    """
    most, since = 0, clock.elapsed()
    while (held := runner.engine.open_connections) < connections and not watcher.stop.is_set():
        if held > most:
            most, since = held, clock.elapsed()
        if clock.elapsed() - since > _STALLED:
            why = _too_few(runner, connections)
            watcher.on_note(f"{why}; continuing with these connections")
            return why
        await clock.sleep(_POLLED_EVERY)
    return None


def _too_few(runner: LoadRunner, connections: int) -> str:
    samples = runner.engine.error_samples
    error = f"; the database said: {samples[-1].message}" if samples and samples[-1].message else ""
    why = f"only {runner.engine.open_connections} of {connections} connections could be opened{error}"
    if not runner.engine.open_connections:
        raise InvalidInput(f"{why}; use fewer connections, or raise the database's connection limit")
    return why


def _fewer(runner: LoadRunner, connections: int) -> str | None:
    held = runner.engine.open_connections
    return f"only {held} of {connections} connections were open at the end" if held < connections else None


@dataclass(slots=True)
class _Watch:
    """Reads the figures of a load every second, keeps them, and passes them to the caller's callbacks (``watcher``)."""

    runner: LoadRunner
    watcher: Watcher
    intervals: list[DriverInterval] = field(default_factory=list)

    async def during(self, duration: timedelta, clock: Clock) -> None:
        self.runner.interval()
        end = clock.elapsed() + duration
        while (left := end - clock.elapsed()) > timedelta():
            stopped = await pause(clock, min(left, timedelta(seconds=1)), self.watcher.stop)
            interval = self.runner.interval()
            self.intervals.append(interval)
            self.watcher.on_interval(interval)
            if stopped:
                return


def _result(
    runner: LoadRunner,
    settings: DriveSettings,
    watch: _Watch,
    seconds: float,
    cost: float | None,
) -> DriveResult:
    limited = sum(interval.cost.was_the_limit for interval in watch.intervals) > len(watch.intervals) / 2
    marked = sum(not interval.cost.kept_schedule for interval in watch.intervals) if settings.rate else 0
    little = runner.littles_law()
    return DriveResult(
        seconds=seconds,
        tally=runner.measured,
        connections=settings.connections,
        held=held_on_average(watch.intervals),
        skipped=runner.unsent,
        client_cpu_us_per_op=cost,
        little=little,
        client_limited=limited,
        marked_intervals=marked,
        failed_connects=runner.engine.failed_connects,
        server={},
        executions={},
        warnings=tuple(_warnings(little, limited, marked, runner.unsent)),
    )


def held_on_average(intervals: Sequence[DriverInterval]) -> int:
    """Return how many connections were open, on average over these intervals."""
    return round(fmean(interval.held for interval in intervals)) if intervals else 0


def _warnings(little: Mapping[str, float] | None, limited: bool, marked: int, skipped: int) -> list[str]:
    found = []
    if (why := explain_deviation(little)) is not None:
        found.append(why)
    if limited:
        found.append("CLIENT_LIMITED: the driving thread was busy all the time; use more workers to generate more load")
    if skipped:
        found.append(never_sent(skipped))
    if marked:
        found.append(f"in {marked} intervals of about 1 s operations were sent late or waited for a connection")
    return found
