"""The machines as the seed prints them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

SEEDS = Path("/work/shared/seeds")
NAMES = ("parallelization_checker", "job_worker", "stale_worker_reaper")
CONFIG = Path(__file__).parents[3] / "examples" / "distributed_worker" / "config"


def printed() -> dict[str, str]:
    """Each machine's YAML, by its name. Skips where the seed is not at hand."""
    found = next(iter(sorted(SEEDS.glob("003*.txt"))), None)
    if found is None:
        pytest.skip("the seed is not at hand")
    blocks = re.findall(r"```yaml\n(spec: flatmachine\n.*?)```", found.read_text(encoding="utf-8"), re.DOTALL)
    return {yaml.safe_load(block)["data"]["name"]: block for block in blocks}


def kept(name: str) -> dict[str, Any]:
    """The copy in the example."""
    machine: dict[str, Any] = yaml.safe_load((CONFIG / f"{name}.yml").read_text(encoding="utf-8"))
    return machine
