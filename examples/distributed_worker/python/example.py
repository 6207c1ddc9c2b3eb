"""Paths and settings of this example, and how its machines are run."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drumbeat.adapters.flatmachines import DrumbeatRegistrationBackend, DrumbeatWorkBackend
from drumbeat.adapters.flatmachines.runner import main

HERE = Path(__file__).resolve().parent
CONFIG = HERE.parent / "config"
DATA = Path(os.environ.get("EXAMPLE_DATA", HERE.parent / "data"))
STORE = os.environ.get("DRUMBEAT_STORE", f"sqlite:///{DATA}/worker.sqlite")
POOL = "echo"


def run(machine: str, given: Mapping[str, Any]) -> int:
    """Run a machine of config/ with Drumbeat's runner; the store and the workers' logs are in data/."""
    os.environ |= {"DRUMBEAT_STORE": STORE, "DRUMBEAT_STATE_DIR": str(DATA / "workers")}
    processor, echo = CONFIG / "echo_processor.yml", HERE / "hooks.py"
    named = (f"--machines=actual_job_processor={processor}", f"--hooks=echo={echo}:EchoHooks")
    return main(["--config", str(CONFIG / f"{machine}.yml"), *named, "--input", json.dumps(given)])


def work_backend() -> DrumbeatWorkBackend:
    return DrumbeatWorkBackend(STORE)


def registration_backend() -> DrumbeatRegistrationBackend:
    return DrumbeatRegistrationBackend(STORE, pool_id=POOL)


def say(found: Any) -> None:
    sys.stdout.write(json.dumps(found, indent=2, default=str) + "\n")
