"""Each rule on who may import whom is broken once in a copy of the source, and the rule that catches it is named."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from thorough import THOROUGH

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "drumbeat"
PYPROJECT = ROOT / "pyproject.toml"
TOOLS = Path(sys.executable).parent

BREAKS = [
    ("core decide", "core/log.py", "from drumbeat.store.interface import Store"),
    ("pure", "core/log.py", "import uuid"),
    ("pure", "fleet/model/view.py", "import socket"),
    ("pure", "bench/model/plan.py", "import msgspec"),
    ("pure", "bench/results/report/html.py", "from pathlib import Path"),
    ("store", "store/memory/state.py", "from drumbeat.spawn.interface import Spawner"),
    ("store", "store/open.py", "from drumbeat.settings import Settings"),
    ("spawn", "spawn/local.py", "from drumbeat.store.interface import Store"),
    ("yaml", "yaml_text.py", "from drumbeat.store.interface import Store"),
    ("yaml", "user_path.py", "from drumbeat.store.interface import Store"),
    ("drivers", "runtime/beat.py", "import asyncpg"),
    ("drivers", "store/sql/rows.py", "import sqlite3"),
    ("pytest", "store/memory/state.py", "import pytest"),
    ("runtime", "runtime/beat.py", "from drumbeat.store.sql.store import SqlStore"),
    ("runtime", "runtime/beat.py", "from drumbeat.spawn.local import LocalSpawner"),
    ("capabilities runtime", "runtime/beat.py", "from drumbeat.fleet.model import FleetPolicy"),
    ("model decide", "pool/model.py", "from drumbeat.store.interface import Change"),
    ("decide", "fleet/decide/scale.py", "from drumbeat.store.interface import Store"),
    ("decide decide-is-pure", "fleet/policies/queue.py", "from drumbeat.fleet.observe import observe"),
    ("decide", "bench/control/modes/qps.py", "from drumbeat.spawn.interface import Order"),
    ("decide-is-pure", "fleet/decide/scale.py", "from drumbeat.core.clock import Clock"),
    ("decide-is-pure pure", "fleet/decide/scale.py", "import asyncio, time, random, logging, os"),
    ("observe-act", "fleet/observe.py", "from drumbeat.fleet.decide import decide"),
    ("observe-act", "fleet/act.py", "from drumbeat.fleet.observe import observe"),
    ("observe-act", "pool/act.py", "from drumbeat.runtime.beat import ControlLoop"),
    ("workload", "fleet/workload.py", "from drumbeat.store.interface import Store"),
    ("workload", "bench/driver/connection.py", "from drumbeat.runtime.beat import ControlLoop"),
    ("capabilities workload", "pool/worker/workload.py", "from drumbeat.fleet.workload import Metronome"),
    ("capabilities", "triggers/cron.py", "from drumbeat.fleet.observe import observe"),
    ("below-the-root", "triggers/cron.py", "from drumbeat.settings import Settings"),
    ("control-plane", "composition/plane.py", "from drumbeat.cli.render import console"),
    ("surfaces", "cli/render.py", "from drumbeat.spawn.local import LocalSpawner"),
    ("surfaces", "web/api.py", "from drumbeat.store.sql.store import SqlStore"),
    ("surfaces", "adapters/flatmachines/work.py", "from drumbeat.runtime.worker import Workload"),
    ("surfaces-and-drivers", "cli/render.py", "import sqlite3"),
    ("surfaces-and-drivers", "web/api.py", "import asyncpg"),
    ("no-circles", "pool/payload.py", "from drumbeat.pool.worker.attempt import AttemptRunner"),
    ("front-page", "runtime/beat.py", "from drumbeat import __version__"),
]

ALLOWED = [
    ("core/log.py", "import bisect, math, struct"),
    ("store/sql/postgres.py", "import asyncpg"),
    ("spawn/docker/client.py", "import docker"),
    ("bench/targets/postgres.py", "import asyncpg"),
    ("bench/targets/contract/engine.py", "import pytest"),
    ("runtime/beat.py", "from drumbeat.spawn.interface import Spawner"),
    ("pool/act.py", "from drumbeat.store.interface import Store"),
    ("pool/act.py", "from drumbeat.runtime.recovery import Hands"),
    ("pool/observe.py", "from drumbeat.runtime.snapshot import look"),
    ("pool/worker/workload.py", "from drumbeat.runtime.worker import Workload"),
    ("bench/control/decide.py", "from drumbeat.bench.control.modes.qps import decide"),
    ("bench/control/modes/qps.py", "from drumbeat.core.decision import Decision"),
    ("web/api.py", "from drumbeat.composition.plane import ControlPlane"),
    ("cli/render.py", "from drumbeat.core.worker import Worker"),
]

BANNED = """\
import asyncio as aio, time as clock, datetime as dates
from time import time_ns
dates.datetime.now()
dates.datetime.utcnow()
clock.time()
aio.create_task(work())
aio.ensure_future(work())
aio.wait_for(work(), 1)
"""


def contracts() -> dict[str, str]:
    """The names of the contracts, by id."""
    settings: dict[str, Any] = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    return {contract["id"]: contract["name"] for contract in settings["tool"]["importlinter"]["contracts"]}


def add_line(package: Path, file: str, line: str) -> None:
    """Add one line to a file of the copy; a folder that does not exist yet appears with it."""
    path = package / file
    for folder in reversed(path.relative_to(package).parents):
        (package / folder).mkdir(exist_ok=True)
        (package / folder / "__init__.py").touch()
    with path.open("a", encoding="utf-8") as text:
        text.write(f"\n{line}\n")


def broken(folder: Path) -> tuple[set[str], str]:
    """The ids of the contracts that the package in a folder breaks, and all that the linter said."""
    command = [str(TOOLS / "lint-imports"), "--config", str(PYPROJECT), "--no-cache", "--no-logo"]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False)
    ids = {rule for rule, name in contracts().items() if f"{name} BROKEN" in done.stdout}
    assert bool(ids) == bool(done.returncode), done.stdout + done.stderr
    return ids, done.stdout


def importing(rule: str, file: str, line: str) -> str:
    """How the linter tells of the import that a line is; circles are told by the names of the siblings."""
    if rule == "no-circles":
        return f".{Path(file).stem} -> .{line.split()[1].split('.')[len(Path(file).parts)]}"
    return f"drumbeat.{file.removesuffix('.py').replace('/', '.')} -> {line.split()[1].rstrip(',')}"


def what_breaks(rule: str, said: str) -> str:
    """What the linter said of one contract."""
    name = contracts()[rule]
    told = said.partition(f"\n{name}\n{'-' * len(name)}\n")[2]
    return re.split(r"\n-{9,}\n", told)[0]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the source."""
    return Path(shutil.copytree(SOURCE, tmp_path / "drumbeat", ignore=shutil.ignore_patterns("__pycache__")))


