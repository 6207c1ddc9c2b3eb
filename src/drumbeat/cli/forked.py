"""Runs a command in a forked process, and lists the modules to import before the fork."""

import sys
from collections.abc import Mapping, Sequence

_WORKER = (
    "drumbeat.cli.main",
    "drumbeat.cli.run_worker",
    "drumbeat.composition.workers",
    "drumbeat.pool.worker.assemble",
    "drumbeat.pool.service",
    "drumbeat.runtime.probe",
    "uvloop",
)
_STORES: Mapping[str, Sequence[str]] = {
    "sqlite": ("drumbeat.store.sql.store", "drumbeat.store.sql.sqlite"),
    "postgresql": ("drumbeat.store.sql.store", "drumbeat.store.sql.postgres", "asyncpg"),
    "redis": ("drumbeat.store.redis.store", "redis.asyncio"),
}
_SPELLINGS = {"postgres": "postgresql", "rediss": "redis"}


def worker_modules(store: str) -> Sequence[str]:
    """Return the modules that a worker with this store needs."""
    scheme = store.partition(":")[0]
    return (*_STORES.get(_SPELLINGS.get(scheme, scheme), ()), *_WORKER)


def run_command(words: Sequence[str]) -> int:
    """Run the command ``python -m drumbeat WORDS`` in this process. Raises SystemExit as that command does."""
    from drumbeat.cli.main import main

    sys.argv[:] = ["drumbeat", *words]
    main()
    return 0
