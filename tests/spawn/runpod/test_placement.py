"""Where a pod is put: cheapest first, within the ceiling, and not where it was refused of late."""

from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.errors import SpawnCause, SpawnFailed
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.runpod.settings import Cloud
from spawn.runpod.faults import Answers
from spawn.runpod.machines import Card
from spawn.runpod.rig import ANN, BOB, Rig, order, rigged
from spawn.runpod.simulator import NO_STOCK

CARDS = (
    Card(id="A100", memory=80, secure=1.2, community=0.9),
    Card(id="L4", memory=24, secure=0.4),
    Card(id="T4", memory=16, secure=0.2, community=0.1),
)
STOCK = {
    ("A100", "SECURE", "EU-1"): 5,
    ("A100", "COMMUNITY", "US-1"): 5,
    ("L4", "SECURE", "EU-1"): 2,
    ("L4", "SECURE", "US-1"): 20,
    ("L4", "SECURE", "AP-1"): 0,
    ("T4", "SECURE", "US-1"): 5,
    ("T4", "COMMUNITY", "EU-1"): 5,
}
SECURE = ["T4 US-1", "L4 US-1", "L4 EU-1", "A100 EU-1"]


async def places_tried(rig: Rig, worker_id: WorkerId = ANN) -> list[str]:
    """What is asked for, in order, while all of it is refused."""
    asked = len(rig.simulator.asked("createPod"))
    rig.simulator.faults.append(Answers(operation="createPod", status=400, detail=NO_STOCK, times=99))
    with pytest.raises(SpawnFailed):
        await rig.spawner.spawn(order(worker_id))
    rig.simulator.faults.clear()
    return [f"{call.body['gpu']['id']} {call.body['dataCenterIds'][0]}" for call in rig.simulator.asked("createPod")[asked:]]


@pytest.mark.parametrize(
    ("settings", "tried"),
    [
        ({}, SECURE),
        ({"max_price_per_hour": 0.4}, SECURE[:3]),
        ({"max_price_per_hour": 0.8, "gpu_count": 2}, ["T4 US-1", "L4 US-1", "L4 EU-1"]),
        ({"max_price_per_hour": 0.01}, []),
        ({"min_gpu_memory_gb": 24}, SECURE[1:]),
        ({"gpu_types": ("A100", "T4")}, ["T4 US-1", "A100 EU-1"]),
        ({"data_centers": ("EU-1",)}, ["L4 EU-1", "A100 EU-1"]),
        ({"clouds": (Cloud.SECURE, Cloud.COMMUNITY)}, ["T4 EU-1", *SECURE[:3], "A100 US-1"]),
        ({"tries_per_spawn": 2}, SECURE[:2]),
    ],
    ids=str,
)
async def test_places_are_tried_by_price_then_stock(settings: dict[str, Any], tried: list[str]) -> None:
    async with rigged(settings, cards=CARDS, stock=dict(STOCK)) as rig:
        assert await places_tried(rig) == tried


async def test_the_cheapest_place_with_stock_gets_the_pod() -> None:
    async with rigged(cards=CARDS, stock={**STOCK, ("T4", "SECURE", "US-1"): 0}) as rig:
        made = await rig.spawner.spawn(order())

        assert (made.meta["gpu"], made.meta["data_center"], made.price_per_hour) == ("L4", "US-1", 0.4)


@pytest.mark.parametrize("status", [400, 403])
async def test_a_place_that_refuses_is_passed_over_and_remembered_for_a_while(status: int) -> None:
    async with rigged(cards=CARDS, stock=dict(STOCK)) as rig:
        rig.simulator.faults.append(Answers(operation="createPod", status=status, detail=NO_STOCK))
        first = await rig.spawner.spawn(order())
        second = await rig.spawner.spawn(order(BOB))
        assert [one.meta["gpu"] for one in (first, second)] == ["L4", "L4"]
        assert len(rig.simulator.asked("createPod")) == 3

        await rig.pass_time(timedelta(minutes=10))

        assert (await rig.spawner.spawn(order(WorkerId("cid")))).meta["gpu"] == "T4"


async def test_a_provider_that_refuses_everywhere_is_left_alone() -> None:
    async with rigged(cards=CARDS, stock=dict(STOCK)) as rig:
        rig.simulator.faults.append(Answers(operation="createPod", status=400, detail=NO_STOCK, times=99))
        for n in range(20):
            with pytest.raises(SpawnFailed) as caught:
                await rig.spawner.spawn(order(WorkerId(f"w{n}")))
            assert caught.value.cause is SpawnCause.NO_CAPACITY
            assert caught.value.retry_after == timedelta(minutes=10) - n * timedelta(seconds=30)
            await rig.pass_time(timedelta(seconds=30))

        assert len(rig.simulator.asked("createPod")) == len(SECURE)


async def test_a_refusal_that_is_the_same_everywhere_is_the_requests_fault() -> None:
    async with rigged(cards=CARDS, stock=dict(STOCK)) as rig:
        rig.simulator.faults.append(Answers(operation="createPod", status=400, detail="env is too long", times=99))

        with pytest.raises(
            SpawnFailed, match="refused each of 4 GPU types and data centres tried, one with: HTTP 400: env is too long"
        ) as caught:
            await rig.spawner.spawn(order())

        assert caught.value.cause is SpawnCause.BAD_REQUEST


async def test_a_catalogue_without_stock_is_not_asked_for_pods() -> None:
    async with rigged(cards=CARDS, stock=dict.fromkeys(STOCK, 0)) as rig:
        with pytest.raises(SpawnFailed, match="raise RUNPOD_MAX_PRICE_PER_HOUR") as caught:
            await rig.spawner.spawn(order())

        assert caught.value.cause is SpawnCause.NO_CAPACITY
        assert rig.simulator.asked("createPod") == []


async def test_no_pod_costs_more_than_the_ceiling() -> None:
    async with rigged({"max_price_per_hour": 0.4}, cards=CARDS, stock=dict(STOCK)) as rig:
        for n in range(27):
            await rig.pass_time(timedelta(minutes=1))
            await rig.spawner.spawn(order(WorkerId(f"w{n}")))
        with pytest.raises(SpawnFailed):
            await rig.spawner.spawn(order(WorkerId("one more")))

        assert max(pod.price for pod in rig.simulator.pods) == 0.4
        assert rig.spawner.traits.price_per_hour == 0.4