def test_the_source_keeps_every_rule(package: Path) -> None:
    ids, said = broken(package.parent)

    assert ids == set()
    assert f"{len(contracts())} kept, 0 broken" in said


def test_every_broken_rule_is_caught_where_it_is_broken(package: Path) -> None:
    for _, file, line in BREAKS:
        add_line(package, file, line)

    ids, said = broken(package.parent)

    assert ids == set(contracts())
    missed = [
        (rule, importing(rule, file, line))
        for rules, file, line in BREAKS
        for rule in rules.split()
        if importing(rule, file, line) not in what_breaks(rule, said)
    ]
    assert missed == []


@pytest.mark.parametrize(("rules", "file", "line"), BREAKS if THOROUGH else BREAKS[:1])
def test_a_broken_rule_is_the_only_one_that_complains(package: Path, rules: str, file: str, line: str) -> None:
    add_line(package, file, line)

    ids, said = broken(package.parent)

    assert ids == set(rules.split())
    assert all(importing(rule, file, line) in said for rule in rules.split())


def test_what_the_rules_allow_is_let_through(package: Path) -> None:
    for file, line in ALLOWED:
        add_line(package, file, line)

    ids, said = broken(package.parent)

    assert ids == set(), said


def test_every_rule_is_broken_by_a_test() -> None:
    assert {rule for rules, _, _ in BREAKS for rule in rules.split()} == set(contracts())


def test_every_file_and_folder_at_the_top_has_a_rule() -> None:
    text = PYPROJECT.read_text(encoding="utf-8").partition("[tool.importlinter]")[2]
    found = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}

    ruled = {name for name in found if f'"drumbeat.{name}"' in text or f'"*.{name}"' in text}

    assert found - ruled == {"__init__"}


@pytest.mark.parametrize("file", ["src/drumbeat/fleet/decide.py", "src/drumbeat/cli/demo.py", "tests/test_demo.py"])
def test_looking_at_the_wall_or_letting_a_task_go_is_caught(file: str) -> None:
    assert ruff(file, BANNED) == [2, 3, 4, 5, 6, 7, 8]


def test_the_clock_alone_may_look_at_the_wall() -> None:
    assert ruff("src/drumbeat/core/clock.py", BANNED) == []


def ruff(file: str, code: str) -> list[int]:
    """The lines of this code in which ruff finds something banned, were it in this file of the project."""
    command = [str(TOOLS / "ruff"), "check", "--no-cache", "--select", "TID251", "--output-format", "json"]
    done = subprocess.run(
        [*command, "--stdin-filename", file, "-"], cwd=ROOT, input=code, capture_output=True, text=True, timeout=60, check=False
    )
    return sorted({found["location"]["row"] for found in json.loads(done.stdout)})
