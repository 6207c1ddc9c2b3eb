"""Follows a run live: ``poll`` reads only new data; ``catch_up`` reads the data from before the first call of ``poll``."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from drumbeat.bench.model import (
    ALL_KINDS,
    Curves,
    Figures,
    KindFigures,
    Latency,
    LiveRun,
    Measured,
    ObjectiveStatus,
    RunJudgement,
    RunPlan,
    RunRecord,
    RunSeries,
    WorkerSnapshot,
)
from drumbeat.bench.results import curves
from drumbeat.bench.results.availability import availability_of
from drumbeat.bench.results.judgement import led_by, under_way
from drumbeat.bench.results.live_series import LiveSeries, without_kind_histograms
from drumbeat.bench.results.merge import WindowMerger
from drumbeat.bench.results.record import AFTERWARDS, last_sample_at, record_of_results, samples_between
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.bench.results.summaries import read_previous
from drumbeat.bench.results.summary import summarise
from drumbeat.bench.results.timeline import Timeline, kinds_of
from drumbeat.bench.results.verdicts import verdicts, verdicts_of
from drumbeat.bench.results.yielding import iterate_yielding
from drumbeat.bench.run_state import plan_or_default, stored_failures, whole_row
from drumbeat.core.log import Log
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.run import RUN_ENDED, Result, Run, RunId
from drumbeat.core.sample import StoredSample
from drumbeat.core.worker import Health, Worker, WorkerId, WorkerStatus, judge, silence
from drumbeat.store.interface import Store

RECENT = timedelta(seconds=3)  #: the current figures cover this time
_MOST_SAMPLES = 100_000
MOST_LOGS = 500  #: most log lines read by one poll
_LATE = timedelta(seconds=3)  #: by how much one worker's sample may arrive later than the others'
_PAGE = 200  #: beats read at a time
_SLICE = timedelta(seconds=10)  #: ``catch_up`` reads samples of this time at once
_BAD_ENDS = frozenset({WorkerStatus.LOST, WorkerStatus.ERROR})


class RunWatch:
    """A live, read-only view of one run."""

    def __init__(self, store: Store, run_id: RunId) -> None:
        self._store = store
        self._run_id = run_id
        self._pool_id = PoolId(run_id)
        self._pool: PoolRow | None = None
        self._series: LiveSeries | None = None
        self._recent: dict[tuple[WorkerId, int], StoredSample] = {}
        self._since: datetime | None = None  #: older samples were read, or are left to ``catch_up``
        self._before: datetime | None = None  #: ``catch_up`` reads the samples before this time
        self._first_beat: int | None = None  #: ``catch_up`` reads the beats up to this number
        self._older_samples_to: datetime | None = None  #: ``catch_up`` has read samples up to this time
        self._older_beats_to = 0
        self._beats_to = 0
        self._logs_to: int | None = None
        self._caught_up = False
        self._has_ended = False
        self._previous: RunRecord | None = None  #: the previous run of the same template; read once, when the run has ended
        self._previous_read = False

    async def poll(self) -> LiveRun:
        """Read what was stored since the last call, and return the current state of the run. Raises NotFound."""
        run = await self._store.runs.get(self._run_id)
        now = await self._store.now()
        self._pool = self._pool or await self._store.pools.get(self._pool_id)
        plan, _ = plan_or_default(run)
        self._has_ended = run.status in RUN_ENDED
        results = tuple(await self._store.results.list(self._run_id)) if run.status in RUN_ENDED else ()
        self._begin(run, results)
        await self._read_samples(run, now)
        await self._read_beats()
        figures = self._figures(now, plan) if run.status not in RUN_ENDED else None
        workers = await self._store.workers.list(self._pool_id)
        steps = tuple(await self._store.steps.list(self._run_id))
        record = record_of_results(run, plan, results, steps)
        return LiveRun(
            run=run,
            plan=plan,
            now=now,
            workers=tuple(self._worker_snapshot(worker, now, self._pool) for worker in workers),
            figures=figures,
            reads=self._count("reads", results),
            writes=self._count("writes", results),
            failed_connects=self._failed_connects(record),
            by_kind=self._by_kind(),
            steps=steps,
            objectives=_objectives(record, figures),
            judgement=await self._judgement(record, now),
            results=results,
            summary=await self._summarise(record),
            decisions=self._series.decisions if self._series else (),
            logs=await self._new_logs(),
        )

    async def _judgement(self, record: RunRecord, now: datetime) -> RunJudgement:
        if self._has_ended:
            return judge_run(record)
        return under_way(record.run, await led_by(self._store, record.run), now)

    async def _summarise(self, record: RunRecord) -> tuple[str, ...]:
        if self._has_ended and not self._previous_read:
            self._previous, self._previous_read = await read_previous(self._store, record.run), True
        return summarise(record, self._previous)

    async def catch_up(self) -> None:
        """Read all data from before the first call of ``poll``; do nothing if ``poll`` was not called yet. Can be cancelled and
        called again."""
        while await self.catch_up_a_little():
            pass

    async def catch_up_a_little(self) -> bool:
        """Read one part of the data from before the first call of ``poll``. Returns whether there is more to read."""
        if self._series is None or self._caught_up:
            return False
        self._caught_up = not (await self._older_beats(self._series) or await self._older_samples(self._series))
        return not self._caught_up

    async def _older_samples(self, series: LiveSeries) -> bool:
        """Read the oldest unread samples from before the first call of ``poll``. Returns False if there were none."""
        since = self._older_samples_to or series.origin
        if self._before is None or not series.needs_samples or since >= self._before:
            return False
        until = min(since + _SLICE, self._before)
        async for end, rows in samples_between(self._store, self._pool_id, since, until):
            series.add(rows)
            self._older_samples_to = end
        return True

    async def _older_beats(self, series: LiveSeries) -> bool:
        """Read the oldest unread beats (passes of the control loop) from before the first call of ``poll``. Returns False if
        there were none."""
        last = self._first_beat or 0
        if self._older_beats_to >= last:
            return False
        page = await self._store.beats.list(self._pool_id, after=self._older_beats_to, limit=_PAGE)
        series.add_beats(beat for beat in page if beat.n <= last)
        self._older_beats_to = page[-1].n if page else last
        return True

    def series(self) -> RunSeries:
        """Return the run's time series, as far as it has been read."""
        return self._series.snapshot(complete=self._caught_up, ended=self._has_ended) if self._series else RunSeries()

    def _begin(self, run: Run, results: Sequence[Result]) -> None:
        if self._series is None and run.started_at is not None:
            whole = whole_row(results)
            metrics = whole.custom_metrics if whole else {}
            self._series = LiveSeries(run.started_at, curves.decode_curves(metrics.get("curves")), stored_failures(whole))

    async def _read_samples(self, run: Run, now: datetime) -> None:
        """Read the samples since the last call of ``poll``, and the last seconds once more, as some samples arrive late."""
        if self._series is None or not self._series.needs_samples:
            return
        if self._since is None:
            end = run.ended_at + AFTERWARDS if run.ended_at else now
            self._before = self._since = min(now, end) - RECENT - _LATE
        found = await self._store.samples.list(self._pool_id, since=self._since, limit=_MOST_SAMPLES)
        fresh = [sample for sample in found if (sample.worker_id, sample.n) not in self._recent]
        self._series.add(fresh)
        newest = max((sample.at for sample in found), default=self._since)
        self._since = max(self._since, newest - RECENT - _LATE)
        edge = self._since
        self._recent |= {(sample.worker_id, sample.n): sample for sample in fresh}
        self._recent = {name: sample for name, sample in self._recent.items() if sample.at > edge}

    async def _read_beats(self) -> None:
        if self._series is None:
            return
        if self._first_beat is None:
            last = await self._store.beats.last(self._pool_id)
            self._first_beat = self._beats_to = max((last.n if last else 0) - _PAGE, 0)
        while page := await self._store.beats.list(self._pool_id, after=self._beats_to, limit=_PAGE):
            self._series.add_beats(page)
            self._beats_to = page[-1].n

    async def _new_logs(self) -> tuple[Log, ...]:
        """Return the log lines since the last call of ``poll``; at its first call, the newest ``MOST_LOGS`` lines."""
        if self._logs_to is not None:
            found = await self._logs_page()
        else:
            found, self._logs_to = [], 0
            while page := await self._logs_page():
                found = [*found, *page][-MOST_LOGS:]
                self._logs_to = page[-1].log_id
        self._logs_to = found[-1].log_id if found else self._logs_to
        return tuple(found)

    async def _logs_page(self) -> Sequence[Log]:
        return await self._store.logs.list(self._pool_id, after=self._logs_to or 0, limit=MOST_LOGS)

    def _figures(self, now: datetime, plan: RunPlan) -> Figures:
        gathering = WindowMerger(now - RECENT, now, by_kind=any(plan.objectives))
        gathering.add(self._recent.values())
        return gathering.figures()

    def _worker_snapshot(self, worker: Worker, now: datetime, pool: PoolRow) -> WorkerSnapshot:
        mine = [sample for (name, _), sample in self._recent.items() if name == worker.worker_id]
        last = max(mine, key=lambda sample: sample.n, default=None)
        health = judge(worker, now, pool.thresholds) if worker.is_live else _ended_health(worker)
        quiet = silence(worker, now if worker.is_live else worker.ended_at or now)
        if last is None or not worker.is_live:
            return WorkerSnapshot(worker=worker, health=health, silence=quiet)
        p50, p95, p99 = (None if ns is None else ns / 1e6 for ns in last.latency.percentiles_ns((50, 95, 99)))
        return WorkerSnapshot(
            worker=worker, health=health, silence=quiet, qps=last.qps, p50_ms=p50, p95_ms=p95, p99_ms=p99,
            reads=last.reads, writes=last.writes,
        )  # fmt: skip

    def _count(self, name: str, results: Sequence[Result]) -> int | None:
        whole = whole_row(results)
        if whole is not None:
            return int(getattr(whole, name))
        return getattr(self._series, name) if self._series and self._caught_up else None

    def _failed_connects(self, record: RunRecord) -> int:
        stored = availability_of(record)
        if stored is not None:
            return stored.failed_connects
        return self._series.failed_connects if self._series else 0

    def _by_kind(self) -> dict[str, float]:
        """Return operations per second by kind: the sum of the workers' rates, each over the worker's recent samples."""
        measured: dict[WorkerId, float] = {}
        for sample in self._recent.values():
            measured[sample.worker_id] = measured.get(sample.worker_id, 0.0) + sample.interval.total_seconds()
        rates: dict[str, float] = {}
        for sample in self._recent.values():
            for kind, block in kinds_of(sample):
                rates[kind] = rates.get(kind, 0.0) + int(block.get("operations", 0)) / (measured[sample.worker_id] or 1.0)
        return rates


