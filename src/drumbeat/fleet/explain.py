"""Explain one beat: its inputs, what each rule wanted, which limits applied, and its actions, or why it took none. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drumbeat.core.decision import Decision
from drumbeat.fleet.breaker import backoff_allowance, next_backoff
from drumbeat.fleet.decide import decide, verdict
from drumbeat.fleet.decide.learned import mean_service, spawn_lag
from drumbeat.fleet.decide.limits import bounds_at
from drumbeat.fleet.decide.storage import disks
from drumbeat.fleet.model import Action, FleetView, Limit, RuleWish
from drumbeat.fleet.money import burn, ceilings, tariff


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatExplanation:
    """Why a beat took its actions: the inputs, what each rule wanted, and which limits applied."""

    at: datetime
    pool_id: str
    policy: str
    inputs: Mapping[str, Any]
    wishes: tuple[RuleWish, ...]
    limits: tuple[Limit, ...]  #: limits that changed the number of workers, in order
    wanted: int
    actions: tuple[str, ...]
    why_not: str | None
    provider_error: str | None = None  #: why the provider could not list its instances, or why spawns wait


def explain(view: FleetView, done: Sequence[Mapping[str, Any]] | None = None) -> BeatExplanation:
    """Explain the decision that follows from what a beat observed. ``done``: the actions it took; None: show planned ones."""
    found, decision = verdict(view), decide(view)
    return BeatExplanation(
        at=view.now,
        pool_id=view.pool_id,
        policy=view.policy.policy,
        inputs=inputs(view),
        wishes=found.wishes,
        limits=found.limits,
        wanted=found.desired,
        actions=_decided(decision) if done is None else tuple(_recorded(action) for action in done),
        why_not=decision.why_not,
        provider_error=provider_error(view),
    )


def provider_error(view: FleetView) -> str | None:
    """Describe the provider's failure: it could not list instances, or refused workers and is in backoff; None if neither."""
    if view.unlisted is not None:
        return f"it failed to list its instances: {view.unlisted}"
    backoff = next_backoff(view)
    waits = backoff.until is not None and view.now < backoff.until
    return backoff_allowance(view, backoff).reason if backoff.faults and waits else None


def inputs(view: FleetView) -> dict[str, Any]:
    """Return the figures that the decision is based on, by name, with units in the names."""
    queue, state = view.queue, view.state
    least, most, whose = bounds_at(view.policy, view.now)
    oldest = queue.oldest_ready if queue else None
    known: dict[str, Any] = {
        "workers": dict(Counter(each.fleet_status for each in view.workers if each.is_live)),
        "busy": len({each.worker_id for each in view.held}),
        "ready": queue.ready if queue else None,
        "blocked": queue.blocked or None if queue else None,
        "delayed": queue.delayed if queue else None,
        "claimed": queue.claimed if queue else None,
        "oldest_waits_s": max((view.now - oldest).total_seconds(), 0.0) if oldest else None,
        "spawn_lag_s": spawn_lag(view).total_seconds(),
        "service_s": mean_service(state.services, queue.types if queue else {}) if state else None,
        "min_workers": least,
        "max_workers": most,
        "bounds_of": None if whose == "policy" else f"a {whose}",
        "paused_until": view.paused_until,
        "disk_free_gb": _least_free(view),
        **_money(view),
    }
    return {name: value for name, value in known.items() if value is not None}


def _least_free(view: FleetView) -> list[float] | None:
    """Return the free and total GB of the volume with the least free space; None if no worker reports a volume."""
    found = min(disks([each for each in view.workers if each.is_live]), key=lambda disk: disk.free, default=None)
    return None if found is None else [round(found.free, 1), round(found.total, 1)]


def _money(view: FleetView) -> dict[str, Any]:
    rates = tariff(view.policy, view.provider)
    if not rates.price:
        return {}
    spent = {f"spent_this_{each.name}": [round(each.spent, 6), each.most] for each in ceilings(view) if not each.begins_in}
    return {"burn_per_hour": burn(view.workers, rates), **spent}


def _decided(decision: Decision[Action]) -> tuple[str, ...]:
    return tuple(_action_line(type(action).__name__, _subject(action), action.reason) for action in decision.actions)


def _subject(action: Action) -> str:
    worker = getattr(action, "worker", None)
    return str(getattr(action, "worker_id", "") or (worker.worker_id if worker else ""))


def _recorded(action: Mapping[str, Any]) -> str:
    subject = action.get("worker_id") or (action.get("worker") or {}).get("worker_id") or ""
    failed = f" [not done: {action['error']}]" if action.get("error") else ""
    return _action_line(str(action["type"]), str(subject), f"{action['reason']}{failed}")


def _action_line(what: str, subject: str, reason: str) -> str:
    return f"{what} {subject}: {reason}" if subject else f"{what}: {reason}"


def sentences(found: BeatExplanation, actions_heading: str = "done:") -> list[str]:
    """Write an explanation as lines of text; ``actions_heading`` is the heading above its actions."""
    given = [f"  {name}: {_figure(value)}" for name, value in found.inputs.items()]
    wished = [f"  {wish.rule} wants {wish.workers}: {wish.reason}" for wish in found.wishes]
    bound = [f"  {limit.name}: {limit.before} → {limit.after}: {limit.reason}" for limit in found.limits]
    did = [f"  {line}" for line in found.actions] or [f"  nothing: {found.why_not or 'no action was needed'}"]
    return [
        f"{found.pool_id} at {found.at:%Y-%m-%d %H:%M:%S} UTC, policy {found.policy}",
        *([] if found.provider_error is None else [f"provider error: {found.provider_error}"]),
        "inputs:",
        *given,
        "rules:",
        *(wished or ["  no rule wants workers"]),
        "limits that changed the number:",
        *(bound or ["  none"]),
        f"wanted: {found.wanted} workers",
        actions_heading,
        *did,
    ]


def _figure(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{count} {name}" for name, count in sorted(value.items())) or "none"
    if isinstance(value, list):
        return " of ".join(f"{each:g}" for each in value)
    return f"{value:.1f}" if isinstance(value, float) else str(value)
