"""CONCURRENCY: a fixed number of connections, all of them from the start, each as fast as it can."""

from drumbeat.bench.control.modes.allocate import allocate, floor, workers_for
from drumbeat.bench.model import ModeView, RunPlan, ScalingMode, Steer


def steer(view: ModeView) -> Steer:
    """The plan's total on as many workers as it takes. It never finishes of itself: the run's duration ends it."""
    asked = total(view.plan)
    workers = workers_for(asked, view.plan.scaling)
    if view.most_workers is not None:
        workers = max(1, min(workers, view.most_workers))
    held = sum(allocate(asked, range(workers), view.plan.scaling).values())
    return Steer(connections=held, workers=workers, reason=_reason(asked, held, workers, view.plan))


def total(plan: RunPlan) -> int:
    """Connections in all. FIXED, or nothing said: so many workers with so many connections each."""
    if plan.scaling.mode is ScalingMode.FIXED or plan.connections is None:
        return plan.scaling.min_workers * plan.scaling.min_connections
    return max(1, plan.connections)


def _reason(asked: int, held: int, workers: int, plan: RunPlan) -> str:
    scaling = plan.scaling
    if scaling.mode is ScalingMode.FIXED:
        return f"{held} connections: FIXED at {workers} workers of {scaling.min_connections}"
    if held < asked:
        return f"{held} connections instead of {asked}: {workers} workers of {floor(scaling)} to {scaling.cap} hold no more"
    if held < floor(scaling):
        return f"{held} connections on one worker: fewer than its floor of {floor(scaling)}"
    return f"{held} connections on {workers} workers of at most {scaling.cap}"
