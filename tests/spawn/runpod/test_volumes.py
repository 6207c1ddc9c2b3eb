"""A network volume is given a size: once for one sight of it, whatever becomes of the answers."""

from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.errors import InvalidInput, SpawnCause, SpawnError
from spawn.runpod.faults import Answers, Fault, Loses
from spawn.runpod.rig import order, rigged

SHOW, SIZE = "getNetworkVolume", "updateNetworkVolume"
OWN: dict[str, Any] = {"network_volume_id": "vol1"}


async def test_a_volume_is_read_and_given_the_size_asked_for() -> None:
    async with rigged(OWN, volumes={"vol1": 100}) as rig:
        assert await rig.spawner.expand_volume("vol1", 150, 100) == 150

        assert [call.operation for call in rig.simulator.calls] == [SHOW, SIZE]
        assert rig.simulator.asked(SIZE)[0].body == {"size": 150}
        assert rig.simulator.volumes == {"vol1": 150}


@pytest.mark.parametrize("size", [150, 200])
async def test_one_that_is_so_large_already_is_left_as_it_is(size: int) -> None:
    async with rigged(OWN, volumes={"vol1": size}) as rig:
        assert await rig.spawner.expand_volume("vol1", 150, 100) == size

        assert rig.simulator.asked(SIZE) == []


@pytest.mark.parametrize(
    "fault",
    [
        Loses(operation=SIZE),
        Loses(operation=SIZE, done=False),
        Loses(operation=SHOW),
        Answers(operation=SIZE, status=504, done=True),
        Answers(operation=SIZE, status=500),
        Answers(operation=SIZE, status=429, headers=(("Retry-After", "3"),)),
    ],
    ids=str,
)
async def test_an_answer_that_was_lost_buys_nothing_twice(fault: Fault) -> None:
    async with rigged(OWN, volumes={"vol1": 100}) as rig:
        rig.simulator.faults.append(fault)

        assert await rig.spawner.expand_volume("vol1", 150, 100) == 150

        assert rig.simulator.volumes == {"vol1": 150}
        assert {call.body["size"] for call in rig.simulator.asked(SIZE)} == {150}


async def test_a_call_that_failed_though_it_was_done_ends_the_same_when_it_is_made_again() -> None:
    async with rigged(OWN, volumes={"vol1": 100}) as rig:
        rig.simulator.faults.append(Loses(operation=SIZE, times=3))
        with pytest.raises(SpawnError) as caught:
            await rig.spawner.expand_volume("vol1", 150, 100)
        assert caught.value.cause is SpawnCause.TRANSIENT

        async with rig.another(**OWN) as successor:
            assert await successor.expand_volume("vol1", 150, 100) == 150

        assert rig.simulator.volumes == {"vol1": 150}
        assert len(rig.simulator.asked(SIZE)) == 3


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (400, SpawnCause.BAD_REQUEST),
        (401, SpawnCause.AUTH),
        (402, SpawnCause.NO_MONEY),
        (403, SpawnCause.AUTH),
        (404, SpawnCause.BAD_REQUEST),
        (422, SpawnCause.BAD_REQUEST),
    ],
)
async def test_a_refusal_says_why_and_is_not_tried_again(status: int, cause: SpawnCause) -> None:
    async with rigged(OWN, volumes={"vol1": 100}) as rig:
        rig.simulator.faults.append(Answers(operation=SIZE, status=status, detail="not for you"))

        with pytest.raises(SpawnError, match=f"PATCH .*HTTP {status}: not for you") as caught:
            await rig.spawner.expand_volume("vol1", 150, 100)

        assert caught.value.cause is cause
        assert len(rig.simulator.asked(SIZE)) == 1
        assert rig.simulator.volumes == {"vol1": 100}


async def test_whoever_wishes_to_be_left_alone_for_long_is_not_waited_for() -> None:
    async with rigged(OWN, volumes={"vol1": 100}) as rig:
        rig.simulator.rate_limited_until = rig.clock.now() + timedelta(minutes=5)

        with pytest.raises(SpawnError) as caught:
            await rig.spawner.expand_volume("vol1", 150, 100)

        assert (caught.value.cause, caught.value.retry_after) == (SpawnCause.RATE_LIMITED, timedelta(minutes=5))


async def test_a_pod_whose_mount_is_another_disk_buys_nothing() -> None:
    """A mount that failed shows the machine's own disk, which may be large and full."""
    async with rigged(OWN, volumes={"vol1": 100}) as rig:
        with pytest.raises(SpawnError, match="expected workers to see its 100 GB, they see 800 GB; check that it is mounted"):
            await rig.spawner.expand_volume("vol1", 850, 800)

        assert rig.simulator.asked(SIZE) == []


@pytest.mark.parametrize(("settings", "said"), [({}, "expected none"), (OWN, "expected vol1")])
async def test_no_other_volume_of_the_account_is_touched(settings: dict[str, Any], said: str) -> None:
    async with rigged(settings, volumes={"vol1": 100, "vol2": 100}) as rig:
        with pytest.raises(SpawnError, match=f"volume vol2: {said}"):
            await rig.spawner.expand_volume("vol2", 150, 100)

        assert rig.simulator.calls == []


async def test_a_volume_that_is_gone_is_said_to_be() -> None:
    async with rigged(OWN) as rig:
        with pytest.raises(SpawnError, match="network volume not found"):
            await rig.spawner.expand_volume("vol1", 150, 100)


async def test_a_closed_spawner_expands_nothing() -> None:
    async with rigged(OWN, volumes={"vol1": 100}) as rig:
        with pytest.raises(InvalidInput, match="async with"):
            await rig.another(**OWN).expand_volume("vol1", 150, 100)


@pytest.mark.parametrize(
    ("settings", "told", "expands"),
    [
        ({}, {}, False),
        ({"persistent_disk_gb": 50}, {"DRUMBEAT_VOLUME_PATH": "/workspace"}, False),
        (
            {**OWN, "volume_mount_path": "/data"},
            {"DRUMBEAT_VOLUME_PATH": "/data", "DRUMBEAT_VOLUME_ID": "vol1"},
            True,
        ),
    ],
    ids=["no volume", "a disk of its own", "a network volume"],
)
async def test_a_pod_is_told_of_the_volume_it_has(settings: dict[str, Any], told: dict[str, str], expands: bool) -> None:
    async with rigged(settings) as rig:
        await rig.spawner.spawn(order())

        heard = rig.simulator.pods[0].asked["env"]
        assert {name: text for name, text in heard.items() if "VOLUME" in name} == told
        assert rig.spawner.traits.expands_volumes is expands
