"""Response models of workflows."""

from collections.abc import Sequence

from pydantic import Field

from drumbeat.core.job import Job, JobStatus
from drumbeat.web.api.shapes import Shape


class BoxShape(Shape):
    """Jobs of a workflow that have the same level, pool and type; in a small workflow, one job."""

    level: int = Field(description="0: waits for no job of the workflow; else one more than the highest level of its parents.")
    pool_id: str
    type: str
    jobs: int
    counts: dict[JobStatus, int] = Field(description="Jobs by status.")
    job_ids: list[str] = Field(description="The first of its jobs; a poisoned one comes first.")


class BoxLink(Shape):
    """A link between two boxes, given by their indexes in the list of boxes: jobs of the child wait for jobs of the parent."""

    parent: int
    child: int


class WorkflowShape(Shape):
    """The progress of a workflow and its graph."""

    workflow_id: str
    jobs: int
    ended: int = Field(description="Jobs that are done, poisoned or cancelled.")
    share: float = Field(description="Share of its jobs that have ended, from 0 to 1.")
    counts: dict[JobStatus, int] = Field(description="Jobs by status.")
    boxes: list[BoxShape] = Field(description="Its jobs, by level.")
    links: list[BoxLink]
    is_sampled: bool = Field(description="Whether the links of some jobs only were read, because there are many.")


class CancelledJobs(Shape):
    """The jobs that were cancelled, and the running jobs whose workers were asked to stop them."""

    cancelled: list[str]
    requested: list[str]

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> "CancelledJobs":
        cancelled = [str(job.job_id) for job in jobs if job.status is JobStatus.CANCELLED]
        return cls(cancelled=cancelled, requested=[str(job.job_id) for job in jobs if job.status is JobStatus.CLAIMED])