async def read_worker_curves(store: Store, run_id: RunId, worker_id: WorkerId) -> Curves:
    """Read all samples of a worker and return its curves. Often lets other tasks run, so the event loop is not blocked."""
    run, now = await store.runs.get(run_id), await store.now()
    origin, until = run.started_at or now, last_sample_at(run, now)
    timeline = Timeline(origin)
    async for _, rows in samples_between(store, PoolId(run_id), origin, until, worker_id):
        async for sample in iterate_yielding(rows):
            timeline.add(without_kind_histograms(sample))
    return curves.worker_curves(timeline.series.get(worker_id, ()))


def _ended_health(worker: Worker) -> Health:
    return Health.LOST if worker.status in _BAD_ENDS else Health.HEALTHY


def _objectives(record: RunRecord, figures: Figures | None) -> tuple[ObjectiveStatus, ...]:
    """Check the objectives: against the last seconds of a run under way, or against the result of an ended run."""
    found = verdicts_of(record) if figures is None else verdicts(record.plan.objectives, _totals(figures), _available(figures))
    return tuple(
        ObjectiveStatus(kind=each.kind, measure=each.measure, limit=each.limit, found=each.found, standing=each.standing)
        for each in found
    )


def _available(figures: Figures) -> float | None:
    """Return the availability in the last seconds: 100 % if any operation succeeded, else 0 %; None without workers."""
    return None if not figures.workers else 100.0 if figures.operations > figures.errors else 0.0


def _totals(figures: Figures) -> dict[str, Measured]:
    parts: dict[str, Figures | KindFigures] = {ALL_KINDS: figures, **figures.kinds}
    return {
        kind: Measured(
            operations=part.operations,
            errors=part.errors,
            failed_connects=part.failed_connects if isinstance(part, Figures) else 0,
            latency=Latency(p50_ms=part.p50_ms, p95_ms=part.p95_ms, p99_ms=part.p99_ms),
        )
        for kind, part in parts.items()
    }
