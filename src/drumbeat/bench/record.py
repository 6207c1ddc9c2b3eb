"""Reading a run back from the store: samples in slices of time, so that a long run of many workers fits in memory."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from drumbeat.bench.compare.baseline import Candidate
from drumbeat.bench.kept import plan_or_usual
from drumbeat.bench.model.plan import ALL_KINDS
from drumbeat.bench.model.record import (
    Decided,
    Measured,
    PhaseRecord,
    RunRecord,
    ServerSecond,
    WorkerRecord,
)
from drumbeat.bench.timeline import Counting, Timeline
from drumbeat.bench.verdicts import Gate, passed, verdicts
from drumbeat.core.beat import Beat
from drumbeat.core.event import FACTS, Event, EventType
from drumbeat.core.pool import PoolId
from drumbeat.core.run import Phase, Result, Run, RunId, RunStatus
from drumbeat.core.sample import StoredSample
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store.interface import BATCH, Store

_SLICE = timedelta(seconds=20)
_SHORTEST = timedelta(microseconds=1)
_PAGE = 200  #: beats
_MOST_SAMPLES = 10_000
AFTERWARDS = timedelta(minutes=2)  #: how long after a run's end its last samples may still be dated
_TOLD = frozenset({EventType.START, EventType.STOP, EventType.SET_PHASE, EventType.SCALE_DOWN, EventType.GUARDRAIL_WARNING})
_UNTOLD = frozenset({"Remember"})  #: what every beat does
_SAME = {"Begin": EventType.START, "EnterPhase": EventType.SET_PHASE, "StopLoad": EventType.STOP}
_BAD_ENDS = frozenset({WorkerStatus.LOST, WorkerStatus.ERROR})


async def read_record(store: Store, run_id: RunId) -> RunRecord:
    """Everything the store knows of a run. Raises NotFound."""
    run = await store.runs.get(run_id)
    now = await store.now()
    pool_id, origin = PoolId(run_id), run.started_at or run.warmup_started_at
    timeline = Timeline(origin or now)
    if origin is not None:
        async for _, rows in samples_between(store, pool_id, origin, (run.ended_at + AFTERWARDS) if run.ended_at else now):
            for sample in rows:
                timeline.add(sample)
    plan, notes = plan_or_usual(run)
    results, phases = await store.results.list(run_id), timeline.phases()
    decisions, server = await _beats(store, pool_id, origin)
    told = {_SAME.get(word, word) for each in decisions if (word := each.what.partition(" ")[0])}
    events = [event for event in await _events(store, pool_id) if _is_told(event) and event.type not in told]
    decisions += [_event_decision(event, origin) for event in events]
    return RunRecord(
        run=run,
        plan=plan,
        origin=origin,
        ended=run.ended_at or (now if origin else None),
        results=tuple(results),
        totals=totals_of(results, phases),
        steps=tuple(await store.steps.list(run_id)),
        timeline=timeline.seconds(),
        workers=_workers(await store.workers.list(pool_id), results, timeline),
        decisions=tuple(sorted(decisions, key=lambda each: each.at)),
        server=tuple(server),
        phases=phases,
        failures=tuple(timeline.failures),
        notes=tuple(notes),
    )


async def read_candidates(store: Store, run: Run, most: int = 10, within: timedelta = timedelta(days=30)) -> list[Candidate]:
    """The newest completed runs that ``run`` might be compared with, and whether each kept its objectives."""
    since = run.created_at - within if run.created_at else None
    found: list[Candidate] = []
    for other in await store.runs.list(
        statuses=(RunStatus.COMPLETED,), template_id=run.template_id, since=since, until=run.created_at, limit=most * 10
    ):
        if other.run_id != run.run_id and len(found) < most:
            totals = totals_of(await store.results.list(other.run_id), ())
            plan, _ = plan_or_usual(other)
            gate = passed(other.status, verdicts(plan.objectives, totals))
            found.append(Candidate(run=other, passed=gate is Gate.PASSED))
    return found


async def samples_between(
    store: Store, pool_id: PoolId, since: datetime, until: datetime, worker_id: WorkerId | None = None
) -> AsyncIterator[tuple[datetime, Sequence[StoredSample]]]:
    """A pool's samples, or one worker's, in slices, oldest first, each with its end. A full slice is read again in halves."""
    length = _SLICE
    while since < until:
        end = min(since + length, until)
        rows = await store.samples.list(pool_id, worker_id=worker_id, since=since, until=end, limit=_MOST_SAMPLES)
        if len(rows) >= _MOST_SAMPLES and length > _SHORTEST:
            length = max(length / 2, _SHORTEST)
            continue
        yield end, rows
        since = end


async def _beats(store: Store, pool_id: PoolId, origin: datetime | None) -> tuple[list[Decided], list[ServerSecond]]:
    decisions: list[Decided] = []
    server: list[ServerSecond] = []
    after = 0
    while page := await store.beats.list(pool_id, after=after, limit=_PAGE):
        for beat in page:
            decisions += decisions_of(beat, origin)
            server += signals_of(beat, origin)
        after = page[-1].n
    return decisions, server


def decisions_of(beat: Beat, origin: datetime | None) -> list[Decided]:
    """What a beat decided, less what every beat does."""
    return [_action_decision(action, beat, origin) for action in beat.actions if action.get("type") not in _UNTOLD]


def _action_decision(action: Mapping[str, Any], beat: Beat, origin: datetime | None) -> Decided:
    fact = action.get("event")
    named = fact if isinstance(fact, Mapping) else action
    subject = named.get("worker_id") or named.get("phase")
    what = str(named.get("type", "?"))
    return Decided(
        at=beat.at,
        offset=_offset(beat.at, origin),
        what=f"{what} {subject}" if isinstance(subject, str) else what,
        reason=str(action.get("reason", "")),
        error=action.get("error"),
    )


def signals_of(beat: Beat, origin: datetime | None) -> Iterable[ServerSecond]:
    """What the database under test said of itself at a beat."""
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


def _is_told(event: Event) -> bool:
    """Whether an event says something the beats' actions do not: facts, phases, and workers that went badly."""
    return event.type in _TOLD or (event.type == EventType.WORKER_MOVED and event.payload.get("to") in _BAD_ENDS)


