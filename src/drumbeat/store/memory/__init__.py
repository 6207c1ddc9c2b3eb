"""The in-memory store: tests use it in place of a database, and the other stores must behave like it."""

from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Self

from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import DrumbeatError
from drumbeat.store.interface import StoreTraits
from drumbeat.store.memory.access import MemoryAnswers, MemoryConnections
from drumbeat.store.memory.beats import MemoryBeats
from drumbeat.store.memory.events import MemoryEvents
from drumbeat.store.memory.executions import MemoryExecutions
from drumbeat.store.memory.job_steps import MemoryJobSteps
from drumbeat.store.memory.jobs import MemoryJobs
from drumbeat.store.memory.leases import MemoryLeases
from drumbeat.store.memory.logs import MemoryLogs
from drumbeat.store.memory.membership import MemoryMembership
from drumbeat.store.memory.notes import MemoryNotes
from drumbeat.store.memory.pools import MemoryPools
from drumbeat.store.memory.queue import MemoryQueue
from drumbeat.store.memory.results import MemoryResults
from drumbeat.store.memory.runs import MemoryRuns
from drumbeat.store.memory.samples import MemorySamples
from drumbeat.store.memory.state import MemoryState
from drumbeat.store.memory.steps import MemorySteps
from drumbeat.store.memory.templates import MemoryTemplates
from drumbeat.store.memory.upkeep import MemoryUpkeep
from drumbeat.store.memory.workers import MemoryWorkers

__all__ = ["MemoryStore"]


class MemoryStore:
    """A store in this process's memory. Its operations never await, so each is complete before another begins.

    Its data lives as long as the object: a test can still read the rows after it has left the ``async with`` block.
    Tests simulate outages with ``unavailable`` and ``fail_next``.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._state = MemoryState(clock=clock or SystemClock())
        self.traits = StoreTraits(name="memory", shared=False, networked=False)
        self.pools = MemoryPools(self._state)
        self.workers = MemoryWorkers(self._state)
        self.membership = MemoryMembership(self._state)
        self.events = MemoryEvents(self._state)
        self.leases = MemoryLeases(self._state)
        self.beats = MemoryBeats(self._state)
        self.samples = MemorySamples(self._state)
        self.runs = MemoryRuns(self._state)
        self.results = MemoryResults(self._state)
        self.steps = MemorySteps(self._state)
        self.executions = MemoryExecutions(self._state)
        self.templates = MemoryTemplates(self._state)
        self.connections = MemoryConnections(self._state)
        self.answers = MemoryAnswers(self._state)
        self.notes = MemoryNotes(self._state)
        self.queue = MemoryQueue(self._state)
        self.jobs = MemoryJobs(self._state)
        self.job_steps = MemoryJobSteps(self._state)
        self.logs = MemoryLogs(self._state)
        self.upkeep = MemoryUpkeep(self._state)

    async def now(self) -> datetime:
        with self._state.faults.around():
            return self._state.now()

    def unavailable(self) -> AbstractContextManager[None]:
        """Simulate an outage: inside the ``with`` block every operation raises StoreUnavailable and changes nothing."""
        return self._state.faults.outage()

    def fail_next(self, times: int = 1, error: DrumbeatError | None = None, *, kept: bool = False) -> None:
        """Make the next ``times`` operations raise ``error`` (default StoreUnavailable) and change nothing.

        With ``kept`` an operation does its work before it raises, as if only the store's reply were lost.
        """
        self._state.faults.plan(times, error, kept=kept)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
