"""Tests that spawners must pass. A spawner's test class inherits the contracts that fit it, and provides their fixtures.

``SpawnerContract``: for every spawner. Fixtures:
    ``spawner``: an open spawner without instances in the pools used here.
    ``order``: an ``OrderFactory`` for workers that this spawner can start.
``ExitCodeContract``, ``PoolListContract``, ``VolumeContract``: in addition, for spawners that declare ``reports_exit_codes``,
    implement ``ListsPools``, or declare ``expands_volumes``. ``volume``: the name of a volume of 100 GB.
``ProcessContract``: for spawners that run real commands; includes ``SpawnerContract`` and ``ExitCodeContract``. Fixtures:
    ``controllers``: a ``Controllers`` that opens spawners on the same instances, as several controllers would.
    ``written``: the folders in which spawner and provider write files, to look for secrets in them.
    ``spawner`` and ``order`` are provided by ``ProcessContract``.
``SurvivorContract``: for spawners of ``ProcessContract`` that declare ``outlives_controller``; includes ``ProcessContract``.
"""

from drumbeat.spawn.contract.base import (
    ANN,
    BOB,
    OTHER_POOL,
    POOL,
    UNKNOWN,
    ExitCodeContract,
    OrderFactory,
    PoolListContract,
    SpawnerContract,
    VolumeContract,
    alive,
)
from drumbeat.spawn.contract.process_setup import Controllers
from drumbeat.spawn.contract.processes import ProcessContract, SurvivorContract

__all__ = [
    "ANN",
    "BOB",
    "OTHER_POOL",
    "POOL",
    "UNKNOWN",
    "Controllers",
    "ExitCodeContract",
    "OrderFactory",
    "PoolListContract",
    "ProcessContract",
    "SpawnerContract",
    "SurvivorContract",
    "VolumeContract",
    "alive",
]
