"""What the fleet's pages say of money, beats and reasons."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from nicegui import ui

from drumbeat.core.beat import Beat
from drumbeat.web.pages.components import Series, TableColumn, words
from drumbeat.web.pages.frame import heading

if TYPE_CHECKING:
    from drumbeat.composition.plane import BeatExplanation

ENDED = frozenset({"terminated", "error", "lost"})


class SpentFigures(Protocol):
    """Money, as the fleet's desk tells it."""

    @property
    def price_per_hour(self) -> float: ...
    @property
    def burn_per_hour(self) -> float: ...
    @property
    def spent(self) -> Any: ...


def money(amount: float | None) -> str | None:
    return None if amount is None else f"{amount:,.2f}"


def money_of(found: SpentFigures | None, period: str) -> str | None:
    """What was spent in a period, of how much."""
    if found is None:
        return None
    most = getattr(found, f"max_per_{period}")
    return f"{getattr(found.spent, period):,.2f}" + (f" of {most:,.2f}" if most is not None else "")


def share_of(found: SpentFigures, period: str) -> float | None:
    """How much of a ceiling is spent, up to 1; None where there is no ceiling."""
    most = getattr(found, f"max_per_{period}")
    return None if not most else min(getattr(found.spent, period) / most, 1.0)


def did(beat: Beat) -> str:
    """What a beat came to, in one line."""
    if beat.error:
        return f"failed: {beat.error}"
    told = "; ".join(_deed(action) for action in beat.actions)
    return told or f"nothing: {beat.why_not or 'no action was called for'}"


def _deed(action: Mapping[str, Any]) -> str:
    subject = action.get("worker_id") or (action.get("worker") or {}).get("worker_id") or ""
    failed = f" (not done: {action['error']})" if action.get("error") else ""
    return f"{action.get('type')} {subject}: {action.get('reason')}{failed}".replace(" :", ":")


def _way(beat: Beat) -> str:
    """The page of the beat, with its reasons."""
    return f"/fleet/{quote(beat.pool_id, safe='')}?beat={beat.n}&before={beat.n + 1}"


BEATS = (
    TableColumn(name="beat", read=lambda beat: beat.n, number=True),
    TableColumn(name="at", label="at (UTC)", read=lambda beat: beat.at, href=_way),
    TableColumn(name="wanted", read=lambda beat: beat.summary.get("wanted"), number=True),
    TableColumn(name="live", read=lambda beat: living(beat), number=True),
    TableColumn(name="did", loose=True, label="what it did, or why not", read=did),
)


def living(beat: Beat) -> int | None:
    """How many workers a beat saw live."""
    if beat.view is None:
        return None
    return sum(1 for each in beat.view.get("workers", ()) if each.get("status") not in ENDED)


def course(beats: Sequence[Beat]) -> Series:
    """What beats saw and wanted, over time."""
    queue = [(beat.at, ((beat.view or {}).get("queue") or {}).get("ready")) for beat in beats]
    return {
        "wanted": [(beat.at, beat.summary.get("wanted")) for beat in beats],
        "live": [(beat.at, living(beat)) for beat in beats],
        "ready jobs": queue,
    }


def show_explanation(found: "BeatExplanation") -> None:
    """Why a beat did what it did, or what one would do: seen, wished, bound, done."""
    ui.label(f"{found.at:%Y-%m-%d %H:%M:%S} UTC, policy {found.policy}: wanted {found.wanted} workers").classes(
        "text-weight-medium"
    )
    if found.provider_error is not None:
        ui.label(f"The provider fails: {found.provider_error}").classes("text-negative")
    heading("Seen", 3)
    _list([f"{name.replace('_', ' ')}: {figure(value)}" for name, value in found.inputs.items()])
    heading("Each rule", 3)
    _list([f"{wish.rule} wants {wish.workers}: {wish.reason}" for wish in found.wishes] or ["no rule wanted anything"])
    heading("Limits that bound", 3)
    _list([f"{each.name}: {each.before} → {each.after}: {each.reason}" for each in found.limits] or ["none"])
    heading("Done", 3)
    _list(list(found.actions) or [f"nothing: {found.why_not or 'no action was called for'}"])


def _list(lines: Sequence[str]) -> None:
    with ui.element("ul").classes("list-disc q-pl-md"):
        for line in lines:
            with ui.element("li"):
                ui.label(line)


def figure(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{count} {name}" for name, count in sorted(value.items())) or "none"
    if isinstance(value, list | tuple):
        return " of ".join(words(each) for each in value)
    return words(value)
