"""Functions that need no store: generate load on a database, read or simulate a fleet's policy, explain a decision, remove
cron triggers."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumbeat.composition.base import TRIGGER_FILES, triggers_file
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
    """Generate load on a database from this process alone, for the duration in ``request`` or until ``stop`` is set."""
    outcome: DriveOutcome = await bench_part("worker.drive").drive_url(url, request, SystemClock(), on_progress, on_note, stop)
    return outcome


async def prepare(url: str, workload: str, scale: float, *, fresh: bool, on_progress: Callable[[str, int, int], None]) -> None:
    """Create a benchmark workload's tables in the database at ``url`` and fill them with data; ``fresh`` drops old tables."""
    await bench_part("worker.drive").prepare_url(url, workload, scale, fresh=fresh, on_progress=on_progress)


def template_schema() -> Mapping[str, Any]:
    """Return the JSON Schema of benchmark templates."""
    schema: Mapping[str, Any] = bench_part("templates").json_schema()
    return schema


def fleet_policy(file: Path | None, settings: Mapping[str, Any]) -> "FleetPolicy":
    """Read a fleet's policy from a file, environment variables and ``settings``. Raises InvalidSettings."""
    from drumbeat.fleet.settings import load_policy

    return load_policy(os.environ, file, **settings)


def simulate_trace(
    trace: Path, policy: str | None, settings: Mapping[str, Any], file: Path | None = None, **around: Any
) -> "Simulated":
    """Simulate how a policy handles the jobs of a trace file, on virtual time. ``around``: fields of SimulatedProvider.

    Raises InvalidInput, InvalidSettings.
    """
    from drumbeat.fleet.simulate import SimulatedProvider
    from drumbeat.fleet.simulate_files import policy_for, simulate_load
    from drumbeat.fleet.trace import read_trace

    return simulate_load(read_trace(trace), policy_for(policy, settings, file), SimulatedProvider(**around))


def trace_jobs(trace: Path) -> Sequence[tuple[float, float]]:
    """Read the jobs of a trace file: arrival and duration of each, in seconds. Raises InvalidInput."""
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
    """Simulate how a policy handles jobs, on virtual time. A job is its arrival and its duration in seconds.

    ``around``: fields of SimulatedProvider. Raises InvalidSettings, and InvalidInput if the simulation would need more than
    ``most_beats`` beats or ``most_workers`` workers.
    """
    from drumbeat.fleet.simulate import SimulatedLoad, SimulatedProvider
    from drumbeat.fleet.simulate_files import policy_for, simulate_load

    chosen, load = (
        policy_for(policy, settings),
        SimulatedLoad(arrivals=[at for at, _ in jobs], durations=[lasts for _, lasts in jobs]),
    )
    beats = (load.arrivals[-1] + sum(load.durations)) / max(chosen.every.total_seconds(), 1e-9)
    if beats > most_beats:
        raise InvalidInput(
            f"jobs: expected one worker to need at most {most_beats} beats for all jobs, got {beats:.0f}; "
            "use fewer or shorter jobs"
        )
    workers = max([chosen.workers, chosen.max_workers, *(each.max_workers or 0 for each in chosen.schedules)])
    if workers > most_workers:
        raise InvalidInput(f"expected at most {most_workers:,} workers, got {workers:,}; simulate more on the command line")
    return simulate_load(load, chosen, SimulatedProvider(**around))


def sentences(found: "BeatExplanation", actions_heading: str = "done:") -> Sequence[str]:
    """Explain a beat's decision in sentences; ``actions_heading`` is the heading of the list of its actions."""
    from drumbeat.fleet.explain import sentences as spelt

    return spelt(found, actions_heading)


async def remove_cron_triggers(file: Path | None) -> Sequence[str]:
    """Remove the lines of a triggers file from the user's crontab, and return them. The file itself is not read: it may be
    invalid, or may no longer exist. ``file`` None: the triggers file in the current folder or, if there is none, each name that
    such a file can have."""
    from drumbeat.triggers import crontab

    found = file or triggers_file()
    files = TRIGGER_FILES if found is None else (found,)
    return [line for each in files for line in await crontab.remove(each.absolute())]
