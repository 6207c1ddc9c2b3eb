"""Translates a state machine written for FlatMachines 0.8.3 into one that the installed FlatMachines package runs.

It translates what the installed version does not support: ``foreach`` with ``launch`` or with ``action``,
``output_to_context`` of actions, and conditions with filters. In machines whose ``spec_version`` begins with 0, a
value that is just ``{{ context.x }}`` also keeps its type instead of becoming text.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import flatmachines

from drumbeat.adapters.flatmachines.actions import ACTIONS
from drumbeat.adapters.flatmachines.expressions import bare, is_computed, needs_jinja, whole_expression
from drumbeat.adapters.flatmachines.hooks import INPUT, NAME, SCRATCH
from drumbeat.adapters.flatmachines.machine_files import absolute_refs, find_machine, load_machine
from drumbeat.adapters.flatmachines.settings import MachineSettings, read_settings
from drumbeat.core.errors import InvalidInput

Config = dict[str, Any]
_BARE_FIELDS = ("input", "launch_input", "output", "output_to_context")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the translation of a state machine depends on besides its text: its folder, other machines, and the store."""

    folder: Path  #: the machine's folder; relative paths start here
    machines: Mapping[str, str] = field(default_factory=dict)  #: names of machines that the runner was given → their files
    store: str = ""  #: the URL of the store that the machine will use
    is_child: bool = False  #: whether another machine runs it in the same process
    parents: tuple[Path, ...] = ()


def translate(config: Mapping[str, Any], setting: Setting) -> Config:
    """Return a state machine, rewritten for the installed FlatMachines, with all machines that it uses. Raises InvalidInput."""
    made = copy.deepcopy(dict(config))
    if made.get("spec") != "flatmachine" or not isinstance(made.get("data"), dict):
        raise InvalidInput(f"expected a machine with 'spec: flatmachine' and a mapping 'data', got spec {made.get('spec')!r}")
    data = made["data"]
    absolute_refs(data, setting.folder)
    settings = read_settings(data.get("settings") or {}, setting.folder, setting.store)
    writer = _Writer(data, settings, keeps_types=str(made.get("spec_version", "")).startswith("0."), is_child=setting.is_child)
    writer.write()
    _embed_machines(data, setting)
    made["spec_version"] = flatmachines.__version__
    return made


