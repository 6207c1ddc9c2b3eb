"""Tests that every database under test and its engine must pass. A test file subclasses ``TargetContract`` and defines:

``target``, a fixture: an open target. The tests create and drop the table ``contract_items`` in its database.
``slow_sql``, a class attribute: a query without placeholders that runs for a minute unless it is cancelled.
"""

from drumbeat.bench.targets.contract.database import DatabaseContract
from drumbeat.bench.targets.contract.engine import EngineContract
from drumbeat.bench.targets.contract.given import LOOKUPS, Running, draw, load, operation, seconds

__all__ = ["LOOKUPS", "Running", "TargetContract", "draw", "load", "operation", "seconds"]


class TargetContract(DatabaseContract, EngineContract):
    """The tests of ``Target`` and ``Engine`` together; subclass it to test one database."""
