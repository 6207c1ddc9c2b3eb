"""RunPod on this machine, with pods that are processes: a worker that is rented really joins the store."""

import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from drumbeat.core.clock import Clock, SystemClock
from spawn.runpod.machines import SimPod
from spawn.runpod.simulator import KEY, RunPodSimulator
from spawn.runpod.wire import served

CHEAP = 0.44  #: what a pod costs here
CEILING = 2.0  #: what one may cost at most


class LivingSimulator(RunPodSimulator):
    """Starts what a pod was asked to run, and kills it with the pod."""

    def __init__(self, clock: Clock, folder: Path) -> None:
        super().__init__(clock, starts_in=timedelta(milliseconds=200))
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def _add(self, asked: Mapping[str, Any], place: tuple[str, str, str], hidden: timedelta) -> SimPod:
        pod = super()._add(asked, place, hidden)
        program, *arguments = shlex.split(asked["args"])
        assert program == "drumbeat"
        with (self.folder / f"{pod.id}.log").open("wb") as log:
            self.processes[pod.id] = subprocess.Popen(
                [sys.executable, "-m", "drumbeat", *arguments],
                env={**_bare(), **asked["env"], "PYTHONPATH": str(self.folder)},
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        return pod

    def _free(self, pod: SimPod) -> None:
        super()._free(pod)
        if pod.id in self.processes:
            self.processes[pod.id].kill()
            self.processes[pod.id].wait()

    def running(self) -> Sequence[str]:
        """Pods whose process is there."""
        return [name for name, process in self.processes.items() if process.poll() is None]

    def said(self) -> str:
        """All that pods have printed."""
        return "\n".join(file.read_text(errors="replace") for file in sorted(self.folder.glob("pod*.log")))


def _bare() -> dict[str, str]:
    """An environment as a pod has it: nothing of ours, and no key."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("DRUMBEAT", "RUNPOD"))}


@asynccontextmanager
async def pods_here(folder: Path) -> AsyncIterator[tuple[LivingSimulator, dict[str, str]]]:
    """The simulator, and the variables by which a controller finds it; no pod outlives the block."""
    simulator = LivingSimulator(SystemClock(), folder)
    async with served(simulator) as url:
        variables = {
            "RUNPOD_API_KEY": KEY,
            "RUNPOD_API_URL": url,
            "RUNPOD_MAX_PRICE_PER_HOUR": str(CEILING),
            "RUNPOD_WORKER_IMAGE": "drumbeat/worker:1",
        }
        try:
            yield simulator, variables
        finally:
            for process in simulator.processes.values():
                process.kill()
                process.wait()
    assert simulator.violations == []
