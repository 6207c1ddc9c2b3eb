"""The fields of the template form: labels, placeholders and when each is shown. Data only, no UI elements."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from drumbeat.bench.model import FailThreshold, GuardrailMode, LoadMode, ScalingMode
from drumbeat.composition.offline import template_schema

Tree = dict[str, Any]


class WorkloadType(StrEnum):
    """How a template specifies its workload."""

    PRESET = "preset"  #: a mix of the four kinds of operations, with SQL generated for the table
    STANDARD = "standard"  #: a standard benchmark workload
    CUSTOM = "custom"  #: custom SQL and weights for the four kinds
    OPERATIONS = "operations"  #: custom operations, each with its own kind, SQL and weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """Load mode, scaling mode and workload type, which decide which fields are shown."""

    load: LoadMode
    scaling: ScalingMode
    way: WorkloadType


Shown = Callable[[Modes], bool]


class FieldKind(StrEnum):
    """The type of a field's value, which decides its input element."""

    TEXT = "text"
    SQL = "sql"
    WHOLE = "whole"
    NUMBER = "number"
    CHOICE = "choice"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateField:
    """A field of the form: its path in the document, its label, and when it is shown."""

    path: str
    label: str
    kind: FieldKind = FieldKind.NUMBER
    shown: Shown = field(default=lambda modes: True)
    hint: str = ""  #: placeholder, shown while the field is empty
    choices: tuple[str, ...] = ()


def _in(*modes: LoadMode) -> Shown:
    return lambda at: at.load in modes


def _scaled(*modes: ScalingMode) -> Shown:
    return lambda at: at.scaling in modes


def _by(*ways: WorkloadType) -> Shown:
    return lambda at: at.way in ways


KINDS = ("point_lookup", "range_scan", "insert", "update")
NO_LIMIT = "No limit"
CHOICE_TEXTS: Mapping[str, str] = {  #: texts of choices whose name is not clear
    GuardrailMode.SOFT: "lower the load (soft)", GuardrailMode.HARD: "fail the run (hard)",
    GuardrailMode.WARN: "only warn (warn)",
    FailThreshold.ALL: "all workers", FailThreshold.MAJORITY: "most workers", FailThreshold.ANY: "any worker",
}  # fmt: skip
_CONCURRENCY, _QPS, _SEARCH = LoadMode.CONCURRENCY, LoadMode.QPS, LoadMode.FIND_MAX_CONCURRENCY
_GUARDED = _scaled(ScalingMode.AUTO, ScalingMode.BOUNDED)


@cache
def enum_of(block: str, name: str) -> tuple[str, ...]:
    """Return the allowed values of a template field, from the template schema."""
    found = template_schema()["$defs"][block]["properties"][name]["enum"]
    return tuple(word for word in found if word is not None)


def workload() -> tuple[TemplateField, ...]:
    return (
        TemplateField(
            path="workload.preset",
            label="Preset mix",
            kind=FieldKind.CHOICE,
            shown=_by(WorkloadType.PRESET),
            choices=enum_of("WorkloadBlock", "preset"),
        ),
        TemplateField(
            path="workload.standard",
            label="Standard benchmark",
            kind=FieldKind.CHOICE,
            shown=_by(WorkloadType.STANDARD),
            choices=enum_of("WorkloadBlock", "standard"),
        ),
        TemplateField(path="workload.scale", label="Scale factor", shown=_by(WorkloadType.STANDARD), hint="1"),
        *(
            TemplateField(
                path=f"workload.custom_{kind}_pct",
                label=f"{_title(kind)} (%)",
                kind=FieldKind.WHOLE,
                shown=_by(WorkloadType.CUSTOM),
                hint="0",
            )
            for kind in KINDS
        ),
        *(
            TemplateField(
                path=f"workload.custom_{kind}_query",
                label=f"{_title(kind)} SQL",
                kind=FieldKind.SQL,
                shown=_by(WorkloadType.CUSTOM),
            )
            for kind in KINDS
        ),
        TemplateField(path="workload.think_time_ms", label="Think time (ms)", hint="0"),
    )


def _title(kind: str) -> str:
    return kind.replace("_", " ").capitalize()


