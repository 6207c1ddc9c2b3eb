"""What a checker sees of a pool."""

from datetime import timedelta

import pytest

from drumbeat.core.errors import InvalidSettings, NotFound
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.pool.model import Claim, PoolPolicy, PoolView
from drumbeat.pool.observe import observe, with_lost_after
from pool.seen import LIMITS, POOL, name, seconds
from pool.stage import Stage


async def look(stage: Stage, lost_after: timedelta | None = None) -> PoolView:
    return await observe(stage.store, stage.spawner, POOL, seconds(0), lost_after=lost_after)


async def test_an_empty_pool_is_seen_with_its_policy() -> None:
    stage = await Stage().open(max_workers=3, concurrency=2, capabilities=["gpu"], handlers={"": "a:b"})

    seen = await look(stage)

    assert seen.policy == PoolPolicy(max_workers=3, concurrency=2, capabilities=("gpu",))
    assert (seen.now, seen.workers, seen.claims, dict(seen.demand)) == (stage.clock.now(), (), (), {})
    assert seen.next_number == 0


async def test_ready_jobs_are_counted_by_the_capability_they_need() -> None:
    stage = await Stage().open()
    await stage.push(3)
    await stage.push(2, capability="gpu")
    await stage.push(4, delay=seconds(60))

    assert dict((await look(stage)).demand) == {"": 3, "gpu": 2}


async def test_counting_stops_a_little_above_the_cap() -> None:
    stage = await Stage().open(max_workers=2, concurrency=3)
    await stage.push(500)

    assert dict((await look(stage)).demand) == {"": 106}


async def test_claims_are_seen_with_their_holder_lease_and_last_chance() -> None:
    stage = await Stage().open()
    await stage.push(1, capability=None, max_crashes=1)
    await stage.push(1, max_crashes=2)
    await stage.claim(WorkerId("a"), seconds(5))
    await stage.claim(WorkerId("b"), seconds(500))
    await stage.clock.advance(seconds(5))

    assert (await look(stage)).claims == (
        Claim(worker_id=WorkerId("a"), expired=True, comes_back=False),
        Claim(worker_id=WorkerId("b"), expired=False, comes_back=True),
    )


async def test_claims_beyond_the_limit_are_known_to_be_there() -> None:
    stage = await Stage().open(max_workers=1)
    await stage.push(101)
    for _ in range(100):
        await stage.claim(WorkerId("a"))
    assert (await look(stage)).more_claims is False

    await stage.claim(WorkerId("a"))

    seen = await look(stage)
    assert (len(seen.claims), seen.more_claims) == (101, True)


async def test_of_those_who_ended_only_they_are_seen_who_need_something() -> None:
    stage = await Stage().open()
    await stage.push(1)
    for number in range(4):
        await stage.join(name(number), number)
    await stage.claim(name(1))
    for number in (0, 1, 2):
        await stage.store.membership.move(POOL, name(number), name(number), WorkerStatus.TERMINATED, "done")
    for number in (0, 1):
        await stage.store.workers.mark_reaped(POOL, name(number))

    seen = await look(stage)

    assert {row.worker_id for row in seen.workers} == {name(1), name(2), name(3)}
    assert seen.next_number == 4


async def test_the_next_name_is_above_every_name_there_is_whatever_rows_are_gone() -> None:
    stage = await Stage().open()
    for number in (3, 7):
        await stage.join(name(number), number)

    assert (await look(stage)).next_number == 8


async def test_silence_counts_though_nobody_looked() -> None:
    stage = await Stage().open()
    await stage.join(name(0))
    made = stage.clock.now()
    await stage.clock.advance(timedelta(hours=1))

    assert (await look(stage)).looking_since == made


async def test_another_threshold_is_taken_for_a_beat() -> None:
    stage = await Stage().open()

    assert (await look(stage)).thresholds == LIMITS
    assert (await look(stage, seconds(45))).thresholds.lost_after == seconds(45)


@pytest.mark.parametrize("lost_after", [31, 60, 119, 600])
def test_the_other_thresholds_make_room(lost_after: float) -> None:
    limits = with_lost_after(LIMITS, seconds(lost_after))

    assert limits.heartbeat_every < limits.stale_after < limits.lost_after == seconds(lost_after)
    assert limits.give_up_after < limits.lost_after


async def test_no_pool_is_no_view() -> None:
    with pytest.raises(NotFound):
        await observe((await Stage().open()).store, Stage().spawner, PoolId("nobody"), seconds(0))


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"max_workers": "many"}, "the pool's max_workers and concurrency to be whole numbers"),
        ({"max_workers": -1}, "max_workers to be 0 or more, got -1"),
        ({"concurrency": 0}, "concurrency to be 1 or more, got 0"),
        ({"capabilities": "gpu"}, "the pool's capabilities to be a list of names, got 'gpu'"),
        ({"capabilities": [1]}, "a list of names"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(policy: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        PoolPolicy.from_json(policy)
