"""What is asked of RunPod, and what each of its answers comes to."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.errors import InvalidInput, SpawnAmbiguous, SpawnCause, SpawnError, SpawnFailed
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import InstanceState
from spawn.runpod.faults import Answers, ArrivesLate, Delays, Duplicates, Fault, Loses
from spawn.runpod.machines import Card
from spawn.runpod.rig import ANN, POOL, order, rigged
from spawn.runpod.simulator import NO_STOCK

CREATE = "createPod"
MINUTE = timedelta(minutes=1)

REFUSALS = [
    (Answers(status=400, detail=NO_STOCK), SpawnCause.NO_CAPACITY, timedelta(minutes=10)),
    (Answers(status=400, detail="args must not be so"), SpawnCause.BAD_REQUEST, timedelta(minutes=10)),
    (Answers(status=401), SpawnCause.AUTH, None),
    (Answers(status=402), SpawnCause.NO_MONEY, None),
    (Answers(status=403), SpawnCause.AUTH, timedelta(minutes=10)),
    (Answers(status=404), SpawnCause.BAD_REQUEST, None),
    (Answers(status=409), SpawnCause.BAD_REQUEST, None),
    (Answers(status=422), SpawnCause.BAD_REQUEST, None),
    (Answers(status=429, headers=(("Retry-After", "12"),)), SpawnCause.RATE_LIMITED, timedelta(seconds=12)),
    (
        Answers(status=429, headers=(("RateLimit", '"minute";r=0;t=7, "day";r=9;t=99'),)),
        SpawnCause.RATE_LIMITED,
        timedelta(seconds=7),
    ),
    (Answers(status=429), SpawnCause.RATE_LIMITED, None),
    (Answers(status=503), SpawnCause.TRANSIENT, None),
]


@pytest.mark.parametrize(("fault", "cause", "wait"), REFUSALS, ids=lambda each: getattr(each, "status", None) or str(each))
async def test_a_refusal_says_why_and_starts_nothing(fault: Answers, cause: SpawnCause, wait: timedelta | None) -> None:
    async with rigged() as rig:
        rig.simulator.faults.append(replace(fault, operation=CREATE))

        with pytest.raises(SpawnFailed, match="worker ann: .*" + fault.detail[:20]) as caught:
            await rig.spawner.spawn(order())

        assert (caught.value.cause, caught.value.retry_after) == (cause, wait)
        assert len(rig.simulator.asked(CREATE)) == 1
        assert rig.simulator.pods == []


@pytest.mark.parametrize(
    "fault",
    [
        Loses(operation=CREATE),
        Answers(operation=CREATE, status=500, done=True),
        Answers(operation=CREATE, status=502, done=True),
        Answers(operation=CREATE, status=503, done=True),
        Answers(operation=CREATE, status=504, done=True),
        Answers(operation=CREATE, status=201, body=b"garbage", done=True),
    ],
    ids=str,
)
async def test_a_pod_whose_answer_was_lost_is_found_and_not_made_again(fault: Fault) -> None:
    async with rigged() as rig:
        rig.simulator.faults.append(fault)

        instance = await rig.spawner.spawn(order())

        assert [pod.id for pod in rig.simulator.pods] == [instance.ref]
        assert len(rig.simulator.asked(CREATE)) == 1


@pytest.mark.parametrize("fault", [Loses(operation=CREATE, done=False), Answers(operation=CREATE, status=500)], ids=str)
async def test_after_an_answer_that_tells_nothing_a_list_comes_before_the_next_creation(fault: Fault) -> None:
    async with rigged() as rig:
        rig.simulator.faults.append(fault)

        with pytest.raises(SpawnAmbiguous, match="list the workers before retrying"):
            await rig.spawner.spawn(order())
        for _ in range(3):
            with pytest.raises(SpawnAmbiguous, match="no pod is listed yet"):
                await rig.spawner.spawn(order())
        assert len(rig.simulator.asked(CREATE)) == 1
        await rig.pass_time(3 * MINUTE)
        await rig.spawner.spawn(order())

        asked = [call.operation for call in rig.simulator.calls if call.operation in {CREATE, "listPods"}]
        first = asked.index(CREATE)
        assert asked[:first] == ["listPods"]
        assert asked[first + 1 :].index(CREATE) >= 4
        assert rig.simulator.alive_names() == {"drumbeat.p.ann": 1}


@pytest.mark.parametrize("fault", [Loses(operation=CREATE), Answers(operation=CREATE, status=500, done=True)], ids=str)
async def test_a_pod_that_arrives_late_is_waited_for(fault: Fault) -> None:
    async with rigged() as rig:
        rig.simulator.faults += [fault, ArrivesLate(by=2 * MINUTE)]

        with pytest.raises(SpawnAmbiguous):
            await rig.spawner.spawn(order())
        await rig.pass_time(MINUTE)
        with pytest.raises(SpawnAmbiguous):
            await rig.spawner.spawn(order())
        await rig.pass_time(MINUTE)
        instance = await rig.spawner.spawn(order())

        assert [pod.id for pod in rig.simulator.pods] == [instance.ref]


async def test_a_pod_that_lists_do_not_show_yet_is_known_by_its_id() -> None:
    async with rigged() as rig:
        rig.simulator.faults.append(ArrivesLate(by=2 * MINUTE))
        made = await rig.spawner.spawn(order())

        assert [(one.ref, one.state) for one in await rig.spawner.list(POOL)] == [(made.ref, InstanceState.PENDING)]
        assert (await rig.spawner.spawn(order())).ref == made.ref
        await rig.spawner.terminate(POOL, ANN)
        await rig.pass_time(3 * MINUTE)

        assert len(rig.simulator.pods) == 1
        assert rig.simulator.alive() == []
        assert await rig.spawner.list(POOL) == []


async def test_another_process_finds_the_pod_of_one_that_died_in_the_call() -> None:
    async with rigged() as rig:
        made = await rig.spawner.spawn(order())

        async with rig.another() as heir:
            assert (await heir.spawn(order())).ref == made.ref

        assert len(rig.simulator.asked(CREATE)) == 1


@pytest.mark.parametrize(
    ("blocked", "cause"),
    [("listPods", SpawnCause.AUTH), ("listGpuTypes", SpawnCause.AUTH)],
)
async def test_what_cannot_be_looked_up_is_not_created(blocked: str, cause: SpawnCause) -> None:
    async with rigged() as rig:
        rig.simulator.faults.append(Answers(operation=blocked, status=401))

        with pytest.raises(SpawnFailed, match="worker ann") as caught:
            await rig.spawner.spawn(order(is_first=True))

        assert caught.value.cause is cause
        assert rig.simulator.asked(CREATE) == []


async def test_a_pod_that_another_process_may_have_created_is_not_said_to_have_failed() -> None:
    async with rigged() as rig:
        rig.simulator.faults.append(Answers(operation="listPods", status=401))

        with pytest.raises(SpawnAmbiguous, match="worker ann: it might be running"):
            await rig.spawner.spawn(order())

        assert rig.simulator.asked(CREATE) == []


async def test_a_worker_that_may_run_is_not_said_to_have_failed() -> None:
    async with rigged() as rig:
        await rig.spawner.spawn(order())
        rig.simulator.faults.append(Answers(operation="listPods", status=401))

        with pytest.raises(SpawnAmbiguous, match="it might be running"):
            await rig.spawner.spawn(order())


async def test_one_that_is_over_makes_way_for_a_new_one() -> None:
    async with rigged() as rig:
        first = await rig.spawner.spawn(order())
        await rig.spawner.drain(POOL, ANN)
        assert [one.state for one in await rig.spawner.list(POOL)] == [InstanceState.EXITED]

        second = await rig.spawner.spawn(order())

        assert second.ref != first.ref
        assert [pod.id for pod in rig.simulator.pods if pod.deleted_at is None] == [second.ref]
        assert [one.ref for one in await rig.spawner.list(POOL)] == [second.ref]


async def test_reads_are_tried_again_and_wait_as_they_are_told() -> None:
    async with rigged() as rig:
        begun = rig.clock.elapsed()
        rig.simulator.faults += [
            Answers(operation="listPods", status=429, headers=(("Retry-After", "9"),)),
            Loses(operation="listPods"),
        ]

        await rig.spawner.list(POOL)

        assert len(rig.simulator.asked("listPods")) == 3
        assert rig.clock.elapsed() - begun == timedelta(seconds=11)


@pytest.mark.parametrize(
    ("fault", "cause", "asked"),
    [
        (Answers(operation="listPods", status=503, times=9), SpawnCause.TRANSIENT, 3),
        (Loses(operation="listPods", times=9), SpawnCause.TRANSIENT, 3),
        (Answers(operation="listPods", status=403, times=9), SpawnCause.AUTH, 1),
        (Answers(operation="listPods", status=429, headers=(("Retry-After", "60"),), times=9), SpawnCause.RATE_LIMITED, 1),
        (Answers(operation="listPods", status=200, body=b"garbage", times=9), SpawnCause.TRANSIENT, 1),
        (Answers(operation="listPods", status=200, body=b'{"pods": [], "nextCursor": "x"}'), SpawnCause.TRANSIENT, 1),
    ],
    ids=str,
)
async def test_a_list_that_fails_or_is_not_whole_is_not_an_empty_list(fault: Fault, cause: SpawnCause, asked: int) -> None:
    async with rigged() as rig:
        rig.simulator.faults.append(fault)

        with pytest.raises(SpawnError) as caught:
            await rig.spawner.list(POOL)

        assert caught.value.cause is cause
        assert len(rig.simulator.asked("listPods")) == asked


async def test_the_account_runs_out_of_money_and_out_of_calls() -> None:
    async with rigged(starts_in=timedelta()) as rig:
        rig.simulator.balance = 0.0
        with pytest.raises(SpawnFailed) as broke:
            await rig.spawner.spawn(order())
        rig.simulator.rate_limited_until = rig.clock.now() + timedelta(minutes=5)
        with pytest.raises(SpawnFailed) as limited:
            await rig.spawner.spawn(order(is_first=True))

        assert (broke.value.cause, limited.value.cause) == (SpawnCause.NO_MONEY, SpawnCause.RATE_LIMITED)
        assert limited.value.retry_after == timedelta(minutes=5)


async def test_a_pod_is_asked_for_with_all_its_worker_needs() -> None:
    settings: dict[str, Any] = {
        "registry": "cred1",
        "gpu_count": 2,
        "min_cuda_version": "12.4",
        "container_disk_gb": 80,
        "network_volume_id": "vol1",
        "ports": ("22/tcp",),
    }
    async with rigged(settings) as rig:
        await rig.spawner.spawn(order(WorkerId("worker-1"), PoolId("a.b/c"), environment={"HF_TOKEN": "token"}))

        [call] = rig.simulator.asked(CREATE)
        assert call.body == {
            "name": "drumbeat.a%2Eb%2Fc.worker-1",
            "image": "drumbeat/worker:1",
            "registry": "cred1",
            "gpu": {"id": "RTX 4090", "count": 2, "minCudaVersion": "12.4"},
            "cloud": "SECURE",
            "dataCenterIds": ["EU-1"],
            "args": "drumbeat worker --run-id a.b/c --worker-id worker-1 --worker-group-id 0 --worker-group-count 1",
            "env": {
                "DRUMBEAT_STORE": "postgresql://drum:hunter2secret@db/drum",
                "DRUMBEAT_VOLUME_PATH": "/workspace",
                "DRUMBEAT_VOLUME_ID": "vol1",
                "HF_TOKEN": "token",
                "DRUMBEAT_POOL_ID": "a.b/c",
                "DRUMBEAT_WORKER_ID": "worker-1",
            },
            "disk": 80,
            "ports": ["22/tcp"],
            "mounts": {"network": [{"volumeId": "vol1", "path": "/workspace"}]},
        }
        assert [one.worker_id for one in await rig.spawner.list(PoolId("a.b/c"))] == ["worker-1"]


async def test_an_instance_tells_its_price_its_place_and_its_gpus_memory() -> None:
    async with rigged(cards=(Card(id="RTX 4090", memory=24, secure=0.5),)) as rig:
        made = await rig.spawner.spawn(order())
        assert (made.price_per_hour, made.state) == (0.5, InstanceState.PENDING)
        await rig.pass_time(MINUTE)
        rig.simulator.pods[0].memory_util = 75

        async with rig.another() as other:
            [one] = await other.list(POOL)

        assert one.price_per_hour == 0.5
        assert one.meta == {
            "status": "RUNNING",
            "cloud": "SECURE",
            "data_center": "EU-1",
            "gpu": "RTX 4090",
            "gpu_count": 1,
            "gpus": [{"util_percent": 50, "memory_percent": 75, "memory_total_gb": 24, "memory_used_gb": 18.0}],
        }


async def test_a_closed_spawner_says_how_to_open_it() -> None:
    async with rigged() as rig:
        spawner = rig.another()

        with pytest.raises(InvalidInput, match="async with"):
            await spawner.list(POOL)


async def test_a_slow_provider_is_waited_for_and_its_duplicate_is_not_kept() -> None:
    async with rigged() as rig:
        rig.simulator.faults += [Delays(operation=CREATE, by=timedelta(seconds=20)), Duplicates()]
        made = await rig.spawner.spawn(order())

        assert (await rig.spawner.spawn(order())).ref == made.ref

        assert [pod.id for pod in rig.simulator.alive()] == [made.ref]


async def test_the_meter_counts_every_pod_until_it_is_ended() -> None:
    async with rigged(cards=(Card(id="RTX 4090", secure=0.36),)) as rig:
        await rig.spawner.spawn(order())
        await rig.pass_time(timedelta(minutes=10))
        assert rig.simulator.burn() == 0.36
        await rig.spawner.terminate(POOL, ANN)
        await rig.pass_time(timedelta(minutes=10))

        assert rig.simulator.spent() == pytest.approx(0.06)
        assert rig.simulator.burn() == 0