LOAD = (
    TemplateField(
        path="concurrent_connections",
        label="Total connections",
        kind=FieldKind.WHOLE,
        shown=lambda at: at.load is _CONCURRENCY or at.scaling is ScalingMode.AUTO,
        hint="10",
    ),
    TemplateField(path="target_qps", label="Target operations/s", shown=_in(_QPS), hint="100"),
    TemplateField(
        path="starting_threads",
        label="Initial connections",
        kind=FieldKind.WHOLE,
        shown=_in(_QPS),
        hint="min workers × min connections",
    ),
    TemplateField(
        path="max_thread_increase",
        label="Max connections added per interval",
        kind=FieldKind.WHOLE,
        shown=_in(_QPS),
        hint="15",
    ),
    TemplateField(
        path="bounds_patience_intervals",
        label="Checks below target at max connections before the run ends",
        kind=FieldKind.WHOLE,
        shown=lambda at: at.load is _QPS and at.scaling is ScalingMode.BOUNDED,
        hint="3",
    ),
    TemplateField(
        path="find_max.start_connections", label="Initial connections", kind=FieldKind.WHOLE, shown=_in(_SEARCH), hint="5"
    ),
    TemplateField(
        path="find_max.connections_increment",
        label="Connections added per step",
        kind=FieldKind.WHOLE,
        shown=_in(_SEARCH),
        hint="10",
    ),
    TemplateField(path="find_max.step_duration_seconds", label="Step duration (s)", shown=_in(_SEARCH), hint="30"),
    TemplateField(
        path="find_max.qps_stability_pct", label="Max throughput drop vs last stable step (%)", shown=_in(_SEARCH), hint="5"
    ),
    TemplateField(
        path="find_max.latency_stability_pct", label="Max p95 increase vs first step (%)", shown=_in(_SEARCH), hint="20"
    ),
    TemplateField(path="find_max.max_error_rate_pct", label="Max error rate (%)", shown=_in(_SEARCH), hint="1"),
    TemplateField(path="timing.warmup_seconds", label="Warmup (s)", hint="30"),
    TemplateField(path="timing.duration_seconds", label="Duration (s)", shown=_in(_CONCURRENCY, _QPS), hint="300"),
)
_BOUNDED = _scaled(ScalingMode.BOUNDED)
_SET = _scaled(ScalingMode.BOUNDED, ScalingMode.FIXED)
_MOST_CONNECTIONS = "scaling.max_connections"
#: label of ``scaling.max_connections``, and of concurrent_connections in load modes QPS and FIND_MAX_CONCURRENCY with scaling
#: mode AUTO; only one of the two fields is shown
MAX_PER_WORKER = "Max connections per worker"
SCALING = (
    TemplateField(path="scaling.min_workers", label="Min workers", kind=FieldKind.WHOLE, shown=_SET, hint="1"),
    TemplateField(path="scaling.max_workers", label="Max workers", kind=FieldKind.WHOLE, shown=_BOUNDED, hint=NO_LIMIT),
    TemplateField(
        path="scaling.min_connections", label="Min connections per worker", kind=FieldKind.WHOLE, shown=_SET, hint="1"
    ),
    TemplateField(path=_MOST_CONNECTIONS, label=MAX_PER_WORKER, kind=FieldKind.WHOLE, shown=_BOUNDED, hint=NO_LIMIT),
    TemplateField(path="scaling.engine", label="Worker engine", kind=FieldKind.TEXT, hint="local"),
)
#: labels of the minimum fields in scaling mode FIXED, where they set the exact number of workers and connections
FIXED_LABELS: Mapping[str, str] = {"scaling.min_workers": "Workers", "scaling.min_connections": "Connections per worker"}
GUARDRAILS = (
    TemplateField(path="guardrails.max_cpu_percent", label="Max host CPU (%)", shown=_GUARDED, hint="80"),
    TemplateField(path="guardrails.max_memory_percent", label="Max host memory (%)", shown=_GUARDED, hint="85"),
    TemplateField(
        path="guardrails.mode",
        label="When exceeded",
        kind=FieldKind.CHOICE,
        shown=_GUARDED,
        choices=tuple(GuardrailMode),
        hint="soft",
    ),
    TemplateField(path="guardrails.back_off_percent", label="Reduce connections by (%)", shown=_GUARDED, hint="20"),
    TemplateField(
        path="guardrails.patience_intervals",
        label="Checks above the limit before failing",
        kind=FieldKind.WHOLE,
        shown=_GUARDED,
        hint="3",
    ),
    TemplateField(
        path="guardrails.fail_threshold",
        label="Fail when exceeded on",
        kind=FieldKind.CHOICE,
        shown=_GUARDED,
        choices=tuple(FailThreshold),
        hint="all",
    ),
)
OBJECTIVES = (
    *(
        TemplateField(path=f"slo.{kind}.{name}", label=f"{_title(kind.lower())} {label}", hint="off")
        for kind in ("overall", *(kind.upper() for kind in KINDS))
        for name, label in (("p95_ms", "p95 (ms)"), ("p99_ms", "p99 (ms)"), ("max_error_pct", "max error rate (%)"))
    ),
    TemplateField(path="slo.overall.min_availability_pct", label="Overall min availability (%)", hint="off"),
)
MORE = (
    TemplateField(
        path="on_worker_lost",
        label="When a worker is lost",
        kind=FieldKind.TEXT,
        hint="fail, replace, or tolerate:2 (up to 2 workers lost)",
    ),
    TemplateField(path="prices.worker_hour", label="Worker price per hour"),
    TemplateField(path="prices.target_hour", label="Database price per hour"),
    TemplateField(path="prices.credit", label="Price of a Snowflake credit"),
    TemplateField(path="prices.currency", label="Currency of the prices", kind=FieldKind.TEXT, hint="USD"),
    TemplateField(path="target.query_timeout_seconds", label="Query timeout (s)", hint="30"),
    TemplateField(path="target.use_cached_result", label="Query cache", kind=FieldKind.SWITCH, hint="on; Snowflake: off"),
    TemplateField(path="seed", label="Random seed", kind=FieldKind.WHOLE, hint="0"),
)


