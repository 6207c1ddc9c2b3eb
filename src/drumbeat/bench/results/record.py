"""Reads a run from the store in slices, so that a long run of many workers fits in memory and does not block the event loop."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from drumbeat.bench.model.plan import ALL_KINDS, RunPlan
from drumbeat.bench.model.record import (
    DecisionRecord,
    Measured,
    PhaseRecord,
    RunRecord,
    ServerSecond,
    WorkerRecord,
    without_repeats,
)
from drumbeat.bench.model.verdict import RunJudgement, stored_judgement
from drumbeat.bench.model.view import RunEnding
from drumbeat.bench.results.availability import with_failed_connects
from drumbeat.bench.results.compare.baseline import Candidate
from drumbeat.bench.results.earlier_runs import earlier_runs
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.bench.results.timeline import Counting, Timeline
from drumbeat.bench.results.yielding import iterate_yielding
from drumbeat.bench.run_state import plan_or_default, stored_failures, whole_row
from drumbeat.core.beat import Beat
from drumbeat.core.event import FACTS, Event, EventType
from drumbeat.core.pool import PoolId
from drumbeat.core.run import Phase, Result, Run, RunId, Step
from drumbeat.core.sample import StoredSample
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store.interface import BATCH, Store

_SLICE = timedelta(seconds=20)
_SHORTEST = timedelta(microseconds=1)
_PAGE = 200  #: beats read at a time
_MOST_SAMPLES = 1_000  #: samples read at a time
AFTERWARDS = timedelta(minutes=2)  #: how long after a run's end its last samples may be dated
_SHOWN_EVENTS = frozenset(
    {
        EventType.START,
        EventType.STOP,
        EventType.SET_PHASE,
        EventType.SCALE_DOWN,
        EventType.GUARDRAIL_WARNING,
        EventType.WAITING_FOR_WORKERS,
    }
)
_HIDDEN_ACTIONS = frozenset({"Remember"})  #: actions that occur in every beat, so they are not shown
#: the event that each action causes; only one of the two is shown
_EVENT_OF_ACTION = {"Begin": EventType.START, "EnterPhase": EventType.SET_PHASE, "StopLoad": EventType.STOP}
_BAD_ENDS = frozenset({WorkerStatus.LOST, WorkerStatus.ERROR})


async def read_record(store: Store, run_id: RunId) -> RunRecord:
    """Read everything that the store has about a run. Raises NotFound."""
    run = await store.runs.get(run_id)
    now = await store.now()
    pool_id, origin = PoolId(run_id), began(run)
    timeline = Timeline(origin or now)
    if origin is not None:
        async for _, rows in samples_between(store, pool_id, origin, last_sample_at(run, now)):
            async for sample in iterate_yielding(rows):
                timeline.add(sample)
    plan, notes = plan_or_default(run)
    results = await store.results.list(run_id)
    seconds = tuple([second async for second in iterate_yielding(timeline.each_second())])
    decisions, server = await read_decisions(store, run)
    workers = _workers(await store.workers.list(pool_id), results, timeline)
    record = RunRecord(
        run=run,
        plan=plan,
        origin=origin,
        ended=run.ended_at or (now if origin else None),
        results=tuple(results),
        steps=tuple(await store.steps.list(run_id)),
        timeline=seconds,
        workers=tuple([worker async for worker in iterate_yielding(workers)]),
        decisions=decisions,
        server=server,
        phases=timeline.phases(),
        failures=tuple(timeline.failures) or stored_failures(whole_row(results)),
        notes=tuple(notes),
    )
    return _with_totals(record, results)


def began(run: Run) -> datetime | None:
    """Return when a run began, the time from which its seconds are counted; None if it never began."""
    return run.started_at or run.warmup_started_at


def last_sample_at(run: Run, now: datetime) -> datetime:
    """Return the latest time that a sample of the run can have: its end plus ``AFTERWARDS``, or ``now`` if it has not ended."""
    return run.ended_at + AFTERWARDS if run.ended_at else now


async def read_decisions(store: Store, run: Run) -> tuple[tuple[DecisionRecord, ...], tuple[ServerSecond, ...]]:
    """Read a run's decisions and events, in order of time, and the statistics of the database stored with its beats."""
    pool_id, origin = PoolId(run.run_id), began(run)
    decisions, server = await _beats(store, pool_id, origin)
    reported = {_EVENT_OF_ACTION.get(word, word) for each in decisions if (word := each.what.partition(" ")[0])}
    events = [event for event in await _events(store, pool_id) if _is_shown(event) and event.type not in reported]
    decisions += [_event_decision(event, origin) for event in events]
    return without_repeats(sorted(decisions, key=lambda each: each.at)), tuple(server)


