"""Load steps in memory: the changes of load that the controller of a benchmark run decided on."""

from collections.abc import Sequence

from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.run import RunId, Step, StepType
from drumbeat.store.memory.state import MemoryTable, operation


class MemorySteps(MemoryTable):
    @operation
    def save(self, steps: Sequence[Step], *, fence: Fence | None = None) -> None:
        self.state.admit(fence)
        targets = [(self.state.run_rows(step.run_id)[0], step) for step in steps]
        for rows, step in targets:
            rows.steps[step.type, step.n] = step

    @operation
    def list(self, run_id: RunId, type: StepType | None = None) -> Sequence[Step]:  # noqa: A002
        rows = self.state.pools.get(PoolId(run_id))
        steps = [rows.steps[key] for key in sorted(rows.steps)] if rows else []
        return [step for step in steps if type in (None, step.type)]
