"""Enriches the result of a run with the database's own counters or history. This never changes how the run ended."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from drumbeat.bench.model import ControllerState
from drumbeat.bench.results.conclusion import COMPLETED, FAILED, PENDING, enrichment
from drumbeat.bench.results.cost import with_credits
from drumbeat.bench.run_state import plan_or_default, stored_state, whole_row
from drumbeat.bench.targets.interface import KeepsHistory, RecordedStatements
from drumbeat.bench.targets.server_watch import Open
from drumbeat.bench.targets.urls import keeps_history
from drumbeat.bench.workloads.config import load_of
from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, NotFound
from drumbeat.core.run import Result, Run, RunId
from drumbeat.store.interface import Store

HISTORY_LIMIT = timedelta(seconds=60)  #: how long to wait for rows that the server adds late to its history
_READ_EVERY = timedelta(seconds=5)
_COMPLETE = 0.99  #: share of the expected statements; a few are never recorded, such as those of a lost connection
_MARGIN = timedelta(minutes=1)  #: clocks of store and server may differ


async def enrich(store: Store, run_id: RunId, open_target: Open, clock: Clock, limit: timedelta = HISTORY_LIMIT) -> Result:
    """Try again to add to a run's result what the database counted. Raises NotFound while there is no result.

    If the counters after the measurement are missing, they are read now. They then include any later use of the database, and
    a note in the result says so. If a database records every statement, this history is read instead of its counters.
    """
    run = await store.runs.get(run_id)
    rows = await store.results.list(run_id)
    whole = whole_row(rows)
    if whole is None:
        raise NotFound(f"run {run_id} has no result to enrich: its status is {run.status}; try again when it has ended")
    state = stored_state(run)
    if not state.snapshots and keeps_history((run.config.get("target") or {}).get("url")):
        found = await _from_history(run, whole, rows, open_target, clock, limit)
        if found is not None:
            await store.results.save([found])
            return found
    note = None
    if "after_measurement" not in state.snapshots and state.snapshots:
        state, note = await _read_late(state, open_target)
    status, error, server = enrichment(state)
    row = replace(
        whole,
        enrichment_status=status,
        enrichment_error=note if status == FAILED else error,
        custom_metrics={**whole.custom_metrics, "server": {**server, **({"note": note} if note else {})}},
    )
    await store.results.save([row])
    return row


async def _read_late(state: ControllerState, open_target: Open) -> tuple[ControllerState, str]:
    try:
        async with open_target() as target:
            counters = await target.counters()
    except (DrumbeatError, OSError) as exc:
        return state, f"the database's totals could not be read: {exc}"
    if not counters:
        return state, "the database offers no totals"
    snapshots = {**state.snapshots, "after_measurement": counters}
    return replace(state, snapshots=snapshots), "the totals were read late: they include any other use of the database"


async def _from_history(
    run: Run, whole: Result, rows: Sequence[Result], open_target: Open, clock: Clock, limit: timedelta
) -> Result | None:
    """Return the result with what the server recorded about the run's statements; None if the server keeps no history, or if it
    is not known when the run measured."""
    since, until = run.warmup_ended_at or whole.started_at, whole.ended_at
    if since is None or until is None:
        return None
    expected = _expected_statements(run, rows)
    try:
        async with open_target() as target:
            if not isinstance(target, KeepsHistory):
                return None
            until = until + _MARGIN
            found = await _awaited(target, run.run_id, (since, until), expected, clock, limit)
            used = await target.credits_used(run.started_at or since, whole.ended_at or until)
    except (DrumbeatError, OSError) as exc:
        return replace(whole, enrichment_status=FAILED, enrichment_error=f"the database's history could not be read: {exc}")
    is_complete = found.statements >= _COMPLETE * expected
    missing = None if is_complete else _incomplete(found.statements, expected, limit)
    note = "; ".join(each for each in (missing, found.note) if each) or None
    metrics = with_credits(whole.custom_metrics, plan_or_default(run)[0].prices, used, whole.operations)
    server: dict[str, Any] = {"measurement": dict(found.totals), **({"credits": dict(used)} if used else {})}
    return replace(
        whole,
        enrichment_status=COMPLETED if is_complete else PENDING,
        enrichment_error=None if is_complete else note,
        custom_metrics={**metrics, "server": {**server, **({"note": note} if note else {})}},
    )


async def _awaited(
    target: KeepsHistory, run_id: RunId, span: tuple[Any, Any], expected: int, clock: Clock, limit: timedelta
) -> RecordedStatements:
    """Read the history again and again until it holds nearly all expected statements, or ``limit`` has passed."""
    began = clock.elapsed()
    while True:
        found = await target.recorded_statements(run_id, *span, expected)
        if found.statements >= _COMPLETE * expected or clock.elapsed() - began + _READ_EVERY > limit:
            return found
        await clock.sleep(_READ_EVERY)


def _expected_statements(run: Run, rows: Sequence[Result]) -> int:
    """Return how many statements the measured operations sent, BEGIN and COMMIT of transactions included."""
    try:
        used = load_of(run.config.get("workload") or {}).used
    except DrumbeatError:
        return 0
    sizes = {str(each.kind): len(each.statements) + 2 * (len(each.statements) > 1) for each in used}
    counts: Mapping[str, int] = {row.kind: row.operations for row in rows if row.worker_id is None and row.kind}
    return sum(sizes.get(kind, 1) * count for kind, count in counts.items())


def _incomplete(found: int, expected: int, limit: timedelta) -> str:
    return (
        f"after {limit.total_seconds():g} s the database's history held {found} of about {expected} statements; rows come "
        "late, and short statements on hybrid tables may never come; try again with: drumbeat bench enrich"
    )
