"""Charts that are sent to the browser completely once; later updates send only new points."""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

Options = Mapping[str, Any]
_EXTEND = "extend"  #: browser event that updates a chart; points are passed as values, never inside a script
_EXTENDED = "(id, lines) => extendChart(id, lines)"
_CHANGING = ("data", "markArea")  #: the options of a line that change during a run


def extension(before: Options | None, after: Options) -> list[dict[str, Any]] | None:
    """Return the changes that turn an old chart into a new one, line by line; None if sending the whole new chart is better.

    For each line: how many points to drop at its beginning, how many points after those to keep, and which points to add.
    """
    if before is None or not after.get("series") or _fixed_part(before) != _fixed_part(after):
        return None
    lines = [_line(old, new) for old, new in zip(before["series"], after["series"], strict=True)]
    added = sum(len(line["add"]) for line in lines)
    return lines if 2 * added <= sum(len(new["data"]) for new in after["series"]) else None


def _fixed_part(options: Options) -> tuple[Any, list[Any]]:
    """Return the options of a chart that stay the same while its lines grow."""
    lines = [{name: value for name, value in line.items() if name not in _CHANGING} for line in options["series"]]
    return {name: value for name, value in options.items() if name != "series"}, lines


def _line(old: Options, new: Options) -> dict[str, Any]:
    before, after = old["data"], new["data"]
    drop = _dropped(before, after)
    rest = before[drop:]
    keep = next(
        (n for n, (one, other) in enumerate(zip(rest, after, strict=False)) if one != other), min(len(rest), len(after))
    )
    area = {"area": new["markArea"]} if new.get("markArea") != old.get("markArea") else {}
    return {"drop": drop, "keep": keep, "add": after[keep:], **area}


def _dropped(before: Sequence[Any], after: Sequence[Any]) -> int:
    """Return how many points at the beginning of a chart line the newer version of the line no longer has."""
    if not after:
        return len(before)
    return next((n for n, point in enumerate(before) if point == after[0]), 0)


class GrowingChart:
    """A chart in the browser that is updated by sending only new points."""

    def __init__(self, element: ui.echart) -> None:
        self.element = element
        element.on(_EXTEND, js_handler=_EXTENDED)
        self._drawn: Options | None = None

    def show(self, drawn: Options) -> None:
        """Draw the chart; sends nothing if it has not changed."""
        if drawn == self._drawn:
            return
        lines, self._drawn = extension(self._drawn, drawn), drawn
        if lines is None:
            self._set_options(drawn)
            self.element.update()
            return
        with self.element.props.suspend_updates():
            self._set_options(drawn)
        self.element.run_method("$emit", _EXTEND, self.element.id, lines)

    def _set_options(self, drawn: Options) -> None:
        """Set the chart options that the browser gets when it loads the page again."""
        self.element.options.clear()
        self.element.options.update(drawn)
