"""Explanations: inputs, what each rule wanted, which limit bound, what was done, and why nothing."""

from datetime import timedelta

import pytest

from drumbeat.core.job import JobId
from drumbeat.core.worker import WorkerId
from drumbeat.fleet.explain import explain, sentences
from drumbeat.fleet.model import FleetPolicy, FleetState, FleetView, HeldJob, PolicyName, QueueView, Schedule, Spending
from fleet.given import NOW, seconds, view, worker


def queued(ready: int, **fields: object) -> FleetView:
    policy = FleetPolicy(policy=PolicyName.QUEUE_RATIO, min_workers=0, max_workers=2, price_per_hour=2.0, max_per_day=100.0)
    queue = QueueView(ready=ready, oldest_ready=NOW - seconds(40) if ready else None)
    return view(**{"policy": policy, "queue": queue, "state": FleetState(), **fields})  # type: ignore[arg-type]


def test_inputs_wishes_limits_and_actions_are_told() -> None:
    found = explain(queued(30))

    assert found.inputs["ready"] == 30
    assert found.inputs["oldest_waits_s"] == 40
    assert found.inputs["spent_this_day"] == [0.0, 100.0]
    assert (found.wishes[0].rule, found.wishes[0].workers) == ("queue", 10)
    assert [(limit.name, limit.before, limit.after) for limit in found.limits] == [("policy max_workers", 10, 2)]
    assert (found.wanted, len(found.actions), found.why_not) == (2, 2, None)


@pytest.mark.parametrize("before_midnight", [1, 60, 6 * 3600])
def test_the_cost_told_is_that_of_the_current_day_up_to_its_end(before_midnight: int) -> None:
    midnight = (NOW + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    late = queued(30, now=midnight - seconds(before_midnight), spent=Spending(hour=1.5, day=40.0, month=90.0))

    assert explain(late).inputs["spent_this_day"] == [40.0, 100.0]


def test_the_bounds_told_are_those_of_the_hour() -> None:
    schedule = Schedule(begin=0, end=0, min_workers=1, max_workers=4)
    policy = FleetPolicy(policy=PolicyName.QUEUE_RATIO, min_workers=0, max_workers=0, schedules=(schedule,))

    inputs = explain(queued(30, policy=policy)).inputs

    assert (inputs["min_workers"], inputs["max_workers"], inputs["bounds_of"]) == (1, 4, "a schedule")
    assert "bounds_of" not in explain(queued(30)).inputs


def test_nothing_has_a_reason() -> None:
    held = (HeldJob(job_id=JobId("j"), worker_id=WorkerId("worker-0"), claimed_at=NOW),)

    found = explain(queued(3, workers=(worker(0),), instances=(), held=held))
    quiet = explain(queued(0))

    assert found.inputs["busy"] == 1
    assert quiet.actions == ()
    assert quiet.why_not
    assert "0 of 0 workers are here" in quiet.why_not


def test_what_a_beat_did_is_told_with_what_failed() -> None:
    done = [{"type": "Spawn", "worker_id": "worker-0", "reason": "0 of 2", "error": "no capacity"}]

    assert explain(queued(30), done).actions == ("Spawn worker-0: 0 of 2 [not done: no capacity]",)


def test_an_explanation_reads_as_lines() -> None:
    lines = sentences(explain(queued(30)))

    assert lines[0] == "p at 2026-01-01 12:00:00 UTC, policy queue_ratio"
    assert "  policy max_workers: 10 → 2: at most 2 workers are allowed" in lines
    assert "wanted: 2 workers" in lines
    assert lines[-1].startswith("  Spawn worker-1: ")
    assert sentences(explain(queued(0)))[-1].startswith("  nothing: 0 of 0 workers are here")
