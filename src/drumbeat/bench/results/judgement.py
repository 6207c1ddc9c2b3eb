"""Reads the verdict on a run. The verdict on a run under way says only whether the run still has an orchestrator."""

from datetime import datetime, timedelta

from drumbeat.bench.model.verdict import RunJudgement, judgement_by_status
from drumbeat.bench.results.record import judgement_of_ended
from drumbeat.core.run import RUN_ENDED, Run, RunStatus
from drumbeat.store.interface import Store

NO_LEADER = "no orchestrator leads this run; take it over with: drumbeat bench orchestrate"
TAKEN_OVER_WITHIN = timedelta(seconds=5)  #: after a run's last change; a longer time without a leader means that there is none


async def read_judgement(store: Store, run: Run) -> RunJudgement:
    """Return the verdict on a run; for a run under way, whether it has lost its orchestrator."""
    if run.status in RUN_ENDED:
        return await judgement_of_ended(store, run)
    return under_way(run, await led_by(store, run), await store.now())


async def led_by(store: Store, run: Run) -> str | None:
    """Return the orchestrator that holds the run's lease; None if the lease is free or expired."""
    lease = await store.leases.find(run.run_id)
    return lease.owner if lease is not None and lease.expires_at > await store.now() else None


def under_way(run: Run, leader: str | None, now: datetime) -> RunJudgement:
    """Return PENDING, the verdict on a run that has not ended. The run is marked as an orphan if it was started, has no
    ``leader`` (orchestrator), and has not changed for longer than ``TAKEN_OVER_WITHIN``."""
    if leader is None and run.status is not RunStatus.PREPARED and not _changed_since(run, now - TAKEN_OVER_WITHIN):
        return RunJudgement(is_orphan=True, reason=NO_LEADER)
    return judgement_by_status(run) or RunJudgement()


def _changed_since(run: Run, moment: datetime) -> bool:
    return any(at is not None and at > moment for at in (run.updated_at, run.started_at))
