"""Listing, draining and ending workers that are Ray jobs, their output, and the records that they leave."""

import asyncio
from datetime import timedelta

import pytest

from drumbeat.core.errors import NotFound, SpawnCause, Unanswered
from drumbeat.spawn.interface import InstanceState
from spawn.ray.fake_ray import NODE, FakeRay, Fault
from spawn.ray.rig import ANN, POOL, order_for, rigged, spawner_at
from spawn.runpod.rig import LeapingClock


class TestDrain:
    async def test_a_job_on_the_same_node_drains_the_worker(self) -> None:
        async with rigged() as (spawner, ray):
            submission_id = (await spawner.spawn(order_for())).meta["submission_id"]
            ray.run(submission_id)

            await spawner.drain(POOL, ANN)

            drain = ray.jobs[f"{submission_id}-drain-1"]
            assert drain["entrypoint_label_selector"] == {"ray.io/node-id": NODE}
            assert drain["runtime_env"]["py_modules"] == ray.jobs[submission_id]["runtime_env"]["py_modules"]
            ray.run(drain["submission_id"])
            [ann] = await spawner.list(POOL)
            assert (ann.state, ann.exit_code) == (InstanceState.EXITED, 0)

    async def test_an_older_ray_finds_the_node_by_its_address(self) -> None:
        async with rigged() as (spawner, ray):
            ray.version = "2.52.1"
            submission_id = (await spawner.spawn(order_for())).meta["submission_id"]
            ray.run(submission_id)

            await spawner.drain(POOL, ANN)

            drain = ray.jobs[f"{submission_id}-drain-1"]
            assert drain["entrypoint_resources"] == {"node:10.0.0.7": 0.001}
            assert "entrypoint_label_selector" not in drain

    async def test_the_job_that_drains_is_no_worker(self) -> None:
        async with rigged(slots=2) as (spawner, ray):
            ray.run((await spawner.spawn(order_for())).meta["submission_id"])
            await spawner.drain(POOL, ANN)

            assert len(await spawner.list(POOL)) == 1

    async def test_a_worker_is_drained_once(self) -> None:
        ray = FakeRay(LeapingClock())
        async with spawner_at(ray) as one, spawner_at(ray) as other:
            ray.run((await one.spawn(order_for())).meta["submission_id"])

            await asyncio.gather(one.drain(POOL, ANN), other.drain(POOL, ANN))
            await one.drain(POOL, ANN)

            assert len(ray.jobs) == 2

    async def test_a_drain_that_failed_is_repeated(self) -> None:
        async with rigged() as (spawner, ray):
            submission_id = (await spawner.spawn(order_for())).meta["submission_id"]
            ray.run(submission_id)
            await spawner.drain(POOL, ANN)
            ray.end(f"{submission_id}-drain-1", "FAILED", None, "the node was out of memory")

            await spawner.drain(POOL, ANN)

            assert f"{submission_id}-drain-2" in ray.jobs

    async def test_a_worker_that_has_not_begun_is_stopped(self) -> None:
        async with rigged() as (spawner, ray):
            submission_id = (await spawner.spawn(order_for())).meta["submission_id"]

            await spawner.drain(POOL, ANN)

            assert ray.stopped == {submission_id}

    async def test_a_drain_without_an_answer_is_an_error(self) -> None:
        async with rigged() as (spawner, ray):
            ray.run((await spawner.spawn(order_for())).meta["submission_id"])
            ray.faults.append(Fault("POST", "/api/jobs/"))

            with pytest.raises(Unanswered, match="might not have been drained"):
                await spawner.drain(POOL, ANN)


