"""Writes the sentences of a run's summary, each from stored figures; a sentence whose figures are missing is left out. Pure."""

from collections.abc import Sequence

from drumbeat.bench.model.best import best_of, find_max_steps
from drumbeat.bench.model.plan import LoadMode
from drumbeat.bench.model.record import Measured, RunRecord
from drumbeat.bench.model.verdict import RunVerdict
from drumbeat.bench.model.words import ms, number
from drumbeat.bench.results.compare.similarity import target_kind
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.bench.results.summary.advice import advice
from drumbeat.bench.results.summary.changes import changed
from drumbeat.bench.results.summary.limits import LimitKind, RunLimit, limits_of
from drumbeat.core.plain import printable
from drumbeat.core.run import RUN_ENDED

DATABASES = {
    "postgresql": "PostgreSQL",
    "mysql": "MySQL",
    "mariadb": "MariaDB",
    "sqlite": "SQLite",
    "duckdb": "DuckDB",
    "snowflake": "Snowflake",
}  #: the kinds of database that are named in words
_MOST_LIMITS = 3
_LONGEST_REASON = 300


def summarise(record: RunRecord, before: RunRecord | None = None) -> tuple[str, ...]:
    """Return the summary of an ended run, a few sentences; empty for a run that has not ended.

    ``before`` is the previous run of the same template, if there is one.
    Only the run's row, results and steps are used, so that the summary is the same wherever it is shown.
    """
    if record.run.status not in RUN_ENDED:
        return ()
    limits = limits_of(record)
    told = [limit for limit in limits if limit.kind is not LimitKind.OBJECTIVE][:_MOST_LIMITS]
    sentences = (
        _what_ran(record),
        _verdict(record),
        *(_limit(limit) for limit in told),
        *changed(record, before),
        *advice(record, limits),
    )
    return tuple(printable(sentence) for sentence in sentences)


def _what_ran(record: RunRecord) -> str:
    place = _place(record)
    if not record.whole.operations:
        return f"This run measured nothing{place}."
    match record.plan.load_mode:
        case LoadMode.CONCURRENCY:
            return f"This run loaded{place or ' a database'}{_with(record)} for {_seconds(record)}: {_figures(record.whole)}."
        case LoadMode.QPS:
            aim = f"aimed at {number(record.plan.qps.target_qps, 4)} operations/s{place}"
            return f"This run {aim}{_with(record, 'up to ')} for {_seconds(record)}: {_figures(record.whole)}."
        case LoadMode.FIND_MAX_CONCURRENCY:
            return f"This run searched for the most connections that are stable{place}{_steps(record)}{_best(record)}."


def _place(record: RunRecord) -> str:
    name = DATABASES.get(target_kind(record))
    if name is None:
        return ""
    return f" {name}" if record.plan.load_mode is LoadMode.CONCURRENCY and record.whole.operations else f" on {name}"


def _with(record: RunRecord, most: str = "") -> str:
    connections = record.result.connections if record.result else None
    workers = len({row.worker_id for row in record.results if row.worker_id})
    on = f" on {_count(workers, 'worker')}" if workers else ""
    return f" with {most}{_count(connections, 'connection')}{on}" if connections else ""


def _count(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _seconds(record: RunRecord) -> str:
    return f"{number(record.whole.seconds)} s"


def _figures(whole: Measured) -> str:
    latency = whole.latency
    known = [f"{number(whole.qps, 4)} operations/s"]
    known += [f"{name} {ms(value)}" for name, value in (("p95", latency.p95_ms), ("p99", latency.p99_ms)) if value is not None]
    return ", ".join([*known, "no errors" if not whole.error_rate else f"{number(whole.error_rate * 100)} % errors"])


def _steps(record: RunRecord) -> str:
    steps = len(find_max_steps(record))
    return f", in {_count(steps, 'step')}" if steps else ""


def _best(record: RunRecord) -> str:
    best = best_of(record)
    if best is None:
        return ""
    p95 = best.step.p95_ms if best.step else None
    rate = f" with {number(best.qps, 4)} operations/s" if best.qps is not None else ""
    return f": the highest stable level is {best.connections:,.0f} connections{rate}{f' and p95 {ms(p95)}' if p95 else ''}"


def _verdict(record: RunRecord) -> str:
    judgement = judge_run(record)
    reason = _shortened(judgement.reason)
    match judgement.verdict:
        case RunVerdict.PASSED:
            return f"It passed: {reason}."
        case RunVerdict.NO_OBJECTIVE:
            return "It completed; as no objective was set, it neither passed nor failed."
        case RunVerdict.MISSED:
            return f"It missed an objective: {reason}."
        case RunVerdict.NOT_MEASURED:
            return f"It could not be judged: {reason}."
        case RunVerdict.FAILED:
            return f"It failed: {reason}."
        case _:
            return "It was cancelled."


def _shortened(reason: str) -> str:
    text = printable(reason).rstrip(".")
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 1] + "…"


