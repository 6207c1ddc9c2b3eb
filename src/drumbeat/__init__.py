"""Drumbeat keeps a fleet of workers in step through one database."""

from importlib import import_module as _import_module
from typing import Any

#: where each public name is kept; it is imported when first asked for, so that ``import drumbeat`` costs nothing.
#: Their types are in __init__.pyi, which a test holds against this list.
_KEPT_IN = {
    "Backoff": "drumbeat.core.job",
    "Connection": "drumbeat.client",
    "Job": "drumbeat.core.job",
    "JobContext": "drumbeat.pool.worker.context",
    "JobFailure": "drumbeat.pool.worker.context",
    "JobStatus": "drumbeat.core.job",
    "PoolDesk": "drumbeat.pool.service",
    "RateLimit": "drumbeat.core.job",
    "connect": "drumbeat.client",
    "connect_blocking": "drumbeat.client",
}

__all__ = [*_KEPT_IN, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("drumbeat")
    if name not in _KEPT_IN:
        raise AttributeError(f"module 'drumbeat' has no attribute {name!r}; it has: {', '.join(_KEPT_IN)}")
    return getattr(_import_module(_KEPT_IN[name]), name)
