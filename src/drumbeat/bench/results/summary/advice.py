"""Says what to try after a run, by fixed rules on what limited it. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from drumbeat.bench.model.best import best_of
from drumbeat.bench.model.plan import LoadMode, ScalingMode
from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.model.verdict import RunVerdict
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.bench.results.summary.limits import LimitKind, RunLimit
from drumbeat.core.run import RunStatus

MANY_ERRORS = 1.0  #: percent of failed operations from which errors come before everything else
SHORTEST = 30.0  #: seconds; shorter measurements are too short for comparisons

_Rule = Callable[[RunRecord, RunLimit], str | None]


def advice(record: RunRecord, limits: Sequence[RunLimit]) -> Iterator[str]:
    """Yield what to try next: by the first limit that has a rule, else by the verdict; then whether to measure for longer."""
    if record.run.status is RunStatus.CANCELLED:
        return
    first = next((text for limit in limits if (text := _by_limit(record, limit)) is not None), None)
    if first is not None:
        yield f"To try next: {first}."
    elif (text := _by_verdict(record)) is not None:
        yield f"To try next: {text}."
    if record.whole.operations and record.plan.load_mode is not LoadMode.FIND_MAX_CONCURRENCY:
        yield from _too_short(record)


def _too_short(record: RunRecord) -> Iterator[str]:
    if record.whole.seconds < SHORTEST and record.run.status is RunStatus.COMPLETED:
        yield f"Measure for {SHORTEST:g} s or more if the run is to be compared with others."


def _by_limit(record: RunRecord, limit: RunLimit) -> str | None:
    rule = _RULES.get(limit.kind)
    return rule(record, limit) if rule else None


def _start(record: RunRecord, limit: RunLimit) -> str:
    return f"see why the workers were not ready (drumbeat bench status {record.run.run_id})"


def _hosts(record: RunRecord, limit: RunLimit) -> str:
    return f"spread the load over more workers or hosts ({_workers(record)})"


def _workers(record: RunRecord) -> str:
    scaling = record.plan.scaling
    if scaling.mode is ScalingMode.FIXED:
        return f"scaling.min_workers, now {scaling.min_workers}"
    return f"scaling.max_workers, now {'without limit' if scaling.max_workers is None else scaling.max_workers}"


def _lost(record: RunRecord, limit: RunLimit) -> str:
    return f"see why workers were lost (drumbeat logs list {record.run.run_id}), then run it again"


def _outage(record: RunRecord, limit: RunLimit) -> str:
    return "find out what happened to the database in those seconds, then run it again"


def _queue(record: RunRecord, limit: RunLimit) -> str:
    return "use a larger warehouse or more clusters, or fewer connections"


def _errors(record: RunRecord, limit: RunLimit) -> str | None:
    if limit.figures["error_percent"] < MANY_ERRORS:
        return None
    return f"look at the errors first (drumbeat bench executions {record.run.run_id} --failed)"


def _bounds(record: RunRecord, limit: RunLimit) -> str:
    return f"raise the bounds ({_workers(record)}; {_connections(record)}), or lower the target"


def _connections(record: RunRecord) -> str:
    scaling = record.plan.scaling
    return f"scaling.max_connections, now {scaling.cap if scaling.max_connections is None else scaling.max_connections}"


def _search_bounds(record: RunRecord, limit: RunLimit) -> str:
    return f"raise the bounds ({_workers(record)}; {_connections(record)}) to find the limit of the database"


def _no_level(record: RunRecord, limit: RunLimit) -> str:
    return f"start the search lower (find_max.start_connections, now {record.plan.find_max.start_connections})"


def _above(record: RunRecord, limit: RunLimit) -> str | None:
    best = best_of(record)
    if best is None:
        return None
    return f"keep to at most {best.connections:,.0f} connections, or find out what limits the database above that number"


def _search(record: RunRecord, limit: RunLimit) -> str:
    return "search for the most connections that meet the objectives (load_mode FIND_MAX_CONCURRENCY)"


_RULES: Mapping[LimitKind, _Rule] = {
    LimitKind.NOT_STARTED: _start,
    LimitKind.GUARDRAIL: _hosts,
    LimitKind.BACKED_OFF: _hosts,
    LimitKind.CLIENT: _hosts,
    LimitKind.WORKERS_LOST: _lost,
    LimitKind.OUTAGE: _outage,
    LimitKind.SERVER_QUEUE: _queue,
    LimitKind.ERRORS: _errors,
    LimitKind.BOUNDS: _bounds,
    LimitKind.SEARCH_BOUNDS: _search_bounds,
    LimitKind.NO_STABLE_LEVEL: _no_level,
    LimitKind.QUEUEING: _above,
    LimitKind.SLOWER: _above,
    LimitKind.ERRORS_ABOVE: _above,
    LimitKind.OBJECTIVE_ABOVE: _above,
    LimitKind.OBJECTIVE: _search,
}


def _by_verdict(record: RunRecord) -> str | None:
    judgement = judge_run(record)
    if judgement.verdict is RunVerdict.NO_OBJECTIVE:
        return "set objectives (slo), so that the next run passes or fails"
    if judgement.verdict is RunVerdict.PASSED and record.plan.load_mode is LoadMode.CONCURRENCY:
        return "search for the number of connections at which throughput stops growing (load_mode FIND_MAX_CONCURRENCY)"
    return None
