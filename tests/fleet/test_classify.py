"""Everybody is judged once: who is busy, idle, starting, leaving, and whose provider is another."""

from dataclasses import replace
from typing import Any

import pytest

from drumbeat.core.recovery import ASKED_AT
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.fleet.decide import decide
from drumbeat.fleet.decide.classify import classify
from drumbeat.fleet.model import AskToDrain, FleetState, ListedInstance, MarkLost, Provider, Reap, Spawn, Warn
from fleet.given import NOW, idle_for, job, queued, ready_worker, runs, seconds, worker


def test_a_worker_that_starts_is_neither_idle_nor_busy_and_one_that_leaves_is_none_of_them() -> None:
    starting = worker(2, status=WorkerStatus.STARTING, silent=1)
    leaving = ready_worker(3, drain_deadline=NOW)

    crew = classify(queued(ready_worker(0), ready_worker(1), starting, leaving, ready=1, held=(job("j0", 0),)))

    assert [each.worker_id for each in crew.busy] == ["worker-0"]
    assert [each.worker_id for each in crew.idle] == ["worker-1"]
    assert [each.worker_id for each in crew.starting] == ["worker-2"]
    assert [each.worker_id for each in crew.staying] == ["worker-0", "worker-1", "worker-2"]
    assert [each.worker_id for each in crew.living] == ["worker-0", "worker-1", "worker-2", "worker-3"]


LOCAL = Provider(name="local")


def test_what_another_provider_has_is_not_said_to_be_gone_but_warned_of() -> None:
    ended = [worker(n, status=WorkerStatus.LOST, provider=name) for n, name in enumerate(["runpod", "local", None])]

    actions = decide(queued(*ended, provider=LOCAL)).actions

    assert [each.worker_id for each in actions if isinstance(each, Reap)] == ["worker-1", "worker-2"]
    assert [(each.worker_id, each.rule) for each in actions if isinstance(each, Warn)] == [("worker-0", "other_provider")]


def test_nor_is_it_missed_in_lists_it_is_not_in_nor_started_here() -> None:
    silent = ready_worker(0, silent=61, provider="runpod")
    asked = worker(1, status=WorkerStatus.SPAWNING, silent=61, provider="runpod")
    seen = queued(silent, asked, ready=1, provider=LOCAL, instances=(), max_workers=2)

    actions = decide(replace(seen, state=FleetState(missing={"worker-0": NOW, "worker-1": NOW}))).actions

    assert [each for each in actions if isinstance(each, MarkLost | Spawn)] == []


def test_where_the_provider_gave_no_list_whatever_hangs_on_it_comes_last() -> None:
    ended, idle = worker(0, status=WorkerStatus.LOST), [ready_worker(n) for n in (1, 2)]
    seen = queued(ended, *idle, max_workers=1, instances=runs(1, 2), state=idle_for(worker_1=700, worker_2=700))

    known, partial = decide(seen).actions, decide(replace(seen, instances_partial=True)).actions

    assert [type(each) for each in known] == [Reap, AskToDrain, AskToDrain]
    assert [type(each) for each in partial] == [AskToDrain, Reap]


def closed_before_it_was_seen(asked: float, **fields: Any) -> Worker:
    """A worker whose creation got no answer, closed since: by hand, or because its time to drain was over."""
    created: dict[str, Any] = {"created_at": NOW - seconds(asked), "heartbeat_at": None, "heartbeat_count": 0, **fields}
    return worker(0, status=WorkerStatus.TERMINATED, **created)


SLOW = Provider(name="runpod", unique_names=False, settle=seconds(180))


@pytest.mark.parametrize(
    ("row", "instances", "is_reaped"),
    [
        (closed_before_it_was_seen(30), (), False),
        (closed_before_it_was_seen(300, meta={ASKED_AT: (NOW - seconds(30)).isoformat()}), (), False),
        (closed_before_it_was_seen(180), (), True),
        (closed_before_it_was_seen(30), runs(0), True),
        (closed_before_it_was_seen(30, provider_ref="pod-7"), (), True),
        (closed_before_it_was_seen(30, heartbeat_at=NOW), (), True),
        (closed_before_it_was_seen(30, meta={"spawn_failed": True}), (), True),
    ],
    ids=["it may turn up", "asked for again", "it would be there", "it is there", "it was seen", "it was heard", "refused"],
)
def test_a_creation_without_an_answer_is_not_given_up_while_its_instance_may_turn_up(
    row: Worker, instances: tuple[ListedInstance, ...], is_reaped: bool
) -> None:
    seen = queued(row, ready=9, instances=instances, provider=SLOW, max_workers=2)

    actions = decide(seen).actions

    assert [each.worker_id for each in actions if isinstance(each, Reap)] == (["worker-0"] if is_reaped else [])
    refused = bool(row.meta.get("spawn_failed"))
    assert len([each for each in actions if isinstance(each, Spawn)]) == (2 if refused else 1)


def test_such_a_creation_counts_where_names_are_unique_as_well() -> None:
    slow = replace(SLOW, unique_names=True)
    seen = queued(closed_before_it_was_seen(30), ready=9, instances=(), provider=slow, max_workers=1)

    assert not [each for each in decide(seen).actions if isinstance(each, Spawn)]
