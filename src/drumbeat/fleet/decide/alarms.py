"""What somebody should look at; nothing is done about it (G25): many starts, a sudden queue, a limit nobody can keep."""

from collections.abc import Iterator, Sequence

from drumbeat.fleet.model import Action, FleetView, Spawn
from drumbeat.fleet.model.policy import least_silence

MANY_STARTS = 3  #: new workers in one beat
SPIKE = 10  #: a queue that grew to so many times what it was; or from nothing to more than so many jobs


def alarms(view: FleetView, actions: Sequence[Action]) -> list[str]:
    """A sentence for each."""
    return [*_starts(actions), *_jump(view), *_too_strict(view)]


def _starts(actions: Sequence[Action]) -> Iterator[str]:
    started = [each for each in actions if isinstance(each, Spawn) and each.is_new]
    if len(started) >= MANY_STARTS:
        yield f"{len(started)} workers are started in one beat"


def _jump(view: FleetView) -> Iterator[str]:
    before, now = view.state.ready if view.state else None, view.queue.ready if view.queue else 0
    if before is not None and now > SPIKE and now >= SPIKE * before:
        yield f"the queue jumped from {before} to {now} ready jobs since the last beat"


def _too_strict(view: FleetView) -> Iterator[str]:
    told, least, usual = view.policy.heartbeat_timeout, least_silence(view.thresholds), view.thresholds
    if told is not None and told < least:
        yield (
            f"heartbeat_timeout is {told.total_seconds():g} s, but workers of this pool beat every "
            f"{usual.heartbeat_every.total_seconds():g} s and end themselves after {usual.give_up_after.total_seconds():g} s "
            f"of silence: {least.total_seconds():g} s are heeded"
        )
