"""Small soaks: workers killed and frozen at random moments, servers killed under them; the judge is the benchmarks' own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servers.redis import Unavailable, installation

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.slow


def soak(script: str, store: str, *options: str, code: int = 0) -> dict[str, Any]:
    """What a soak of one store came to."""
    if store == "redis":
        try:
            installation()
        except Unavailable as exc:
            pytest.skip(f"Redis is not available: {exc}")
    command = [sys.executable, str(BENCHMARKS / f"{script}.py"), "--stores", store, *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, bool(ended.stdout)) == (code, True), ended.stdout + ended.stderr
    figures: dict[str, Any] = json.loads(ended.stdout)["figures"][store]
    return figures


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgresql", "redis"])
def test_every_job_of_killed_workers_is_done_once_or_poisoned(store: str, new_database: Callable[[], str]) -> None:
    given = ("--url", f"{new_database()}?connections=3") if store == "postgresql" else ()

    came = soak("kill_rounds", store, "--rounds", "4", *given)

    assert came["faults"] == []
    assert came["done"] + came["poisoned"] == came["jobs"] == 4 * 15 + 1
    assert came["crashes"] > 0


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_without_fencing_the_judge_sees_late_results(store: str) -> None:
    came = soak("kill_rounds", store, "--rounds", "1", "--unfenced", code=1)

    assert any(" finished it, but claim " in fault for fault in came["faults"])


@pytest.mark.parametrize("store", ["postgresql", "redis"])
def test_nothing_is_lost_when_the_server_is_killed_and_started_again_under_its_workers(store: str) -> None:
    came = soak("server_restarts", store, "--restarts", "1")

    assert came["faults"] == []
    assert came["done"] + came["poisoned"] == came["jobs"] > 0
    assert came["workers replaced"] <= 1  # one that was given no processor for long may have left by itself
