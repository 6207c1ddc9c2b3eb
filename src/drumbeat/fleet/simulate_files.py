"""Simulate traces from files, and plot the results."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.fleet.model import FleetPolicy, PolicyName, Provider
from drumbeat.fleet.money import tariff
from drumbeat.fleet.settings import legacy_policy, load_policy, with_settings
from drumbeat.fleet.simulate import SimulatedController, SimulatedLoad, SimulatedProvider, SimulationResult, simulate
from drumbeat.fleet.simulate.draw import as_page, as_svg, as_text

MAX_WORKERS = 1000  #: the default max_workers of a simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Results of a simulation with a new fleet (cold) and one that has run the jobs before (warm), and ways to show them."""

    outcome: SimulationResult  #: cold run: the fleet begins without workers and has learnt nothing yet
    warm: SimulationResult | None = None  #: warm run: the same jobs a second time; None: too long to run twice

    def figures(self) -> dict[str, Any]:
        """Return the figures of a new fleet and, as ``warm``, of one that has run the jobs before; without values over time."""
        return {**_figures(self.outcome), "warm": _figures(self.warm) if self.warm else None}

    def lines(self, width: int = 72) -> Sequence[str]:
        return as_text(self.outcome.series, width)

    def draw(self, file: Path) -> None:
        """Write a plot: an HTML page if the name ends in .html, an image if it ends in .svg. Raises InvalidInput."""
        if file.suffix not in (".html", ".svg"):
            raise InvalidInput(f"expected a plot's name to end in .html or .svg, got {file}")
        try:
            file.write_text(as_page(self.outcome) if file.suffix == ".html" else as_svg(self.outcome), encoding="utf-8")
        except OSError as exc:
            raise InvalidInput(f"cannot write the plot to {file}: {exc.strerror}") from exc


def _figures(outcome: SimulationResult) -> dict[str, Any]:
    return {name: value for name, value in asdict(outcome).items() if name != "series"}


def policy_for(name: str | None, settings: Mapping[str, Any], file: Path | None = None) -> FleetPolicy:
    """Return the policy to simulate: from the file, or else the policy ``name``, with these settings. Raises InvalidInput.

    Without a file, ``queue_ratio`` has its usual bounds; the other policies have from 0 to ``MAX_WORKERS`` workers.
    """
    if name is not None and name not in {each.value for each in PolicyName}:
        raise InvalidInput(f"expected one of {', '.join(PolicyName)}, got the policy {name!r}")
    if file is not None:
        return with_settings(load_policy({}, file, **({"policy": name} if name else {})), settings)
    if name == PolicyName.QUEUE_RATIO:
        return with_settings(legacy_policy(), settings)
    return with_settings(FleetPolicy(policy=PolicyName(name or "lag_aware"), min_workers=0, max_workers=MAX_WORKERS), settings)


def simulate_load(load: SimulatedLoad, policy: FleetPolicy, provider: SimulatedProvider) -> Simulated:
    """Simulate jobs on virtual time with a new fleet, and again with one that has run them before. Raises InvalidInput."""
    _check_any(policy)
    return Simulated(outcome=simulate_once(load, policy, provider), warm=_warm(load, policy, provider))


def _warm(load: SimulatedLoad, policy: FleetPolicy, provider: SimulatedProvider) -> SimulationResult | None:
    try:
        return simulate_once(load.twice(), policy, provider, skip=len(load))
    except InvalidInput:  # once was possible, so twice takes too long
        return None


def simulate_once(load: SimulatedLoad, policy: FleetPolicy, provider: SimulatedProvider, skip: int = 0) -> SimulationResult:
    """Simulate jobs under a policy on virtual time. The first ``skip`` jobs are not counted. Raises InvalidInput."""
    return simulate(
        load,
        SimulatedController(policy),
        _as_paid(policy, provider),
        name=policy.policy.value,
        every=policy.every.total_seconds(),
        concurrency=policy.concurrency,
        sleeps=not policy.schedules and not policy.min_workers,
        skip=skip,
    )


def _as_paid(policy: FleetPolicy, provider: SimulatedProvider) -> SimulatedProvider:
    """Return the provider with the price and billing granule that count: as in a real fleet, the policy's come first."""
    quoted = Provider(price_per_hour=provider.price_per_hour, billing_granule=provider.granule)
    rates = tariff(policy, quoted)
    return replace(provider, price_per_hour=rates.price, granule=rates.granule)


def _check_any(policy: FleetPolicy) -> None:
    """Raise InvalidInput for a policy that never starts a worker: its jobs would wait forever."""
    most = max([policy.max_workers, *(each.max_workers or 0 for each in policy.schedules)])
    if (policy.workers if policy.policy is PolicyName.FIXED else most) == 0:
        raise InvalidInput("expected a policy that starts workers, got one that allows 0; the jobs would wait forever")
