"""Everybody is judged once: who is busy, idle, starting, leaving."""

from drumbeat.core.worker import WorkerStatus
from drumbeat.fleet.decide.crew import judge_crew
from fleet.given import NOW, job, queued, ready_worker, worker


def test_a_worker_that_starts_is_neither_idle_nor_busy_and_one_that_leaves_is_none_of_them() -> None:
    starting = worker(2, status=WorkerStatus.STARTING, silent=1)
    leaving = ready_worker(3, drain_deadline=NOW)

    crew = judge_crew(queued(ready_worker(0), ready_worker(1), starting, leaving, ready=1, held=(job("j0", 0),)))

    assert [each.worker_id for each in crew.busy] == ["worker-0"]
    assert [each.worker_id for each in crew.idle] == ["worker-1"]
    assert [each.worker_id for each in crew.starting] == ["worker-2"]
    assert [each.worker_id for each in crew.staying] == ["worker-0", "worker-1", "worker-2"]
    assert [each.worker_id for each in crew.living] == ["worker-0", "worker-1", "worker-2", "worker-3"]
