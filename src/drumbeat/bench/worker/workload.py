"""The workload of a bench worker: generates its share of a run's load from START to STOP, and reports exact figures."""

import asyncio
import base64
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from drumbeat.bench.driver.executions import ClosedFile
from drumbeat.bench.driver.interface import ErrorSample
from drumbeat.bench.driver.runner import DriverInterval, LoadRunner
from drumbeat.bench.driver.samples import Classify
from drumbeat.bench.driver.tally import LoadTally, latency_figures
from drumbeat.bench.model import ErrorClass
from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidInput, StoreUnavailable
from drumbeat.runtime.worker import DrainResult, Measurement, WorkloadFigures

log = logging.getLogger(__name__)

_FILED_EVERY = timedelta(seconds=1)
_MOST_OVERDUE = timedelta(seconds=1)  #: before measuring: how far a worker may fall behind its rate
_RETRY_AFTER = timedelta(seconds=1)  #: how long to wait after the store was unavailable
_STALLED = timedelta(seconds=15)  #: if no connection opened for this long, no more are expected
_POLLED_EVERY = timedelta(milliseconds=50)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalFigures:
    """The final figures of a worker, reported when its load has ended."""

    tally: LoadTally
    seconds: float
    connections: int
    extra: Mapping[str, Any]


class ResultStore(Protocol):
    """Stores a worker's results and the list of its Parquet files."""

    async def started(self, connections: int) -> None:
        """Record that this worker's load is about to begin, with this many connections."""
        ...

    async def filed(self, files: Sequence[ClosedFile]) -> None:
        """Store the names of these finished Parquet files, so that their content can be found later."""
        ...

    async def finished(self, final: FinalFigures) -> None:
        """Store the final figures, because the load has ended."""
        ...


