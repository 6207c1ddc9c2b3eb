"""Charts that are sent whole once, and then only by what is new. Pure, but for the drawing itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

Options = Mapping[str, Any]
_EXTEND = "extend"  #: an event of the chart in the browser: points are passed as values, never written into a script
_EXTENDED = "(id, lines) => extendChart(id, lines)"
_CHANGING = ("data", "markArea")  #: of a line, what grows with a run


def extension(before: Options | None, after: Options) -> list[dict[str, Any]] | None:
    """What turns one drawing into another, line by line; None: it is better sent whole.

    Each line says how many points go at its beginning, how many stay after that, and which follow.
    """
    if before is None or not after.get("series") or _frame(before) != _frame(after):
        return None
    lines = [_line(old, new) for old, new in zip(before["series"], after["series"], strict=True)]
    fresh = sum(len(line["add"]) for line in lines)
    return lines if 2 * fresh <= sum(len(new["data"]) for new in after["series"]) else None


def _frame(options: Options) -> tuple[Any, list[Any]]:
    """Everything that stays the same while lines grow."""
    lines = [{name: value for name, value in line.items() if name not in _CHANGING} for line in options["series"]]
    return {name: value for name, value in options.items() if name != "series"}, lines


def _line(old: Options, new: Options) -> dict[str, Any]:
    before, after = old["data"], new["data"]
    drop = _dropped(before, after)
    kept = before[drop:]
    keep = next(
        (n for n, (one, other) in enumerate(zip(kept, after, strict=False)) if one != other), min(len(kept), len(after))
    )
    area = {"area": new["markArea"]} if new.get("markArea") != old.get("markArea") else {}
    return {"drop": drop, "keep": keep, "add": after[keep:], **area}


def _dropped(before: Sequence[Any], after: Sequence[Any]) -> int:
    """How many points at the beginning are no longer there."""
    if not after:
        return len(before)
    return next((n for n, point in enumerate(before) if point == after[0]), 0)


class GrowingChart:
    """A chart in the browser that is told only what is new of it."""

    def __init__(self, element: ui.echart) -> None:
        self.element = element
        element.on(_EXTEND, js_handler=_EXTENDED)
        self._drawn: Options | None = None

    def show(self, drawn: Options) -> None:
        """Draw it; nothing is sent where it is drawn so already."""
        if drawn == self._drawn:
            return
        told, self._drawn = extension(self._drawn, drawn), drawn
        if told is None:
            self._keep(drawn)
            self.element.update()
            return
        with self.element.props.suspend_updates():
            self._keep(drawn)
        self.element.run_method("$emit", _EXTEND, self.element.id, told)

    def _keep(self, drawn: Options) -> None:
        """What the element is told when all of it is sent anew."""
        self.element.options.clear()
        self.element.options.update(drawn)
