"""The traits (properties) that all spawners for workers on other machines have in common."""

from datetime import timedelta
from typing import Protocol

from drumbeat.spawn.interface import SpawnerTraits


class TraitSettings(Protocol):
    """The part of an engine's settings on which the engine's traits depend."""

    @property
    def billing_granule(self) -> timedelta: ...
    @property
    def usual_start(self) -> timedelta: ...
    @property
    def settle(self) -> timedelta: ...


def remote_traits(
    name: str, settings: TraitSettings, price_per_hour: float, preemption_notice: timedelta | None = None
) -> SpawnerTraits:
    """Return the traits of a spawner with unique names, exit codes and logs, whose workers outlive the controller."""
    return SpawnerTraits(
        name=name,
        unique_names=True,
        outlives_controller=True,
        reports_exit_codes=True,
        reports_logs=True,
        preemption_notice=preemption_notice,
        price_per_hour=price_per_hour,
        billing_granule=settings.billing_granule,
        usual_start=settings.usual_start,
        settle=settings.settle,
        owns_all=True,
    )
