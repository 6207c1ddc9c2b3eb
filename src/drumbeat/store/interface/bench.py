"""Benchmarks: runs, the templates they are made from, and what came of them."""

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
    """What may change with a run. What is None stays as it is."""

    status: RunStatus | None = None
    phase: str | None = None
    completion_reason: str | None = None
    expected_workers: int | None = None
    operations: int | None = None
    errors: int | None = None
    qps: float | None = None
    controller_state: Mapping[str, Any] | None = None
    custom_metrics: Mapping[str, Any] | None = None
    started: bool = False  #: stamp the time, once
    warmup_started: bool = False
    warmup_ended: bool = False
    ended: bool = False


class Runs(Protocol):
    """Benchmark executions. A run's pool is made with it and has its id."""

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
        """Runs that are all that is asked, newest first.

        ``search`` is a part of the name, in capitals or not. The modes are those of the config: ``load_mode`` and
        ``scaling.mode``. Made at ``since`` or later, and before ``until``.
        """
        ...

    async def update(self, run: Run, change: RunChange, events: Sequence[NewEvent] = (), *, fence: Fence | None = None) -> Run:
        """Change a run whose status is still as ``run`` shows it, and tell its workers, in one transaction.

        Raises IllegalMove, StaleWrite.
        """
        ...

    async def delete(self, run_id: RunId) -> None:
        """Remove a run, its pool and everything that belongs to them. Harmless when it is gone already.

        Raises Refused while the run is under way, or a worker of it is live.
        """
        ...


class Results(Protocol):
    """What runs came to, and where their executions are."""

    async def save(self, results: Sequence[Result], *, fence: Fence | None = None) -> None:
        """Keep results, each in place of an earlier one of the same run, worker and kind. Raises NotFound without the run."""
        ...

    async def list(self, run_id: RunId) -> Sequence[Result]:
        """A run's results: the whole run's first, then by worker and kind."""
        ...

    async def add_file(self, file: ExecutionFile) -> None:
        """Note a file of executions. One that is noted already stays as it is."""
        ...

    async def list_files(self, run_id: RunId) -> Sequence[ExecutionFile]:
        """A run's files of executions, by worker and path."""
        ...


class Steps(Protocol):
    """What a run's controller decided, step by step."""

    async def save(self, steps: Sequence[Step], *, fence: Fence | None = None) -> None:
        """Keep steps, each in place of an earlier one of the same run, type and number. Raises NotFound without the run."""
        ...

    async def list(self, run_id: RunId, type: StepType | None = None) -> Sequence[Step]:  # noqa: A002
        """A run's steps, by type, then number."""
        ...


ExecutionOrder = Literal["started_at", "duration_ms"]


class Executions(Protocol):
    """Single operations, for those who want them in the database."""

    async def load(self, executions: Iterable[Execution]) -> int:
        """Keep executions in bulk; one that is there already is passed over. Answers with how many are new.

        Goes by batches, each kept whole or not at all: what failed half-way is loaded again from the start.
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
        """A run's executions that are all that is asked: the earliest first, or the longest."""
        ...

    async def count(self, run_id: RunId) -> int: ...


class Templates(Protocol):
    """Configurations to make runs from. No two have one name."""

    async def create(self, template: Template) -> Template:
        """Keep a new template, not used yet. Raises AlreadyExists, also when another has the name."""
        ...

    async def get(self, id_or_name: str) -> Template:
        """The template of this id, else the one of this name. Raises NotFound."""
        ...

    async def list(self, search: str | None = None, tag: str | None = None) -> Sequence[Template]:
        """Templates by name: those with ``search`` in name or description, in capitals or not, and with the tag."""
        ...

    async def save(self, template: Template) -> Template:
        """Replace name, config, description and tags. Raises NotFound, and AlreadyExists when another has the name.

        Raises Refused for another config once it has been used: runs that were made from it would not be what it says.
        """
        ...

    async def delete(self, template_id: str) -> None:
        """Remove a template; the runs made from it stay. Harmless when it is gone already."""
        ...

    async def note_use(self, template_id: str) -> Template:
        """Count one more use, now. Raises NotFound."""
        ...