def every_field() -> tuple[TemplateField, ...]:
    """Return all fields of the form."""
    return (*workload(), *LOAD, *SCALING, *GUARDRAILS, *OBJECTIVES, *MORE)


def field_labels(modes: Modes, tree: Mapping[str, Any]) -> Mapping[str, tuple[str, str]]:
    """Return label and placeholder, by path, of the form fields whose texts depend on the modes or on the document."""
    changing = (*FIXED_LABELS, LOAD[0].path, _MOST_CONNECTIONS)
    labels = {each.path: (each.label, each.hint) for each in (*LOAD, *SCALING) if each.path in changing}
    limit = get(tree, LOAD[0].path)
    if limit and not LOAD[0].shown(modes) and not LOAD[0].shown(modes_of(tree)):
        labels[_MOST_CONNECTIONS] = (labels[_MOST_CONNECTIONS][0], str(limit))
    if modes.scaling is ScalingMode.FIXED:
        labels |= {path: (label, "1") for path, label in FIXED_LABELS.items()}
    if modes.load is not LoadMode.CONCURRENCY:
        labels[LOAD[0].path] = (MAX_PER_WORKER, "limited by host")
    return labels


def get(tree: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path of a document; None if there is none."""
    found: Any = tree
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def put(tree: Tree, path: str, value: Any) -> None:
    """Set the value at a path of a document; the value None removes the path."""
    block, _, last = path.rpartition(".")
    if value is None and not isinstance(get(tree, block) if block else tree, Mapping):
        return
    for name in block.split(".") if block else ():
        tree = tree.setdefault(name, {})
    if value is None:
        tree.pop(last, None)
    else:
        tree[last] = value


def way_of(tree: Mapping[str, Any]) -> WorkloadType:
    """Return how a template document specifies its workload: by preset, standard benchmark, custom SQL or operations."""
    workload_block = tree.get("workload") or {}
    if workload_block.get("operations"):
        return WorkloadType.OPERATIONS
    if workload_block.get("standard"):
        return WorkloadType.STANDARD
    has_custom = any(workload_block.get(f"custom_{kind}_{part}") is not None for kind in KINDS for part in ("pct", "query"))
    return WorkloadType.CUSTOM if has_custom and not workload_block.get("preset") else WorkloadType.PRESET


def missing(tree: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return path and message of each missing value that the form requires although the template schema does not."""
    found = []
    if not tree.get("name"):
        found.append(("name", "expected a name"))
    if get(tree, "scaling.mode") == ScalingMode.FIXED:
        fixed = FIXED_LABELS.items()
        found += [
            (path, f"expected the number of {name.lower()}: FIXED needs both")
            for path, name in fixed
            if get(tree, path) is None
        ]
    return found


def modes_of(tree: Mapping[str, Any]) -> Modes:
    """Return load mode, scaling mode and workload type of a template document, with defaults for those it does not set."""
    load, scaling = tree.get("load_mode"), get(tree, "scaling.mode")
    return Modes(
        load=LoadMode(load or LoadMode.CONCURRENCY), scaling=ScalingMode(scaling or ScalingMode.AUTO), way=way_of(tree)
    )


def filled(tree: Mapping[str, Any], typed: Mapping[str, Any], modes: Modes) -> Tree:
    """Return the template document with the typed values (by path), without values of fields that the chosen modes hide."""
    made: Tree = deepcopy(dict(tree))
    before = modes_of(tree)
    for each in every_field():
        if not each.shown(modes):
            if _is_removed(each, before, modes):
                put(made, each.path, None)
        elif each.path in typed:
            put(made, each.path, typed[each.path])
    if modes.way is not before.way:
        put(made, "workload.operations", None)
    put(made, "scaling.mode", modes.scaling.value)
    put(made, "load_mode", modes.load.value)
    _drop_cleared(made, tree)
    return made


def _is_removed(each: TemplateField, before: Modes, modes: Modes) -> bool:
    """Whether to remove a hidden field's value: the old modes (``before``) showed it, or the workload type changed."""
    return each.shown(before) or (each.path.startswith("workload.") and modes.way is not before.way)


def _drop_cleared(made: Tree, before: Mapping[str, Any]) -> None:
    """Remove each objective that is empty because the user has cleared all its fields."""
    if "slo" in made:
        previous = before.get("slo") or {}
        made["slo"] = {kind: block for kind, block in made["slo"].items() if block or previous.get(kind) == block}
