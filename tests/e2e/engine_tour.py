"""A tour of an engine by the ordinary commands: a burst of jobs, a fleet that grows and shrinks, a search for the maximum."""

import json
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cli.given import PATIENCE, eventually
from e2e.engine_site import Site

JOBS = 12
WORKERS = 3
NAP = 0.5  #: seconds that a job takes
JOB = f"command:sh -c 'read payload; sleep {NAP}; echo \"$payload\"'"
SHORT = ("idle_timeout", "overcapacity_idle_timeout", "stabilisation", "cooldown_down")
FIND_MAX = """
name: tour
target: {{url: "{url}"}}
workload: {{standard: read-only, scale: 0.01}}
load_mode: FIND_MAX_CONCURRENCY
find_max: {{start_connections: 2, step_duration_seconds: 3}}
scaling: {{mode: BOUNDED, min_workers: 2, max_workers: 2, max_connections: 8}}
timing: {{warmup_seconds: 1}}
guardrails: {{enabled: false}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TourFigures:
    """What a tour showed."""

    first_result: float  #: seconds from a push to its result, less the job's own time, by a fleet without workers
    burst: float  #: seconds from a push of jobs to the result of the last
    most_workers: int  #: of the fleet
    shrunk: float  #: seconds from the last result until no worker is left
    best_connections: int | None  #: the result of the search
    verdict: str


def tour(site: Site, target: str) -> TourFigures:
    """Run it on a site whose engine has no workers. ``target``: an empty database that its workers reach."""
    burst = _burst(site)
    first_result, most, shrunk = _fleet(site)
    best, verdict = _find_max(site, target)
    eventually(lambda: site.running == [], "nothing is left at the engine")
    return TourFigures(
        first_result=first_result, burst=burst, most_workers=most, shrunk=shrunk, best_connections=best, verdict=verdict
    )


def _burst(site: Site) -> float:
    site.run("pool", "create", "burst", "--handler", JOB, "--max-workers", str(WORKERS), "--engine", site.engine)
    site.push("burst", JOBS)
    site.run("pool", "check", "burst")
    eventually(lambda: site.done("burst") == JOBS, "all jobs are done")
    return _waits(site, "burst")[-1]


def _fleet(site: Site) -> tuple[float, int, float]:
    """Push to a fleet without workers; returns the first wait, the most workers, and how long it takes to shrink to none."""
    chosen = ("min_workers=0", f"max_workers={WORKERS}", *(f"{name}=1s" for name in SHORT))
    bounds = [word for each in chosen for word in ("--set", each)]
    site.run("fleet", "create", "grows", "--policy", "queue_cover", *bounds, "--handler", JOB, "--engine", site.engine)
    with site.started("fleet", "run", "grows", "--every", "0.5s"):
        eventually(lambda: len(site.json("beats", "list", "grows")) > 1, "the controller runs")
        site.push("grows", JOBS)
        most, deadline = 0, time.monotonic() + PATIENCE
        while site.done("grows") < JOBS:
            assert time.monotonic() < deadline, site.run("fleet", "explain", "grows").output
            most = max(most, len(_live(site, "grows")))
        done = time.monotonic()
        eventually(lambda: _live(site, "grows") == [], "the fleet has shrunk to nothing")
        return _waits(site, "grows")[0], most, time.monotonic() - done


def _waits(site: Site, pool: str) -> list[float]:
    """Seconds from the push of each job to its result, by the store's clock, without the time that the job itself takes."""
    rows = [json.loads(line) for line in site.run("pool", "list", pool, "--json").output.splitlines()]
    return sorted((_time(row["finished_at"]) - _time(row["created_at"])).total_seconds() - NAP for row in rows)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _live(site: Site, pool: str) -> list[Any]:
    return [each for each in site.json("workers", "list", pool) if each["status"] in {"active", "draining"}]


def _find_max(site: Site, target: str) -> tuple[int | None, str]:
    (site.folder / "tour.yml").write_text(FIND_MAX.format(url=target))
    site.run("bench", "prepare", target, "--workload", "read-only", "--scale", "0.01")
    found = json.loads(site.run("bench", "run", "tour.yml", "--engine", site.engine, "--json").output)
    return (found.get("find_max_result") or {}).get("best_connections"), str(found.get("verdict"))
