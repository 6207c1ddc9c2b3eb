"""Tests that every store must pass. A backend's test file subclasses StoreContract and provides two fixtures.

``store``: an open, migrated Store; all tests of the class can share it, because each test creates new pools.
``elapse``: a function; after ``await elapse(t)`` the store behaves as if ``t`` had passed since its rows were written.
"""

from drumbeat.store.contract.answers import AnswersContract
from drumbeat.store.contract.beats import BeatsContract
from drumbeat.store.contract.connections import ConnectionsContract
from drumbeat.store.contract.events import EventsContract
from drumbeat.store.contract.executions import ExecutionsContract
from drumbeat.store.contract.given import Elapse
from drumbeat.store.contract.history import HistoryContract
from drumbeat.store.contract.jobs import JobsContract
from drumbeat.store.contract.leases import LeasesContract
from drumbeat.store.contract.logs import LogsContract
from drumbeat.store.contract.membership import MembershipContract
from drumbeat.store.contract.notes import NotesContract
from drumbeat.store.contract.pools import PoolsContract
from drumbeat.store.contract.queue import QueueContract
from drumbeat.store.contract.results import ResultsContract
from drumbeat.store.contract.runs import RunsContract
from drumbeat.store.contract.samples import SamplesContract
from drumbeat.store.contract.steps import StepsContract
from drumbeat.store.contract.templates import TemplatesContract
from drumbeat.store.contract.upkeep import UpkeepContract
from drumbeat.store.contract.workers import WorkersContract

__all__ = ["Elapse", "JobsContract", "PoolContract", "QueueContract", "StoreContract"]


class StoreContract(
    PoolsContract,
    WorkersContract,
    MembershipContract,
    EventsContract,
    LeasesContract,
    BeatsContract,
    SamplesContract,
    RunsContract,
    HistoryContract,
    ResultsContract,
    StepsContract,
    ExecutionsContract,
    TemplatesContract,
    ConnectionsContract,
    AnswersContract,
    NotesContract,
    LogsContract,
    UpkeepContract,
):
    """All tests of a store, except those of job queues, which are in PoolContract."""


class PoolContract(QueueContract, JobsContract):
    """All tests of a store's job queues: every promise of ``store/interface/jobs.py``."""
