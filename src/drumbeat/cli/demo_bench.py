"""The bench's demo: a real search for how many connections an embedded database takes, by real worker processes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from drumbeat.bench.model import RunRecord
from drumbeat.cli.bench_outcome import print_outcome, write
from drumbeat.cli.bench_runs import conducted
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
    """Each connection pauses 10 ms between operations, as an application's would; so the knee is at dozens of connections."""
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
    """Play it. Answers with the path of its page."""
    return run(_play(settings, workers, f"sqlite:///{folder}/under-test.db", report))


async def _play(settings: Settings, workers: int, target: str, report: Path) -> str:
    async with open_control_plane(settings, create=True) as plane:
        say("• a SQLite database under test gets its table")
        await offline.prepare(target, WORKLOAD, SCALE, fresh=False, on_progress=lambda name, done, whole: None)
        desk = plane.bench()
        document = await desk.document(json.dumps(demo_template(target, workers)), is_text=True)
        made, _ = await desk.create(document)
        await desk.start(made.run_id)
        say(f"• {workers} worker processes step up their load until it no longer pays")
        status = await conducted(plane, desk, made.run_id, quiet=False)
        record = await desk.record(made.run_id)
        print_outcome(desk, record, [])
        if status is not RunStatus.COMPLETED:
            raise DrumbeatError(f"the demo's run ended as {status}; its decisions say why")
        draw_steps(record)
        write(str(report), await desk.report(made.run_id, "html"))
        say(f"\nA report with plots, workers and every decision: {report}", style="bold")
        return f"/runs/{made.run_id}"


def draw_steps(record: RunRecord) -> None:
    """The search as a plot: throughput by connections, the best level marked."""
    levels = best_looks(record.steps)
    most = max((step.qps or 0.0 for step in levels), default=0.0) or 1.0
    best = record.find_max_result.get("best_connections")
    say("\nThroughput by connections (p95 at the right)", style="bold")
    for step in levels:
        bar = "█" * max(1, round((step.qps or 0.0) / most * _WIDTH))
        style = "green" if step.outcome == "STABLE" else "red"
        mark = "  ◀ the most that is stable" if step.to_target == best else ""
        drawn = Text(f"{step.to_target:>5} ")
        drawn.append(f"{bar:<{_WIDTH}}", style=style)
        drawn.append(f" {step.qps or 0:>9,.0f}/s  {step.p95_ms or 0:>8.3g} ms{mark}")
        console.print(drawn, soft_wrap=True)


def best_looks(steps: Sequence[Step]) -> list[Step]:
    """The last look at each level, lowest first: a level's verdict is on its last row."""
    return sorted({step.to_target: step for step in steps}.values(), key=lambda step: step.to_target)
