"""A schedule whose jobs the store refuses: the others of its pool push, it is reported, and nothing grows."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.errors import InvalidInput, LargeUnavailable, StoreUnavailable
from drumbeat.core.job import NewJob
from drumbeat.pool.schedules.model import DEFINITION, MOST_UNCONFIRMED, PROGRESS
from drumbeat.pool.schedules.tick_pusher import TickPusher
from drumbeat.store.interface import PoolChange, Store
from drumbeat.store.memory import MemoryStore
from pool.schedules.given import HOUR, MAIL, Planned

GOOD = ("good", "healthy", "well")


async def with_a_refused_one(plan: Planned) -> None:
    """Add healthy schedules, and one whose jobs wait for a job that does not exist. ``add`` refuses such a schedule now."""
    for name in (*GOOD, "refused"):
        await plan.schedules.add(name, cron="0 * * * *")
    await with_options(plan, {"after": ["gone"]})


async def with_options(plan: Planned, options: dict[str, Any]) -> None:
    written = (await plan.pool.get()).policy[DEFINITION + "refused"]
    change = PoolChange(policy={DEFINITION + "refused": {**written, "options": options}})
    await plan.store.pools.change(MAIL, change)


async def pushed(plan: Planned) -> set[str]:
    """The schedules whose tick has a job, with the hour of the tick."""
    return {f"{job.job_id.split('@')[0]} {job.job_id.split('@')[1][9:11]}" for job in await plan.jobs()}


async def unconfirmed(plan: Planned) -> dict[str, int]:
    policy = (await plan.pool.get()).policy
    return {key.removeprefix(PROGRESS): len(value["unconfirmed"]) for key, value in policy.items() if key.startswith(PROGRESS)}


class Counted:
    """A queue that counts the pushes, and refuses them on demand."""

    def __init__(self, inner: Any, error: Exception | None = None) -> None:
        self._inner, self.error = inner, error
        self.pushes = list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def push(self, pool_id: Any, jobs: Any) -> Any:
        self.pushes.append(len(jobs))
        if self.error is not None:
            raise self.error
        return await self._inner.push(pool_id, jobs)


async def test_a_refused_schedule_does_not_stop_the_others(any_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    plan = Planned(any_store)
    await with_a_refused_one(plan)

    for hour in ("01", "02", "03"):
        plan.go_to(f"2026-01-01 {hour}:00")
        with caplog.at_level(logging.ERROR):
            await plan.look()

    assert await pushed(plan) == {f"{name} {hour}" for name in GOOD for hour in ("01", "02", "03")}
    assert await unconfirmed(plan) == dict.fromkeys((*GOOD, "refused"), 0)
    assert caplog.text.count("schedule refused of pool mail pushed no job for the ticks 2026-01-01T0") == 3
    assert "there is no job 'gone' to wait for" in caplog.text


async def test_a_refused_schedule_is_reported_until_its_jobs_are_pushed_again(any_store: Store) -> None:
    plan = Planned(any_store)
    await with_a_refused_one(plan)
    plan.store.time = await any_store.now() + HOUR  # so that a process looks now, by the store's own clock
    await plan.look()
    plan.store.time -= HOUR

    found = {each.name: each.problem for each in await plan.schedules.list()}
    assert [name for name, problem in found.items() if problem] == ["refused"]
    assert "there is no job 'gone' to wait for; " in str(found["refused"])
    assert found["refused"] in (await plan.schedules.get("refused")).lines

    await with_options(plan, {})
    plan.store.time += 2 * HOUR
    await plan.look()
    plan.store.time -= 2 * HOUR
    assert (await plan.schedules.get("refused")).problem is None


async def test_a_changed_schedule_has_no_problem_of_the_old_one(store: MemoryStore) -> None:
    plan = Planned(store)
    await with_a_refused_one(plan)
    await plan.look_at("2026-01-01 01:00")
    plan.store.time = await store.now() + timedelta(seconds=1)
    assert (await plan.schedules.get("refused")).problem is not None

    await plan.schedules.add("refused", cron="5 * * * *", exist_ok=True)

    assert (await plan.schedules.get("refused")).problem is None


async def test_a_schedule_with_options_that_are_no_longer_valid_is_reported_too(store: MemoryStore) -> None:
    plan = Planned(store)
    await with_a_refused_one(plan)
    await with_options(plan, {"colour": "red"})
    await plan.look_at("2026-01-01 01:00")
    plan.store.time = await store.now()

    assert "unknown option 'colour'" in str((await plan.schedules.get("refused")).problem)
    assert await pushed(plan) == {f"{name} 01" for name in GOOD}


async def test_all_schedules_push_together_unless_one_is_refused(store: MemoryStore) -> None:
    plan = Planned(store)
    await with_a_refused_one(plan)
    plan.store.queue = Counted(store.queue)
    await plan.look_at("2026-01-01 01:00")
    refused, plan.store.queue.pushes = plan.store.queue.pushes, []
    await with_options(plan, {})

    await plan.look_at("2026-01-01 02:00")

    assert plan.store.queue.pushes == [4]
    assert refused[0] == 4
    assert len(refused) <= 5


async def test_what_can_be_pushed_later_is_not_dropped(any_store: Store) -> None:
    plan = Planned(any_store)
    await plan.schedules.add("good", cron="0 * * * *")
    plan.store.queue = Counted(any_store.queue, StoreUnavailable("full"))
    for minute in ("00", "01"):
        plan.go_to(f"2026-01-01 01:{minute}")
        with pytest.raises(StoreUnavailable):
            await plan.look()
    assert plan.store.queue.pushes == [1, 1]
    del plan.store.queue

    assert await plan.look_at("2026-01-01 01:30") == ["01T0100"]


async def test_a_schedule_whose_large_payload_cannot_be_stored_waits_alone(store: MemoryStore) -> None:
    class Plugins:
        async def push(self, pool_id: Any, jobs: list[NewJob], send: Any) -> Any:
            if any(job.payload == "large" for job in jobs):
                raise LargeUnavailable("the bucket does not answer")
            return await send(jobs)

    plan = Planned(store)
    await plan.schedules.add("large", "large", cron="0 * * * *")
    await plan.schedules.add("small", "small", cron="0 * * * *")
    plan.go_to("2026-01-01 01:00")
    plugins: Any = Plugins()

    await TickPusher(plan.store, plan.clock, "a", lambda: plugins).push_due(await plan.pool.get())

    assert await pushed(plan) == {"small 01"}
    assert await unconfirmed(plan) == {"large": 1, "small": 0}
    plan.store.time = await store.now()
    assert "the bucket does not answer" in str((await plan.schedules.get("large")).problem)
    await plan.look_at("2026-01-01 01:01")
    assert await pushed(plan) == {"small 01", "large 01"}


async def test_ticks_that_cannot_be_pushed_for_long_do_not_pile_up(store: MemoryStore) -> None:
    plan = Planned(store)
    await plan.pool.create(exist_ok=True, retention="off")
    await plan.schedules.add("s", every=60)
    plan.store.queue = Counted(store.queue, StoreUnavailable("full"))
    for _ in range(MOST_UNCONFIRMED + 20):
        plan.store.time += timedelta(minutes=1)
        with pytest.raises(StoreUnavailable):
            await plan.look()

    written = (await plan.pool.get()).policy[PROGRESS + "s"]

    assert len(written["unconfirmed"]) == MOST_UNCONFIRMED
    assert written["unconfirmed"][-1] == plan.store.time.isoformat()


async def test_a_tick_that_was_tried_again_and_again_ends_when_its_job_may_be_deleted(any_store: Store) -> None:
    """The first process pushed it and died; others could not push for so long that the job was done and deleted."""
    plan = Planned(any_store)
    await plan.schedules.add("s", cron="0 0 * * *")
    await plan.pool.update(retention="jobs=2d,poisoned=2d")
    plan.store.queue = Counted(any_store.queue, StoreUnavailable("full"))
    for day in ("02", "03", "04", "05"):
        plan.go_to(f"2026-01-{day} 00:00")
        with pytest.raises(StoreUnavailable):
            await plan.look()
    del plan.store.queue

    assert await plan.look_at("2026-01-05 00:01") == ["04T0000", "05T0000"]


@pytest.mark.parametrize("option", [{"after": ["17"]}, {"after_any": True}, {"if_failed": "skip"}])
async def test_the_jobs_of_a_schedule_wait_for_no_others(store: MemoryStore, option: dict[str, Any]) -> None:
    name = next(iter(option))

    with pytest.raises(InvalidInput, match=f"expected no {name}: "):
        await Planned(store).schedules.add("s", every=60, **option)
