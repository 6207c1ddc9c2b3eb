"""Start workers that run a FlatMachines state machine, by running the FlatMachines adapter in a separate process."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from drumbeat.core.errors import SpawnFailed
from drumbeat.spawn.inherited import inherited
from drumbeat.triggers.detached import NOT_INHERITED
from drumbeat.triggers.model import Firing

_RUNNER = "drumbeat.adapters.flatmachines"
_DEFAULT_MAX_WORKERS = 10
_TIMEOUT = 120.0  #: maximum seconds for starting the workers
_LONGEST_ERROR = 500  #: maximum characters of the adapter's error output


async def start_machine_workers(firing: Firing, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Start as many workers as the queue needs, each of which runs a FlatMachines state machine. Returns a beat report.

    A subprocess, the FlatMachines adapter, starts the workers; ``environment`` is added to its environment variables.
    Raises SpawnFailed if the adapter fails."""
    output = json.loads(await _output(command(firing), {**inherited(os.environ, *NOT_INHERITED), **environment}))
    started, pending = output["started"], output["pending"]
    reason = f"{pending} jobs ready, {output['workers']} workers here"
    return {
        "led": True,
        "beat": None,
        "summary": {"ready": pending, "workers": output["workers"], "spawned": len(started)},
        "actions": [{"type": "Spawn", "worker_id": worker_id, "reason": reason} for worker_id in started],
        "why_not": None if started else reason,
        "error": None,
        "ok": True,
        "seconds": None,
    }


def command(firing: Firing) -> Sequence[str]:
    """Return the command line that starts workers for the requested pool by running the FlatMachines adapter."""
    if firing.worker is None or firing.pool_id is None:
        raise ValueError(f"trigger {firing.trigger} needs a FlatMachines file and pool, got {firing.worker}, {firing.pool_id}")
    machines = [f"--machines={name}={file}" for name, file in firing.worker.machines.items()]
    hooks = [f"--hooks={name}={target}" for name, target in firing.worker.hooks.items()]
    cap = str(_DEFAULT_MAX_WORKERS if firing.max_workers is None else firing.max_workers)
    start = ("--start-workers", firing.pool_id, "--max-workers", cap)
    return (sys.executable, "-m", _RUNNER, "--config", firing.worker.file, *machines, *hooks, *start)


async def _output(words: Sequence[str], environment: Mapping[str, str]) -> bytes:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, env=environment, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(_TIMEOUT):
            output, errors = await process.communicate()
    except TimeoutError as exc:
        raise SpawnFailed(
            f"gave up starting workers of FlatMachines file {words[4]} after {_TIMEOUT:.0f} s; some might have started"
        ) from exc
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        error = errors.decode(errors="replace").strip()[-_LONGEST_ERROR:]
        raise SpawnFailed(f"starting workers for FlatMachines file {words[4]} failed, exit code {process.returncode}: {error}")
    return output
