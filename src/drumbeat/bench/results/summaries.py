"""Writes the summary of a run from what the store has about the run and about the previous run of the same kind."""

from datetime import timedelta

from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.results.earlier_runs import earlier_runs
from drumbeat.bench.results.record import read_short_record
from drumbeat.bench.results.summary import summarise
from drumbeat.core.run import RUN_ENDED, Run
from drumbeat.store.interface import Store

_WITHIN = timedelta(days=90)


async def read_summary(store: Store, run: Run) -> tuple[str, ...]:
    """Return the summary of an ended run, a few sentences; empty for a run that has not ended."""
    if run.status not in RUN_ENDED:
        return ()
    return summarise(await read_short_record(store, run), await read_previous(store, run))


async def read_previous(store: Store, run: Run) -> RunRecord | None:
    """Return the newest earlier run that completed, is of the same kind (see ``is_same_kind``) and has measurements; None if
    there is none. Only its row, results and steps are read."""
    async for other in earlier_runs(store, run, _WITHIN):
        record = await read_short_record(store, other)
        if record.whole.operations:
            return record
    return None