class TestTerminate:
    async def test_terminate_waits_until_a_pending_job_was_started_and_ended(self) -> None:
        async with rigged() as (spawner, ray):
            submission_id = (await spawner.spawn(order_for())).meta["submission_id"]
            async with asyncio.TaskGroup() as group:
                ending = group.create_task(spawner.terminate(POOL, ANN))
                while submission_id not in ray.stopped:
                    await asyncio.sleep(0)
                assert not ending.done()
                ray.run(submission_id)

            assert ray.jobs[submission_id]["status"] == "STOPPED"
            assert await spawner.list(POOL) == []

    async def test_a_job_that_ray_cannot_end_is_an_error(self) -> None:
        async with rigged() as (spawner, ray):
            await spawner.spawn(order_for())

            with pytest.raises(Unanswered, match="is still PENDING 18 s after it was stopped"):
                await spawner.terminate(POOL, ANN)

            assert [one.state for one in await spawner.list(POOL)] == [InstanceState.PENDING]
            assert len(ray.jobs) == 1

    async def test_a_stopped_worker_is_gone_for_every_controller(self) -> None:
        ray = FakeRay(LeapingClock())
        async with spawner_at(ray) as one, spawner_at(ray) as other:
            ray.run((await one.spawn(order_for())).meta["submission_id"])

            await one.terminate(POOL, ANN)

            assert (await one.list(POOL), await other.list(POOL)) == ([], [])

    async def test_terminate_without_an_answer_is_an_error(self) -> None:
        async with rigged() as (spawner, ray):
            ray.run((await spawner.spawn(order_for())).meta["submission_id"])
            ray.faults.append(Fault("POST", ".*/stop", status=500))

            with pytest.raises(Unanswered):
                await spawner.terminate(POOL, ANN)

            assert [one.worker_id for one in await spawner.list(POOL)] == [ANN]


class TestRecords:
    async def test_a_record_is_not_deleted_while_ray_may_still_write_it(self) -> None:
        async with rigged() as (spawner, ray):
            ray.run((await spawner.spawn(order_for())).meta["submission_id"])
            await spawner.terminate(POOL, ANN)

            await spawner.list(POOL)
            assert len(ray.jobs) == 1
            ray.clock.jump(timedelta(seconds=11))  # type: ignore[attr-defined]
            await spawner.list(POOL)

            assert ray.jobs == {}

    async def test_an_ended_worker_is_listed_until_it_is_terminated(self) -> None:
        async with rigged() as (spawner, ray):
            ray.run((await spawner.spawn(order_for(command=("exit", "3")))).meta["submission_id"])
            ray.clock.jump(timedelta(minutes=30))  # type: ignore[attr-defined]
            assert [one.exit_code for one in await spawner.list(POOL)] == [3]

            await spawner.terminate(POOL, ANN)

            assert await spawner.list(POOL) == []
            assert ray.jobs == {}

    async def test_old_records_are_deleted(self) -> None:
        async with rigged(keep_ended=timedelta(hours=2)) as (spawner, ray):
            ray.run((await spawner.spawn(order_for(command=("exit", "0")))).meta["submission_id"])
            ray.clock.jump(timedelta(hours=3))  # type: ignore[attr-defined]

            assert await spawner.list(POOL) == []
            assert ray.jobs == {}

    async def test_a_record_that_cannot_be_deleted_is_no_error(self) -> None:
        async with rigged() as (spawner, ray):
            ray.run((await spawner.spawn(order_for(command=("exit", "0")))).meta["submission_id"])
            ray.clock.jump(timedelta(days=1))  # type: ignore[attr-defined]
            ray.faults.append(Fault("DELETE", ".*", status=500))

            await spawner.list(POOL)
            await spawner.list(POOL)

            assert ray.jobs == {}


class TestList:
    async def test_a_list_without_an_answer_is_an_error(self) -> None:
        async with rigged() as (spawner, ray):
            await spawner.spawn(order_for())
            ray.faults.append(Fault("GET", "/api/jobs/", status=502))

            with pytest.raises(Unanswered, match="HTTP 502"):
                await spawner.list(POOL)

    async def test_a_lost_connection_is_tried_again(self) -> None:
        async with rigged() as (spawner, ray):
            await spawner.spawn(order_for())
            ray.faults.append(Fault("GET", "/api/jobs/"))

            assert len(await spawner.list(POOL)) == 1

    async def test_a_state_that_is_unknown_counts_as_running(self) -> None:
        async with rigged() as (spawner, ray):
            ray.jobs[(await spawner.spawn(order_for())).meta["submission_id"]]["status"] = "RETRYING"

            assert [one.state for one in await spawner.list(POOL)] == [InstanceState.RUNNING]

    async def test_a_worker_whose_node_died_has_no_exit_code_but_a_reason(self) -> None:
        async with rigged() as (spawner, ray):
            submission_id = (await spawner.spawn(order_for())).meta["submission_id"]
            ray.run(submission_id)
            ray.end(submission_id, "FAILED", None, "Job supervisor actor died:\n\tthe node is gone")

            [ann] = await spawner.list(POOL)
            assert (ann.state, ann.exit_code) == (InstanceState.EXITED, None)
            assert ann.meta["reason"] == "Job supervisor actor died: the node is gone"


