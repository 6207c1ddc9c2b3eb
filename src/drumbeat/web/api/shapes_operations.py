"""Request and response models of operations on the jobs that match a filter, and of error groups."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from drumbeat.core.job import JobStatus
from drumbeat.web.api.shapes import LARGEST_INT, RequestBody, Shape, Start
from drumbeat.web.api.shapes_pools import Duration, JobShape

_Word = Annotated[str, Field(max_length=200)]


class JobFilterBody(RequestBody):
    """Selects the jobs that match every given field. At least one field is needed."""

    statuses: Annotated[list[JobStatus], Field(max_length=10)] | None = None
    job_type: _Word | None = None
    group: _Word | None = None
    priority: Annotated[int, Field(ge=-LARGEST_INT, le=LARGEST_INT)] | None = None
    older_than: Duration | None = Field(default=None, description="Pushed (if ended: ended) more than this many seconds ago.")
    newer_than: Duration | None = Field(default=None, description="Pushed (if ended: ended) within this many seconds.")
    error: Annotated[str, Field(max_length=1000)] | None = Field(default=None, description="Text within the last error.")
    error_group: _Word | None = Field(default=None, description="Id of a group of similar errors.")


class JobsOperation(RequestBody):
    """Which jobs to change, how many at most, and whether only to count them."""

    filter: JobFilterBody
    limit: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(default=None, description="Oldest jobs first.")
    dry_run: bool = Field(default=False, description="Count the jobs and change nothing.")


class JobsReschedule(JobsOperation):
    """Which pending jobs get which earliest start."""

    run_at: Start


class JobsPrioritise(JobsOperation):
    """Which pending jobs get which priority."""

    priority: Annotated[int, Field(ge=-LARGEST_INT, le=LARGEST_INT)]


class JobsOperationResult(Shape):
    """How many jobs matched and were changed, with the first of them."""

    matched: int
    changed: int
    requested: int = Field(description="Running jobs whose worker was asked to stop.")
    skipped: int = Field(description="Jobs left as they are, because they changed meanwhile.")
    skipped_ids: list[str]
    dry_run: bool
    limited: bool = Field(description="Whether the limit was reached, so that more jobs may match.")
    examples: list[JobShape]


class ErrorGroupShape(Shape):
    """Poisoned jobs whose errors are equal except for numbers, ids and addresses."""

    group_id: str
    error: str
    jobs: int
    types: list[str]
    first_seen: datetime | None
    last_seen: datetime | None
    example: str = Field(description="Id of the job that was poisoned last.")


class ErrorGroupsShape(Shape):
    """The error groups of a pool, largest first."""

    groups: list[ErrorGroupShape]
    jobs: int
    ungrouped: int = Field(description="Poisoned jobs with rarer errors that are not listed.")
