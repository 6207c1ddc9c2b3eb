"""Volumes that run full are expanded: by how much, how often, up to where, and what is said where they cannot be."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from drumbeat.core.beat import Beat
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.fleet.decide import decide, decide_step
from drumbeat.fleet.explain import explain, sentences
from drumbeat.fleet.model import ExpandVolume, FleetPolicy, FleetState, FleetView, Provider, Warn
from drumbeat.fleet.observe import last_state
from drumbeat.fleet.recorded import recorded
from drumbeat.fleet.replay import replay
from drumbeat.runtime.beat import encode, encode_action
from fleet.given import NOW, POOL, ready_worker, seconds, view

RENTED = Provider(name="runpod", expands_volumes=True)
LOCAL = Provider(name="local")


def told(total: Any, free: Any, volume: Any = "vol1") -> dict[str, Any]:
    named = {} if volume is None else {"volume": volume}
    return {"disk": {"path": "/workspace", "total_gb": total, "free_gb": free, **named}}


def holder(name: int, total: float, free: float, volume: str | None = "vol1", **fields: Any) -> Worker:
    """A worker that tells of such a disk."""
    return ready_worker(name, **{"gpu": told(total, free, volume), "host": "here", **fields})


def watched(*workers: Worker, provider: Provider = RENTED, state: FleetState | None = None, **rules: Any) -> FleetView:
    """A fixed fleet of these workers, with these rules for its disks."""
    policy = FleetPolicy(workers=len([each for each in workers if each.is_live]), **rules)
    return view(*workers, policy=policy, provider=provider, state=state or FleetState())


def later(seen: FleetView, beats: int) -> FleetView:
    """The same after so many beats, its workers heard of just now."""
    now = NOW + seconds(30 * beats)
    return replace(seen, now=now, workers=tuple(replace(each, heartbeat_at=now) for each in seen.workers))


def sizes(seen: FleetView) -> dict[str, int]:
    return {each.volume: each.to_gb for each in decide(seen).actions if isinstance(each, ExpandVolume)}


def warnings(seen: FleetView) -> list[str]:
    return [each.reason for each in decide(seen).actions if isinstance(each, Warn) and each.rule == "storage"]


TABLE: list[tuple[str, FleetView, dict[str, int]]] = [
    ("room enough", watched(holder(0, 400, 100)), {}),
    ("50 GB free are enough", watched(holder(0, 200, 50)), {}),
    ("less are not", watched(holder(0, 200, 49.9)), {"vol1": 250}),
    ("84 % used are not too many", watched(holder(0, 1000, 160), storage_max_gb=4000), {}),
    ("85 % are", watched(holder(0, 900, 135)), {"vol1": 950}),
    ("a size is whole", watched(holder(0, 99.3, 10)), {"vol1": 150}),
    ("shared by many it is expanded once", watched(*(holder(n, 100, 10) for n in range(5))), {"vol1": 150}),
    ("each volume for itself", watched(holder(0, 100, 10), holder(1, 200, 9, "vol2")), {"vol1": 150, "vol2": 250}),
    ("of two sights the larger is the newer", watched(holder(0, 100, 1), holder(1, 150, 60)), {}),
    ("of two alike the fuller counts", watched(holder(0, 150, 60), holder(1, 150, 20)), {"vol1": 200}),
    ("one that drains tells of it too", watched(holder(0, 100, 1, status=WorkerStatus.DRAINING)), {"vol1": 150}),
    ("one that is over does not", watched(holder(0, 100, 1, status=WorkerStatus.LOST)), {}),
    ("the policy says how little is too little", watched(holder(0, 100, 10), storage_min_free_gb=10), {"vol1": 150}),
    (
        "and how full is too full",
        watched(holder(0, 100, 10), storage_min_free_gb=10, storage_max_percent_used=95),
        {},
    ),
    ("and by how much", watched(holder(0, 100, 10), storage_expansion_increment_gb=20), {"vol1": 120}),
    ("up to its bound", watched(holder(0, 100, 10), storage_max_gb=130), {"vol1": 130}),
    ("and no further", watched(holder(0, 130, 10), storage_max_gb=130), {}),
    ("the usual bound", watched(holder(0, 1000, 10)), {}),
    ("local processes have no volume to expand", watched(holder(0, 100, 10), provider=LOCAL), {}),
    ("a disk without a name cannot be either", watched(holder(0, 100, 10, None)), {}),
    ("not by nothing", watched(holder(0, 100, 10), storage_expansion_increment_gb=0), {}),
    ("nobody looks", watched(holder(0, 100, 10), storage_check_interval_cycles=0), {}),
    ("nothing is bought while paused", replace(watched(holder(0, 100, 10)), paused_until=NOW + seconds(1)), {}),
    ("again once that is over", replace(watched(holder(0, 100, 10)), paused_until=NOW - seconds(1)), {"vol1": 150}),
    ("a fleet that remembers nothing looks", replace(watched(holder(0, 100, 10)), state=None), {"vol1": 150}),
]


@pytest.mark.parametrize(("seen", "wanted"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_volumes_get_the_size_they_need(seen: FleetView, wanted: dict[str, int]) -> None:
    assert sizes(seen) == wanted


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (watched(holder(0, 100, 100)), None),
        (watched(holder(0, 100, 10)), None),
        (watched(holder(0, 100, 10), provider=LOCAL), "the provider cannot expand this volume"),
        (watched(holder(0, 100, 10, None)), "the provider cannot expand this volume"),
        (watched(*(holder(n, 100, 10, None) for n in range(3)), provider=LOCAL), "here:/workspace: 10 of 100 GB free"),
        (watched(holder(0, 130, 10), storage_max_gb=130), "expansion is limited to 130 GB"),
        (watched(holder(0, 100, 10), storage_expansion_increment_gb=0), "expansion is off"),
        (watched(holder(0, 100, 10), state=FleetState(asked_gb={"vol1": 150})), "an earlier request for 150 GB had no effect"),
        (watched(holder(0, 100, 10), state=FleetState(asked_gb={"vol1": 100})), None),
    ],
    ids=["room enough", "expanded", "local", "no name", "once a disk", "bound", "by nothing", "no larger", "larger now"],
)
def test_where_it_cannot_be_helped_somebody_is_told_once(seen: FleetView, said: str | None) -> None:
    found = warnings(seen)

    assert len(found) == (0 if said is None else 1)
    assert said is None or said in found[0]


@pytest.mark.parametrize(
    ("last", "wanted"),
    [(0, {}), (30, {}), (270, {}), (284, {}), (286, {"vol1": 150}), (300, {"vol1": 150}), (9999, {"vol1": 150})],
)
def test_disks_are_looked_at_every_ten_beats(last: float, wanted: dict[str, int]) -> None:
    state = FleetState(disks_at=NOW - seconds(last))

    assert sizes(watched(holder(0, 100, 10), state=state)) == wanted


def test_what_was_asked_for_is_remembered_until_the_next_look() -> None:
    first = decide_step(watched(holder(0, 100, 10))).state
    between = decide_step(later(watched(holder(0, 100, 5), state=first), 1)).state
    after = decide_step(later(watched(holder(0, 150, 60), state=between), 10)).state

    assert (first.disks_at, first.asked_gb) == (NOW, {"vol1": 150})
    assert (between.disks_at, between.asked_gb) == (NOW, {"vol1": 150})
    assert (after.disks_at, after.asked_gb) == (NOW + seconds(300), {})


def test_a_sight_that_does_not_change_never_asks_for_more() -> None:
    """Whatever becomes of the answers: figures that are not new are not bought for twice."""
    seen, asked = watched(holder(0, 100, 10)), list[int]()
    for n in range(100):
        made = decide_step(later(seen, n))
        asked += [each.to_gb for each in made.actions if isinstance(each, ExpandVolume)]
        seen = replace(seen, state=made.state)

    assert asked == [150] * 10


def test_a_job_that_fills_every_disk_it_gets_stops_at_the_bound() -> None:
    size, bought, state = 100, list[int](), FleetState()
    for n in range(400):
        made = decide_step(later(watched(holder(0, size, 1), state=state, storage_max_gb=320), n))
        bought += [each.to_gb for each in made.actions if isinstance(each, ExpandVolume)]
        size, state = max([size, *bought]), made.state

    assert bought == [150, 200, 250, 300, 320]


@pytest.mark.parametrize(
    "gpu",
    [
        None,
        {},
        {"memory_total_mb": 24000},
        {"disk": None},
        {"disk": "full"},
        {"disk": {}},
        told("much", 1),
        told(0, 0),
        told(-5, -6),
        told(float("nan"), 1),
        told(float("inf"), 1),
        told(100, None),
        told(100, 1, 7),
        told(True, 1),
    ],
    ids=str,
)
def test_workers_that_tell_nothing_of_use_leave_no_trace(gpu: dict[str, Any] | None) -> None:
    made = decide_step(watched(ready_worker(0, gpu=gpu)))

    assert not any(isinstance(each, ExpandVolume | Warn) for each in made.actions)
    assert (made.state.disks_at, made.state.asked_gb) == (None, {})


def kept(n: int, seen: FleetView) -> Beat:
    """A beat's row after it has been through a store's JSON."""
    decision = decide(seen)
    row: Mapping[str, Any] = json.loads(
        json.dumps(
            {
                "view": encode(seen),
                "actions": [encode_action(action, error="HTTP 500") for action in decision.actions],
                "summary": decision.summary,
            }
        )
    )
    return Beat(
        pool_id=POOL,
        n=n,
        at=seen.now,
        owner="me",
        epoch=1,
        view=row["view"],
        actions=row["actions"],
        summary=row["summary"],
    )


def test_what_a_beat_leaves_is_read_by_the_next() -> None:
    left = last_state(kept(1, watched(holder(0, 100, 10))))

    assert left is not None
    assert (left.disks_at, left.asked_gb) == (NOW, {"vol1": 150})


def test_beats_that_expanded_are_replayed_as_they_were() -> None:
    beats, state = list[Beat](), FleetState()
    for n in range(1, 61):
        size, free = 100 + 50 * (n // 15), 45 if n % 15 < 12 else 95
        beats.append(kept(n, later(watched(holder(0, size, free), state=state), n)))
        state = last_state(beats[-1]) or FleetState()

    found = replay(recorded(beats), encode_action)
    sooner = replay(recorded(beats), encode_action, lambda policy: replace(policy, storage_expansion_increment_gb=70))

    expanding = [action for beat in beats for action in beat.actions if action["type"] == "ExpandVolume"]
    assert len(expanding) > 2
    assert (found.beats, found.share, found.differences) == (60, 1.0, ())
    assert sooner.share < 1
    assert any("to 170 GB" in line for each in sooner.differences for line in each.after)


def test_it_is_explained() -> None:
    seen = watched(holder(0, 100, 10.04), holder(1, 400, 300, "vol2"))
    now, beat = explain(seen), kept(1, seen)
    then = explain(seen, beat.actions)

    because = "ExpandVolume worker-0: vol1: 10 of 100 GB free, 90 % used; expanding to 150 GB"
    assert now.inputs["disk_free_gb"] == [10.0, 100]
    assert now.actions == (because,)
    assert then.actions == (f"{because} [not done: HTTP 500]",)
    assert {"  disk_free_gb: 10 of 100", f"  {because}"} <= set(sentences(now))
    assert "disk_free_gb" not in explain(watched(ready_worker(0))).inputs
