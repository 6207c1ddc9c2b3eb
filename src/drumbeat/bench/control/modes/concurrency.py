"""CONCURRENCY: a fixed number of connections, all open from the start, each sending as fast as it can."""

from drumbeat.bench.control.modes.allocate import allocate, fewest_held, workers_for
from drumbeat.bench.model import LoadDecision, ModeView, RunPlan, ScalingMode


def steer(view: ModeView) -> LoadDecision:
    """Return the configured number of connections and the workers needed for it. Only the run's duration ends this mode."""
    requested = total(view.plan)
    workers = workers_for(requested, view.plan.scaling)
    if view.most_workers is not None:
        workers = max(1, min(workers, view.most_workers))
    held = sum(allocate(requested, range(workers), view.plan.scaling).values())
    return LoadDecision(connections=held, workers=workers, reason=_reason(requested, held, workers, view.plan))


def total(plan: RunPlan) -> int:
    """Return the total connections of all workers: ``plan.connections``, or ``min_workers`` × ``min_connections`` if that is
    None or the scaling mode is FIXED (the number of workers and the connections of each worker are set exactly)."""
    if plan.scaling.mode is ScalingMode.FIXED or plan.connections is None:
        return plan.scaling.min_workers * plan.scaling.min_connections
    return max(1, plan.connections)


def _reason(requested: int, held: int, workers: int, plan: RunPlan) -> str:
    scaling = plan.scaling
    if scaling.mode is ScalingMode.FIXED:
        return f"{held} connections: FIXED at {workers} workers with {scaling.min_connections} each"
    if held < requested:
        limit = f"{workers} workers with {fewest_held(scaling)} to {scaling.cap} each"
        return f"{held} connections instead of {requested}: the limit is {limit}"
    if held < fewest_held(scaling):
        return f"{held} connections on one worker: fewer than the minimum of {fewest_held(scaling)} per worker"
    return f"{held} connections on {workers} workers with at most {scaling.cap} each"
