"""The seeds' own JSON examples: copies of them, and those in the seeds where these are at hand."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SEEDS = Path(__file__).parents[3].parent / "shared" / "seeds"

_COMMENT = re.compile(r"//[^\n]*")
_BLOCK = re.compile(r"```json\n(.*?)```", re.DOTALL)
_MARKS = ("load_mode", "scaling", "guardrails", "sharding")

EXAMPLES: dict[str, dict[str, Any]] = {
    "bounded": {
        "scaling": {"mode": "BOUNDED", "min_workers": 2, "max_workers": 10, "min_connections": 50, "max_connections": 500}
    },
    "bounded, connections unbounded": {"scaling": {"mode": "BOUNDED", "max_workers": 10}},
    "fixed": {
        "load_mode": "CONCURRENCY",
        "concurrent_connections": 1000,
        "scaling": {"mode": "FIXED", "min_workers": 5, "min_connections": 200},
    },
    "bounded qps": {
        "load_mode": "QPS",
        "target_qps": 5000,
        "scaling": {"mode": "BOUNDED", "min_workers": 2, "max_workers": 10, "min_connections": 25, "max_connections": 500},
    },
    "guardrails": {
        "guardrails": {
            "max_cpu_percent": 80,
            "max_memory_percent": 85,
            "mode": "soft",
            "back_off_percent": 20,
            "patience_intervals": 3,
            "fail_threshold": "all",
        }
    },
    "old": {"autoscale_enabled": True, "autoscale_max_cpu_percent": 80, "autoscale_max_memory_percent": 85},
    "new": {
        "scaling": {"mode": "AUTO"},
        "guardrails": {"max_cpu_percent": 80, "max_memory_percent": 85, "mode": "soft"},
    },
    "sharding": {
        "sharding": {"enabled": True, "total_partitions": 100, "key_column": "CUSTOMER_ID", "key_range": [1, 1000000]}
    },
}


def in_the_seeds() -> Iterator[dict[str, Any]]:
    """Every JSON object of the seeds that is part of a template; a block may hold more than one."""
    for file in sorted(SEEDS.glob("*.txt")):
        for block in _BLOCK.findall(file.read_text(encoding="utf-8")):
            yield from (each for each in _objects(_COMMENT.sub("", block)) if _is_template(each))


def blocks_in_the_seeds() -> Iterator[str]:
    """Every block as it stands, comments and all, that is one template."""
    for file in sorted(SEEDS.glob("*.txt")):
        for block in _BLOCK.findall(file.read_text(encoding="utf-8")):
            found = list(_objects(_COMMENT.sub("", block)))
            if len(found) == 1 and _is_template(found[0]):
                yield block


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder, place = json.JSONDecoder(), 0
    while (place := text.find("{", place)) >= 0:
        found, place = decoder.raw_decode(text, place)
        yield found


def _is_template(fields: dict[str, Any]) -> bool:
    return any(name in _MARKS or name.startswith("autoscale") for name in fields)
