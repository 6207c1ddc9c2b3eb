"""Lists caveats: reasons to doubt the figures of a run, such as lost workers, outages or operations sent late."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from drumbeat.bench.model.littles_law import explain_deviation
from drumbeat.bench.model.record import RunRecord, WorkerRecord
from drumbeat.bench.results.availability import availability_of
from drumbeat.core.worker import WorkerStatus

_BAD_ENDS = frozenset({WorkerStatus.LOST, WorkerStatus.ERROR})
_MOST_NAMED = 5


def caveats(record: RunRecord) -> list[str]:
    """Return the reasons to doubt a run's figures. A reason that several workers have is listed once.

    For an ended run, returns the reasons stored in its result."""
    if (stored := record.stored_metrics.get("doubts")) is not None:
        return [str(each) for each in stored if each not in record.notes]
    checks = (_lost, _from_samples, _little, _executions, _skipped, _late, _connects, _drained, _cut_off)
    return [*_limited(record), *_outage(record), *(caveat for check in checks for caveat in check(record.workers))]


def _limited(record: RunRecord) -> Iterator[str]:
    if record.client_limited:
        yield "CLIENT_LIMITED: the clients, not the database, were the limit; use more workers or hosts"


def _outage(record: RunRecord) -> Iterator[str]:
    found = availability_of(record)
    if found is not None and found.without_service:
        yield f"OUTAGE: {found.words}: available {found.percent:.2f} % of the time"


def _lost(workers: Sequence[WorkerRecord]) -> Iterator[str]:
    gone = [f"{worker.worker_id} ({worker.error})" for worker in workers if worker.status in _BAD_ENDS and worker.error]
    gone += [str(worker.worker_id) for worker in workers if worker.status in _BAD_ENDS and not worker.error]
    if gone:
        yield f"WORKERS_LOST: {_named(gone)} stopped before the end of the run"


def _from_samples(workers: Sequence[WorkerRecord]) -> Iterator[str]:
    silent = [str(worker.worker_id) for worker in workers if worker.extra.get("from_samples")]
    if silent:
        yield f"from_samples: {_named(silent)} stored no final result; operations are counted from samples, up to the last one"


def _little(workers: Sequence[WorkerRecord]) -> Iterator[str]:
    off = [(worker, little) for worker in workers if explain_deviation(little := _block(worker, "little") or None)]
    if not off:
        return
    worst, little = max(off, key=lambda each: float((each[1] or {}).get("unexplained", 0)))
    others = f" (the same for {len(off) - 1} other workers)" if len(off) > 1 else ""
    yield f"{worst.worker_id}: {explain_deviation(little)}{others}"


def _executions(workers: Sequence[WorkerRecord]) -> Iterator[str]:
    lost = _total(workers, lambda worker: _block(worker, "executions").get("lost"))
    reasons = {str(_block(worker, "executions").get("why") or "") for worker in workers} - {""}
    if lost:
        why = f": {'; '.join(sorted(reasons))}" if reasons else ""
        yield f"{lost:,} executions were not recorded{why}; all other figures count every operation"


def _skipped(workers: Sequence[WorkerRecord]) -> Iterator[str]:
    if skipped := _total(workers, lambda worker: worker.extra.get("skipped")):
        yield never_sent(skipped)


def never_sent(skipped: int) -> str:
    return f"{skipped:,} operations were due but never sent before the end; their waiting time is part of the response times"


def _late(workers: Sequence[WorkerRecord]) -> Iterator[str]:
    late = sum(worker.late_seconds for worker in workers)
    if late:
        lags = [lag for worker in workers if (lag := _block(worker, "send_lag").get("p99_ms")) is not None]
        worst = f" (send lag p99 {max(lags):,.1f} ms)" if lags else ""
        yield f"in {late:,} intervals of about 1 s operations were sent late or waited for a connection{worst}"


def _connects(workers: Sequence[WorkerRecord]) -> Iterator[str]:
    if failed := _total(workers, lambda worker: worker.extra.get("failed_connects")):
        yield f"{failed:,} attempts to open a connection failed"


def _drained(workers: Sequence[WorkerRecord]) -> Iterator[str]:
    ended = _total(workers, lambda worker: _block(worker, "drained").get("operations"))
    if failed := _total(workers, lambda worker: _block(worker, "drained").get("errors")):
        yield f"{failed:,} of {ended:,} operations that ended after the load was stopped failed"


def _cut_off(workers: Sequence[WorkerRecord]) -> Iterator[str]:
    for how in ("drain_timed_out", "drain_cut_short"):
        cut = [worker for worker in workers if worker.meta.get(how)]
        if cut:
            abandoned = _total(cut, lambda worker: worker.meta.get("abandoned"))
            names = _named([str(worker.worker_id) for worker in cut])
            yield f"{how}: {names} abandoned {abandoned:,} operations that still ran at the end"


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _total(workers: Sequence[WorkerRecord], count: Callable[[WorkerRecord], Any]) -> int:
    return sum(int(count(worker) or 0) for worker in workers)


def _block(worker: WorkerRecord, name: str) -> Mapping[str, Any]:
    found = worker.extra.get(name)
    return found if isinstance(found, Mapping) else {}