class _Writer:
    """Rewrites the ``data`` of one state machine in place, so that the installed version of FlatMachines can run it."""

    def __init__(self, data: Config, settings: MachineSettings, *, keeps_types: bool, is_child: bool) -> None:
        self._data = data
        self._states: dict[str, Config] = data.get("states") or {}
        self._settings = settings
        self._keeps_types = keeps_types
        self._heartbeat = None if is_child else settings.heartbeat_interval
        self._dsns = _dsns(data, settings)

    def write(self) -> None:
        lifecycle = self._write_context() | self._write_outputs()
        if self._heartbeat is not None:
            lifecycle["heartbeat_interval"] = self._heartbeat.total_seconds()
        if lifecycle:
            self._hook(self._data, "lifecycle_hooks", lifecycle)
        for state in self._states.values():
            self._write_state(state)

    def _write_context(self) -> Config:
        """Rewrite the machine's context (its variables): input values keep their types, and a worker gets its ``worker_id``."""
        context = self._data.setdefault("context", {}) or {}
        self._data["context"] = context
        if self._heartbeat is not None or any(state.get("action") == "claim_job" for state in self._states.values()):
            context.setdefault("worker_id", "input.worker_id")
        if not self._keeps_types:
            return {"context": {}} if "worker_id" in context else {}
        computed = {key: value for key, value in context.items() if is_computed(value)}
        for key, value in context.items():
            context[key] = None if key in computed else bare(value)
        if computed:
            context[INPUT] = "input"
        return {"context": computed} if computed or "worker_id" in context else {}

    def _write_outputs(self) -> Config:
        if not self._keeps_types:
            return {}
        outputs = {
            name: {key: value for key, value in (state.get("output") or {}).items() if is_computed(value)}
            for name, state in self._states.items()
            if state.get("type") == "final"
        }
        found = {name: values for name, values in outputs.items() if values}
        return {"outputs": found} if found else {}

    def _write_state(self, state: Config) -> None:
        plan = self._write_foreach(state) | self._write_conditions(state)
        if "action" in state and state.get("output_to_context"):
            plan["writes"] = state.pop("output_to_context")
        if self._keeps_types:
            for name in _BARE_FIELDS:
                if isinstance(state.get(name), dict):
                    state[name] = {key: bare(value) for key, value in state[name].items()}
            if "foreach" in state:
                state["foreach"] = bare(state["foreach"])
        if plan or state.get("action") in ACTIONS or self._heartbeat is not None:
            self._hook(state, "hooks", plan)

    def _write_foreach(self, state: Config) -> Config:
        items, name = state.get("foreach"), state.get("as", "item")
        if items is None or "machine" in state:
            return {}
        if "launch" in state:
            counted = (whole_expression(items) or "").startswith("range(")
            state["action"] = "spawn_workers" if counted else "launch_each"
            spawn = {"foreach": items, "as": name, "machine": state.pop("launch"), "input": state.pop("launch_input", {})}
            plan: Config = {"spawn": spawn}
        elif "action" in state:
            plan = {"foreach": items, "as": name}
        else:
            return {}
        del state["foreach"]
        state.pop("as", None)
        return plan

    def _write_conditions(self, state: Config) -> Config:
        if self._data.get("expression_engine", "simple") != "simple":
            return {}
        conditions = {}
        for n, transition in enumerate(state.get("transitions") or ()):
            text = transition.get("condition")
            if text and needs_jinja(text):
                conditions[f"when_{n}"] = text
                transition["condition"] = f"context.{SCRATCH}.when_{n}"
        return {"conditions": conditions} if conditions else {}

    def _hook(self, owner: Config, role: str, plan: Config) -> None:
        """Add the hook ``pool`` with the store URLs and ``plan`` as arguments to the list of hooks ``owner[role]``. If the
        hook is in the list already, set its ``plan``, and the store URLs that it lacks."""
        existing = owner.get(role) or []
        refs = [copy.deepcopy(ref) for ref in (existing if isinstance(existing, list) else [existing])]
        ours = next((n for n, ref in enumerate(refs) if _name(ref) == NAME), None)
        given = refs[ours].get("args", {}) if ours is not None and isinstance(refs[ours], dict) else {}
        plan = plan | ({"pool": self._settings.worker_pool} if self._settings.worker_pool else {})
        ref = {"name": NAME, "args": {**self._dsns, **given, "plan": plan}}
        owner[role] = [*refs, ref] if ours is None else [*refs[:ours], ref, *refs[ours + 1 :]]


def _dsns(data: Config, settings: MachineSettings) -> Config:
    """Return the store URLs for the machine's ``pool`` hooks: those of the first ``pool`` hook that has a ``dsn``. A URL
    that this hook does not give is taken from ``settings``."""
    owners = [data.get("lifecycle_hooks"), *(state.get("hooks") for state in (data.get("states") or {}).values())]
    refs = [ref for owner in owners for ref in (owner if isinstance(owner, list) else [owner])]
    args: Config = next(
        (ref["args"] for ref in refs if _name(ref) == NAME and isinstance(ref, dict) and "dsn" in ref.get("args", {})), {}
    )
    defaults = {"dsn": settings.work, "registration_dsn": settings.registration}
    return {key: value for key in defaults if (value := args.get(key) or defaults[key]) is not None}


def _name(ref: Any) -> str | None:
    name = ref.get("name") if isinstance(ref, dict) else ref
    return name if isinstance(name, str) else None


def _embed_machines(data: Config, setting: Setting) -> None:
    """Add each machine that a state uses to ``machines:``, translated, so that FlatMachines does not read the original file."""
    known: Config = data.get("machines") or {}
    for name in _named_machines(data):
        ref = setting.machines.get(name) or known.get(name) or find_machine(name, setting.folder)
        if ref is not None:
            known[name] = _embedded(ref, setting)
    if known:
        data["machines"] = known


def _named_machines(data: Config) -> Iterator[str]:
    for state in (data.get("states") or {}).values():
        for key in ("machine", "launch"):
            named = state.get(key) or []
            for each in named if isinstance(named, list) else [named]:
                name = _name(each)
                if name is not None:
                    yield name


def _embedded(ref: Any, setting: Setting) -> Any:
    inside = replace(setting, is_child=True)
    if isinstance(ref, Mapping):
        return translate(ref, inside)
    file = Path(ref)
    if file in setting.parents:
        return str(file)
    return translate(load_machine(file), replace(inside, folder=file.parent, parents=(*setting.parents, file)))
