"""Decides about workers that a pool's engine refused to start: whether and when to try again, or to give them up. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass

from drumbeat.core.engine import covers
from drumbeat.core.recovery import MarkFailed
from drumbeat.core.refusal import StartRefusal, refusal_of
from drumbeat.core.worker import Worker
from drumbeat.pool.model import PoolView


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedWorkers:
    """Workers whose start was refused: ``wanted`` are tried again; ``elsewhere``, of an engine no longer used, are given up."""

    wanted: tuple[Worker, ...] = ()
    elsewhere: tuple[Worker, ...] = ()
    wait: StartRefusal | None = None  #: the last refusal, if it is too early to try again; None: try now

    def close(self, needed: int) -> list[MarkFailed]:
        """Return actions that close the rows of all ``elsewhere``, and of all ``wanted`` except the first ``needed``."""
        surplus = [(worker, "it was not started, and is not needed any more") for worker in self.wanted[needed:]]
        others = [(worker, f"it was not started at {worker.provider}, which is not used any more") for worker in self.elsewhere]
        return [MarkFailed(worker=worker, exit_code=0, reason=reason) for worker, reason in (*surplus, *others)]


def refused_workers(view: PoolView, staying: Sequence[Worker]) -> RefusedWorkers:
    """Return the workers that the engine refused to start, and whether it is too early to try again (``wait``).

    If all workers of the pool were refused, the engine is asked again at once; otherwise only when the refusal's wait is over,
    or once a worker has ended.
    """
    refused = [(worker, found) for worker in staying if (found := refusal_of(worker)) is not None]
    if not refused:
        return RefusedWorkers()
    wanted = [each for each in refused if covers(view.engine, each[0].provider)]
    latest = max((found for _, found in wanted), key=lambda found: found.at, default=None)
    return RefusedWorkers(
        wanted=tuple(worker for worker, _ in wanted),
        elsewhere=tuple(worker for worker, _ in refused if not covers(view.engine, worker.provider)),
        wait=latest if latest is not None and len(staying) > len(refused) and _is_early(view, latest) else None,
    )


def _is_early(view: PoolView, latest: StartRefusal) -> bool:
    """Whether it is too early to ask the engine again: the wait is not over, and no worker has ended since the refusal."""
    made_room = any(row.ended_at is not None and row.ended_at > latest.at for row in view.workers)
    return view.now < latest.retry_at and not made_room
