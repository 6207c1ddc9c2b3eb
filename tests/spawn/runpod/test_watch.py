"""Lists that lie, pods that come twice, pods that will not go."""

from datetime import timedelta

import pytest

from drumbeat.core.errors import SpawnError
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import InstanceState
from spawn.runpod.faults import Answers, ArrivesLate, Duplicates, Fault, Invents, KeepsOnDelete, Loses, Omits
from spawn.runpod.rig import ANN, BOB, POOL, order, rigged

RUNNING, EXITED = InstanceState.RUNNING, InstanceState.EXITED


async def test_a_list_has_no_pages_and_everything_comes_at_once() -> None:
    async with rigged(stock={("RTX 4090", "SECURE", "EU-1"): 2000}) as rig:
        for n in range(1200):
            asked = {"name": f"drumbeat.p.w{n}", "gpu": {"id": "RTX 4090"}}
            rig.simulator._add(asked, ("RTX 4090", "SECURE", "EU-1"), timedelta())

        assert len(await rig.spawner.list(POOL)) == 1200
        assert len(rig.simulator.asked("listPods")) == 1


@pytest.mark.parametrize("lie", [Omits(), Omits(names=["ann"]), Omits(times=2), Omits(times=2, names=["ann"])], ids=str)
async def test_a_pod_that_was_seen_once_is_not_lost_by_a_list_that_omits_it(lie: Fault) -> None:
    async with rigged(starts_in=timedelta()) as rig:
        for worker in (ANN, BOB):
            await rig.spawner.spawn(order(worker))
        rig.simulator.faults.append(lie)

        listed = await rig.spawner.list(POOL)

        assert [(one.worker_id, one.state) for one in listed] == [(ANN, RUNNING), (BOB, RUNNING)]


async def test_a_worker_is_not_made_again_because_a_list_omits_it() -> None:
    async with rigged() as rig:
        made = await rig.spawner.spawn(order())
        rig.simulator.faults.append(Omits(times=2))

        assert (await rig.spawner.spawn(order())).ref == made.ref


async def test_a_pod_that_somebody_else_ended_is_seen_to_be_over() -> None:
    async with rigged() as rig:
        made = await rig.spawner.spawn(order())
        await rig.pass_time(timedelta(minutes=5))
        rig.simulator.pods[0].deleted_at = rig.clock.now()

        for _ in range(2):
            assert [(one.ref, one.state) for one in await rig.spawner.list(POOL)] == [(made.ref, EXITED)]
        await rig.spawner.terminate(POOL, ANN)
        assert await rig.spawner.list(POOL) == []


async def test_an_invented_pod_can_be_ended_and_is_not_kept_beside_a_real_one() -> None:
    async with rigged() as rig:
        made = await rig.spawner.spawn(order())
        rig.simulator.faults.append(Invents(names=["drumbeat.p.ann", "drumbeat.p.ghost", "someone-elses", "drumbeat.p"]))

        async with rig.another() as other:
            listed = await other.list(POOL)
            await other.terminate(POOL, WorkerId("ghost"))

        assert [(one.worker_id, one.ref) for one in listed if one.worker_id == ANN] == [(ANN, made.ref)]
        assert {one.worker_id for one in listed} == {ANN, "ghost"}
        assert [pod.id for pod in rig.simulator.alive()] == [made.ref]


async def test_a_second_pod_of_one_worker_is_listed_under_a_name_of_its_own_and_ended_alone() -> None:
    async with rigged(starts_in=timedelta()) as rig:
        rig.simulator.faults.append(Duplicates())
        made = await rig.spawner.spawn(order())

        [ann, second] = await rig.spawner.list(POOL)
        assert (ann.worker_id, ann.ref) == (ANN, made.ref)
        assert second.worker_id == f"ann~{second.ref}"
        await rig.spawner.terminate(POOL, second.worker_id)

        assert [pod.id for pod in rig.simulator.alive()] == [made.ref]
        assert [one.worker_id for one in await rig.spawner.list(POOL)] == [ANN]


