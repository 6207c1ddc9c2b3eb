"""Whole benchmark runs for benchmarks: a template in, its record and every beat of its orchestrator out."""

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

BUSY_HOST: Mapping[str, Any] = {"enabled": False}  #: guardrails: clients and database share this machine, which shall be busy


class RunFailed(Exception):
    """A run that did not complete has nothing to be measured by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conducted:
    """One run that completed."""

    record: RunRecord
    beats: Sequence[BeatReport]

    @property
    def running(self) -> list[BeatReport]:
        """The beats that saw the load: neither starting nor ending."""
        return [beat for beat in self.beats if beat.led and (beat.view or {}).get("status") == RunStatus.RUNNING]


@asynccontextmanager
async def open_plane(store: str, folder: Path) -> AsyncIterator[ControlPlane]:
    """A control plane over a store of one's own; its workers find this Python's Drumbeat."""
    async with open_control_plane(Settings(store=store, state_dir=folder / "state"), create=True) as plane:
        yield plane


async def prepared(url: str, workload: str, scale: float) -> str:
    """The target's URL, once its tables are loaded."""
    await prepare(url, workload, scale, fresh=False, on_progress=lambda name, done, whole: None)
    return url


async def conduct(plane: ControlPlane, document: Mapping[str, Any]) -> Conducted:
    """Run a template from here to its end. Raises RunFailed unless it completed."""
    desk, beats = plane.bench(), list[BeatReport]()
    made, _ = await desk.create(await desk.document(json.dumps(document), is_text=True))
    await desk.start(made.run_id)
    status = await desk.conduct(made.run_id, asyncio.Event(), beats.append)
    record = await desk.record(made.run_id)
    if status is not RunStatus.COMPLETED:
        why = record.result.failure_reason if record.result else "no result"
        raise RunFailed(f"{made.name} ended {status} ({record.run.completion_reason}): {why}")
    return Conducted(record=record, beats=beats)


def beside(name: str) -> list[str]:
    """The command line of a program of the kit."""
    return [sys.executable, str(Path(__file__).with_name(name))]
