"""Older and alternative names of template fields, and their translation to the canonical names."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from drumbeat.bench.model import LoadMode, ScalingMode
from drumbeat.bench.templates.blocks import CUSTOM, FindMaxBlock, ObjectiveBlock
from drumbeat.bench.templates.document import OVERALL, kind_named
from drumbeat.core.plain import short_repr

Path = tuple[str, ...]

_STEPS = {"start_concurrency": "start_connections", "concurrency_increment": "connections_increment"}


def _spellings() -> Iterator[tuple[Path, Path]]:
    for name in ("warmup", "duration"):
        seconds = f"{name}_seconds"
        for old in ((name,), (seconds,), ("timing", name), ("workload", seconds)):
            yield old, ("timing", seconds)
    for name in (*FindMaxBlock.model_fields, *_STEPS):
        yield (name,), ("find_max", _STEPS.get(name, name))
        yield ("find_max", name), ("find_max", _STEPS.get(name, name))
    for name in [f"custom_{kind.lower()}_{what}" for kind in CUSTOM for what in ("query", "pct")]:
        yield (name,), ("workload", name)
    for name, new in {"mix_preset": "preset", "think_time": "think_time_ms", "think_time_ms": "think_time_ms"}.items():
        yield (name,), ("workload", new)
        yield ("workload", name), ("workload", new)
    for name in ("max_cpu_percent", "max_memory_percent"):
        yield (f"autoscale_{name}",), ("guardrails", name)
    for name in ObjectiveBlock.model_fields:
        yield ("slo", name), ("slo", "overall", name)
    yield ("target", "table_name"), ("target", "table")
    yield ("target", "connection_id"), ("target", "connection")
    yield ("use_cached_result",), ("target", "use_cached_result")
    for name in ("name", "size"):
        yield (f"warehouse_{name}",), ("target", "warehouse", name)
        yield ("target", f"warehouse_{name}"), ("target", "warehouse", name)
    yield ("scaling", "bounds_patience_intervals"), ("bounds_patience_intervals",)
    yield ("scaling", "allocation"), ("allocation",)


SPELLINGS: Mapping[Path, Path] = {old: new for old, new in _spellings() if old != new}

_BLOCKS = frozenset(
    {"target", "workload", "timing", "find_max", "scaling", "guardrails", "slo", "prices", "recording", "sharding", "tags"}
)
_OBSOLETE: Mapping[Path, str] = dict.fromkeys(
    (("min_concurrency",), ("scaling", "min_concurrency")), "was renamed; use scaling.min_connections"
)


def canonical(fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a template's fields under their canonical names, and all problems, such as one field given under two names."""
    tree: dict[str, Any] = {name: deepcopy(value) for name, value in fields.items() if value is not None or name not in _BLOCKS}
    problems = [f"{'.'.join(path)}: {reason}" for path, reason in _OBSOLETE.items() if _take(tree, path) is not _NOTHING]
    adaptive = tree.pop("autoscale_enabled", None)
    for old, new in SPELLINGS.items():
        value = _take(tree, old)
        if value is not _NOTHING:
            problems += _put(tree, old, new, value)
    problems += _migrate(tree, adaptive)
    return tree, problems


def canonical_path(path: Path) -> Path:
    """Return the canonical path of a field. ``path`` can be an older name of the field, or already the canonical path."""
    path = SPELLINGS.get(path, path)
    return ("slo", kind_named(path[1]) or OVERALL, *path[2:]) if len(path) > 1 and path[0] == "slo" else path


_NOTHING = object()


def _take(tree: dict[str, Any], path: Path) -> Any:
    """Remove the value at a path of the template and return it; _NOTHING if there is none."""
    node: Any = tree
    for name in path[:-1]:
        node = node.get(name) if isinstance(node, dict) else None
    return node.pop(path[-1], _NOTHING) if isinstance(node, dict) else _NOTHING


def _put(tree: dict[str, Any], old: Path, new: Path, value: Any) -> list[str]:
    """Store a value under its canonical name. Returns an error message if that name already has another value."""
    node: Any = tree
    for name in new[:-1]:
        node = node.setdefault(name, {}) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        return []
    if node.setdefault(new[-1], value) != value:
        return [
            f"{'.'.join(old)}: is another name of {'.'.join(new)}, which is {short_repr(node[new[-1]])}, "
            f"not {short_repr(value)}; remove one of them"
        ]
    return []


def _migrate(tree: dict[str, Any], adaptive: Any) -> list[str]:
    """Translate the old field ``autoscale_enabled``: true to scaling mode AUTO, false to FIXED. Newer fields override it."""
    if adaptive is None:
        return []
    if not isinstance(adaptive, bool):
        return [f"autoscale_enabled: expected true or false, got {short_repr(adaptive)}"]
    scaling, guardrails = tree.setdefault("scaling", {}), tree.setdefault("guardrails", {})
    if not isinstance(scaling, dict) or not isinstance(guardrails, dict):
        return []
    scaling.setdefault("mode", ScalingMode.AUTO if adaptive else ScalingMode.FIXED)
    if adaptive:
        guardrails.setdefault("mode", "soft")
    else:
        _fix(tree, scaling)
    return []


def _fix(tree: Mapping[str, Any], scaling: dict[str, Any]) -> None:
    """Configure one worker with all connections, as older templates (before the ``scaling`` block existed) intended."""
    counts_all = str(tree.get("load_mode", LoadMode.CONCURRENCY)).upper() == LoadMode.CONCURRENCY
    connections = tree.get("concurrent_connections", 10 if counts_all else None)
    scaling.setdefault("min_workers", 1)
    if connections is not None:
        scaling.setdefault("min_connections", connections)
