"""Contract tests for every target and its engine. A target's test file is a subclass with a fixture or two.

``target``: an open target, on a database without tables of the names used here.
``slow_sql``: a class attribute, a query without values that runs for a minute unless it is cancelled.
"""

from drumbeat.bench.targets.contract.database import DatabaseContract
from drumbeat.bench.targets.contract.engine import EngineContract
from drumbeat.bench.targets.contract.given import LOOKUPS, Running, draw, load, operation, seconds

__all__ = ["LOOKUPS", "Running", "TargetContract", "draw", "load", "operation", "seconds"]


class TargetContract(DatabaseContract, EngineContract):
    """Tests of ``Target`` and ``Engine``."""
