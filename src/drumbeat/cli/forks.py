"""What a fork server has loaded and what it becomes: a worker, or a checker that a push calls for.

python -m drumbeat.cli.forks [SECONDS] is one, until nobody has asked for so long; drumbeat pool forkserver is the same.
"""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta

from drumbeat.core.errors import DrumbeatError
from drumbeat.settings import load_settings
from drumbeat.triggers.model import FIRE

_WORKER = (
    "drumbeat.cli.main",
    "drumbeat.cli.run_worker",
    "drumbeat.composition.workers",
    "drumbeat.pool.worker.assemble",
    "drumbeat.pool.service",
    "drumbeat.runtime.probe",
    "uvloop",
)
_CHECKER = ("drumbeat.cli.fire", "drumbeat.pool.checker", "drumbeat.spawn.local", "drumbeat.triggers.detached")
_STORES: Mapping[str, Sequence[str]] = {
    "sqlite": ("drumbeat.store.sql.store", "drumbeat.store.sql.sqlite"),
    "postgresql": ("drumbeat.store.sql.store", "drumbeat.store.sql.postgres", "asyncpg"),
    "redis": ("drumbeat.store.redis.store", "redis.asyncio"),
}
_SPELLINGS = {"postgres": "postgresql", "rediss": "redis"}


def worker_modules(store: str) -> Sequence[str]:
    """What a worker on a store needs."""
    scheme = store.partition(":")[0]
    return (*_STORES.get(_SPELLINGS.get(scheme, scheme), ()), *_WORKER)


def become(words: Sequence[str]) -> int:
    """Do what these words would after ``python -m drumbeat``; raises SystemExit as that would."""
    if list(words[:1]) == [FIRE]:
        from drumbeat.cli.fire import fire

        return fire(words[1])
    from drumbeat.cli.main import main

    sys.argv[:] = ["drumbeat", *words]
    main()
    return 0


def serve(store: str | None, idle: timedelta | None) -> None:
    """Be the fork server of the state folder until told to stop. Raises AlreadyExists."""
    from drumbeat.composition.plane import serve_forks

    settings = load_settings(os.environ, store=store)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve_forks(settings, become, (*worker_modules(settings.store), *_CHECKER), idle)
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    try:
        serve(None, timedelta(seconds=float(sys.argv[1])) if sys.argv[1:] else None)
    except DrumbeatError as exc:
        sys.exit(f"drumbeat: {exc}")
