"""Enriches the result of a run with the database's own counters. This never changes how the run ended."""

from dataclasses import replace

from drumbeat.bench.model import ControllerState
from drumbeat.bench.results.conclusion import FAILED, enrichment
from drumbeat.bench.run_state import stored_state, whole_row
from drumbeat.bench.targets.server_watch import Open
from drumbeat.core.errors import DrumbeatError, NotFound
from drumbeat.core.run import Result, RunId
from drumbeat.store.interface import Store


async def enrich(store: Store, run_id: RunId, open_target: Open) -> Result:
    """Try again to add to a run's result how much the database's counters rose. Raises NotFound while there is no result.

    If the counters after the measurement are missing, they are read now. They then include any later use of the database, and
    a note in the result says so.
    """
    run = await store.runs.get(run_id)
    whole = whole_row(await store.results.list(run_id))
    if whole is None:
        raise NotFound(f"run {run_id} has no result to enrich: its status is {run.status}; try again when it has ended")
    state = stored_state(run)
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
