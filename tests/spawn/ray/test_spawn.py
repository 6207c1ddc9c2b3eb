"""Starting workers as Ray jobs: what is sent, and what becomes of refusals, lost answers and other controllers."""

import asyncio
import io
import json
import zipfile
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.errors import SpawnAmbiguous, SpawnCause, SpawnFailed
from drumbeat.spawn.interface import InstanceState
from drumbeat.spawn.ray import RayRuntimeEnv
from drumbeat.spawn.ray.jobs import RayJob
from spawn.ray.fake_ray import TOKEN, FakeRay, Fault
from spawn.ray.rig import ANN, BOB, OTHER, POOL, SECRET, STORE, order_for, rigged, spawner_at
from spawn.runpod.rig import LeapingClock


class TestRequest:
    async def test_a_job_carries_store_pool_and_worker(self) -> None:
        async with rigged() as (spawner, ray):
            await spawner.spawn(order_for())

            [job] = ray.jobs.values()
            assert (job["metadata"]["drumbeat_pool"], job["metadata"]["drumbeat_worker"]) == (POOL, ANN)
            assert job["metadata"]["drumbeat_store"].startswith("s")
            assert job["submission_id"].startswith("drumbeat-papers-ann-")
            assert job["submission_id"].endswith("-1")

    async def test_the_supervisor_gets_command_and_environment(self) -> None:
        async with rigged(runtime_env=RayRuntimeEnv(env_vars=["PASSED_ON", "UNSET"])) as (spawner, ray):
            await spawner.spawn(order_for(environment={"MORE": "x"}))

            task = ray.task(next(iter(ray.jobs)))
            assert task["command"][:4] == ["python3", "-m", "drumbeat", "worker"]
            assert task["command"][4:8] == ["--run-id", POOL, "--worker-id", ANN]
            own = {"DRUMBEAT_POOL_ID": POOL, "DRUMBEAT_WORKER_ID": ANN}
            assert task["environment"] == {"PASSED_ON": "value", **STORE, "MORE": "x", **own}

    async def test_secrets_are_in_nothing_that_is_sent(self) -> None:
        async with rigged() as (spawner, ray):
            await spawner.spawn(order_for(environment={"PASSWORD": SECRET}))

            assert all(SECRET.encode() not in body for _, _, _, body in ray.requests)
            [content] = ray.packages.values()
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                assert all(SECRET.encode() not in archive.read(name) for name in archive.namelist())
            assert json.dumps(ray.jobs).count(SECRET) == 0

    async def test_each_start_has_a_key_and_a_package_of_its_own(self) -> None:
        async with rigged() as (spawner, ray):
            for worker_id in (ANN, BOB):
                await spawner.spawn(order_for(worker_id))

            environments = [job["runtime_env"] for job in ray.jobs.values()]
            assert len({each["env_vars"]["DRUMBEAT_RAY_KEY"] for each in environments}) == 2
            assert len({each["py_modules"][0] for each in environments}) == 2

    async def test_resources_are_asked_for(self) -> None:
        given: dict[str, Any] = {"num_cpus": 2, "num_gpus": 0.5, "memory_gb": 1.5, "resources": {"fast": 1.0}}
        async with rigged(**given) as (spawner, ray):
            await spawner.spawn(order_for())

            [job] = ray.jobs.values()
            assert {name: job[name] for name in job if name.startswith("entrypoint_")} == {
                "entrypoint_num_cpus": 2,
                "entrypoint_num_gpus": 0.5,
                "entrypoint_memory": 1_500_000_000,
                "entrypoint_resources": {"fast": 1.0},
            }

    async def test_packages_and_folder_are_prepared_by_ray(self) -> None:
        chosen = RayRuntimeEnv(working_dir="https://files.example/app.zip", pip=["drumbeat[postgres]"])
        async with rigged(runtime_env=chosen) as (spawner, ray):
            await spawner.spawn(order_for())

            [job] = ray.jobs.values()
            assert job["runtime_env"]["working_dir"] == "https://files.example/app.zip"
            assert job["runtime_env"]["pip"] == ["drumbeat[postgres]"]

    async def test_a_pending_worker_says_what_it_waits_for(self) -> None:
        async with rigged(num_gpus=8, resources={"fast": 0.5}) as (spawner, _):
            instance = await spawner.spawn(order_for())

            assert instance.state is InstanceState.PENDING
            assert "waiting for resources" in instance.meta["reason"]
            assert "It asks for num_cpus = 1, num_gpus = 8, fast = 0.5; compare with: ray status" in instance.meta["reason"]


