"""From a beat as it is kept back to what its decision saw and left."""

from collections.abc import Sequence

import msgspec

from drumbeat.core.beat import Beat
from drumbeat.core.errors import InvalidInput
from drumbeat.fleet.model import FleetView
from drumbeat.fleet.replay import RecordedBeat


def view_of(beat: Beat) -> FleetView | None:
    """What a beat saw; None if it saw nothing. Raises InvalidInput when it is no beat of a fleet."""
    if beat.view is None:
        return None
    try:
        return msgspec.convert(beat.view, FleetView)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"beat {beat.n} of {beat.pool_id} holds no fleet's view as this version writes it: {exc}") from exc


def recorded(beats: Sequence[Beat]) -> list[RecordedBeat]:
    """Beats that saw something, oldest first."""
    kept = [(beat, view_of(beat)) for beat in sorted(beats, key=lambda each: each.n)]
    return [
        RecordedBeat(n=beat.n, at=beat.at, view=view, actions=tuple(beat.actions)) for beat, view in kept if view is not None
    ]
