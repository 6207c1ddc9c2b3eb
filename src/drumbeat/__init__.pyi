from drumbeat.client import (
    Backoff as Backoff,
    Connection as Connection,
    Job as Job,
    JobContext as JobContext,
    JobFailure as JobFailure,
    JobFilter as JobFilter,
    JobStatus as JobStatus,
    Pool as Pool,
    RateLimit as RateLimit,
    connect as connect,
    connect_blocking as connect_blocking,
)
from drumbeat.tasks.pushed import PushedJob as PushedJob
from drumbeat.tasks.task import Task as Task, task as task

__version__: str
__all__: list[str]
