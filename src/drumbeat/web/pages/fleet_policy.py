"""The form for a fleet's policy: validated before it is saved, with errors shown at their fields."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any
from urllib.parse import quote

from nicegui import ui

from drumbeat.core.errors import InvalidSettings, StaleWrite
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, notify
from drumbeat.web.pages.forms import Field
from drumbeat.web.pages.frame import breadcrumbs, heading, page
from drumbeat.web.pages.plain_words import POLICIES
from drumbeat.web.pages.policy_labels import IF_EMPTY, LABELS

_FIXED = ("workers", "target")
_SCALED = (
    "min_workers",
    "max_workers",
    "keep_idle",
    "concurrency",
    "headroom",
    "expected_service",
    "wait_slo",
    "idle_timeout",
    "every",
)
_MONEY = ("price_per_hour", "max_per_hour", "max_per_day", "max_per_month")
FIELDS: Mapping[PolicyName, tuple[str, ...]] = {
    PolicyName.FIXED: _FIXED,
    PolicyName.QUEUE_RATIO: (*_SCALED, "tasks_per_worker"),
    PolicyName.QUEUE_COVER: _SCALED,
    PolicyName.LAG_AWARE: _SCALED,
}
_NO_FIELD = frozenset({"policy", "schedules"})  #: ``policy`` has its own select field; ``schedules`` can be set only in files
CHANGED_MEANWHILE = (
    "Not saved: this policy was changed after you opened the page. Reload the page, then make your change again."
)
_MOST_LETTERS, _MOST_IN_WIDE = 22, 40  #: longer labels and placeholders get a wider field
_TYPES = {each.name: str(each.type) for each in fields(FleetPolicy)}


def add(app: AppState) -> None:
    @page(app, "/fleet/{pool_id}/policy", "Fleets")
    async def policy(pool_id: str) -> None:
        pool = await app.plane.store.pools.find(PoolId(pool_id))
        breadcrumbs(("Fleets", "/fleet"), *(((pool_id, f"/fleet/{quote(pool_id, safe='')}"),) if pool else ()))
        heading(f"Policy of {pool_id}" if pool else f"New fleet: {pool_id}")
        if pool is not None and pool.kind is PoolKind.BENCH:
            ui.label("The benchmark run scales this pool itself. You cannot set a policy for it.")
            return
        form = PolicyForm(_policy(pool))

        async def save() -> None:
            made = form.read()
            if made is None:
                return
            try:
                await save_policy(app, pool_id, pool, made)
            except StaleWrite:
                notify(CHANGED_MEANWHILE, error=True)
                return
            notify("Policy saved. The next decision uses it.")
            ui.navigate.to(f"/fleet/{quote(pool_id, safe='')}")

        button("Save", save, icon="save")


def _policy(pool: PoolRow | None) -> FleetPolicy:
    if pool is None or ("policy" not in pool.policy and pool.kind is PoolKind.JOBS):
        return FleetPolicy(policy=PolicyName.LAG_AWARE, min_workers=0)
    return FleetPolicy.from_json(pool.policy)


async def save_policy(app: AppState, pool_id: str, pool: PoolRow | None, policy: FleetPolicy) -> None:
    """Set the policy of a pool, which is created if missing. Raises StaleWrite if its policy is not that of ``pool``."""
    if pool is not None and pool.kind is PoolKind.FLEET:
        await app.plane.fleets.set_policy(pool.pool_id, policy, seen=pool)
    elif pool is None and policy.policy is PolicyName.FIXED:
        await app.plane.fleets.create(pool_id, policy)
    else:
        await app.plane.fleets.scale_pool(pool_id, policy, seen=pool)


class PolicyForm:
    """The input fields of a policy. Fields that the selected policy ignores are hidden; rarely used ones are collapsed."""

    def __init__(self, policy: FleetPolicy) -> None:
        self._before = policy
        self._fields: dict[str, Field] = {}
        self._policy = ui.select(dict(POLICIES), value=policy.policy.value, label=LABELS["policy"], on_change=self._show_fields)
        self._policy.props("outlined dense stack-label").classes("w-full max-w-md")
        self._main = self._group((*_FIXED, *_SCALED, "tasks_per_worker"))
        heading("Price and budgets (all in one currency)", 2)
        self._group(_MONEY)
        with ui.expansion("Advanced settings").classes("w-full"):
            self._group([name for name in _TYPES if name not in self._fields and name not in _NO_FIELD])
        self._show_fields()

    def _group(self, names: Any) -> ui.row:
        with ui.row().classes("w-full gap-2") as row:
            for name in names:
                self._fields[name] = _field(name, getattr(self._before, name))
        return row

    def _show_fields(self) -> None:
        """Show only the fields that the selected policy uses."""
        visible = FIELDS[PolicyName(self._policy.value)]
        for name in (*_FIXED, *_SCALED, "tasks_per_worker"):
            self._fields[name].set_visibility(name in visible)

    def read(self) -> FleetPolicy | None:
        """Return the policy as filled in; None if it is invalid, and then show the error at its field."""
        typed = {name: _read(name, field.value) for name, field in self._fields.items()}
        values = {name: value for name, value in typed.items() if value is not None or "None" in _TYPES[name]}
        try:
            return FleetPolicy.from_json({**self._before.to_json(), **_json(values), "policy": self._policy.value})
        except InvalidSettings as exc:
            self._mark_fields(str(exc))
            return None

    def _mark_fields(self, message: str) -> None:
        named = [name for name in self._fields if re.search(rf"\b{name}\b", message)]
        for name, field in self._fields.items():
            field.error = message if name in named[:2] else None
        notify(message, error=True)


def _field(name: str, value: Any) -> Field:
    made = _element(LABELS[name], value, IF_EMPTY.get(name), _TYPES[name])
    letters = max(len(LABELS[name]), len(IF_EMPTY.get(name, "")))
    made.props("outlined dense stack-label")
    return made.classes("w-44" if letters <= _MOST_LETTERS else "w-72" if letters <= _MOST_IN_WIDE else "w-full max-w-md")


def _element(label: str, value: Any, placeholder: str | None, type_name: str) -> Field:
    if type_name == "<class 'bool'>":
        return ui.select({True: "yes", False: "no"}, value=value, label=label)
    if "str" in type_name:
        return ui.input(label, value=value or "", placeholder=placeholder)
    if "timedelta" in type_name:
        value = None if value is None else value.total_seconds()
    return ui.number(label, value=value, placeholder=placeholder)


def _read(name: str, value: Any) -> Any:
    if value in (None, ""):
        return None
    if "int" in _TYPES[name] and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _json(values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}_seconds" if "timedelta" in _TYPES[name] else name: value for name, value in values.items()}