def _event_decision(event: Event, origin: datetime | None) -> Decided:
    payload = event.payload
    subject = payload.get("phase") or event.worker_id or payload.get("worker_id")
    moved = f" → {payload.get('to')}" if event.type == EventType.WORKER_MOVED else ""
    return Decided(
        at=event.created_at,
        offset=_offset(event.created_at, origin),
        what=(f"{event.type} {subject}" if subject else str(event.type)) + moved,
        reason=str(payload.get("reason") or _facts(event)),
    )


def _facts(event: Event) -> str:
    """What an event for the record tells, where it gives no reason."""
    return ", ".join(f"{name} {value}" for name, value in event.payload.items()) if event.type in FACTS else ""


def _offset(at: datetime, origin: datetime | None) -> float:
    return (at - origin).total_seconds() if origin else 0.0


def totals_of(results: Sequence[Result], phases: Sequence[PhaseRecord]) -> Mapping[str, Measured]:
    """What was measured, by kind: the whole run's rows; else its workers' together or what samples tell, whichever is more.

    A worker that was killed leaves samples and no result of its own.
    """
    kinds = {row.kind for row in results if row.operations}
    totals = {kind or ALL_KINDS: _total(results, kind) for kind in sorted(kinds, key=lambda kind: kind or "")}
    told = next((phase for phase in phases if phase.name == Phase.MEASUREMENT), None)
    if any(row.worker_id is None and row.kind is None and row.operations for row in results) or told is None:
        return totals
    less = totals.get(ALL_KINDS, Measured()).operations < told.whole.operations
    return {ALL_KINDS: told.whole, **told.kinds} if less else totals


def _total(results: Sequence[Result], kind: str | None) -> Measured:
    rows = [row for row in results if row.kind == kind and row.operations]
    return _merged([row for row in rows if row.worker_id is None] or rows)


def _merged(rows: Sequence[Result]) -> Measured:
    counting = Counting()
    for row in rows:
        counting.add(row.operations, row.errors, row.reads, row.latency)
    qps = sum(row.qps or 0.0 for row in rows)
    return counting.measured(counting.operations / qps if qps else 0.0)


def _workers(rows: Sequence[Worker], results: Sequence[Result], timeline: Timeline) -> tuple[WorkerRecord, ...]:
    known = {row.worker_id: row for row in rows}
    names = [*known, *sorted(set(timeline.series) - set(known))]
    own = {row.worker_id: row for row in results if row.worker_id and row.kind is None}
    return tuple(
        _worker(known.get(name) or Worker(pool_id=PoolId(""), worker_id=name, slot=-1), own.get(name), timeline)
        for name in names
    )


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
        extra=result.custom_metrics if result else {},
    )