async def read_candidates(store: Store, run: Run, within: timedelta = timedelta(days=30)) -> list[Candidate]:
    """List the completed runs that ``run`` can be compared with, newest first, up to the first that missed no objective."""
    found: list[Candidate] = []
    async for other in earlier_runs(store, run, within):
        found.append(Candidate(run=other, passed=(await judgement_of_ended(store, other)).is_success))
        if found[-1].passed:
            break
    return found


async def judgement_of_ended(store: Store, run: Run) -> RunJudgement:
    """Return the verdict on an ended run: read from its row or, if the row has none, computed from its results."""
    return stored_judgement(run) or judge_run(await read_short_record(store, run))


async def read_short_record(store: Store, run: Run) -> RunRecord:
    """Read the parts of an ended run that its verdict needs: results and steps."""
    results, steps = await store.results.list(run.run_id), await store.steps.list(run.run_id)
    return record_of_results(run, plan_or_default(run)[0], results, steps)


def record_of_results(run: Run, plan: RunPlan, results: Sequence[Result], steps: Sequence[Step]) -> RunRecord:
    """Make a run's record from its results and steps only."""
    return _with_totals(RunRecord(run=run, plan=plan, results=tuple(results), steps=tuple(steps)), results)


def ended_record(record: RunRecord, whole: Sequence[Result], ending: RunEnding) -> RunRecord:
    """Return a run's record with its final status and with ``whole``, the results of the whole run, before both are stored."""
    run = replace(record.run, status=ending.status, completion_reason=ending.completion_reason)
    return _with_totals(replace(record, run=run, results=(*whole, *record.results)), whole)


def _with_totals(record: RunRecord, results: Sequence[Result]) -> RunRecord:
    """Return the record with its totals, from ``results`` if they are complete."""
    counted = with_failed_connects(replace(record, totals=totals_of(results, record.phases)))
    return replace(counted, phases=with_exact_totals(counted.phases, counted.totals))


async def samples_between(
    store: Store,
    pool_id: PoolId,
    since: datetime,
    until: datetime,
    worker_id: WorkerId | None = None,
    *,
    failed: bool = False,
) -> AsyncIterator[tuple[datetime, Sequence[StoredSample]]]:
    """Yield the samples of a run or of one worker, in slices of time, oldest first: for each slice its end and its samples.
    ``failed``: only samples with failed operations or failed attempts to connect."""
    filters: dict[str, Any] = {"worker_id": worker_id, "failed": failed, "limit": _MOST_SAMPLES}
    length = _SLICE
    while since < until:
        end = min(since + length, until)
        rows = await store.samples.list(pool_id, since=since, until=end, **filters)
        if len(rows) >= _MOST_SAMPLES and length > _SHORTEST:
            length = max(length / 2, _SHORTEST)
            continue
        yield end, rows
        since = end
        if len(rows) <= _MOST_SAMPLES / 4:
            length = min(length * 2, _SLICE)


async def _beats(store: Store, pool_id: PoolId, origin: datetime | None) -> tuple[list[DecisionRecord], list[ServerSecond]]:
    decisions: list[DecisionRecord] = []
    server: list[ServerSecond] = []
    after = 0
    while page := await store.beats.list(pool_id, after=after, limit=_PAGE):
        async for beat in iterate_yielding(page):
            decisions += decisions_of(beat, origin)
            server += signals_of(beat, origin)
        after = page[-1].n
    return decisions, server


def decisions_of(beat: Beat, origin: datetime | None) -> list[DecisionRecord]:
    """Return the actions of a beat (pass of the control loop) as entries for the list of decisions, without routine actions."""
    return [_action_decision(action, beat, origin) for action in beat.actions if action.get("type") not in _HIDDEN_ACTIONS]


def _action_decision(action: Mapping[str, Any], beat: Beat, origin: datetime | None) -> DecisionRecord:
    fact = action.get("event")
    named = fact if isinstance(fact, Mapping) else action
    subject = named.get("worker_id") or named.get("phase")
    what = str(named.get("type", "?"))
    return DecisionRecord(
        at=beat.at,
        offset=_offset(beat.at, origin),
        what=f"{what} {subject}" if isinstance(subject, str) else what,
        reason=str(action.get("reason", "")),
        error=action.get("error"),
    )


def signals_of(beat: Beat, origin: datetime | None) -> Iterable[ServerSecond]:
    """Return the statistics of the database under test that were stored with a beat (pass of the control loop), if any."""
    probe = (beat.view or {}).get("probe")
    if isinstance(probe, Mapping) and origin is not None:
        yield ServerSecond(
            offset=_offset(beat.at, origin),
            sessions=probe.get("sessions"),
            active=probe.get("active"),
            waiting=probe.get("waiting"),
            lock_waits=probe.get("lock_waits"),
            wait_events=probe.get("wait_events") or {},
        )


async def _events(store: Store, pool_id: PoolId) -> list[Event]:
    events: list[Event] = []
    while page := await store.events.read(pool_id, events[-1].sequence_id if events else 0, BATCH):
        events += page
    return events


