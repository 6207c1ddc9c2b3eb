"""Triggers whose machine is a FlatMachines worker: workers are started, and call for their successors when they leave."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.flatmachines.seed import CONFIG
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.job import JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerStatus
from drumbeat.pool.due_jobs import is_watched
from drumbeat.settings import Settings
from e2e.processes import eventually

PAPERS = PoolId("papers")
TRIGGERS = f"""
triggers:
  - name: machines
    type: subprocess
    machine: {CONFIG}/job_worker.yml
    machines: {{actual_job_processor: {CONFIG}/echo_processor.yml}}
    hooks: {{echo: "hooks.py:EchoHooks"}}
    input: {{pool_id: papers, max_workers: 2}}
"""
HOOKS = """
from flatmachines import MachineHooks


class EchoHooks(MachineHooks):
    async def on_action(self, state_name, action_name, context):
        return context | {"echoed": context["job"]}
"""


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    (tmp_path / "triggers.yml").write_text(TRIGGERS)
    (tmp_path / "hooks.py").write_text(HOOKS)
    settings = Settings(store=f"sqlite:///{tmp_path}/d.db", state_dir=tmp_path / "state")
    async with open_control_plane(settings, create=True) as plane:
        yield plane


@pytest.mark.timeout(300)
async def test_machines_work_off_a_pool_after_one_firing_also_what_comes_due_later(plane: ControlPlane, tmp_path: Path) -> None:
    ids = [*await plane.pool(PAPERS).push_many([{"n": n} for n in range(4)])]
    ids += [await plane.pool(PAPERS).push({"n": 4}, delay=timedelta(seconds=3))]

    beats = await plane.triggers(tmp_path / "triggers.yml").fire("machines")

    async def over() -> bool:
        done = await plane.store.jobs.list(PAPERS, statuses=[JobStatus.DONE])
        live = await plane.store.workers.list(PAPERS, live=True)
        return len(done) == len(ids) and not live and not await is_watched(plane.store, PAPERS)

    await eventually(over, "five jobs are done, and nobody is left")
    rows = await plane.store.workers.list(PAPERS)
    jobs = [await plane.store.jobs.get(job_id) for job_id in ids]
    assert [action["type"] for action in beats[PAPERS]["actions"]] == ["Spawn", "Spawn"]
    assert [(job.attempts, job.result) for job in jobs] == [(1, {"echo": {"n": n}}) for n in range(5)]
    assert {row.status for row in rows} == {WorkerStatus.TERMINATED}
    assert len(rows) >= len(ids)