class TestNames:
    async def test_two_controllers_that_look_at_the_same_time_start_one(self) -> None:
        ray = FakeRay(LeapingClock())
        async with spawner_at(ray) as one, spawner_at(ray) as other:
            first, second = await asyncio.gather(one.spawn(order_for()), other.spawn(order_for()))

            assert first.ref == second.ref
            assert len(ray.jobs) == 1

    async def test_stores_and_pools_are_apart(self) -> None:
        ray = FakeRay(LeapingClock())
        async with spawner_at(ray) as mine, spawner_at(ray, scope="another store") as theirs:
            here = [await mine.spawn(order_for(pool_id=pool_id)) for pool_id in (POOL, OTHER)]
            there = await theirs.spawn(order_for())

            assert len({one.ref for one in (*here, there)}) == 3
            assert [one.ref for one in await mine.list(POOL)] == [here[0].ref]
            ray.run(here[1].meta["submission_id"])
            await mine.terminate(OTHER, ANN)
            assert [one.ref for one in await mine.list(POOL)] == [here[0].ref]
            assert [one.ref for one in await theirs.list(POOL)] == [there.ref]

    async def test_jobs_of_other_people_are_left_alone(self) -> None:
        async with rigged() as (spawner, ray):
            ray.jobs["raysubmit_x"] = {"status": "FAILED", "type": "SUBMISSION", "submission_id": "raysubmit_x", "end_time": 1}
            ray.jobs["driver"] = {"status": "RUNNING", "type": "DRIVER", "submission_id": None, "job_id": "01000000"}
            await spawner.spawn(order_for())

            await spawner.list(POOL)

            assert {"raysubmit_x", "driver"} <= set(ray.jobs)

    async def test_a_worker_that_ended_gets_the_next_number(self) -> None:
        async with rigged() as (spawner, ray):
            first = await spawner.spawn(order_for())
            ray.run(first.meta["submission_id"])
            ray.end(first.meta["submission_id"], "FAILED", 1)

            second = await spawner.spawn(order_for())

            assert second.meta["submission_id"] == first.meta["submission_id"].removesuffix("1") + "2"
            assert [one.ref for one in await spawner.list(POOL)] == [second.ref]

    async def test_a_record_of_which_ray_lost_the_metadata_is_stepped_over(self) -> None:
        async with rigged() as (spawner, ray):
            first = (await spawner.spawn(order_for())).meta["submission_id"]
            ray.jobs[first] = {"status": "FAILED", "submission_id": first, "metadata": None, "end_time": 1}

            assert (await spawner.spawn(order_for())).meta["submission_id"] == first.removesuffix("1") + "2"

    async def test_of_two_jobs_of_one_worker_the_later_is_stopped(self) -> None:
        """Two controllers may see different numbers, if a third deletes an old record between their looks."""
        async with rigged() as (spawner, ray):
            first = await spawner.spawn(order_for())
            hidden = ray.jobs.pop(first.meta["submission_id"])
            ray.clock.jump(timedelta(seconds=1))  # type: ignore[attr-defined]
            ray.faults.append(Fault("GET", "/api/jobs/", status=200, text="[]"))
            hidden["submission_id"] = hidden["submission_id"].removesuffix("1") + "7"
            ray.jobs[hidden["submission_id"]] = hidden

            second = await spawner.spawn(order_for())

            assert second.meta["submission_id"] == hidden["submission_id"]
            assert ray.stopped == {first.meta["submission_id"]}


