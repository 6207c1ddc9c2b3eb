"""The systemd units: what systemd says of them, and whether their commands exist."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))
HARDENED = ("NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "RestrictSUIDSGID=yes", "UMask=0077")


def settings_of(unit: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in unit.read_text().splitlines() if re.match(r"[A-Za-z]+=", line))


def test_there_is_a_unit_for_each_kind_of_process() -> None:
    names = [unit.name for unit in UNITS]

    assert names == ["drumbeat-fleet@.service", "drumbeat-pool-worker@.service", "drumbeat-serve.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_it(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / unit.name.replace("@", "@papers")
    copy.write_text(unit.read_text().replace("/opt/drumbeat/bin/drumbeat", "/bin/true"))

    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False)

    said = [line for line in done.stderr.splitlines() if copy.name in line]
    assert said == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_has_few_rights_and_starts_again(unit: Path) -> None:
    text, settings = unit.read_text(), settings_of(unit)

    assert [line for line in HARDENED if line not in text.splitlines()] == []
    assert (settings["User"], settings["Restart"], settings["EnvironmentFile"]) == (
        "drumbeat",
        "always",
        "/etc/drumbeat/drumbeat.env",
    )


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_its_command_exists(unit: Path) -> None:
    from drumbeat.cli.main import app

    program, *words = shlex.split(settings_of(unit)["ExecStart"])
    command = words[: 1 if words[0] == "serve" else 2]

    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "300"})

    assert program == "/opt/drumbeat/bin/drumbeat"
    assert shown.exit_code == 0
    assert [word for word in words if word.startswith("--") and word not in shown.output] == []


def test_workers_survive_the_end_of_a_controller_but_a_worker_has_time_to_finish() -> None:
    modes = {unit.name: settings_of(unit)["KillMode"] for unit in UNITS}

    assert modes["drumbeat-serve.service"] == modes["drumbeat-fleet@.service"] == "process"
    worker = settings_of(next(unit for unit in UNITS if "worker" in unit.name))
    assert (worker["KillMode"], worker["ExecStart"].split()[-1], worker["TimeoutStopSec"]) == ("mixed", "5m", "330")
