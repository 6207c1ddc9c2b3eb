"""The example that scales local workers 0 → 6 → 0."""

import subprocess
import sys
from pathlib import Path

import pytest

from cli.given import environment, processes_of

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "burst" / "burst.py"


def test_a_burst_brings_six_workers_and_none_is_left(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=tmp_path,
        env=environment(DRUMBEAT_STATE_DIR=str(tmp_path / "state")),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )

    assert done.returncode == 0, done.stderr
    assert "0 → 6 → 0" in done.stdout
    assert "Spawn worker-5" in done.stdout
    assert processes_of(tmp_path) == []
