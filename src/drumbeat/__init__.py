"""Drumbeat coordinates many workers through one database; it is a database load benchmark, a job queue and an autoscaler."""

import warnings
from importlib import import_module as _import_module
from typing import Any

#: the module of each public name, imported on first use, so that ``import drumbeat`` is fast.
#: Their types are in __init__.pyi; a test compares it with this list.
_MODULES = {
    "AttemptCall": "drumbeat.pool.middleware",
    "Backoff": "drumbeat.core.job",
    "Connection": "drumbeat.client",
    "IfFailed": "drumbeat.core.job",
    "Job": "drumbeat.core.job",
    "JobContext": "drumbeat.pool.worker.context",
    "JobFailure": "drumbeat.pool.worker.context",
    "JobFilter": "drumbeat.pool.job_filter",
    "JobLogFilter": "drumbeat.pool.worker.log_context",
    "JobStatus": "drumbeat.core.job",
    "Middleware": "drumbeat.pool.middleware",
    "Pool": "drumbeat.pool.service",
    "PushCall": "drumbeat.pool.middleware",
    "RateLimit": "drumbeat.core.job",
    "StepFailed": "drumbeat.pool.worker.steps",
    "connect": "drumbeat.client",
    "connect_blocking": "drumbeat.client",
    "new_job": "drumbeat.client",
    "PushedJob": "drumbeat.tasks.pushed",
    "PushedWorkflow": "drumbeat.tasks.pushed",
    "Task": "drumbeat.tasks.task",
    "TaskJob": "drumbeat.tasks.flow",
    "Workflow": "drumbeat.tasks.flow",
    "chain": "drumbeat.tasks.flow",
    "group": "drumbeat.tasks.flow",
    "sleep": "drumbeat.pool.worker.durable",
    "step": "drumbeat.pool.worker.durable",
    "task": "drumbeat.tasks.task",
    "wait_for": "drumbeat.pool.worker.durable",
}

_RENAMED = {"PoolDesk": "Pool"}  #: earlier names, accepted for one release

__all__ = [*_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("drumbeat")
    if name in _RENAMED:
        warnings.warn(f"drumbeat.{name} is now called drumbeat.{_RENAMED[name]}", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name not in _MODULES:
        raise AttributeError(f"module 'drumbeat' has no attribute {name!r}; it has: {', '.join(_MODULES)}")
    return getattr(_import_module(_MODULES[name]), name)
