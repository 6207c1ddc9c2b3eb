"""Completing a run's results with what its database says of itself. It never changes how the run ended."""

from dataclasses import replace

from drumbeat.bench.model import ControllerState
from drumbeat.bench.results.conclusion import FAILED, enrichment
from drumbeat.bench.run_state import kept_state
from drumbeat.bench.targets.server_watch import Open
from drumbeat.core.errors import DrumbeatError, NotFound
from drumbeat.core.run import Result, RunId
from drumbeat.store.interface import Store


async def enrich(store: Store, run_id: RunId, open_target: Open) -> Result:
    """Try again to find what the server's totals rose by. Raises NotFound while the run has no result.

    Where the totals after the measurement were missed, they are asked for now: right as long as nothing else has used the
    database since, which the result says.
    """
    run = await store.runs.get(run_id)
    whole = next((row for row in await store.results.list(run_id) if row.worker_id is None and row.kind is None), None)
    if whole is None:
        raise NotFound(f"run {run_id} has no result to enrich yet; it is {run.status}")
    state = kept_state(run)
    note = None
    if "after_measurement" not in state.snapshots and state.snapshots:
        state, note = await _asked_late(state, open_target)
    status, error, server = enrichment(state)
    row = replace(
        whole,
        enrichment_status=status,
        enrichment_error=note if status == FAILED else error,
        custom_metrics={**whole.custom_metrics, "server": {**server, **({"note": note} if note else {})}},
    )
    await store.results.save([row])
    return row


async def _asked_late(state: ControllerState, open_target: Open) -> tuple[ControllerState, str]:
    try:
        async with open_target() as target:
            counters = await target.counters()
    except (DrumbeatError, OSError) as exc:
        return state, f"the database could not be asked: {exc}"
    if not counters:
        return state, "the database says nothing of its totals"
    snapshots = {**state.snapshots, "after_measurement": counters}
    return replace(state, snapshots=snapshots), "totals were taken late: anything else that used the database is in them"
