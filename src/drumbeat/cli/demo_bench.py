"""The bench demo: real worker processes search for the maximum number of connections of a SQLite database."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from drumbeat.bench.model import RunRecord
from drumbeat.cli.bench_conduct import orchestrate_and_watch
from drumbeat.cli.bench_outcome import print_outcome, write
from drumbeat.cli.options import run
from drumbeat.cli.render import console, say
from drumbeat.composition import offline
from drumbeat.composition.plane import open_control_plane
from drumbeat.core.errors import DrumbeatError
from drumbeat.core.run import RunStatus, Step
from drumbeat.settings import Settings

WORKLOAD, SCALE = "read-only", 0.1
_WIDTH = 44


def demo_template(target: str, workers: int) -> dict[str, Any]:
    """Return the template of the demo. With a think time of 10 ms, dozens of connections are needed to saturate SQLite."""
    return {
        "name": "demo",
        "target": {"url": target},
        "workload": {"standard": WORKLOAD, "scale": SCALE, "think_time_ms": 10},
        "timing": {"warmup_seconds": 1},
        "load_mode": "FIND_MAX_CONCURRENCY",
        "find_max": {
            "start_connections": 8,
            "connections_increment": 24,
            "step_duration_seconds": 2,
            "settle_seconds": 0.5,
            "latency_stability_pct": 200,
            "most_looks": 1,
        },
        "scaling": {"mode": "BOUNDED", "min_workers": workers, "max_workers": workers, "max_connections": 200},
        "guardrails": {"mode": "warn"},
    }


def play_bench(settings: Settings, workers: int, folder: Path, report: Path) -> str:
    """Run the bench demo. Returns the path of its dashboard page."""
    return run(_play(settings, workers, f"sqlite:///{folder}/under-test.db", report))


async def _play(settings: Settings, workers: int, target: str, report: Path) -> str:
    async with open_control_plane(settings, create=True) as plane:
        say("• creating the table in a SQLite database under test")
        await offline.prepare(target, WORKLOAD, SCALE, fresh=False, on_progress=lambda name, done, total: None)
        bench = plane.bench()
        document = await bench.document(json.dumps(demo_template(target, workers)), is_text=True)
        created, _ = await bench.create(document)
        await bench.start(created.run_id)
        say(f"• {workers} worker processes increase the load until throughput stops growing")
        status = await orchestrate_and_watch(plane, bench, created.run_id, quiet=False)
        record = await bench.record(created.run_id)
        print_outcome(bench, record, [])
        if status is not RunStatus.COMPLETED:
            raise DrumbeatError(f"the run of the demo ended as {status}; the decisions above say why")
        draw_steps(record)
        write(str(report), await bench.report(created.run_id, "html"))
        say(f"\nReport with plots, workers and every decision: {report}", style="bold")
        return f"/runs/{created.run_id}"


def draw_steps(record: RunRecord) -> None:
    """Print a bar chart of throughput by number of connections, and mark the best number."""
    levels = last_steps(record.steps)
    highest = max((step.qps or 0.0 for step in levels), default=0.0) or 1.0
    best = record.find_max_result.get("best_connections")
    say("\nThroughput by connections (p95 at the right)", style="bold")
    for step in levels:
        bar = "█" * max(1, round((step.qps or 0.0) / highest * _WIDTH))
        style = "green" if step.outcome == "STABLE" else "red"
        mark = "  ◀ highest stable level" if step.to_target == best else ""
        drawn = Text(f"{step.to_target:>5} ")
        drawn.append(f"{bar:<{_WIDTH}}", style=style)
        drawn.append(f" {step.qps or 0:>9,.0f}/s  {step.p95_ms or 0:>8.3g} ms{mark}")
        console.print(drawn, soft_wrap=True)


def last_steps(steps: Sequence[Step]) -> list[Step]:
    """Return the last step (measurement) at each number of connections, lowest number first: of a step that was undecided and
    therefore repeated, only the last repetition counts."""
    return sorted({step.to_target: step for step in steps}.values(), key=lambda step: step.to_target)
