"""What every target and its engine must do, as tests. A target's test file is a subclass and a fixture or two.

``target``: an open target, on a database that has no table of the names used here.
``slow_sql``: a class attribute, a query without values that runs for a minute unless it is stopped.
"""

from drumbeat.bench.targets.contract.database import DatabaseContract
from drumbeat.bench.targets.contract.engine import EngineContract
from drumbeat.bench.targets.contract.given import LOOKUPS, Running, draw, load, operation, seconds

__all__ = ["LOOKUPS", "Running", "TargetContract", "draw", "load", "operation", "seconds"]


class TargetContract(DatabaseContract, EngineContract):
    """Every sentence of ``Target`` and ``Engine``."""