class TestOutput:
    async def test_lines_of_ray_are_left_out(self) -> None:
        async with rigged() as (spawner, ray):
            submission_id = (await spawner.spawn(order_for())).meta["submission_id"]
            assert await spawner.logs(POOL, ANN) == ""
            ray.run(submission_id)
            ray.output[submission_id] += "one\ntwo\nthree"

            assert await spawner.logs(POOL, ANN) == "one\ntwo\nthree"
            assert await spawner.logs(POOL, ANN, lines=2) == "two\nthree"

    async def test_lines_of_an_earlier_run_with_the_same_id_are_left_out(self) -> None:
        async with rigged() as (spawner, ray):
            submission_id = (await spawner.spawn(order_for())).meta["submission_id"]
            ray.output[submission_id] = "drumbeat: worker begins, run of-before\nold\n"
            ray.run(submission_id)
            ray.output[submission_id] += "new\n"

            assert await spawner.logs(POOL, ANN) == "new\n"

    async def test_a_worker_that_never_began_has_the_reason_as_output(self) -> None:
        async with rigged() as (spawner, ray):
            submission_id = (await spawner.spawn(order_for())).meta["submission_id"]
            ray.end(submission_id, "FAILED", None, "runtime_env setup failed: no such package")

            assert "no such package" in await spawner.logs(POOL, ANN)

    async def test_a_python_that_is_missing_there_is_the_last_line(self) -> None:
        async with rigged() as (spawner, ray):
            submission_id = (await spawner.spawn(order_for())).meta["submission_id"]
            ray.output[submission_id] = f"sh: 1: exec: python3: not found\nRunning entrypoint for job {submission_id}: exec\n"
            ray.end(submission_id, "FAILED", 127, "Job entrypoint command failed with exit code 127, last available logs:\nx")

            assert await spawner.logs(POOL, ANN) == "sh: 1: exec: python3: not found"

    async def test_a_terminated_worker_has_no_output(self) -> None:
        async with rigged() as (spawner, ray):
            ray.run((await spawner.spawn(order_for())).meta["submission_id"])
            await spawner.terminate(POOL, ANN)

            with pytest.raises(NotFound):
                await spawner.logs(POOL, ANN)


class TestReach:
    async def test_the_token_is_sent(self) -> None:
        async with rigged() as (spawner, ray):
            await spawner.list(POOL)

            assert all(headers["authorization"] == f"Bearer {ray.token}" for _, _, headers, _ in ray.requests)

    async def test_a_cluster_without_tokens_gets_none(self) -> None:
        ray = FakeRay(LeapingClock(), token=None)
        async with spawner_at(ray, token=None) as spawner:
            await spawner.list(POOL)

            assert all("authorization" not in headers for _, _, headers, _ in ray.requests)

    @pytest.mark.parametrize(
        ("token", "said"),
        [
            (None, "asks for a token .* set the variable RAY_AUTH_TOKEN"),
            ("old", "refuses the token in RAY_AUTH_TOKEN .*expired"),
        ],
    )
    async def test_a_missing_and_a_wrong_token_are_told_apart(self, token: str | None, said: str) -> None:
        async with spawner_at(FakeRay(LeapingClock()), token=token) as spawner:
            with pytest.raises(Unanswered, match=said) as refused:
                await spawner.list(POOL)

            assert refused.value.cause is SpawnCause.AUTH

    async def test_an_old_ray_is_refused(self) -> None:
        async with rigged() as (spawner, ray):
            ray.version = "2.9.3"

            with pytest.raises(Unanswered, match=r"runs Ray 2\.9\.3, expected 2\.52 or newer"):
                await spawner.list(POOL)

    @pytest.mark.parametrize(("status", "text"), [(200, "<html>It works!</html>"), (404, "not found"), (301, "")])
    async def test_an_address_without_ray_is_told(self, status: int, text: str) -> None:
        async with rigged() as (spawner, ray):
            ray.faults.append(Fault("GET", "/api/version", status=status, text=text))

            with pytest.raises(Unanswered, match="expected a Ray dashboard at http://head:8265") as refused:
                await spawner.list(POOL)

            assert refused.value.cause is SpawnCause.BAD_REQUEST
