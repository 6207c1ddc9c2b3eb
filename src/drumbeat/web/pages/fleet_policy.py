"""A fleet's policy as a form: checked whole before it is kept, each fault named at its field."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any
from urllib.parse import quote

from nicegui import ui

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, say
from drumbeat.web.pages.forms import Field
from drumbeat.web.pages.frame import heading, page, trail

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
SHOWN: Mapping[PolicyName, tuple[str, ...]] = {
    PolicyName.FIXED: _FIXED,
    PolicyName.QUEUE_RATIO: (*_SCALED, "tasks_per_worker"),
    PolicyName.QUEUE_COVER: _SCALED,
    PolicyName.LAG_AWARE: _SCALED,
}
_UNASKED = frozenset({"policy", "schedules"})  #: a choice of its own; only in files
_KINDS = {each.name: str(each.type) for each in fields(FleetPolicy)}


def add(house: AppState) -> None:
    @page(house, "/fleet/{pool_id}/policy", "Fleet")
    async def policy(pool_id: str) -> None:
        home = await house.plane.store.pools.find(PoolId(pool_id))
        trail(("Fleet", "/fleet"), *(((pool_id, f"/fleet/{quote(pool_id, safe='')}"),) if home else ()))
        heading(f"Policy of {pool_id}" if home else f"A new fleet: {pool_id}")
        if home is not None and home.kind is PoolKind.BENCH:
            ui.label("A run has its own orchestrator; it takes no policy.")
            return
        form = PolicyForm(_policy(home))

        async def save() -> None:
            made = form.read()
            if made is not None:
                await keep(house, pool_id, home, made)
                say("Kept: the next beat decides by it.")
                ui.navigate.to(f"/fleet/{quote(pool_id, safe='')}")

        button("Save", save, icon="save")


def _policy(home: PoolRow | None) -> FleetPolicy:
    if home is None or ("policy" not in home.policy and home.kind is PoolKind.JOBS):
        return FleetPolicy(policy=PolicyName.LAG_AWARE, min_workers=0)
    return FleetPolicy.from_json(home.policy)


async def keep(house: AppState, pool_id: str, home: PoolRow | None, policy: FleetPolicy) -> None:
    """Have the pool follow the policy; it is made if it is not there."""
    if home is not None and home.kind is PoolKind.FLEET:
        await house.plane.fleets.set_policy(home.pool_id, policy)
    elif home is None and policy.policy is PolicyName.FIXED:
        await house.plane.fleets.create(pool_id, policy)
    else:
        await house.plane.fleets.scale_pool(pool_id, policy)


class PolicyForm:
    """Fields of a policy. Those that the chosen policy does not heed are hidden, the rarer ones folded."""

    def __init__(self, policy: FleetPolicy) -> None:
        self._before = policy
        self._fields: dict[str, Field] = {}
        names = {each.value: each.value for each in PolicyName}
        self._policy = ui.select(names, value=policy.policy.value, label="Policy", on_change=self._turn)
        self._policy.props("outlined dense stack-label").classes("w-60")
        self._main = self._group((*_FIXED, *_SCALED, "tasks_per_worker"))
        heading("Money", 2)
        self._group(_MONEY)
        with ui.expansion("Everything else").classes("w-full"):
            self._group([name for name in _KINDS if name not in self._fields and name not in _UNASKED])
        self._turn()

    def _group(self, names: Any) -> ui.row:
        with ui.row().classes("w-full gap-2") as row:
            for name in names:
                self._fields[name] = _field(name, getattr(self._before, name))
        return row

    def _turn(self) -> None:
        """Only the fields the policy heeds."""
        shown = SHOWN[PolicyName(self._policy.value)]
        for name in (*_FIXED, *_SCALED, "tasks_per_worker"):
            self._fields[name].set_visibility(name in shown)

    def read(self) -> FleetPolicy | None:
        """The policy as it is filled in; None: something is wrong, and it is said where."""
        given = {name: _read(name, field.value) for name, field in self._fields.items()}
        told = {name: value for name, value in given.items() if value is not None or "None" in _KINDS[name]}
        try:
            return FleetPolicy.from_json({**self._before.to_json(), **_json(told), "policy": self._policy.value})
        except InvalidSettings as exc:
            self._blame(str(exc))
            return None

    def _blame(self, message: str) -> None:
        blamed = [name for name in self._fields if re.search(rf"\b{name}\b", message)]
        for name, field in self._fields.items():
            field.error = message if name in blamed[:2] else None
        say(message, wrong=True)


def _field(name: str, value: Any) -> Field:
    label, kind = name.replace("_", " "), _KINDS[name]
    if kind == "<class 'bool'>":
        return (
            ui.select({True: "yes", False: "no"}, value=value, label=label).props("outlined dense stack-label").classes("w-44")
        )
    if "str" in kind:
        return ui.input(label, value=value or "").props("outlined dense stack-label").classes("w-44")
    if "timedelta" in kind:
        label, value = f"{label} (s)", None if value is None else value.total_seconds()
    usual = "as usual" if "None" in kind else None
    return ui.number(label, value=value, placeholder=usual).props("outlined dense stack-label").classes("w-44")


def _read(name: str, value: Any) -> Any:
    if value in (None, ""):
        return None
    if "int" in _KINDS[name] and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _json(told: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}_seconds" if "timedelta" in _KINDS[name] else name: value for name, value in told.items()}
