"""A worker's price is its share in the nodes of the compute pool; nodes are paid until the pool is suspended."""

from dataclasses import replace
from datetime import timedelta

import pytest

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.pool import PoolId
from drumbeat.spawn.contract import OTHER_POOL
from spawn.spcs.account import SpcsAccount
from spawn.spcs.conftest import P, order, settings_of, spawner_at


def test_a_node_costs_credits_times_their_price() -> None:
    assert settings_of(node_price_per_hour=1.5).node_price == 1.5
    assert settings_of(credits_per_hour=0.5, price_per_credit=3.0).node_price == 1.5
    assert settings_of().node_price == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"node_price_per_hour": 1, "credits_per_hour": 1, "price_per_credit": 1}, "got both"),
        ({"credits_per_hour": 1}, "both credits_per_hour and price_per_credit"),
        ({"node_price_per_hour": -1}, "prices of 0 or more, got -1"),
        ({"workers_per_node": 0}, "workers_per_node of 1 or more, got 0"),
    ],
)
def test_a_price_that_cannot_be_is_refused(given: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        settings_of(**given)


async def test_workers_share_the_price_of_the_nodes_that_they_need(account: SpcsAccount) -> None:
    async with spawner_at(account, node_price_per_hour=1.2, workers_per_node=4, auto_suspend=timedelta(minutes=10)) as spawner:
        assert spawner.traits.price_per_hour == 1.2, "a worker may be alone on its node"
        assert spawner.traits.billing_granule == timedelta(minutes=10)
        prices = []
        for n in range(5):
            made = order(f"w{n}")
            placed = made if n % 2 else replace(made, pool_id=OTHER_POOL)
            prices.append((await spawner.spawn(placed)).price_per_hour)
        here = [one.price_per_hour for one in await spawner.list(P)]
        for pool_id in (P, OTHER_POOL):
            for one in await spawner.list(pool_id):
                await spawner.terminate(pool_id, one.worker_id)

    assert prices == pytest.approx([1.2, 0.6, 0.4, 0.3, 0.48]), "five workers need two nodes"
    assert here == pytest.approx([0.48, 0.48]), "workers of other pools share the nodes"


async def test_what_a_worker_costs_is_not_counted_once_it_has_left(account: SpcsAccount) -> None:
    async with spawner_at(account, node_price_per_hour=1.0) as spawner:
        await spawner.spawn(order())
        await spawner.drain(P, order().worker_id)
        while any(one.price_per_hour for one in await spawner.list(P)):
            pass

        assert await spawner.list(PoolId("other")) == []
