"""Simulations of traces that are in files, and their pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.fleet.settings import load_policy, seed_policy, with_settings
from drumbeat.fleet.simulate import Deciding, SimulatedLoad, SimulatedProvider, SimulationResult, simulate
from drumbeat.fleet.simulate.draw import as_page, as_svg, as_text
from drumbeat.fleet.trace import read_trace

MANY = 1000  #: workers that may be, where nobody says how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A simulation's outcome, and ways to show it."""

    outcome: SimulationResult  #: cold: a fleet that begins without workers and has learnt nothing yet
    warm: SimulationResult | None = None  #: of the same jobs when they come a second time; None: too long to be run twice

    def figures(self) -> dict[str, Any]:
        """The cold figures by name, and under ``warm`` the warm ones, without the courses."""
        return {**_figures(self.outcome), "warm": _figures(self.warm) if self.warm else None}

    def lines(self, width: int = 72) -> Sequence[str]:
        return as_text(self.outcome.course, width)

    def draw(self, file: Path) -> None:
        """Write the picture: a page if the name ends in .html, a drawing if in .svg. Raises InvalidInput."""
        if file.suffix not in (".html", ".svg"):
            raise InvalidInput(f"expected a plot's name to end in .html or .svg, got {file}")
        try:
            file.write_text(as_page(self.outcome) if file.suffix == ".html" else as_svg(self.outcome), encoding="utf-8")
        except OSError as exc:
            raise InvalidInput(f"expected to write the plot to {file}, got: {exc.strerror}") from exc


def _figures(outcome: SimulationResult) -> dict[str, Any]:
    return {name: value for name, value in asdict(outcome).items() if name != "course"}


def policy_for(name: str | None, settings: Mapping[str, Any], file: Path | None = None) -> FleetPolicy:
    """A policy to simulate: the file's, or the seed's with its own bounds, or any other with none, but for what is set.

    Raises InvalidInput.
    """
    if name is not None and name not in {each.value for each in PolicyName}:
        raise InvalidInput(f"expected one of {', '.join(PolicyName)}, got the policy {name!r}")
    if file is not None:
        return with_settings(load_policy({}, file, **({"policy": name} if name else {})), settings)
    if name == PolicyName.QUEUE_RATIO:
        return with_settings(seed_policy(), settings)
    return with_settings(FleetPolicy(policy=PolicyName(name or "lag_aware"), min_workers=0, max_workers=MANY), settings)


def simulate_file(trace: Path, policy: FleetPolicy, around: SimulatedProvider) -> Simulated:
    """Run the jobs of a file under a policy. Raises InvalidInput."""
    return simulate_load(read_trace(trace), policy, around)


def simulate_load(load: SimulatedLoad, policy: FleetPolicy, around: SimulatedProvider) -> Simulated:
    """Run jobs under a policy on virtual time, cold and warm. Raises InvalidInput."""
    _check_any(policy)
    return Simulated(outcome=simulate_once(load, policy, around), warm=_warm(load, policy, around))


def _warm(load: SimulatedLoad, policy: FleetPolicy, around: SimulatedProvider) -> SimulationResult | None:
    try:
        return simulate_once(load.twice(), policy, around, skip=len(load))
    except InvalidInput:  # of jobs that could be run once: they take too long to be run twice
        return None


def simulate_once(load: SimulatedLoad, policy: FleetPolicy, around: SimulatedProvider, skip: int = 0) -> SimulationResult:
    """Run jobs under a policy on virtual time. The first ``skip`` are not counted. Raises InvalidInput."""
    return simulate(
        load,
        Deciding(policy),
        around,
        name=policy.policy.value,
        every=policy.every.total_seconds(),
        concurrency=policy.concurrency,
        sleeps=not policy.schedules and not policy.min_workers,
        skip=skip,
    )


def _check_any(policy: FleetPolicy) -> None:
    """Raise InvalidInput for a policy that never has a worker: its jobs would wait for ever."""
    most = max([policy.max_workers, *(each.max_workers or 0 for each in policy.schedules)])
    if (policy.workers if policy.policy is PolicyName.FIXED else most) == 0:
        raise InvalidInput("expected a policy that starts workers, got one that allows 0; the jobs would wait for ever")
