"""What a look at a pool tells of instances of which rows do not know."""

import pytest

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.runtime.sight import unnoted
from drumbeat.spawn.interface import Instance, InstanceState

POOL, W0 = PoolId("p"), WorkerId("worker-0")


@pytest.mark.parametrize(
    ("status", "known", "state", "expected"),
    [
        (WorkerStatus.SPAWNING, None, InstanceState.RUNNING, {W0: "pod-7"}),
        (WorkerStatus.SPAWNING, "", InstanceState.PENDING, {W0: "pod-7"}),
        (WorkerStatus.SPAWNING, "pod-6", InstanceState.RUNNING, {}),
        (WorkerStatus.SPAWNING, None, InstanceState.EXITED, {}),
        (WorkerStatus.ACTIVE, None, InstanceState.RUNNING, {}),
    ],
    ids=["running", "pending", "its row knows one", "over", "has joined"],
)
def test_an_instance_is_unnoted_while_its_worker_has_not_joined_and_its_row_names_none(
    status: WorkerStatus, known: str | None, state: InstanceState, expected: dict[WorkerId, str]
) -> None:
    row = Worker(pool_id=POOL, worker_id=W0, slot=0, status=status, provider_ref=known)
    instance = Instance(pool_id=POOL, worker_id=W0, ref="pod-7", state=state)
    stray = Instance(pool_id=POOL, worker_id=WorkerId("stray"), ref="pod-8", state=state)

    assert unnoted([row], [stray, instance]) == expected
