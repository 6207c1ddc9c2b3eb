"""From a view to what a policy weighs: when places get free, what will come, what is worth keeping."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from drumbeat.core.worker import Worker
from drumbeat.fleet.decide.crew import Crew
from drumbeat.fleet.decide.knowledge import mean_service, needed_now, spawn_lag
from drumbeat.fleet.model import FleetState, FleetView, Held, PolicyName, Queue
from drumbeat.fleet.policies import Level, Scene

SHORT = timedelta(minutes=10)  #: the arrivals that tell how it is now, at least; three spawn lags if that is longer
LONG = timedelta(hours=1)  #: the arrivals that tell how it usually is
ENOUGH = 6  #: gaps from which a level's keep is learnt
SEEN = 40  #: the latest of them that count
WAITING = 2.0  #: what making jobs wait for a start is worth, in starts


def scene(view: FleetView, crew: Crew, state: FleetState) -> Scene:
    """One pool as its policy sees it."""
    queue, lag = view.queue or Queue(), spawn_lag(view)
    service = mean_service(state.services, queue.types)
    busy, idle, starting = len(crew.busy), len(crew.idle), len(crew.starting)
    return Scene(
        now=view.now,
        policy=view.policy,
        queue=queue,
        busy=busy,
        idle=idle,
        starting=starting,
        free_in=tuple(_free_in(view, crew, state, lag)) if view.policy.policy is PolicyName.LAG_AWARE else (),
        lag=lag.total_seconds(),
        service=service,
        rate=forecast(view.now, state, lag),
        coming=sum(1 for due in queue.due if due <= view.now + lag),
        levels=_levels(view.now, state, needed_now(view, crew), busy + idle + starting, lag.total_seconds()),
    )


def _free_in(view: FleetView, crew: Crew, state: FleetState, lag: timedelta) -> list[float]:
    """For each place of each worker that stays: seconds until it can take a job."""
    means = {each.type: each.mean.total_seconds() for each in state.services}
    places = view.policy.concurrency
    free = [0.0] * (len(crew.idle) * places)
    for worker in crew.starting:
        free += [_ready_in(view.now, worker, lag)] * places
    staying = {worker.worker_id for worker in crew.busy}
    held = [remaining(view.now, each, means) for each in view.held if each.worker_id in staying]
    return [*free, *held, *([0.0] * (len(crew.busy) * places - len(held)))]


def _ready_in(now: datetime, worker: Worker, lag: timedelta) -> float:
    """When a starting worker will be ready; one that is late is expected any moment, within a quarter of the lag."""
    left = lag - (now - (worker.created_at or now))
    return max(left, lag / 4).total_seconds() if worker.status == "spawning" else max(left.total_seconds(), 1.0)


def remaining(now: datetime, held: Held, means: Mapping[str, float]) -> float:
    """How long a job will still take. The longer it has taken beyond the usual, the longer it may."""
    age, mean = (now - held.claimed_at).total_seconds(), means.get(held.type)
    if held.progress and 0.05 < held.progress < 1:
        return age * (1 - held.progress) / held.progress
    if mean is None:
        return age if age > 1 else 1.0
    least = (age if age > mean else mean) / 4
    return mean - age if mean - age > least else least


def forecast(now: datetime, state: FleetState, lag: timedelta) -> float:
    """Jobs a second that may be counted on: the lower of what came of late and what usually comes.

    A burst is no reason to expect another, and a lull is believed at once. A window counts only the time in which arrivals were
    counted, so a controller that has just begun expects nothing.
    """
    short, usual = _rate(now, state, max(SHORT, lag * 3)), _rate(now, state, LONG)
    return min(short, usual) if short is not None and usual is not None else 0.0


def _rate(now: datetime, state: FleetState, window: timedelta) -> float | None:
    since = max(now - window, state.counted_from or now)
    seconds = (now - since).total_seconds()
    if seconds < 60:
        return None
    return sum(each.count for each in state.arrivals if each.minute >= since) / seconds


def _levels(now: datetime, state: FleetState, needed: int, capacity: int, lag: float) -> tuple[Level, ...]:
    """The workers beyond those needed: for how long nobody needed so many, and how long keeping them pays."""
    return tuple(
        Level(idle=_idle(now, state, n), keep=keep_for(now, state, n, lag)) for n in range(needed, min(capacity, needed + 256))
    )


def _idle(now: datetime, state: FleetState, level: int) -> float:
    since = state.levels[level] if level < len(state.levels) else None
    return (now - since).total_seconds() if since else 0.0


def keep_for(now: datetime, state: FleetState, level: int, lag: float) -> float:
    """For how long to keep a worker that is not needed: what would have cost least in the gaps seen at levels like this.

    Keeping costs its time; letting go costs a start, if the level is needed again. Before enough is known it is kept for one
    lag: whatever comes, that costs at most twice the best.
    """
    gaps = _gaps_like(now, state, level, lag)
    if len(gaps) < ENOUGH:
        return lag
    again = lag * (1 + WAITING)
    choices = (0.0, lag / 4, lag / 2, lag, lag * 2, lag * 4)
    return min(choices, key=lambda keep: (sum(gap if gap <= keep else keep + again for gap in gaps), keep))


def _gaps_like(now: datetime, state: FleetState, level: int, lag: float) -> Sequence[float]:
    reach = level // 4
    near = [seconds for n, seconds in state.gaps if -reach <= n - level <= reach][-SEEN:]
    age = _idle(now, state, level)
    return [*near, age] if age > lag else near