async def test_looking_changes_nothing() -> None:
    async with rigged() as rig:
        rig.simulator.faults.append(Duplicates())
        await rig.spawner.spawn(order())
        rig.simulator.calls.clear()

        async with rig.another() as other:
            await other.list(POOL)

        assert {call.operation for call in rig.simulator.calls} <= {"listPods", "getPod", "listGpuTypes"}


async def test_ending_a_worker_ends_all_its_pods() -> None:
    async with rigged() as rig:
        rig.simulator.faults.append(Duplicates())
        await rig.spawner.spawn(order())

        await rig.spawner.terminate(POOL, ANN)

        assert len(rig.simulator.pods) == 2
        assert rig.simulator.alive() == []


@pytest.mark.parametrize(
    "fault",
    [
        KeepsOnDelete(operation="deletePod"),
        Loses(operation="deletePod"),
        Answers(operation="deletePod", status=503),
        Answers(operation="deletePod", status=404, done=True),
        Omits(operation="listPods"),
        Answers(operation="listPods", status=500, times=2),
    ],
    ids=str,
)
async def test_terminate_returns_once_it_is_really_gone(fault: Fault) -> None:
    async with rigged() as rig:
        await rig.spawner.spawn(order())
        assert len(rig.simulator.alive()) == 1
        rig.simulator.faults.append(fault)

        await rig.spawner.terminate(POOL, ANN)

        assert rig.simulator.alive() == []


@pytest.mark.parametrize("fault", [KeepsOnDelete(times=999), Answers(operation="deletePod", status=403, times=9)], ids=str)
async def test_a_pod_that_will_not_go_is_told_of(fault: Fault) -> None:
    async with rigged() as rig:
        await rig.spawner.spawn(order())
        rig.simulator.faults.append(fault)

        with pytest.raises(SpawnError):
            await rig.spawner.terminate(POOL, ANN)

        assert len(rig.simulator.alive()) == 1


async def test_another_process_ends_a_pod_that_one_list_omits() -> None:
    async with rigged() as rig:
        await rig.spawner.spawn(order())
        assert len(rig.simulator.alive()) == 1
        async with rig.another() as other:
            rig.simulator.faults.append(Omits())
            await other.terminate(POOL, ANN)

        assert rig.simulator.alive() == []


async def test_a_late_arrival_is_listed_once_it_is_there() -> None:
    async with rigged() as rig:
        rig.simulator.faults += [Loses(operation="createPod"), ArrivesLate(by=timedelta(hours=1))]
        with pytest.raises(SpawnError):
            await rig.spawner.spawn(order())
        await rig.spawner.terminate(POOL, ANN)
        assert await rig.spawner.list(POOL) == []

        await rig.pass_time(timedelta(hours=1))

        assert [one.worker_id for one in await rig.spawner.list(POOL)] == [ANN]
        await rig.spawner.terminate(POOL, ANN)
        assert rig.simulator.alive() == []


async def test_spawners_with_prefixes_of_their_own_do_not_see_each_other() -> None:
    async with rigged() as rig:
        await rig.spawner.spawn(order())
        async with rig.another(prefix="other") as other:
            assert await other.list(POOL) == []
            await other.terminate(POOL, ANN)

        assert len(rig.simulator.alive()) == 1


async def test_names_with_odd_characters_do_not_meet() -> None:
    odd = [(PoolId("a"), WorkerId("b.c")), (PoolId("a.b"), WorkerId("c")), (PoolId("a%2Eb"), WorkerId("c/é ~1"))]
    async with rigged() as rig:
        for pool_id, worker_id in odd:
            await rig.spawner.spawn(order(worker_id, pool_id))

        for pool_id, worker_id in odd:
            assert [one.worker_id for one in await rig.spawner.list(pool_id)] == [worker_id]
            await rig.spawner.terminate(pool_id, worker_id)
        assert rig.simulator.alive() == []
