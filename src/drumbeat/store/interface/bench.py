"""Store interfaces for benchmarks: runs, their results, steps and executions, and the templates of runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from drumbeat.core.event import NewEvent
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolRow
from drumbeat.core.run import Execution, ExecutionFile, Result, Run, RunId, RunStatus, Step, StepType, Template
from drumbeat.core.worker import WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """The fields of a run to change; a field that is None stays as it is."""

    status: RunStatus | None = None
    phase: str | None = None
    completion_reason: str | None = None
    expected_workers: int | None = None
    operations: int | None = None
    errors: int | None = None
    qps: float | None = None
    controller_state: Mapping[str, Any] | None = None
    custom_metrics: Mapping[str, Any] | None = None
    started: bool = False  #: set ``started_at`` to now if it is not set; the next three fields do the same for their times
    warmup_started: bool = False
    warmup_ended: bool = False
    ended: bool = False


class Runs(Protocol):
    """Benchmark runs. Each run has a pool, which is created with the run and has the same id."""

    async def create(self, run: Run, pool: PoolRow) -> Run:
        """Add a run and its pool. Raises AlreadyExists."""
        ...

    async def get(self, run_id: RunId) -> Run:
        """Return the run with this id. Raises NotFound."""
        ...

    async def list(
        self,
        *,
        statuses: Sequence[RunStatus] = (),
        search: str | None = None,
        template_id: str | None = None,
        load_mode: str | None = None,
        scaling_mode: str | None = None,
        config_hash: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> Sequence[Run]:
        """Return the runs that match every filter, newest first.

        ``search`` is a part of the name, case-insensitive. ``load_mode``, ``scaling_mode`` and ``config_hash`` must equal
        ``load_mode``, ``scaling.mode`` and ``config_hash`` in the run's config. ``since`` (inclusive) and ``until`` (exclusive)
        bound the creation time.
        """
        ...

    async def update(self, run: Run, change: RunChange, events: Sequence[NewEvent] = (), *, fence: Fence | None = None) -> Run:
        """Change a run and append events for its workers, in one transaction.

        Raises StaleWrite if the status is no longer that of ``run``, IllegalMove if the state machine has no such transition.
        """
        ...

    async def delete(self, run_id: RunId) -> None:
        """Delete a run, its pool and everything that belongs to them. Does nothing if the run does not exist.

        Raises Refused while the run is in progress or has a live worker.
        """
        ...


class Results(Protocol):
    """Results of benchmark runs, and the files that hold their executions (single operations)."""

    async def save(self, results: Sequence[Result], *, fence: Fence | None = None) -> None:
        """Save results. A result of the same run, worker and kind is replaced. Raises NotFound if a run does not exist."""
        ...

    async def list(self, run_id: RunId) -> Sequence[Result]:
        """Return a run's results, sorted by worker and kind of operation. The totals of the whole run come first."""
        ...

    async def add_file(self, file: ExecutionFile) -> None:
        """Record where a file of executions (single operations) is. Does nothing if the file is already recorded. Raises
        NotFound if there is no such run."""
        ...

    async def list_files(self, run_id: RunId) -> Sequence[ExecutionFile]:
        """Return the files that hold a run's executions (single operations), sorted by worker and path."""
        ...


class Steps(Protocol):
    """Load steps: the changes of load that the controller of a run decided on."""

    async def save(self, steps: Sequence[Step], *, fence: Fence | None = None) -> None:
        """Save load steps. A step of the same run, type and number is replaced. Raises NotFound if a run does not exist."""
        ...

    async def list(self, run_id: RunId, type: StepType | None = None) -> Sequence[Step]:  # noqa: A002
        """Return a run's load steps, sorted by type, then number."""
        ...


ExecutionOrder = Literal["started_at", "duration_ms"]


@dataclass(frozen=True, slots=True)
class ExecutionPosition:
    """A position in a list of executions. Lists are sorted by start or by duration, then by worker, then by number."""

    by: datetime | float  #: the start or, in the order ``duration_ms``, the duration in milliseconds
    worker_id: WorkerId
    n: int

    @classmethod
    def of(cls, execution: Execution, order: ExecutionOrder) -> "ExecutionPosition":
        return cls(getattr(execution, order), execution.worker_id, execution.n)

    @property
    def key(self) -> tuple[datetime | float, str, int]:
        """The sort key of this position: positions that come later in the list have a larger one."""
        return self.by if isinstance(self.by, datetime) else -self.by, self.worker_id, self.n


class Executions(Protocol):
    """Executions: records of the single operations of benchmark runs. They can be inserted after the run, or not at all."""

    async def load(self, executions: Iterable[Execution]) -> int:
        """Insert executions in bulk; skips those that exist already. Returns how many are new.

        Raises NotFound if a run does not exist. Works in batches, each written completely or not at all. After a failure,
        insert everything again. ``executions`` is iterated in another thread, because reading and converting millions of rows
        would stop the event loop for too long.
        """
        ...

    async def list(
        self,
        run_id: RunId,
        *,
        kind: str | None = None,
        ok: bool | None = None,
        worker_id: WorkerId | None = None,
        error_class: str | None = None,
        error: str | None = None,
        order: ExecutionOrder = "started_at",
        after: ExecutionPosition | None = None,
        offset: int = 0,
        limit: int = 1000,
    ) -> Sequence[Execution]:
        """Return a run's executions that match every filter; ``order`` says if the earliest or the longest come first.

        ``after``: only those behind this position in that order. The cost of a page then does not grow with its depth, as it
        does with ``offset``, which reads all rows before the page."""
        ...

    async def count(self, run_id: RunId, *, worker_id: WorkerId | None = None) -> int:
        """Return how many executions of a run, or of one of its workers, are stored."""
        ...


class Templates(Protocol):
    """Templates: saved configurations to create runs from. Names are unique."""

    async def create(self, template: Template) -> Template:
        """Add a template with a use count of 0. Raises AlreadyExists if the id or the name is taken."""
        ...

    async def get(self, id_or_name: str) -> Template:
        """Return the template with this id; if there is none, the template with this name. Raises NotFound."""
        ...

    async def list(self, search: str | None = None, tag: str | None = None) -> Sequence[Template]:
        """Return templates with ``search`` in name or description (case-insensitive) and with this tag, sorted by name."""
        ...

    async def save(self, template: Template, *, seen: Template | None = None) -> Template:
        """Replace a template's name, config, description and tags. Raises NotFound, or AlreadyExists if the name is taken.

        With ``seen``, the template as the caller read it, raises StaleWrite if its name, config, description or tags have
        changed since: of several callers that save at the same time, only one succeeds.

        Raises Refused if the config changes after the template was used: it would no longer describe the runs made from it.
        """
        ...

    async def delete(self, template_id: str) -> None:
        """Delete a template; runs made from it stay. Does nothing if it does not exist."""
        ...

    async def note_use(self, template_id: str) -> Template:
        """Add one to the use count, and set the time of last use to now. Raises NotFound."""
        ...
