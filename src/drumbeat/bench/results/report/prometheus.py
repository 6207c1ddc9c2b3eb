"""A run's figures as Prometheus text, for a push gateway or a textfile collector."""

from collections.abc import Iterable, Iterator, Mapping

from drumbeat.bench.model.record import Measured, RunRecord
from drumbeat.bench.results.cost import cost_of
from drumbeat.bench.results.report.escape import label
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.bench.results.verdicts import verdicts_of

Sample = tuple[Mapping[str, object], float | None]


def prometheus(record: RunRecord) -> str:
    return "".join(line for family in _families(record) for line in family)


def _families(record: RunRecord) -> Iterator[Iterator[str]]:
    about = {"run_id": record.run.run_id, "name": record.run.name}
    verdict = judge_run(record).verdict
    info = about | {"status": record.run.status, "load_mode": record.plan.load_mode, "verdict": verdict}
    kinds = {"all": record.whole, **record.kinds}
    yield _family("drumbeat_run_info", "gauge", "Status, load mode and verdict of the run, as labels.", [(info, 1)])
    yield _family(
        "drumbeat_run_passed",
        "gauge",
        "1 if the run completed and met its objectives, else 0. Absent if none was set.",
        [(about, _passed(record))],
    )
    yield _by_kind("drumbeat_run_operations_total", "counter", "Measured operations.", about, kinds, "operations")
    yield _by_kind("drumbeat_run_errors_total", "counter", "Measured operations that failed.", about, kinds, "errors")
    yield _by_kind("drumbeat_run_operations_per_second", "gauge", "Throughput of the measurement.", about, kinds, "qps")
    yield _latency(about, kinds)
    limits = _limits(record, about)
    yield _family("drumbeat_run_objective_limit", "gauge", "Limit of the objective, in the unit of its measure.", limits)
    yield _family("drumbeat_run_objective_kept", "gauge", "1 if the objective was met, else 0.", _met(record, about))
    yield _family(
        "drumbeat_run_cost",
        "gauge",
        "Cost of the run.",
        [(about | {"currency": cost_of(record).currency}, cost_of(record).total)],
    )


def _family(name: str, kind: str, description: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of one metric: help, type and values; none if it has no values."""
    known = [(labels, value) for labels, value in samples if value is not None]
    if known:
        yield f"# HELP {name} {description}\n# TYPE {name} {kind}\n"
    for labels, value in known:
        yield _line(name, labels, value)


def _line(name: str, labels: Mapping[str, object], value: float) -> str:
    inside = ",".join(f'{key}="{label(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value:.12g}\n"


def _by_kind(
    name: str, kind: str, description: str, about: Mapping[str, object], kinds: Mapping[str, Measured], field: str
) -> Iterator[str]:
    samples = [({**about, "kind": each}, getattr(measured, field)) for each, measured in kinds.items()]
    return _family(name, kind, description, samples)


def _latency(about: Mapping[str, object], kinds: Mapping[str, Measured]) -> Iterator[str]:
    """Yield the latencies of each kind of operation as a Prometheus summary, in seconds."""
    name = "drumbeat_run_latency_seconds"
    yield f"# HELP {name} Latency of successful operations.\n# TYPE {name} summary\n"
    for kind, measured in kinds.items():
        found, labels = measured.latency, {**about, "kind": kind}
        quantiles = {
            "0.5": found.p50_ms,
            "0.9": found.p90_ms,
            "0.95": found.p95_ms,
            "0.99": found.p99_ms,
            "0.999": found.p999_ms,
        }
        for quantile, value in quantiles.items():
            if value is not None:
                yield _line(name, {**labels, "quantile": quantile}, value / 1000)
        yield _line(f"{name}_sum", labels, (found.mean_ms or 0.0) * found.count / 1000)
        yield _line(f"{name}_count", labels, found.count)


def _limits(record: RunRecord, about: Mapping[str, object]) -> Iterable[Sample]:
    return [({**about, "kind": each.kind or "all", "measure": each.measure}, each.limit) for each in verdicts_of(record)]


def _met(record: RunRecord, about: Mapping[str, object]) -> Iterable[Sample]:
    return [({**about, "kind": each.kind or "all", "measure": each.measure}, int(each.is_met)) for each in verdicts_of(record)]


def _passed(record: RunRecord) -> int | None:
    passed = judge_run(record).passed
    return None if passed is None else int(passed)
