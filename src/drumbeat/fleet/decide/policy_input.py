"""From a view to what a policy weighs: when places get free, what will come, what is worth having."""

from dataclasses import replace
from datetime import datetime, timedelta

from drumbeat.core.worker import Worker
from drumbeat.fleet.decide.classify import Classified
from drumbeat.fleet.decide.keep_alive import UsualTimes, worth
from drumbeat.fleet.decide.learned import needed_now, rate_of_late, service_time, service_variance, spawn_lag, sure_rate
from drumbeat.fleet.model import FleetState, FleetView, PolicyName, QueueView
from drumbeat.fleet.policies import PolicyInput

SHORT = 300.0  #: seconds whose arrivals tell how it is now, at least; twice the time a new worker takes, if that is longer

BEATS = 5  #: in a row in which jobs came, at least, before it is counted on that they go on


def policy_input(view: FleetView, crew: Classified, state: FleetState) -> PolicyInput:
    """One pool as its policy sees it."""
    queue, busy, idle = view.queue or QueueView(), len(crew.busy), len(crew.idle)
    seen = PolicyInput(
        now=view.now, policy=view.policy, queue=queue, busy=busy, idle=idle, starting=len(crew.starting), needed=busy
    )
    return _foreseen(view, crew, state, seen) if view.policy.policy is PolicyName.LAG_AWARE else seen


def _foreseen(view: FleetView, crew: Classified, state: FleetState, seen: PolicyInput) -> PolicyInput:
    """The same with what a policy needs that looks ahead."""
    lag, every = spawn_lag(view), view.policy.every.total_seconds()
    service = service_time(view, state.services)
    pace = UsualTimes(lag=lag.total_seconds(), every=every, service=service)
    needed, at = needed_now(view, crew), state.arrivals[-1][0] if state.arrivals else 0.0
    known = replace(state, gaps=view.state.gaps, uses=view.state.uses) if view.state else state
    return replace(
        seen,
        free=seen.idle * view.policy.concurrency,
        free_in=tuple(_free_in(view, crew, state, lag)),
        lag=pace.lag,
        service=service,
        variance=service_variance(state.services, seen.queue.types),
        rate=rate_of_late(state, max(SHORT, 2 * pace.reach)),
        sure=sure_rate(state, max(pace.reach, BEATS * every)),
        coming=sum(1 for due in seen.queue.due if due <= view.now + lag),
        needed=needed,
        levels=worth(known, at, needed, seen.capacity, pace),
    )


def _free_in(view: FleetView, crew: Classified, state: FleetState, lag: timedelta) -> list[float]:
    """For each place of a worker that starts or is busy: seconds until it can take a job."""
    means = {each.type: each.mean.total_seconds() for each in state.services}
    places = view.policy.concurrency
    free = [_ready_in(view.now, worker, lag) for worker in crew.starting for _ in range(places)]
    staying = crew.bundles if len(crew.busy) == len(crew.bundles) else {worker.worker_id for worker in crew.busy}
    held = view.held if staying is crew.bundles else [each for each in view.held if each.worker_id in staying]
    now, second, mean_of = view.now, timedelta(seconds=1), means.get
    left = [remaining((now - each.claimed_at) / second, each.progress, mean_of(each.type)) for each in held]
    return [*free, *left, *([0.0] * (len(crew.busy) * places - len(held)))]


def _ready_in(now: datetime, worker: Worker, lag: timedelta) -> float:
    """When a starting worker will be ready; one that is late is expected any moment, within a quarter of the lag."""
    left = lag - (now - (worker.created_at or now))
    return max(left, lag / 4).total_seconds() if worker.status == "spawning" else max(left.total_seconds(), 1.0)


def remaining(age: float, progress: float | None, mean: float | None) -> float:
    """How long a job of this age will still take. The longer it has taken beyond the usual, the longer it may."""
    if progress and 0.05 < progress < 1:
        return age * (1 - progress) / progress
    if mean is None:
        return age if age > 1 else 1.0
    least = (age if age > mean else mean) / 4
    return mean - age if mean - age > least else least
