"""Reduces the points of a chart's line without losing its spikes."""

from collections.abc import Sequence

from drumbeat.core.errors import InvalidInput

Point = tuple[float, float | None]  #: x, and y; None where there is no value


def downsample(points: Sequence[Point], most: int) -> Sequence[Point]:
    """Return at most ``most`` points: for each group of neighbours the lowest and the highest, or just one if it has no values.

    Groups are 4, 8, 16 … points wide, so that the result for a growing line stays the same until the width doubles.
    Raises InvalidInput if ``most`` is below 2.
    """
    if most < 2:
        raise InvalidInput(f"expected most to be 2 points or more, got {most}; a line needs its lowest and its highest point")
    if len(points) <= most:
        return points
    wide = 4
    while 2 * -(-len(points) // wide) > most:
        wide *= 2
    return [point for begin in range(0, len(points), wide) for point in _extremes(points[begin : begin + wide])]


def _extremes(stretch: Sequence[Point]) -> Sequence[Point]:
    known = [(y, place) for place, (_, y) in enumerate(stretch) if y is not None]
    if not known:
        return stretch[:1]
    least, greatest = min(known)[1], max(known)[1]
    return [stretch[place] for place in sorted({least, greatest})]
