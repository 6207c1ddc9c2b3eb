"""A whole fleet on one clock: it grows, loses a worker, replaces it and drains; and every beat can be decided again."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from drumbeat.core.beat import Beat
from drumbeat.core.worker import WorkerStatus
from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import FleetView
from drumbeat.fleet.outcome import with_outcome
from drumbeat.runtime.beat import encode_action
from drumbeat.spawn.fake import AnswerLost, ListFails, SpawnFails
from fleet.given import seconds
from fleet.living import LIMITS, Fleet, living_fleet

ACTIVE, ERROR, LOST, TERMINATED = WorkerStatus.ACTIVE, WorkerStatus.ERROR, WorkerStatus.LOST, WorkerStatus.TERMINATED


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with living_fleet() as fleet:
        yield fleet


def done(beats: list[Beat]) -> Counter[str]:
    return Counter(action["type"] for beat in beats for action in beat.actions)


def decided(action: Mapping[str, Any]) -> dict[str, Any]:
    """An action as it was decided, whatever became of it."""
    return {name: value for name, value in action.items() if name not in ("error", "cause")}


def replay(beat: Beat) -> None:
    """Decide a beat again, from nothing but the JSON of its row."""
    assert beat.view is not None
    decision = decide(msgspec.convert(json.loads(json.dumps(beat.view)), FleetView))

    assert [json.loads(json.dumps(encode_action(action))) for action in decision.actions] == [
        json.loads(json.dumps(decided(action))) for action in beat.actions
    ]
    assert (decision.why_not, with_outcome(decision.summary, beat.actions)) == (beat.why_not, beat.summary)


async def story(fleet: Fleet) -> None:
    """From nobody to three, one killed and replaced, and back to nobody."""
    await fleet.beats(2)
    await fleet.want(3, target=2)
    await fleet.beats(8)
    await fleet.want(3, target=6, ramp=seconds(2))
    await fleet.beats(6)
    fleet.spawner.kill(fleet.pool_id, (await fleet.workers(ACTIVE))[1].worker_id)
    await fleet.beats(8)
    await fleet.want(0)
    await fleet.beats(12)


async def test_a_fleet_grows_mends_itself_and_goes(fleet: Fleet) -> None:
    await story(fleet)

    rows = {str(row.worker_id): row for row in await fleet.workers()}
    assert {name: row.status for name, row in rows.items()} == {
        "worker-0": TERMINATED,
        "worker-1": ERROR,
        "worker-2": TERMINATED,
        "worker-3": TERMINATED,
    }
    assert (rows["worker-1"].exit_code, rows["worker-1"].slot) == (-9, 1)
    assert rows["worker-3"].slot == 1
    assert all(row.reaped_at for row in rows.values())
    assert fleet.spawner.running(fleet.pool_id) == []


async def test_each_thing_is_done_once(fleet: Fleet) -> None:
    await story(fleet)

    beats = list(await fleet.kept())
    assert done(beats) == {"Spawn": 4, "SetTarget": 3 + 3 + 1, "MarkFailed": 1, "AskToDrain": 3, "Reap": 4}
    assert all("error" not in action for beat in beats for action in beat.actions)
    assert all(beat.error is None for beat in beats)


async def test_every_beat_of_the_story_can_be_decided_again(fleet: Fleet) -> None:
    await story(fleet)

    beats = await fleet.kept()
    assert len(beats) == 36
    assert sum(bool(beat.actions) for beat in beats) >= 6
    assert any(beat.why_not for beat in beats)
    for beat in beats:
        replay(beat)


async def test_beats_that_went_wrong_can_be_decided_again_too(fleet: Fleet) -> None:
    await fleet.want(2)
    fleet.spawner.faults += [SpawnFails(), AnswerLost(started=False), ListFails()]
    await fleet.beats(50)

    beats = await fleet.kept()
    seen = [beat for beat in beats if beat.view is not None]
    failed = [action for beat in beats for action in beat.actions if "error" in action]
    assert [action["error"].partition(":")[0] for action in failed] == ["worker worker-0", "not tried", "worker worker-1"]
    assert len(seen) == len(beats)
    assert [beat.view["instances_partial"] for beat in seen if beat.view].count(True) == 1
    for beat in seen:
        replay(beat)
    assert len(await fleet.names(ACTIVE)) == 2


async def test_a_worker_that_falls_silent_is_lost_and_replaced(fleet: Fleet) -> None:
    await fleet.want(1)
    await fleet.beats(5)
    fleet.spawner.freeze((await fleet.workers(ACTIVE))[0].worker_id)

    await fleet.beats(10)
    assert await fleet.names(LOST) == []
    await fleet.beats(6)

    assert await fleet.names(LOST) == ["worker-0"]
    assert await fleet.names(ACTIVE) == ["worker-1"]
    assert fleet.spawner.running(fleet.pool_id) == ["worker-1"]


async def test_after_an_outage_for_all_nobody_is_lost(fleet: Fleet) -> None:
    """The store was away for longer than a stale worker's silence: controller and workers alike start afresh."""
    await fleet.want(3)
    await fleet.beats(6)
    began = (await fleet.kept())[-1]

    with fleet.store.unavailable():
        reports = await fleet.beats(7)
    await fleet.beats(LIMITS.lost_after // seconds(1) + 5)

    assert all(not report.led or report.error for report in reports[-2:])
    after = [beat for beat in await fleet.kept() if beat.n > began.n]
    assert after[0].view is not None
    assert after[0].view["looking_since"] == after[0].view["now"]
    assert done(after)["MarkLost"] == 0
    assert await fleet.names(ACTIVE) == ["worker-0", "worker-1", "worker-2"]


async def test_a_silent_worker_that_is_asked_to_drain_is_ended_all_the_same(fleet: Fleet) -> None:
    await fleet.want(1)
    await fleet.beats(5)
    fleet.spawner.freeze((await fleet.workers(ACTIVE))[0].worker_id)
    await fleet.want(0)

    await fleet.beats(LIMITS.drain_within // seconds(1) + 4)

    (row,) = await fleet.workers()
    assert row.status in {TERMINATED, LOST}
    assert row.reaped_at is not None
    assert fleet.spawner.running(fleet.pool_id) == []


async def test_a_second_controller_stands_by_and_takes_over(fleet: Fleet) -> None:
    await fleet.want(2)
    await fleet.beats(6)
    second = fleet.controller()
    assert (await second.beat()).led is False

    fleet.loop = second
    reports = await fleet.beats(8)

    assert [report.led for report in reports].count(True) >= 2
    assert len({beat.epoch for beat in await fleet.kept()}) == 2
    assert await fleet.names() == ["worker-0", "worker-1"]


async def test_a_controller_that_died_between_row_and_instance_leaves_no_gap(fleet: Fleet) -> None:
    await fleet.want(1)
    fleet.spawner.faults.append(AnswerLost(started=False))
    await fleet.beats(1)
    assert (await fleet.names(), fleet.spawner.running(fleet.pool_id)) == (["worker-0"], [])

    await fleet.beats(5)

    assert await fleet.names(ACTIVE) == ["worker-0"]
    assert fleet.spawner.running(fleet.pool_id) == ["worker-0"]