class BenchWorkload:
    """Runs one worker's share of a run's load.

    ``prepare`` calls ``build`` once; ``build`` opens the target, and returns the runner and a function that classifies errors.
    """

    def __init__(
        self,
        build: Callable[[AsyncExitStack], Awaitable[tuple[LoadRunner, Classify]]],
        keeper: ResultStore,
        clock: Clock,
        first_target: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        """``first_target`` returns how many connections must be open before this worker reports ready; None: no wait."""
        self._build = build
        self._first_target = first_target
        self._keeper = keeper
        self._clock = clock
        self._stack = AsyncExitStack()
        self._runner: LoadRunner | None = None
        self._classify: Classify = lambda outcome, sqlstate: None
        self._highest = 0
        self._samples_reported = self._connects_reported = 0
        self._qps: float | None = None
        self._filed = 0

    @property
    def _running(self) -> LoadRunner:
        if self._runner is None:
            raise InvalidInput("this workload is not prepared yet; call prepare() first")
        return self._runner

    async def prepare(self) -> None:
        """Open the target, check every statement, and open the first connections."""
        runner, self._classify = await self._build(self._stack)
        self._runner = runner
        await runner.open()
        if self._first_target is not None:
            await self._open_connections(runner, await self._first_target())

    async def _open_connections(self, runner: LoadRunner, connections: int) -> None:
        """Open this many connections and wait for them. Raises InvalidInput if the database accepts fewer."""
        runner.set_target(connections, timedelta())
        most, since = 0, self._clock.elapsed()
        while (held := runner.engine.open_connections) < connections:
            if held > most:
                most, since = held, self._clock.elapsed()
            if self._clock.elapsed() - since > _STALLED:
                raise InvalidInput(_too_few(runner, connections))
            await self._clock.sleep(_POLLED_EVERY)
            runner.tick()

    async def start(self, phase: str | None, target: int, qps: float | None = None) -> None:
        self._highest = target
        await self._store_with_retries(lambda: self._keeper.started(target))
        self._pace(qps)
        self._running.start(phase, target)

    def _pace(self, qps: float | None) -> None:
        """Set the operations per second; None means full speed. In load mode QPS, None keeps the current rate (0 at first)."""
        if qps is None and self._running.is_paced:
            qps = self._qps or 0.0
        self._qps = qps
        self._running.set_rate(qps)

    def set_phase(self, phase: str) -> None:
        self._running.set_phase(phase)

    def set_target(self, connections: int, ramp: timedelta, qps: float | None = None) -> None:
        self._highest = max(self._highest, connections)
        self._pace(qps)
        self._running.set_target(connections, ramp)

    def measure(self) -> Measurement | None:
        interval = self._running.interval()
        self._drop_overdue()
        tally = interval.tally
        return Measurement(
            operations=tally.operations,
            reads=tally.reads,
            writes=tally.operations - tally.reads,
            errors=tally.errors,
            latency=tally.response,
            extra=_extra(interval) | self._error_classes(tally) | self._new_error_samples() | self._new_failed_connects(),
        )

    def _drop_overdue(self) -> None:
        """Drop the operations that are due but not sent, if the load is more than a second behind its rate. Drops none
        while measuring."""
        if self._qps is not None:
            self._running.drop_overdue(self._qps * _MOST_OVERDUE.total_seconds())

    def _error_classes(self, tally: LoadTally) -> dict[str, Any]:
        """Return how many operations failed in each error class; empty if none failed."""
        classes: Counter[str] = Counter()
        for (outcome, sqlstate), count in tally.errors_by_state.items():
            classes[self._classify(outcome, sqlstate) or ErrorClass.FATAL] += count
        return {"error_classes": dict(classes)} if classes else {}

    def _new_error_samples(self) -> dict[str, Any]:
        """Return the error samples that were not reported yet; empty if there are none."""
        samples = self._running.engine.error_samples
        fresh, self._samples_reported = samples[self._samples_reported :], len(samples)
        return {"error_samples": [_sample_json(each) for each in fresh]} if fresh else {}

    def _new_failed_connects(self) -> dict[str, Any]:
        """Return how many connection attempts failed since the last call; empty if none failed."""
        failed = self._running.engine.failed_connects
        fresh, self._connects_reported = failed - self._connects_reported, failed
        return {"failed_connects": fresh} if fresh else {}

    @property
    def figures(self) -> WorkloadFigures:
        runner = self._runner
        if runner is None:
            return WorkloadFigures()
        samples = runner.engine.error_samples
        return WorkloadFigures(
            active=runner.engine.in_flight,
            applied_target=runner.engine.open_connections,
            operations=runner.measured.operations,
            errors=runner.measured.errors,
            error=f"{samples[-1].error_class} {samples[-1].message}" if samples else None,
        )

    async def ended(self) -> None:
        """Run the load until this call is cancelled. An error that ends the load is raised, in an ExceptionGroup."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._file_executions())
            group.create_task(self._running.run())

    async def _file_executions(self) -> None:
        while True:
            await self._clock.sleep(_FILED_EVERY)
            await self._file_new()

    async def _file_new(self) -> None:
        files = self._running.files
        fresh = files[self._filed :]
        if fresh:
            await self._store_with_retries(lambda: self._keeper.filed(fresh))
            self._filed += len(fresh)

    async def _store_with_retries(self, write: Callable[[], Awaitable[None]]) -> None:
        """Store results. While the store is unavailable, retry until the worker is cancelled, as no other process has them."""
        while True:
            try:
                return await write()
            except StoreUnavailable as exc:
                log.warning("could not store this worker's results: %s; retrying in %.0f s", exc, _RETRY_AFTER.total_seconds())
            await self._clock.sleep(_RETRY_AFTER)

    async def drain(self, within: timedelta) -> DrainResult:
        abandoned = await self._running.drain(within)
        return DrainResult(timed_out=abandoned > 0, abandoned=abandoned)

    async def close(self) -> None:
        runner = self._runner
        try:
            if runner is not None:
                runner.begin_drain()
                await runner.close()
                await self._file_new()
                final = self._final(runner)
                await self._store_with_retries(lambda: self._keeper.finished(final))
        finally:
            await self._stack.aclose()

    def _final(self, runner: LoadRunner) -> FinalFigures:
        little = runner.littles_law()
        extra: dict[str, Any] = {
            "service": latency_figures(runner.measured.service),
            "send_lag": latency_figures(runner.measured.lag),
            "little": dict(little) if little else None,
            "client_cpu_us_per_op": runner.cpu_us_per_operation(),
            "drained": {"operations": runner.drained.operations, "errors": runner.drained.errors},
            "failed_connects": runner.engine.failed_connects,
            "skipped": runner.unsent,
            "executions": dict(runner.recorded_rows()),
            **self._error_classes(runner.measured),
        }
        return FinalFigures(tally=runner.measured, seconds=runner.measured_seconds, connections=self._highest, extra=extra)


def _too_few(runner: LoadRunner, target: int) -> str:
    samples = runner.engine.error_samples
    error = f"; the database said: {samples[-1].message}" if samples else ""
    return (
        f"expected {target} connections, got {runner.engine.open_connections}; "
        f"no more opened for {_STALLED.total_seconds():g} s{error}; "
        "use fewer connections, or raise the database's connection limit"
    )


def _extra(interval: DriverInterval) -> dict[str, Any]:
    """Return an interval's figures besides the totals: histograms by kind of operation, this process's CPU use and delays."""
    cost = interval.cost
    return {
        "kinds": {
            name: {
                "operations": kind.operations,
                "errors": kind.errors,
                "response": base64.b64encode(kind.response.to_bytes()).decode(),
                "service": base64.b64encode(kind.service.to_bytes()).decode(),
            }
            for name, kind in interval.tally.by_kind().items()
        },
        "held": interval.held,
        "client": {
            "cpu_us_per_op": cost.cpu_us_per_operation,
            "busy": cost.busy,
            "loop_lag_ms": cost.loop_lag_ms,
            "send_lag_p99_ms": cost.send_lag_p99_ms,
            "backlog": cost.backlog,
            "kept_schedule": cost.kept_schedule,
            "was_the_limit": cost.was_the_limit,
        },
    }


def _sample_json(sample: ErrorSample) -> dict[str, Any]:
    return {
        "kind": sample.kind,
        "class": sample.error_class,
        "sqlstate": sample.sqlstate,
        "message": sample.message,
        "sql": sample.sql,
    }
