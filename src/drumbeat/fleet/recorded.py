"""From a beat as it is kept back to what its decision saw and left."""

from collections.abc import Sequence

import msgspec

from drumbeat.core.beat import Beat
from drumbeat.core.errors import InvalidInput
from drumbeat.fleet.model import FleetView
from drumbeat.fleet.replay import RecordedBeat


def is_fleets(beat: Beat) -> bool:
    """Whether a fleet made it: not a checker, whose view, where an older version kept one, counts demand."""
    return not beat.is_check and (beat.view is None or "demand" not in beat.view)


def view_of(beat: Beat) -> FleetView | None:
    """What a fleet's beat saw; None if it saw nothing, or a checker made it. Raises InvalidInput for any other."""
    if beat.view is None or not is_fleets(beat):
        return None
    try:
        return msgspec.convert(beat.view, FleetView)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"beat {beat.n} of {beat.pool_id} holds no fleet's view as this version writes it: {exc}") from exc


def recorded(beats: Sequence[Beat]) -> list[RecordedBeat]:
    """The fleet's beats that saw something, oldest first."""
    kept = [(beat, view_of(beat)) for beat in sorted(beats, key=lambda each: each.n)]
    return [
        RecordedBeat(n=beat.n, at=beat.at, view=view, actions=tuple(beat.actions)) for beat, view in kept if view is not None
    ]