class TestFaults:
    async def test_a_lost_answer_is_looked_up(self) -> None:
        async with rigged() as (spawner, ray):
            ray.faults.append(Fault("POST", "/api/jobs/", is_done=True))

            instance = await spawner.spawn(order_for())

            assert [instance.meta["submission_id"]] == [*ray.jobs]

    async def test_a_lost_request_may_have_been_a_start(self) -> None:
        async with rigged() as (spawner, ray):
            ray.faults.append(Fault("POST", "/api/jobs/"))
            with pytest.raises(SpawnAmbiguous, match="list the workers before trying again"):
                await spawner.spawn(order_for())

            await spawner.spawn(order_for())

            assert len(ray.jobs) == 1

    async def test_an_internal_error_may_have_been_a_start(self) -> None:
        async with rigged() as (spawner, ray):
            ray.faults.append(Fault("POST", "/api/jobs/", status=500))

            with pytest.raises(SpawnAmbiguous, match="RuntimeError: no reason"):
                await spawner.spawn(order_for())

    async def test_a_start_that_cannot_be_looked_up_may_have_happened(self) -> None:
        async with rigged() as (spawner, ray):
            await spawner.list(POOL)
            for fault in (Fault("GET", "/api/jobs/", status=200, text="[]"), Fault("GET", "/api/jobs/", status=502)):
                ray.faults.append(fault)

            with pytest.raises(SpawnAmbiguous, match="HTTP 502"):
                await spawner.spawn(order_for())

            assert len(ray.jobs) == 1

    async def test_a_refused_request_starts_nothing(self) -> None:
        async with rigged() as (spawner, ray):
            ray.faults.append(Fault("POST", "/api/jobs/", status=400, text="Traceback\nTypeError: bad resources\n"))

            with pytest.raises(SpawnFailed, match="TypeError: bad resources") as refused:
                await spawner.spawn(order_for())

            assert refused.value.cause is SpawnCause.BAD_REQUEST

    async def test_a_package_that_cannot_be_stored_starts_nothing(self) -> None:
        async with rigged() as (spawner, ray):
            ray.faults.append(Fault("PUT", "/api/packages/.*", status=500))

            with pytest.raises(SpawnFailed, match="HTTP 500"):
                await spawner.spawn(order_for())

            assert ray.jobs == {}

    async def test_a_first_start_fails_if_ray_does_not_answer(self) -> None:
        async with rigged() as (spawner, ray):
            ray.faults.append(Fault("GET", "/api/version", status=403))

            with pytest.raises(SpawnFailed) as refused:
                await spawner.spawn(order_for(is_first=True))

            assert refused.value.cause is SpawnCause.AUTH

    async def test_a_repeated_start_is_ambiguous_if_ray_does_not_answer(self) -> None:
        async with rigged() as (spawner, ray):
            ray.faults.append(Fault("GET", "/api/version", times=2))

            with pytest.raises(SpawnAmbiguous, match="might already be running"):
                await spawner.spawn(order_for())

    async def test_a_job_of_another_controller_with_the_same_id_is_returned(self) -> None:
        ray = FakeRay(LeapingClock())
        async with spawner_at(ray) as one, spawner_at(ray) as other:
            first = await one.spawn(order_for())
            await other.list(POOL)
            ray.faults.append(Fault("GET", "/api/jobs/", status=200, text="[]"))

            assert (await other.spawn(order_for())).ref == first.ref

    async def test_full_slots_are_no_capacity(self) -> None:
        async with rigged(slots=1) as (spawner, ray):
            await spawner.spawn(order_for())

            with pytest.raises(SpawnFailed, match="all 1 slots are taken") as refused:
                await spawner.spawn(order_for(BOB))

            assert refused.value.cause is SpawnCause.NO_CAPACITY
            assert len(ray.jobs) == 1

    async def test_a_job_that_was_just_submitted_takes_one_slot_only(self) -> None:
        async with rigged(slots=2) as (spawner, ray):
            asked, first = 0, asyncio.Event()
            jobs = spawner._jobs

            async def slow_after_the_submission() -> Sequence[RayJob]:
                nonlocal asked
                asked += 1
                if asked == 2:
                    first.set()
                    await asyncio.sleep(0.05)
                return await jobs()

            spawner._jobs = slow_after_the_submission  # type: ignore[method-assign]
            async with asyncio.TaskGroup() as group:
                group.create_task(spawner.spawn(order_for(ANN)))
                await first.wait()
                await spawner.spawn(order_for(BOB))

            assert len(ray.jobs) == 2

    async def test_slots_hold_for_starts_at_the_same_time(self) -> None:
        async with rigged(slots=1) as (spawner, ray):
            answers = await asyncio.gather(*(spawner.spawn(order_for(each)) for each in (ANN, BOB)), return_exceptions=True)

            assert len(ray.jobs) == 1
            assert sorted(type(each).__name__ for each in answers) == ["Instance", "SpawnFailed"]

    async def test_no_error_shows_the_token(self) -> None:
        async with rigged() as (spawner, ray):
            ray.token = "another"
            with pytest.raises(SpawnAmbiguous) as refused:
                await spawner.spawn(order_for())

            assert TOKEN not in str(refused.value)
