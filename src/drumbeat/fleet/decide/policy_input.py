"""Build a policy's input from what a beat observed, with forecasts: when workers become free, and how many jobs arrive."""

from dataclasses import replace
from datetime import datetime, timedelta

from drumbeat.core.worker import Worker
from drumbeat.fleet.decide.classify import Classified
from drumbeat.fleet.decide.keep_alive import UsualTimes, worker_levels
from drumbeat.fleet.decide.learned import needed_now, recent_rate, service_time, service_variance, spawn_lag, steady_rate
from drumbeat.fleet.model import FleetState, FleetView, PolicyName, QueueView
from drumbeat.fleet.policies import PolicyInput

MIN_RATE_WINDOW = 300.0  #: seconds over which the arrival rate is measured; twice the time of a restart if that is longer
STEADY_BEATS = 5  #: minimum number of beats in a row with arrivals before more arrivals are expected


def policy_input(view: FleetView, classified: Classified, state: FleetState) -> PolicyInput:
    """Collect what a policy needs: the queue, the busy, idle and starting workers, and forecasts for ``lag_aware``."""
    queue, busy, idle = view.queue or QueueView(), len(classified.busy), len(classified.idle)
    current = PolicyInput(
        now=view.now, policy=view.policy, queue=queue, busy=busy, idle=idle, starting=len(classified.starting), needed=busy
    )
    return _with_forecast(view, classified, state, current) if view.policy.policy is PolicyName.LAG_AWARE else current


def _with_forecast(view: FleetView, classified: Classified, state: FleetState, current: PolicyInput) -> PolicyInput:
    """Add the forecasts that ``lag_aware`` needs: arrival rates, service times, and when workers become free."""
    lag, every = spawn_lag(view), view.policy.every.total_seconds()
    service = service_time(view, state.services)
    times = UsualTimes(lag=lag.total_seconds(), every=every, service=service)
    needed, at = needed_now(view, classified), state.arrivals[-1][0] if state.arrivals else 0.0
    known = replace(state, gaps=view.state.gaps, uses=view.state.uses) if view.state else state
    return replace(
        current,
        free=current.idle * view.policy.concurrency,
        free_in=tuple(_free_in(view, classified, state, lag)),
        lag=times.lag,
        service=service,
        variance=service_variance(state.services, current.queue.types),
        rate=recent_rate(state, max(MIN_RATE_WINDOW, 2 * times.reach)),
        steady_rate=steady_rate(state, max(times.reach, STEADY_BEATS * every)),
        coming=sum(1 for due in current.queue.due if due <= view.now + lag),
        needed=needed,
        levels=worker_levels(known, at, needed, current.capacity, times),
    )


def _free_in(view: FleetView, classified: Classified, state: FleetState, lag: timedelta) -> list[float]:
    """Return the seconds until each job slot of a starting or busy worker is free."""
    means = {each.type: each.mean.total_seconds() for each in state.services}
    slots = view.policy.concurrency
    free = [_ready_in(view.now, worker, lag) for worker in classified.starting for _ in range(slots)]
    busy, jobs = classified.busy, classified.jobs_by_worker
    staying = jobs if len(busy) == len(jobs) else {worker.worker_id for worker in busy}
    held = view.held if staying is jobs else [each for each in view.held if each.worker_id in staying]
    now, second, mean_of = view.now, timedelta(seconds=1), means.get
    left = [remaining((now - each.claimed_at) / second, each.progress, mean_of(each.type)) for each in held]
    return [*free, *left, *([0.0] * (len(busy) * slots - len(held)))]


def _ready_in(now: datetime, worker: Worker, lag: timedelta) -> float:
    """Estimate the seconds until a starting worker is ready, if a start takes ``lag``. The estimate for a late worker
    is ``lag`` / 4 if it has not joined yet, and 1 s if it has."""
    left = lag - (now - (worker.created_at or now))
    return max(left, lag / 4).total_seconds() if worker.status == "spawning" else max(left.total_seconds(), 1.0)


def remaining(age: float, progress: float | None, mean: float | None) -> float:
    """Estimate the seconds a job still takes: from its age and progress if it reports progress, else from the jobs' ``mean``.

    If the job is older than ``mean``, or ``mean`` is unknown, the estimate grows with the job's age."""
    if progress and 0.05 < progress < 1:
        return age * (1 - progress) / progress
    if mean is None:
        return age if age > 1 else 1.0
    least = (age if age > mean else mean) / 4
    return mean - age if mean - age > least else least
