"""Optional columns of tables of workers: the engine and the host on which each worker runs."""

from collections.abc import Sequence

from drumbeat.cli.render import Columns
from drumbeat.core.engine import DEFAULT_ENGINE
from drumbeat.core.worker import Worker


def place_columns(workers: Sequence[Worker]) -> Columns:
    """Return the columns engine and host; no columns if all workers run at the engine ``local``."""
    if all(worker.engine in (None, DEFAULT_ENGINE) for worker in workers):
        return {}
    return {"engine": lambda worker: worker.engine, "host": lambda worker: worker.place}


def problem(worker: Worker) -> str | None:
    """Return a worker's error, or why it was not started; None if there is no problem."""
    return worker.error or worker.not_started