def _is_shown(event: Event) -> bool:
    """Whether an event is listed among the decisions: start, stop, phases, guardrails, and lost or failed workers."""
    return event.type in _SHOWN_EVENTS or (event.type == EventType.WORKER_MOVED and event.payload.get("to") in _BAD_ENDS)


def _event_decision(event: Event, origin: datetime | None) -> DecisionRecord:
    payload = event.payload
    subject = payload.get("phase") or event.worker_id or payload.get("worker_id")
    moved = f" → {payload.get('to')}" if event.type == EventType.WORKER_MOVED else ""
    return DecisionRecord(
        at=event.created_at,
        offset=_offset(event.created_at, origin),
        what=(f"{event.type} {subject}" if subject else str(event.type)) + moved,
        reason=str(payload.get("reason") or _facts(event)),
    )


def _facts(event: Event) -> str:
    """Return an event's payload as text, shown if the event has no reason; empty if the event's type is not in FACTS."""
    return ", ".join(f"{name} {value}" for name, value in event.payload.items()) if event.type in FACTS else ""


def _offset(at: datetime, origin: datetime | None) -> float:
    return (at - origin).total_seconds() if origin else 0.0


def totals_of(results: Sequence[Result], phases: Sequence[PhaseRecord]) -> Mapping[str, Measured]:
    """Return the totals of the measurement by kind of operation, from the result of the whole run. If that is missing: from the
    workers' results or from the samples, whichever count more operations (a killed worker leaves samples but no result)."""
    kinds = {row.kind for row in results if row.operations}
    totals = {kind or ALL_KINDS: _total(results, kind) for kind in sorted(kinds, key=lambda kind: kind or "")}
    sampled = next((phase for phase in phases if phase.name == Phase.MEASUREMENT), None)
    if any(row.worker_id is None and row.kind is None and row.operations for row in results) or sampled is None:
        return totals
    less = totals.get(ALL_KINDS, Measured()).operations < sampled.whole.operations
    return {ALL_KINDS: sampled.whole, **sampled.kinds} if less else totals


def with_exact_totals(phases: Iterable[PhaseRecord], totals: Mapping[str, Measured]) -> tuple[PhaseRecord, ...]:
    """Return the phases with the exact ``totals`` as the figures of MEASUREMENT. Its own figures come from samples, and so
    include operations that began before the phase or ended after it."""
    if ALL_KINDS not in totals:
        return tuple(phases)
    kinds = {kind: measured for kind, measured in totals.items() if kind != ALL_KINDS}
    return tuple(
        replace(phase, whole=totals[ALL_KINDS], kinds=kinds) if phase.name == Phase.MEASUREMENT else phase for phase in phases
    )


def _total(results: Sequence[Result], kind: str | None) -> Measured:
    rows = [row for row in results if row.kind == kind and row.operations]
    return _merged([row for row in rows if row.worker_id is None] or rows)


def _merged(rows: Sequence[Result]) -> Measured:
    counting = Counting()
    for row in rows:
        counting.add(row.operations, row.errors, row.reads, row.latency)
    qps = sum(row.qps or 0.0 for row in rows)
    return counting.measured(counting.operations / qps if qps else 0.0)


def _workers(rows: Sequence[Worker], results: Sequence[Result], timeline: Timeline) -> Iterator[WorkerRecord]:
    """Yield a record of each worker of a run, also of workers without a row, such as those deleted since."""
    known = {row.worker_id: row for row in rows}
    own = {row.worker_id: row for row in results if row.worker_id and row.kind is None}
    for name in [*known, *sorted({*timeline.series, *own} - set(known))]:
        if name in known:
            yield _worker(known[name], own.get(name), timeline)
        else:
            yield _deleted_worker(name, own.get(name), timeline)


def _deleted_worker(name: WorkerId, result: Result | None, timeline: Timeline) -> WorkerRecord:
    found = _worker(Worker(pool_id=PoolId(""), worker_id=name, slot=-1), result, timeline)
    return replace(found, status=None, began=result.started_at if result else None, ended=result.ended_at if result else None)


def _worker(row: Worker, result: Result | None, timeline: Timeline) -> WorkerRecord:
    return WorkerRecord(
        worker_id=row.worker_id,
        slot=row.slot,
        status=row.status,
        host=row.host,
        began=row.started_at or row.created_at,
        ended=row.ended_at,
        error=row.error,
        measured=_merged([result]) if result and result.operations else timeline.measured_by(row.worker_id),
        series=tuple(timeline.series.get(row.worker_id, ())),
        client_limited_seconds=timeline.limited.get(row.worker_id, 0),
        late_seconds=timeline.late.get(row.worker_id, 0),
        meta=row.meta,
        extra=result.custom_metrics if result else {},
    )
