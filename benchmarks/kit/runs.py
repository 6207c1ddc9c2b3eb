"""Whole runs for benchmarks: from a template to the run's record and all beats of its orchestrator."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drumbeat.bench.model import RunRecord
from drumbeat.composition.offline import prepare
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.run import RunStatus
from drumbeat.runtime.beat import BeatReport
from drumbeat.settings import Settings

BUSY_HOST: Mapping[str, Any] = {"enabled": False}  #: no guardrails: clients and database share this busy machine


class RunFailed(Exception):
    """The run did not complete, so there is nothing to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conducted:
    """A completed run."""

    record: RunRecord
    beats: Sequence[BeatReport]

    @property
    def running(self) -> list[BeatReport]:
        """The beats while the load ran, without those of the run's start and end."""
        return [beat for beat in self.beats if beat.led and (beat.view or {}).get("status") == RunStatus.RUNNING]


@asynccontextmanager
async def open_plane(store: str, folder: Path) -> AsyncIterator[ControlPlane]:
    """Open a control plane on a store of its own."""
    async with open_control_plane(Settings(store=store, state_dir=folder / "state"), create=True) as plane:
        yield plane


async def prepared(url: str, workload: str, scale: float) -> str:
    """Create and fill a workload's tables in the database; returns the database's URL."""
    await prepare(url, workload, scale, fresh=False, on_progress=lambda name, done, whole: None)
    return url


async def conduct(plane: ControlPlane, document: Mapping[str, Any]) -> Conducted:
    """Run a template to its end. Raises RunFailed unless it completed."""
    bench, beats = plane.bench(), list[BeatReport]()
    made, _ = await bench.create(await bench.document(json.dumps(document), is_text=True))
    await bench.start(made.run_id)
    status = await bench.conduct(made.run_id, asyncio.Event(), beats.append)
    record = await bench.record(made.run_id)
    if status is not RunStatus.COMPLETED:
        why = record.result.failure_reason if record.result else "no result"
        raise RunFailed(f"{made.name} ended {status} ({record.run.completion_reason}): {why}")
    return Conducted(record=record, beats=beats)


def beside(name: str) -> list[str]:
    """Return the command that runs a program of the kit."""
    return [sys.executable, str(Path(__file__).with_name(name))]
