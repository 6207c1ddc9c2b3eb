"""Calls that need no store: drive a database, read a policy, simulate one, explain a decision."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import InvalidInput
from drumbeat.extras import bench_part

if TYPE_CHECKING:
    from drumbeat.bench.model import DriveOutcome, DriveProgress, DriveRequest
    from drumbeat.fleet.explain import BeatExplanation
    from drumbeat.fleet.model import FleetPolicy
    from drumbeat.fleet.simulate_files import Simulated as Simulated


async def drive(
    url: str,
    request: "DriveRequest",
    on_progress: "Callable[[DriveProgress], None]",
    on_note: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> "DriveOutcome":
    """Generate load on a database from this process alone, until the request is done or ``stop`` is set."""
    outcome: DriveOutcome = await bench_part("worker.drive").drive_url(url, request, SystemClock(), on_progress, on_note, stop)
    return outcome


async def prepare(url: str, workload: str, scale: float, *, fresh: bool, on_progress: Callable[[str, int, int], None]) -> None:
    """Create and load a workload's tables in a database under test."""
    await bench_part("worker.drive").prepare_url(url, workload, scale, fresh=fresh, on_progress=on_progress)


def template_schema() -> Mapping[str, Any]:
    """The JSON Schema of benchmark templates."""
    schema: Mapping[str, Any] = bench_part("templates").json_schema()
    return schema


def fleet_policy(file: Path | None, settings: Mapping[str, Any]) -> "FleetPolicy":
    """A fleet's policy from its file, this process's environment and ``settings``. Raises InvalidSettings."""
    from drumbeat.fleet.settings import load_policy

    return load_policy(os.environ, file, **settings)


def simulate_trace(
    trace: Path, policy: str | None, settings: Mapping[str, Any], file: Path | None = None, **around: Any
) -> "Simulated":
    """Simulate a trace's jobs under a policy on virtual time. ``around``: fields of SimulatedProvider.

    Raises InvalidInput, InvalidSettings.
    """
    from drumbeat.fleet.simulate import SimulatedProvider
    from drumbeat.fleet.simulate_files import policy_for, simulate_file

    return simulate_file(trace, policy_for(policy, settings, file), SimulatedProvider(**around))


def trace_jobs(trace: Path) -> Sequence[tuple[float, float]]:
    """The jobs of a trace: arrival and duration of each, in seconds. Raises InvalidInput."""
    from drumbeat.fleet.trace import read_trace

    load = read_trace(trace)
    return list(zip(load.arrivals, load.durations, strict=True))


def simulate_jobs(
    jobs: Sequence[tuple[float, float]],
    policy: str,
    settings: Mapping[str, Any],
    *,
    most_beats: int,
    most_workers: int,
    **around: Any,
) -> "Simulated":
    """Simulate jobs under a policy on virtual time; a job is its arrival and duration in seconds.

    Raises InvalidInput, InvalidSettings.
    """
    from drumbeat.fleet.simulate import SimulatedLoad, SimulatedProvider
    from drumbeat.fleet.simulate_files import policy_for, simulate_load

    chosen, load = (
        policy_for(policy, settings),
        SimulatedLoad(arrivals=[at for at, _ in jobs], durations=[lasts for _, lasts in jobs]),
    )
    beats = (load.arrivals[-1] + sum(load.durations)) / max(chosen.every.total_seconds(), 1e-9)
    if beats > most_beats:
        raise InvalidInput(f"jobs: expected at most {most_beats} beats if one worker did them all, got {beats:.0f}")
    workers = max([chosen.workers, chosen.max_workers, *(each.max_workers or 0 for each in chosen.schedules)])
    if workers > most_workers:
        raise InvalidInput(f"expected {most_workers:,} workers at the most, got {workers:,}; simulate more on the command line")
    return simulate_load(load, chosen, SimulatedProvider(**around))


def sentences(found: "BeatExplanation", deeds: str = "done:") -> Sequence[str]:
    """Why a beat did what it did, in sentences; ``deeds`` is the heading of its list of actions."""
    from drumbeat.fleet.explain import sentences as spelt

    return spelt(found, deeds)
