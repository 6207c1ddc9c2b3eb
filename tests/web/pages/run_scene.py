"""Runs for browser tests: an embedded database under test, templates, a server that conducts, and a look into its store."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drumbeat.composition.offline import prepare
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.run import Run, RunId
from drumbeat.settings import Settings

SHORT, LONG, SEARCH = "short and fixed", "long and fixed", "search within bounds"
ENDLESS = "until it is stopped"


def document(target: str, name: str, **changes: Any) -> str:
    """Two workers of two connections that leave the machine some rest."""
    return json.dumps(
        {
            "name": name,
            "target": {"url": target},
            "workload": {"standard": "read-only", "scale": 0.01, "think_time_ms": 20},
            "timing": {"warmup_seconds": 1, "duration_seconds": 5},
            "scaling": {"mode": "FIXED", "min_workers": 2, "min_connections": 2},
            "guardrails": {"mode": "warn"},
            "slo": {"overall": {"p95_ms": 60_000}},  # kept, however busy the machine is
            **changes,
        }
    )


def search(target: str) -> str:
    return document(
        target,
        SEARCH,
        load_mode="FIND_MAX_CONCURRENCY",
        find_max={"start_connections": 2, "connections_increment": 4, "step_duration_seconds": 2, "settle_seconds": 0.5,
                  "latency_stability_pct": 100_000, "qps_stability_pct": 99, "most_looks": 1},
        scaling={"mode": "BOUNDED", "min_workers": 1, "max_workers": 1, "max_connections": 6},
        slo={},
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """A server's store, looked into beside it."""

    folder: Path

    @property
    def settings(self) -> Settings:
        return Settings(store=f"sqlite:///{self.folder}/drumbeat.db", state_dir=self.folder / "state")

    @property
    def target(self) -> str:
        return f"sqlite:///{self.folder}/under-test.db"

    @asynccontextmanager
    async def plane(self) -> AsyncIterator[ControlPlane]:
        async with open_control_plane(self.settings, create=True) as plane:
            yield plane

    async def furnish(self) -> None:
        await prepare(self.target, "read-only", 0.01, fresh=True, on_progress=lambda *_: None)
        long, endless = ({"timing": {"warmup_seconds": 1, "duration_seconds": seconds}} for seconds in (30, 3600))
        texts = (
            document(self.target, SHORT),
            document(self.target, LONG, **long),
            document(self.target, ENDLESS, **endless, on_worker_lost="tolerate:1"),
            search(self.target),
        )
        async with self.plane() as plane:
            for text in texts:
                await plane.bench().add_template(text)

    async def started(self, template: str) -> RunId:
        """A run of a template, under way."""
        async with self.plane() as plane:
            desk = plane.bench()
            run, _ = await desk.create(await desk.document(template), template)
            await desk.start(run.run_id)
            return run.run_id

    async def asked(self, question: Callable[[ControlPlane], Awaitable[Any]]) -> Any:
        async with self.plane() as plane:
            return await question(plane)

    async def run(self, run_id: RunId) -> Run:
        found: Run = await self.asked(lambda plane: plane.store.runs.get(run_id))
        return found
