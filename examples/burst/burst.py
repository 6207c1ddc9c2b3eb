"""A burst of jobs scales local workers 0 → 6 → 0; then prints the fleet's decisions: ``python burst.py``."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
JOBS = 30
TIMEOUT = 180.0  #: seconds


def drumbeat(*arguments: str, given: str | None = None) -> str:
    """Run a command and return its output."""
    done = subprocess.run(command(*arguments), input=given, capture_output=True, text=True, check=False, env=environment())
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def command(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-m", "drumbeat", *arguments]


def environment() -> dict[str, str]:
    """The environment of workers: they import their handler from this folder."""
    return {**os.environ, "PYTHONPATH": str(HERE)}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def wait_until_all_is_done() -> list[int]:
    """Wait until the jobs are done and no worker is left; return each number of workers on the way."""
    seen, deadline = [0], time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        status: dict[str, Any] = json.loads(drumbeat("fleet", "status", "burst", "--json"))
        workers = len(status["workers"])
        if workers != seen[-1]:
            say(f"{workers} workers")
            seen.append(workers)
        jobs = status["summary"].get("status", {}).get("queued_tasks", JOBS)
        if len(seen) > 1 and not workers and not jobs:
            return seen
        time.sleep(0.3)
    raise SystemExit(f"the jobs were not done within {TIMEOUT:.0f} s; see: drumbeat fleet explain burst")


def main() -> None:
    drumbeat("fleet", "create", "burst", "--file", str(HERE / "fleet.yml"), "--handler", "work:draw")
    lines = "".join(json.dumps({"n": n, "seconds": 2}) + "\n" for n in range(JOBS))
    drumbeat("pool", "push", "burst", "-", given=lines)
    say(f"{JOBS} jobs pushed, no workers yet")
    controller = subprocess.Popen(command("fleet", "run", "burst"), stdout=subprocess.DEVNULL, env=environment())
    try:
        seen = wait_until_all_is_done()
    finally:
        controller.send_signal(signal.SIGTERM)
        controller.wait()
    say(f"0 → {max(seen)} → {seen[-1]}")
    say(drumbeat("fleet", "events", "burst"))


if __name__ == "__main__":
    main()
