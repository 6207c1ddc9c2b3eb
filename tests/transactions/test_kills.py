"""Processes that are killed -9 between their own write and the commit leave nothing half done."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "own_transaction.py"


def test_a_killed_process_leaves_no_push_and_no_completion_half_done(postgres_url: str) -> None:
    ran = subprocess.run(
        [sys.executable, SCRIPT, "--rounds", "2", "--url", postgres_url], capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    for figures in json.loads(ran.stdout.splitlines()[-1])["figures"].values():
        assert (figures["kills"], figures["half pushed"], figures["half completed"]) == (4, 0, 0)
        assert figures["half done at the end"] == 0
        assert figures["done"] == figures["jobs"] == 6
