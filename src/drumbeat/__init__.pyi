from drumbeat.client import (
    AttemptCall as AttemptCall,
    Backoff as Backoff,
    Connection as Connection,
    IfFailed as IfFailed,
    Job as Job,
    JobContext as JobContext,
    JobFailure as JobFailure,
    JobFilter as JobFilter,
    JobLogFilter as JobLogFilter,
    JobStatus as JobStatus,
    Middleware as Middleware,
    Pool as Pool,
    PushCall as PushCall,
    RateLimit as RateLimit,
    connect as connect,
    connect_blocking as connect_blocking,
    new_job as new_job,
)
from drumbeat.pool.worker.durable import sleep as sleep, step as step, wait_for as wait_for
from drumbeat.pool.worker.steps import StepFailed as StepFailed
from drumbeat.tasks.flow import TaskJob as TaskJob, Workflow as Workflow, chain as chain, group as group
from drumbeat.tasks.pushed import PushedJob as PushedJob, PushedWorkflow as PushedWorkflow
from drumbeat.tasks.task import Task as Task, task as task

__version__: str
__all__: list[str]
