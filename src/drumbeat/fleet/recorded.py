"""Read a fleet's recorded beats: the view and the actions of each."""

from collections.abc import Sequence

import msgspec

from drumbeat.core.beat import Beat
from drumbeat.core.errors import InvalidInput
from drumbeat.fleet.model import FleetView
from drumbeat.fleet.replay import RecordedBeat


def is_fleet_beat(beat: Beat) -> bool:
    """Whether a fleet's controller ran this beat, not a checker, which only starts workers. Old checkers record ``demand``."""
    return not beat.is_check and (beat.view is None or "demand" not in beat.view)


def view_of(beat: Beat) -> FleetView | None:
    """Return the view of a fleet's beat; None if it has none or a checker ran it. Raises InvalidInput if it is unreadable."""
    if beat.view is None or not is_fleet_beat(beat):
        return None
    try:
        return msgspec.convert(beat.view, FleetView)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"beat {beat.n} of {beat.pool_id} has a view that this version cannot read: {exc}") from exc


def recorded(beats: Sequence[Beat]) -> list[RecordedBeat]:
    """Return the fleet's beats that have a view, oldest first."""
    views = [(beat, view_of(beat)) for beat in sorted(beats, key=lambda each: each.n)]
    return [
        RecordedBeat(n=beat.n, at=beat.at, view=view, actions=tuple(beat.actions)) for beat, view in views if view is not None
    ]
