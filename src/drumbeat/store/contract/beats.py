"""Tests of beats: the stored record of each pass of a controller's loop."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.beat import Beat, NewBeat
from drumbeat.core.errors import Fenced
from drumbeat.core.lease import Lease
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.store.contract.given import AWKWARD, MINUTE, Elapse, Given, new_pool, outdated
from drumbeat.store.interface import Store


def new_beat(**view: Any) -> NewBeat:
    return NewBeat(owner="a", epoch=1, view=view)


async def appended(store: Store, pool: PoolRow, many: int) -> list[Beat]:
    return [await store.beats.append(pool.pool_id, new_beat(n=n)) for n in range(1, many + 1)]


class BeatsContract(Given):
    async def test_a_beat_comes_back_as_it_was(self, store: Store, pool: PoolRow) -> None:
        beat = NewBeat(
            owner="host-1:42",
            epoch=7,
            view={"workers": [AWKWARD], "backlog": 3},
            actions=[{"type": "Spawn", "worker": "w1", "reason": "backlog"}, {"type": "Drain", "error": AWKWARD}],
            why_not="nothing to do",
            error="act: the provider said no",
            duration=timedelta(milliseconds=12, microseconds=345),
            summary=AWKWARD,
        )

        made = await store.beats.append(pool.pool_id, beat)

        assert await store.beats.list(pool.pool_id) == [made]
        assert (made.owner, made.epoch, made.view, made.summary) == (beat.owner, beat.epoch, beat.view, beat.summary)
        assert list(made.actions) == list(beat.actions)
        assert (made.why_not, made.error, made.duration) == (beat.why_not, beat.error, beat.duration)

    async def test_a_beat_without_view_and_actions_comes_back_unchanged(self, store: Store, pool: PoolRow) -> None:
        await store.beats.append(pool.pool_id, NewBeat(owner="a", epoch=1, view=None))

        [beat] = await store.beats.list(pool.pool_id)

        assert (beat.view, list(beat.actions), beat.why_not, beat.error, beat.summary) == (None, [], None, None, {})

    async def test_beats_are_numbered_from_one_in_each_pool(self, store: Store, pool: PoolRow) -> None:
        other = await store.pools.create(new_pool())

        assert [beat.n for beat in await appended(store, pool, 3)] == [1, 2, 3]
        assert [beat.n for beat in await appended(store, other, 1)] == [1]

    async def test_beats_written_at_once_leave_no_gap(self, store: Store, pool: PoolRow) -> None:
        await asyncio.gather(*(store.beats.append(pool.pool_id, new_beat()) for _ in range(20)))

        assert [beat.n for beat in await store.beats.list(pool.pool_id)] == list(range(1, 21))

    async def test_beats_are_stamped_by_the_store(self, store: Store, pool: PoolRow) -> None:
        before = await store.now()
        beat = await store.beats.append(pool.pool_id, new_beat())

        assert before <= beat.at <= await store.now()

    async def test_beats_are_listed_oldest_first_above_a_number(self, store: Store, pool: PoolRow) -> None:
        made = await appended(store, pool, 5)

        assert await store.beats.list(pool.pool_id) == made
        assert await store.beats.list(pool.pool_id, after=2) == made[2:]
        assert await store.beats.list(pool.pool_id, after=1, limit=2) == made[1:3]

    async def test_beats_are_listed_since_a_time(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await appended(store, pool, 2)
        await elapse(5 * MINUTE)
        recent = await store.beats.append(pool.pool_id, new_beat(recent=True))

        assert await store.beats.list(pool.pool_id, since=await store.now() - MINUTE) == [recent]

    async def test_the_last_beat_is_found(self, store: Store, pool: PoolRow) -> None:
        assert await store.beats.last(pool.pool_id) is None

        made = await appended(store, pool, 3)

        assert await store.beats.last(pool.pool_id) == made[-1]

    async def test_the_last_beat_before_a_moment_is_found(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        made = []
        for _ in range(7):
            made.append(await store.beats.append(pool.pool_id, new_beat()))
            await elapse(MINUTE)
        times = [beat.at for beat in await store.beats.list(pool.pool_id)]

        found = [await store.beats.last(pool.pool_id, before=at) for at in times]
        between = [await store.beats.last(pool.pool_id, before=at + MINUTE / 2) for at in times]

        assert [beat.n for beat in found if beat] == [beat.n for beat in made]
        assert [beat.n for beat in between if beat] == [beat.n for beat in made]
        assert await store.beats.last(pool.pool_id, before=times[0] - MINUTE) is None

    async def test_the_last_beat_with_a_view_is_found(self, store: Store, pool: PoolRow) -> None:
        assert await store.beats.last(pool.pool_id, seen=True) is None
        await store.beats.append(pool.pool_id, NewBeat(owner="a", epoch=1, view=None))
        nothing = await store.beats.last(pool.pool_id, seen=True)
        made = await appended(store, pool, 2)
        for _ in range(3):
            await store.beats.append(pool.pool_id, NewBeat(owner="a", epoch=1, view=None, summary={"view": 1}))

        assert nothing is None
        assert await store.beats.last(pool.pool_id, seen=True) == made[-1]
        assert await store.beats.last(pool.pool_id, before=await store.now(), seen=True) == made[-1]

    async def test_deeds_are_beats_with_actions_without_their_views(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        acted = NewBeat(
            owner="a", epoch=1, view={"workers": [AWKWARD]}, actions=[{"type": "Spawn", "reason": "so"}], why_not="x"
        )
        for beat in (acted, new_beat(), acted, new_beat(), acted):
            await store.beats.append(pool.pool_id, beat)
        await elapse(2 * MINUTE)
        for beat in (new_beat(), acted):
            await store.beats.append(pool.pool_id, beat)
        rows = [replace(beat, view=None) for beat in await store.beats.list(pool.pool_id) if beat.actions]

        assert [beat.n for beat in rows] == [1, 3, 5, 7]
        assert await store.beats.with_actions(pool.pool_id) == rows
        assert await store.beats.with_actions(pool.pool_id, limit=2) == rows[2:], "the last ones"
        assert await store.beats.with_actions(pool.pool_id, since=await store.now() - MINUTE) == rows[3:]
        assert await store.beats.with_actions(PoolId("pool-nobody-made")) == []

    async def test_deeds_are_searched_in_the_last_beats_only(self, store: Store, pool: PoolRow) -> None:
        acted = NewBeat(owner="a", epoch=1, view={"actions": []}, actions=[{"type": "Spawn"}])
        quiet = NewBeat(owner="a", epoch=1, view={"actions": [{"type": "Spawn"}], "also": '"actions":[{'}, actions=[])
        for beat in (acted, acted, quiet, quiet, acted, quiet, quiet):
            await store.beats.append(pool.pool_id, beat)

        found = {
            among: [beat.n for beat in await store.beats.with_actions(pool.pool_id, among=among)]
            for among in (1, 2, 3, 5, 6, 99)
        }

        assert found == {1: [], 2: [], 3: [5], 5: [5], 6: [2, 5], 99: [1, 2, 5]}
        assert [beat.n for beat in await store.beats.with_actions(pool.pool_id, among=6, limit=1)] == [5]

    async def test_a_pool_nobody_made_has_no_beats(self, store: Store, pool: PoolRow) -> None:
        await store.beats.append(pool.pool_id, NewBeat(owner="a", epoch=1, view=None))

        assert await store.beats.list(PoolId("pool-nobody-made")) == []

    async def test_the_holder_of_the_lease_may_write_beats(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        assert (await store.beats.append(pool.pool_id, new_beat(), fence=lease.fence)).n == 1

    async def test_an_outdated_controller_writes_no_beat(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        with pytest.raises(Fenced):
            await store.beats.append(pool.pool_id, new_beat(), fence=await outdated(store, lease))

        assert await store.beats.list(pool.pool_id) == []
