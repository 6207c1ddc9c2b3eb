"""Read a fleet's recorded beats: what each one observed (its view), and its actions."""

from collections.abc import Sequence

import msgspec

from drumbeat.core.beat import Beat
from drumbeat.core.errors import InvalidInput
from drumbeat.fleet.model import FleetView
from drumbeat.fleet.replay import RecordedBeat


def is_fleet_beat(beat: Beat) -> bool:
    """Whether a fleet's autoscaler ran this beat. False for a beat that only took back jobs or ended forgotten instances."""
    return not beat.is_check and (beat.view is None or "demand" not in beat.view)


def view_of(beat: Beat) -> FleetView | None:
    """Return what a fleet's beat observed (its view); None if the beat has no view or is a checker's beat.

    Raises InvalidInput for a view that this version cannot read."""
    if beat.view is None or not is_fleet_beat(beat):
        return None
    try:
        return msgspec.convert(beat.view, FleetView)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"this Drumbeat version cannot read what beat {beat.n} of {beat.pool_id} observed: {exc}") from exc


def recorded(beats: Sequence[Beat]) -> list[RecordedBeat]:
    """Return the fleet's beats whose observations (views) are recorded, oldest first."""
    views = [(beat, view_of(beat)) for beat in sorted(beats, key=lambda each: each.n)]
    return [
        RecordedBeat(n=beat.n, at=beat.at, view=view, actions=tuple(beat.actions)) for beat, view in views if view is not None
    ]
