"""Which fields a template's editor has, and when each is shown (seed 000, UI integration). Values alone, no elements."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from drumbeat.bench.model import FailThreshold, GuardrailMode, LoadMode, ScalingMode
from drumbeat.composition.offline import template_schema

Tree = dict[str, Any]


class Way(StrEnum):
    """How a workload is said."""

    PRESET = "preset"  #: a mix of the four kinds, their SQL made for the table
    STANDARD = "standard"  #: a workload everybody knows
    CUSTOM = "custom"  #: SQL and weights of one's own
    OPERATIONS = "operations"  #: whole operations: only as YAML


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """What decides which fields there are."""

    load: LoadMode
    scaling: ScalingMode
    way: Way


Shown = Callable[[Modes], bool]


class FieldKind(StrEnum):
    """What somebody types into a field."""

    TEXT = "text"
    SQL = "sql"
    WHOLE = "whole"
    NUMBER = "number"
    CHOICE = "choice"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateField:
    """One field: its path in the document, its label, when it is there."""

    path: str
    label: str
    kind: FieldKind = FieldKind.NUMBER
    shown: Shown = field(default=lambda modes: True)
    usual: str = ""  #: what stands where nothing is typed
    choices: tuple[str, ...] = ()


def _in(*modes: LoadMode) -> Shown:
    return lambda at: at.load in modes


def _scaled(*modes: ScalingMode) -> Shown:
    return lambda at: at.scaling in modes


def _by(*ways: Way) -> Shown:
    return lambda at: at.way in ways


KINDS = ("point_lookup", "range_scan", "insert", "update")
NO_LIMIT = "No limit"
_CONCURRENCY, _QPS, _SEARCH = LoadMode.CONCURRENCY, LoadMode.QPS, LoadMode.FIND_MAX_CONCURRENCY
_GUARDED = _scaled(ScalingMode.AUTO, ScalingMode.BOUNDED)


def enum_of(block: str, name: str) -> tuple[str, ...]:
    """The words a field of a template may be, from its schema."""
    found = template_schema()["$defs"][block]["properties"][name]["enum"]
    return tuple(word for word in found if word is not None)


def workload() -> tuple[TemplateField, ...]:
    return (
        TemplateField(
            path="workload.preset",
            label="Mix",
            kind=FieldKind.CHOICE,
            shown=_by(Way.PRESET),
            choices=enum_of("WorkloadBlock", "preset"),
        ),
        TemplateField(
            path="workload.standard",
            label="Workload",
            kind=FieldKind.CHOICE,
            shown=_by(Way.STANDARD),
            choices=enum_of("WorkloadBlock", "standard"),
        ),
        TemplateField(path="workload.scale", label="Scale", shown=_by(Way.STANDARD), usual="1"),
        *(
            TemplateField(
                path=f"workload.custom_{kind}_pct",
                label=f"{_spelt(kind)} %",
                kind=FieldKind.WHOLE,
                shown=_by(Way.CUSTOM),
                usual="0",
            )
            for kind in KINDS
        ),
        *(
            TemplateField(
                path=f"workload.custom_{kind}_query", label=f"{_spelt(kind)} SQL", kind=FieldKind.SQL, shown=_by(Way.CUSTOM)
            )
            for kind in KINDS
        ),
        TemplateField(path="workload.think_time_ms", label="Think time (ms)", usual="0"),
    )


def _spelt(kind: str) -> str:
    return kind.replace("_", " ").capitalize()


LOAD = (
    TemplateField(path="concurrent_connections", label="Connections in all", kind=FieldKind.WHOLE, usual="10"),
    TemplateField(path="target_qps", label="Target operations a second", shown=_in(_QPS), usual="100"),
    TemplateField(
        path="starting_threads",
        label="Connections at the start",
        kind=FieldKind.WHOLE,
        shown=_in(_QPS),
        usual="as few as may be",
    ),
    TemplateField(
        path="max_thread_increase",
        label="Max connections added per interval",
        kind=FieldKind.WHOLE,
        shown=_in(_QPS),
        usual="15",
    ),
    TemplateField(
        path="bounds_patience_intervals",
        label="Intervals at the ceiling",
        kind=FieldKind.WHOLE,
        shown=lambda at: at.load is _QPS and at.scaling is ScalingMode.BOUNDED,
        usual="3",
    ),
    TemplateField(
        path="find_max.start_connections", label="Start with connections", kind=FieldKind.WHOLE, shown=_in(_SEARCH), usual="5"
    ),
    TemplateField(
        path="find_max.connections_increment", label="Add each step", kind=FieldKind.WHOLE, shown=_in(_SEARCH), usual="10"
    ),
    TemplateField(path="find_max.step_duration_seconds", label="Step (s)", shown=_in(_SEARCH), usual="30"),
    TemplateField(path="find_max.qps_stability_pct", label="Throughput may fall (%)", shown=_in(_SEARCH), usual="5"),
    TemplateField(path="find_max.latency_stability_pct", label="p95 may rise (%)", shown=_in(_SEARCH), usual="20"),
    TemplateField(path="find_max.max_error_rate_pct", label="Max error rate (%)", shown=_in(_SEARCH), usual="1"),
    TemplateField(path="timing.warmup_seconds", label="Warmup (s)", usual="30"),
    TemplateField(path="timing.duration_seconds", label="Duration (s)", shown=_in(_CONCURRENCY, _QPS), usual="300"),
)
_BOUNDED = _scaled(ScalingMode.BOUNDED)
_SET = _scaled(ScalingMode.BOUNDED, ScalingMode.FIXED)
SCALING = (
    TemplateField(path="scaling.min_workers", label="Min workers", kind=FieldKind.WHOLE, shown=_SET, usual="1"),
    TemplateField(path="scaling.max_workers", label="Max workers", kind=FieldKind.WHOLE, shown=_BOUNDED, usual=NO_LIMIT),
    TemplateField(path="scaling.min_connections", label="Min connections", kind=FieldKind.WHOLE, shown=_SET, usual="1"),
    TemplateField(
        path="scaling.max_connections", label="Max connections", kind=FieldKind.WHOLE, shown=_BOUNDED, usual=NO_LIMIT
    ),
)
#: FIXED has no bounds to speak of: its workers and connections are what they are (seed 000)
FIXED_LABELS: Mapping[str, str] = {"scaling.min_workers": "Workers", "scaling.min_connections": "Connections"}
CEILING = "Connections of a worker at most"  #: what concurrent_connections are in QPS and find-max (seed 000)
GUARDRAILS = (
    TemplateField(path="guardrails.max_cpu_percent", label="Max Host CPU %", shown=_GUARDED, usual="80"),
    TemplateField(path="guardrails.max_memory_percent", label="Max Host Memory %", shown=_GUARDED, usual="85"),
    TemplateField(
        path="guardrails.mode",
        label="When over",
        kind=FieldKind.CHOICE,
        shown=_GUARDED,
        choices=tuple(GuardrailMode),
        usual="soft",
    ),
    TemplateField(path="guardrails.back_off_percent", label="Back off by (%)", shown=_GUARDED, usual="20"),
    TemplateField(
        path="guardrails.patience_intervals", label="Intervals before failing", kind=FieldKind.WHOLE, shown=_GUARDED, usual="3"
    ),
    TemplateField(
        path="guardrails.fail_threshold",
        label="Fail when over",
        kind=FieldKind.CHOICE,
        shown=_GUARDED,
        choices=tuple(FailThreshold),
        usual="all",
    ),
)
OBJECTIVES = (
    *(
        TemplateField(path=f"slo.{kind}.{name}", label=f"{_spelt(kind.lower())} {label}", usual="off")
        for kind in ("overall", *(kind.upper() for kind in KINDS))
        for name, label in (("p95_ms", "p95 (ms)"), ("p99_ms", "p99 (ms)"), ("max_error_pct", "max error rate (%)"))
    ),
    TemplateField(path="slo.overall.min_availability_pct", label="Overall min availability (%)", usual="off"),
)
MORE = (
    TemplateField(
        path="on_worker_lost", label="When a worker is lost", kind=FieldKind.TEXT, usual="fail, replace or tolerate:N"
    ),
    TemplateField(path="prices.worker_hour", label="Worker an hour"),
    TemplateField(path="prices.target_hour", label="Database an hour"),
    TemplateField(path="target.query_timeout_seconds", label="Query timeout (s)", usual="30"),
    TemplateField(path="target.use_cached_result", label="Query cache", kind=FieldKind.SWITCH, usual="on"),
    TemplateField(path="seed", label="Seed", kind=FieldKind.WHOLE, usual="another each time"),
)


def every_field() -> tuple[TemplateField, ...]:
    """All that the form asks."""
    return (*workload(), *LOAD, *SCALING, *GUARDRAILS, *OBJECTIVES, *MORE)


def wording(modes: Modes) -> Mapping[str, tuple[str, str]]:
    """The label of each field that is called otherwise in some mode, and what stands where nothing is typed; by its path."""
    told = {each.path: (each.label, each.usual) for each in (*LOAD, *SCALING) if each.path in (*FIXED_LABELS, LOAD[0].path)}
    if modes.scaling is ScalingMode.FIXED:
        told |= {path: (label, "1") for path, label in FIXED_LABELS.items()}
    if modes.load is not LoadMode.CONCURRENCY:
        told[LOAD[0].path] = (CEILING, "by its host")
    return told


def get(tree: Mapping[str, Any], path: str) -> Any:
    """What a document says at a path; None where it says nothing."""
    found: Any = tree
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def put(tree: Tree, path: str, value: Any) -> None:
    """Say something at a path; None: say nothing there."""
    block, _, last = path.rpartition(".")
    if value is None and not isinstance(get(tree, block) if block else tree, Mapping):
        return
    for name in block.split(".") if block else ():
        tree = tree.setdefault(name, {})
    if value is None:
        tree.pop(last, None)
    else:
        tree[last] = value


def way_of(tree: Mapping[str, Any]) -> Way:
    """How a document says its workload."""
    said = tree.get("workload") or {}
    if said.get("operations"):
        return Way.OPERATIONS
    if said.get("standard"):
        return Way.STANDARD
    has_own = any(said.get(f"custom_{kind}_{part}") is not None for kind in KINDS for part in ("pct", "query"))
    return Way.CUSTOM if has_own and not said.get("preset") else Way.PRESET


def missing(tree: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a document has to say before it is kept, though a template could be kept without: path and words."""
    found = []
    if not tree.get("name"):
        found.append(("name", "expected a template to have one"))
    if get(tree, "scaling.mode") == ScalingMode.FIXED:
        fixed = FIXED_LABELS.items()
        found += [
            (path, f"expected how many {name.lower()}: FIXED needs both") for path, name in fixed if get(tree, path) is None
        ]
    return found


