"""Texts of the fleet pages: costs, and what beats (passes of the autoscaler) decided and why."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload
from urllib.parse import quote

from nicegui import ui

from drumbeat.core.beat import Beat
from drumbeat.web.pages.components import Series, TableColumn, as_text
from drumbeat.web.pages.frame import heading
from drumbeat.web.pages.plain_words import FLEET_ACTIONS, INPUTS, POLICIES, RULES, counted, plain, plain_action
from drumbeat.web.pages.policy_labels import LIMITS

if TYPE_CHECKING:
    from drumbeat.composition.plane import BeatExplanation

_ENDED = frozenset({"terminated", "error", "lost"})


class SpentFigures(Protocol):
    """The costs of a fleet, as the fleet service returns them."""

    @property
    def price_per_hour(self) -> float: ...
    @property
    def burn_per_hour(self) -> float: ...
    @property
    def spent(self) -> Any: ...


@overload
def money(amount: float) -> str: ...
@overload
def money(amount: float | None) -> str | None: ...
def money(amount: float | None) -> str | None:
    """Return an amount with two decimals; an amount below 100 has four significant digits if two decimals would cut it."""
    if amount is None:
        return None
    short, long = f"{amount:,.2f}", f"{amount:.4g}"
    return short if abs(amount) >= 100 or float(long) == float(short) else long


def spent_text(found: SpentFigures | None, period: str) -> str | None:
    """Return the cost in a period, with the budget if any, such as ``3.50 of 40.00``; None if the cost is not known."""
    if found is None:
        return None
    limit = getattr(found, f"max_per_{period}")
    return money(float(getattr(found.spent, period))) + (f" of {money(float(limit))}" if limit is not None else "")


def budget_share(found: SpentFigures, period: str) -> float | None:
    """Return the used fraction of a budget, at most 1; None if the period has no budget."""
    limit = getattr(found, f"max_per_{period}")
    return None if not limit else min(getattr(found.spent, period) / limit, 1.0)


def outcome_text(beat: Beat) -> str:
    """Return the outcome of a beat (pass of the autoscaler) in one line: its actions, its error, or why it did nothing."""
    if beat.error:
        return f"failed: {beat.error}"
    done = "; ".join(_action_text(action) for action in beat.actions)
    return done or f"no action: {beat.why_not or 'none was needed'}"


def _action_text(action: Mapping[str, Any]) -> str:
    subject = action.get("worker_id") or (action.get("worker") or {}).get("worker_id") or ""
    failed = f" (failed: {action['error']})" if action.get("error") else ""
    line = f"{action.get('type')} {subject}: {action.get('reason')}{failed}".replace(" :", ":")
    return plain_action(FLEET_ACTIONS, line)


def _beat_url(beat: Beat) -> str:
    """Return the URL of the page that explains a beat (pass of the autoscaler)."""
    return f"/fleet/{quote(beat.pool_id, safe='')}?beat={beat.n}&before={beat.n + 1}"


BEATS = (
    TableColumn(name="decision", read=lambda beat: beat.n, number=True),
    TableColumn(name="at", label="time (UTC)", read=lambda beat: beat.at, href=_beat_url),
    TableColumn(name="target", label="target workers", read=lambda beat: beat.summary.get("wanted"), number=True),
    TableColumn(name="live", label="live workers", read=lambda beat: live_workers(beat), number=True),
    TableColumn(name="outcome", loose=True, label="actions, or why none", read=outcome_text),
)


def live_workers(beat: Beat) -> int | None:
    """Return the number of live workers at a beat (pass of the autoscaler); None if the beat did not record its workers."""
    if beat.view is None:
        return None
    return sum(1 for each in beat.view.get("workers", ()) if each.get("status") not in _ENDED)


def worker_series(beats: Sequence[Beat]) -> Series:
    """Return target workers, live workers and ready jobs over time, for a chart."""
    queue = [(beat.at, ((beat.view or {}).get("queue") or {}).get("ready")) for beat in beats]
    return {
        "target workers": [(beat.at, beat.summary.get("wanted")) for beat in beats],
        "live workers": [(beat.at, live_workers(beat)) for beat in beats],
        "ready jobs": queue,
    }


def show_explanation(found: "BeatExplanation") -> None:
    """Show how the autoscaler decided in one pass, or how it would decide now: inputs, rules, limits and actions."""
    ui.label(f"{found.at:%Y-%m-%d %H:%M:%S} UTC, policy: {plain(POLICIES, found.policy)}").classes("text-weight-medium")
    ui.label(f"Target: {counted(found.wanted, 'worker')}").classes("text-weight-medium")
    if found.provider_error is not None:
        ui.label(f"Engine error: {found.provider_error}").classes("text-negative")
    heading("Inputs", 3)
    _list([f"{plain(INPUTS, name)}: {input_text(value)}" for name, value in found.inputs.items()])
    heading("Rules", 3)
    _list(
        [f"{counted(each.workers, 'worker')}: {each.reason} (rule: {plain(RULES, each.rule)})" for each in found.wishes]
        or ["no rule asked for workers"]
    )
    heading("Limits applied", 3)
    _list([f"{plain(LIMITS, each.name)}: {each.before} → {each.after}: {each.reason}" for each in found.limits] or ["none"])
    heading("Actions", 3)
    _list([plain_action(FLEET_ACTIONS, each) for each in found.actions] or [f"no action: {found.why_not or 'none was needed'}"])


def _list(lines: Sequence[str]) -> None:
    with ui.element("ul").classes("list-disc q-pl-md"):
        for line in lines:
            with ui.element("li"):
                ui.label(line)


def input_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{count} {name}" for name, count in sorted(value.items())) or "none"
    if isinstance(value, list | tuple):
        return " of ".join(as_text(each) for each in value)
    return as_text(value)
