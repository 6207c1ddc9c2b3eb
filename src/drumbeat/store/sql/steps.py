"""SQL table ``steps``: the changes of load that the controller of a benchmark run decided on."""

from collections.abc import Sequence
from typing import Any

from drumbeat.core.lease import Fence
from drumbeat.core.run import RunId, Step, StepType
from drumbeat.store.sql.database import Database, Script, check_fence
from drumbeat.store.sql.rows import at_us, step_of
from drumbeat.store.sql.runs import no_run


class SqlSteps:
    """Saves and lists the load steps of benchmark runs: one row for each run, type of step and number of the step."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, steps: Sequence[Step], *, fence: Fence | None = None) -> None:
        await self._database.transact(_save(steps, fence))

    async def list(self, run_id: RunId, type: StepType | None = None) -> Sequence[Step]:  # noqa: A002
        return [step_of(row) for row in await self._database.read("list_steps", {"run_id": run_id, "type": type})]


def _save(steps: Sequence[Step], fence: Fence | None) -> Script[None]:
    yield from check_fence(fence)
    for step in steps:
        if not (yield "save_step", _values(step)):
            raise no_run(step.run_id)


def _values(step: Step) -> dict[str, Any]:
    values = {name: getattr(step, name) for name in Step.__dataclass_fields__}
    return values | {
        "direction": step.direction,
        "error_rate": step.error_rate,
        "started_at": at_us(step.started_at),
        "ended_at": at_us(step.ended_at),
        "queue_detected": None if step.queue_detected is None else int(step.queue_detected),
        "is_probe": int(step.is_probe),
    }