def _limit(limit: RunLimit) -> str:
    found, why = limit.figures, f": {_shortened(limit.detail)}" if limit.detail else ""
    match limit.kind:
        case LimitKind.NOT_STARTED:
            return "Its workers were not ready in time, so it never began."
        case LimitKind.GUARDRAIL:
            return f"The workers' hosts were the limit{_overloaded(limit)}, and guardrails ended the run."
        case LimitKind.BACKED_OFF:
            times = "once" if found["times"] == 1 else f"{found['times']:g} times"
            return f"The workers' hosts were a limit: guardrails reduced the load {times}, at {_rails(limit)}."
        case LimitKind.WORKERS_LOST:
            count = _count(int(found["without_a_final_result"]), "worker") if found else ""
            silent = f": {count} left no final result" if found else ""
            return f"Workers were lost{silent}, so a part of the load is missing."
        case LimitKind.CLIENT:
            return "The clients, not the database, were the limit in more than a tenth of the measured seconds."
        case LimitKind.OUTAGE:
            return f"In {found['seconds_without_service']:g} of {found['seconds']:g} s no operation succeeded."
        case LimitKind.SERVER_QUEUE if not found:
            return "Too many statements queued in the database, so the run was ended."
        case LimitKind.SERVER_QUEUE:
            longest = f", the longest for {ms(found['longest_queue_time'])}" if "longest_queue_time" in found else ""
            return f"{found['queued']:,.0f} of {found['statements']:,.0f} statements queued in the database{longest}."
        case LimitKind.ERRORS:
            return _failed(limit)
        case LimitKind.BOUNDS:
            return f"The bounds{_bounds(limit)} were the limit: {_reached(limit)}."
        case LimitKind.BELOW_TARGET:
            return f"The throughput stayed below its target within the bounds: {_reached(limit)}."
        case LimitKind.SEARCH_BOUNDS:
            return "The configured bounds ended the search, so the limit of the database was not reached."
        case LimitKind.NO_STABLE_LEVEL:
            return f"No level was stable{why}."
        case LimitKind.QUEUEING:
            return f"Above that level sessions queued in the database{why}."
        case LimitKind.SLOWER:
            return f"Above that level the database became slower{why}."
        case LimitKind.ERRORS_ABOVE:
            return f"Above that level too many operations failed{why}."
        case LimitKind.OBJECTIVE_ABOVE:
            return f"Above that level an objective was missed{why}."
        case LimitKind.OBJECTIVE:
            return f"{_count(int(found['missed']), 'objective')} missed."
        case LimitKind.CONNECTIONS:
            busy = f"All {_count(int(found['connections']), 'connection')} were busy all the time"
            return f"{busy}: an operation took {ms(found['mean_ms'])} on average."


def _overloaded(limit: RunLimit) -> str:
    cpu, memory = int(limit.figures["workers_over_cpu"]), int(limit.figures["workers_over_memory"])
    over = [f"{_count(cpu, 'worker')} above {limit.figures['max_cpu_percent']:g} % CPU"] if cpu else []
    over += [f"{_count(memory, 'worker')} above {limit.figures['max_memory_percent']:g} % memory"] if memory else []
    return f" ({', '.join(over)})" if over else f", at {_rails(limit)}"


def _rails(limit: RunLimit) -> str:
    return f"{limit.figures['max_cpu_percent']:g} % CPU or {limit.figures['max_memory_percent']:g} % memory"


def _failed(limit: RunLimit) -> str:
    found = limit.figures
    parts = []
    if found["errors"]:
        parts.append(f"{found['errors']:,.0f} of {found['operations']:,.0f} operations failed")
    if found["failed_connects"]:
        parts.append(f"{found['failed_connects']:,.0f} attempts to connect failed")
    most = f", most often with {limit.error_class} ({found['most_frequent']:,.0f})" if limit.error_class else ""
    text = " and ".join(parts)
    return f"{text[0].upper()}{text[1:]}{most}."


def _bounds(limit: RunLimit) -> str:
    workers, connections = limit.figures.get("max_workers"), limit.figures.get("max_connections")
    parts: Sequence[str] = [
        *([f"{_count(int(workers), 'worker')}"] if workers is not None else ()),
        *([f"{_count(int(connections), 'connection')} each"] if connections is not None else ()),
    ]
    return f" ({', '.join(parts)})" if parts else ""


def _reached(limit: RunLimit) -> str:
    return f"{number(limit.figures['reached'], 4)} of {number(limit.figures['target'], 4)} operations/s were reached"
