"""Benchmarks: runs, the templates they are made from, and their results."""

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
    """Changes to a run. A field that is None stays as it is."""

    status: RunStatus | None = None
    phase: str | None = None
    completion_reason: str | None = None
    expected_workers: int | None = None
    operations: int | None = None
    errors: int | None = None
    qps: float | None = None
    controller_state: Mapping[str, Any] | None = None
    custom_metrics: Mapping[str, Any] | None = None
    started: bool = False  #: set the time to now, unless it is set already
    warmup_started: bool = False
    warmup_ended: bool = False
    ended: bool = False


class Runs(Protocol):
    """Benchmark runs. A run's pool is created with it and has the same id."""

    async def create(self, run: Run, pool: PoolRow) -> Run:
        """Raises AlreadyExists."""
        ...

    async def get(self, run_id: RunId) -> Run:
        """Raises NotFound."""
        ...

    async def list(
        self,
        *,
        statuses: Sequence[RunStatus] = (),
        search: str | None = None,
        template_id: str | None = None,
        load_mode: str | None = None,
        scaling_mode: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> Sequence[Run]:
        """Runs that match every filter, newest first.

        ``search`` is a part of the name, case-insensitive. The modes are those of the config: ``load_mode`` and
        ``scaling.mode``. ``since`` (inclusive) and ``until`` (exclusive) bound the creation time.
        """
        ...

    async def update(self, run: Run, change: RunChange, events: Sequence[NewEvent] = (), *, fence: Fence | None = None) -> Run:
        """Change a run whose status is still that of ``run``, and append the events for its workers, in one transaction.

        Raises IllegalMove, StaleWrite.
        """
        ...

    async def delete(self, run_id: RunId) -> None:
        """Delete a run, its pool and everything that belongs to them. Harmless when it does not exist.

        Raises Refused while the run is in progress or has a live worker.
        """
        ...


class Results(Protocol):
    """Results of runs, and the files with their executions."""

    async def save(self, results: Sequence[Result], *, fence: Fence | None = None) -> None:
        """Save results; each replaces an earlier one of the same run, worker and kind. Raises NotFound without the run."""
        ...

    async def list(self, run_id: RunId) -> Sequence[Result]:
        """A run's results: first those of the run as a whole, then by worker and kind."""
        ...

    async def add_file(self, file: ExecutionFile) -> None:
        """Record a file of executions. A file that is already recorded stays as it is."""
        ...

    async def list_files(self, run_id: RunId) -> Sequence[ExecutionFile]:
        """A run's files of executions, by worker and path."""
        ...


class Steps(Protocol):
    """The steps that a run's controller decided on."""

    async def save(self, steps: Sequence[Step], *, fence: Fence | None = None) -> None:
        """Save steps; each replaces an earlier one of the same run, type and number. Raises NotFound without the run."""
        ...

    async def list(self, run_id: RunId, type: StepType | None = None) -> Sequence[Step]:  # noqa: A002
        """A run's steps, by type, then number."""
        ...


ExecutionOrder = Literal["started_at", "duration_ms"]


class Executions(Protocol):
    """Single operations of a run, if they are loaded into the database."""

    async def load(self, executions: Iterable[Execution]) -> int:
        """Load executions in bulk; skips those that exist. Returns how many are new.

        Works in batches, each written completely or not at all. After a failure, load everything again.
        Raises NotFound without the run.
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
        offset: int = 0,
        limit: int = 1000,
    ) -> Sequence[Execution]:
        """A run's executions that match every filter: earliest first, or longest first."""
        ...

    async def count(self, run_id: RunId) -> int: ...


class Templates(Protocol):
    """Configurations to make runs from. Names are unique."""

    async def create(self, template: Template) -> Template:
        """Add a template with no uses. Raises AlreadyExists if the id or the name is taken."""
        ...

    async def get(self, id_or_name: str) -> Template:
        """The template with this id, else with this name. Raises NotFound."""
        ...

    async def list(self, search: str | None = None, tag: str | None = None) -> Sequence[Template]:
        """Templates with ``search`` in name or description (case-insensitive) and with the tag, by name."""
        ...

    async def save(self, template: Template) -> Template:
        """Replace name, config, description and tags. Raises NotFound, or AlreadyExists if the name is taken.

        Raises Refused if the config changes after the template was used: it would no longer describe the runs made from it.
        """
        ...

    async def delete(self, template_id: str) -> None:
        """Delete a template; runs made from it stay. Harmless when it does not exist."""
        ...

    async def note_use(self, template_id: str) -> Template:
        """Count one more use, now. Raises NotFound."""
        ...