def modes_of(tree: Mapping[str, Any]) -> Modes:
    """The modes a document is in, said or not."""
    load, scaling = tree.get("load_mode"), get(tree, "scaling.mode")
    return Modes(
        load=LoadMode(load or LoadMode.CONCURRENCY), scaling=ScalingMode(scaling or ScalingMode.AUTO), way=way_of(tree)
    )


def filled(tree: Mapping[str, Any], typed: Mapping[str, Any], modes: Modes) -> Tree:
    """The document with what was typed, by path, put in. Of the rest only what modes chosen since do not have goes."""
    made: Tree = deepcopy(dict(tree))
    before = modes_of(tree)
    for each in every_field():
        if not each.shown(modes):
            if _goes(each, before, modes):
                put(made, each.path, None)
        elif each.path in typed:
            put(made, each.path, typed[each.path])
    if modes.way is not before.way:
        put(made, "workload.operations", None)
    put(made, "scaling.mode", modes.scaling.value)
    put(made, "load_mode", modes.load.value)
    _drop_emptied(made, tree)
    return made


def _goes(each: TemplateField, before: Modes, modes: Modes) -> bool:
    """Whether a field that is not shown goes: it was shown until the modes were changed, or says a workload another way."""
    return each.shown(before) or (each.path.startswith("workload.") and modes.way is not before.way)


def _drop_emptied(made: Tree, before: Mapping[str, Any]) -> None:
    """A service level all of whose fields were emptied is none."""
    if "slo" in made:
        kept = before.get("slo") or {}
        made["slo"] = {kind: block for kind, block in made["slo"].items() if block or kept.get(kind) == block}
