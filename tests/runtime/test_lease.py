"""One leads, and only as long as it can be sure."""

import asyncio
from datetime import timedelta

import pytest

from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.lease import Lease
from drumbeat.runtime.lease import Leadership
from runtime.given import Slow, World, seconds, settle

TTL = seconds(10)


def leadership(world: World, owner: str = "a") -> Leadership:
    return Leadership(world.store, "p", owner, TTL, world.clock)


async def test_the_first_to_ask_leads_and_the_second_stands_by(world: World) -> None:
    first, second = leadership(world, "a"), leadership(world, "b")

    assert (await first.hold()) is not None
    assert await second.hold() is None
    assert (await second.held_by())[0] == "a"


async def test_holding_on_keeps_the_epoch(world: World) -> None:
    leader = leadership(world)
    epochs = []
    for _ in range(5):
        lease = await leader.hold()
        epochs.append(lease.epoch if lease else None)
        await world.passes(9)

    assert epochs == [1, 1, 1, 1, 1]


async def test_who_resigns_lets_the_next_lead_at_once(world: World) -> None:
    first, second = leadership(world, "a"), leadership(world, "b")
    await first.hold()

    await first.resign()

    assert not first.trusted
    lease = await second.hold()
    assert lease is not None
    assert lease.epoch == 2


@pytest.mark.parametrize("ended_by", ["cancellation", "an outage"])
async def test_who_never_got_the_answer_lets_the_next_lead_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, ended_by: str
) -> None:
    """The store grants the lease, but nobody waits for the answer: the next must not wait until the lease expires."""
    acquire, asked, cancelled = world.store.leases.acquire, asyncio.Event(), asyncio.Event()

    async def grant_without_answer(name: str, owner: str, ttl: timedelta) -> Lease | None:
        asked.set()
        if ended_by == "an outage":
            assert await acquire(name, owner, ttl) is not None
            raise StoreUnavailable("connection lost")
        return await asyncio.shield(asyncio.ensure_future(grant_later(name, owner, ttl)))  # noqa: TID251 - as a thread would

    async def grant_later(name: str, owner: str, ttl: timedelta) -> Lease | None:
        await cancelled.wait()
        return await acquire(name, owner, ttl)

    monkeypatch.setattr(world.store.leases, "acquire", grant_without_answer)
    first = leadership(world)
    if ended_by == "an outage":
        with pytest.raises(StoreUnavailable):
            await first.hold()
    else:
        async with asyncio.TaskGroup() as group:
            holding = group.create_task(first.hold())
            await asked.wait()
            holding.cancel()
    monkeypatch.setattr(world.store.leases, "acquire", acquire)

    async with asyncio.TaskGroup() as group:
        group.create_task(first.resign())
        await settle()
        cancelled.set()

    assert await leadership(world, "b").hold() is not None


async def test_who_is_cancelled_as_the_answer_arrives_lets_the_next_lead_at_once(world: World) -> None:
    for turns in range(30):
        first = leadership(world)
        async with asyncio.TaskGroup() as group:
            holding = group.create_task(first.hold())
            await settle(turns)
            holding.cancel()

        await first.resign()

        second = leadership(world, "b")
        assert await second.hold() is not None, f"cancelled after {turns} turns"
        await second.resign()


async def test_who_asked_in_vain_leaves_the_leader_its_lease(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = leadership(world), leadership(world, "b")
    await first.hold()
    monkeypatch.setattr(world.store.leases, "acquire", fails)
    with pytest.raises(StoreUnavailable):
        await second.hold()

    await second.resign()

    assert (await first.held_by())[0] == "a"
    assert await first.hold() is not None


async def fails(*_: object) -> Lease | None:
    raise StoreUnavailable("connection lost")


async def test_resigning_without_a_lease_or_a_store_is_harmless(world: World) -> None:
    leader = leadership(world)
    await leader.resign()
    await leader.hold()
    with world.store.unavailable():
        await leader.resign()
    assert not leader.trusted


async def test_what_is_forgotten_is_not_trusted_and_must_be_taken_anew(world: World) -> None:
    leader = leadership(world)
    await leader.hold()
    leader.forget()
    assert not leader.trusted
    assert await leader.hold() is None
    await world.passes(10)
    lease = await leader.hold()
    assert lease is not None
    assert lease.epoch == 2


@pytest.mark.parametrize(
    ("after", "trusted", "fresh"), [(0, True, True), (3.9, True, True), (4.1, True, False), (8, False, False)]
)
async def test_a_lease_is_trusted_for_four_fifths_of_its_time(world: World, after: float, trusted: bool, fresh: bool) -> None:
    leader = leadership(world)
    await leader.hold()
    await world.passes(after)
    assert (leader.trusted, leader.fresh) == (trusted, fresh)


async def test_trust_counts_from_before_the_request(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(world.store.leases, world.clock)
    monkeypatch.setattr(world.store, "leases", slow)
    leader = leadership(world)
    slow.after = seconds(6)
    async with asyncio.TaskGroup() as group:
        group.create_task(leader.hold())
        await world.passes(6)

    assert leader.remaining == seconds(2)


async def test_a_leader_stops_believing_before_the_store_lets_another_lead(world: World) -> None:
    first, second = leadership(world, "a"), leadership(world, "b")
    await first.hold()
    taken: Lease | None = None
    for _ in range(100):
        await world.passes(0.2)
        if (taken := await second.hold()) is not None:
            break
        assert world.clock.elapsed() < seconds(10)

    assert taken is not None
    assert not first.trusted
    assert await first.hold() is None


async def test_a_lease_is_kept_through_an_outage_only_while_it_is_trusted(world: World) -> None:
    leader = leadership(world)
    lease = await leader.hold()
    with world.store.unavailable():
        await world.passes(7)
        assert await leader.hold() == lease
        await world.passes(1)
        with pytest.raises(StoreUnavailable):
            await leader.hold()
    renewed = await leader.hold()
    assert renewed is not None
    assert renewed.epoch == 1


async def test_a_store_that_does_not_answer_is_not_waited_for_beyond_the_lease(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(world.store.leases, world.clock)
    slow.before = seconds(3600)
    monkeypatch.setattr(world.store, "leases", slow)
    leader = leadership(world)

    async def hold() -> str:
        try:
            await leader.hold()
        except StoreUnavailable as exc:
            return str(exc)
        return "held"

    async with asyncio.TaskGroup() as group:
        held = group.create_task(hold())
        await world.passes(10)
        await settle()
        assert held.done()
    assert "10 s" in held.result()
