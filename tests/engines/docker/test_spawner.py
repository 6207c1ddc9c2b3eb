"""What the Docker spawner promises beyond the contract, on a real Docker daemon."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import NotFound, SpawnAmbiguous, SpawnCause, SpawnFailed, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import programs
from drumbeat.spawn.docker import DockerSpawner, PullPolicy
from drumbeat.spawn.docker.containers import ContainerPlan
from drumbeat.spawn.interface import Instance, InstanceState, Order
from engines.docker.conftest import settings_at
from servers.dockerd import DockerDaemon

POOL, ANN, BOB = PoolId("p"), WorkerId("ann"), WorkerId("bob")
LOOK = timedelta(milliseconds=50)  #: time between two looks
Open = Callable[..., AbstractAsyncContextManager[DockerSpawner]]


def order(program: str = programs.WORKER, worker_id: WorkerId = ANN, *arguments: str, first: bool = False) -> Order:
    command = ("sh", "-c", program, "docker-test", *arguments)
    return Order(pool_id=POOL, worker_id=worker_id, slot=0, group_count=1, command=command, is_first=first)


async def ended(spawner: DockerSpawner, worker_id: WorkerId = ANN) -> Instance:
    while True:
        for one in await spawner.list(POOL):
            if one.worker_id == worker_id and one.state is InstanceState.EXITED:
                return one
        await SystemClock().sleep(LOOK)


@pytest.fixture
async def opened(dockerd: DockerDaemon) -> AsyncIterator[Open]:
    """Opens spawners with changed settings; what they started is removed afterwards."""

    def open_with(*, name: str = "box", connect: Any = None, store: str = "s", **changed: Any) -> DockerSpawner:
        return DockerSpawner(settings_at(dockerd, **changed), {}, store, name=name, connect=connect)

    yield open_with
    await asyncio.to_thread(removed, dockerd)


def removed(daemon: DockerDaemon) -> None:
    """Remove all containers of the daemon."""
    if names := daemon.run("ps", "--all", "--quiet").split():
        daemon.run("rm", "--force", *names)


def inspected(daemon: DockerDaemon, reference: str) -> Mapping[str, Any]:
    with docker.APIClient(base_url=daemon.url) as client:
        found: Mapping[str, Any] = client.inspect_container(reference)
        return found


class TestLimits:
    """Slots, GPUs, memory."""

    async def test_no_more_containers_run_than_there_are_slots(self, opened: Open) -> None:
        workers = [WorkerId(f"w{n}") for n in range(5)]
        async with opened(slots=2) as spawner, opened(slots=2, store="another store") as other:
            both = (spawner, other)
            starts = [both[n % 2].spawn(order(worker_id=each)) for n, each in enumerate(workers)]
            answers = await asyncio.gather(*starts, return_exceptions=True)

            started = [each for each in answers if isinstance(each, Instance)]
            refused = [each for each in answers if isinstance(each, SpawnFailed)]
            assert len(started) <= 2
            assert len(started) + len(refused) == 5
            assert {each.cause for each in refused} == {SpawnCause.NO_CAPACITY}
            listed = [one for each in both for one in await each.list(POOL)]
            assert {one.ref for one in listed} == {one.ref for one in started}

    async def test_an_ended_worker_gives_its_slot_back(self, opened: Open) -> None:
        async with opened(slots=1) as spawner:
            await spawner.spawn(order(programs.EXITS, ANN, "0"))
            await ended(spawner)

            assert (await spawner.spawn(order(worker_id=BOB))).state is InstanceState.RUNNING
            with pytest.raises(SpawnFailed, match="no room at engine box: all 1 slots are taken; wait until a worker ends"):
                await spawner.spawn(order(worker_id=WorkerId("carl")))

    async def test_another_engine_has_slots_of_its_own(self, opened: Open) -> None:
        async with opened(slots=1) as spawner, opened(slots=1, name="other") as other:
            await spawner.spawn(order())

            assert (await other.spawn(order(worker_id=BOB))).state is InstanceState.RUNNING

    async def test_gpus_need_a_runtime_that_the_daemon_lacks(self, opened: Open) -> None:
        async with opened(gpus=1) as spawner:
            with pytest.raises(SpawnFailed, match="the daemon has no GPU runtime; install the NVIDIA Container Toolkit") as no:
                await spawner.spawn(order())

            assert no.value.cause is SpawnCause.BAD_REQUEST
            assert await spawner.list(POOL) == []

    async def test_each_worker_gets_gpus_that_no_other_has(self, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[Sequence[str]] = []
        real = ContainerPlan.request

        def without_devices(plan: ContainerPlan, settings: Any) -> dict[str, Any]:
            asked.append(plan.gpu_ids)
            request = real(plan, settings)
            del request["HostConfig"]["DeviceRequests"]
            return request

        monkeypatch.setattr(ContainerPlan, "request", without_devices)
        async with opened(gpus=2, gpu_ids=["0", "1", "2", "3", "4"]) as spawner:
            await asyncio.gather(spawner.spawn(order()), spawner.spawn(order(worker_id=BOB)))
            with pytest.raises(SpawnFailed, match="1 of 5 GPUs are free, and it needs 2"):
                await spawner.spawn(order(worker_id=WorkerId("carl")))
            await spawner.terminate(POOL, ANN)
            await spawner.spawn(order(worker_id=WorkerId("carl")))

            listed = {one.worker_id: one.meta["gpu_ids"] for one in await spawner.list(POOL)}
        assert sorted(map(tuple, asked[:2])) == [("0", "1"), ("2", "3")]
        assert len(set(listed.values())) == 2

    async def test_a_worker_that_ran_out_of_memory_shows_it(self, opened: Open) -> None:
        async with opened(memory="16m") as spawner:
            await spawner.spawn(order("x=0123456789abcdef; while true; do x=$x$x; done"))

            ann = await ended(spawner)

        assert ann.exit_code == 137
        assert ann.meta["oom_killed"] is True

    async def test_limits_that_the_daemon_refuses_name_the_setting(self, opened: Open) -> None:
        async with opened(memory="1m") as spawner:
            with pytest.raises(SpawnFailed, match="correct the setting cpus or memory"):
                await spawner.spawn(order())


class TestSettings:
    """What the container gets."""

    async def test_mounts_user_folder_and_variables_arrive(
        self, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "note").write_text("from the host")
        monkeypatch.setenv("DOCKER_TEST_TOKEN", "t0ken")
        tmp_path.chmod(0o755)
        program = 'cat note; echo; id -u; echo "$MODE $DOCKER_TEST_TOKEN"; echo x > new || echo read-only; echo done'
        changed: dict[str, Any] = {
            "mounts": [f"{tmp_path}:/in:ro"],
            "working_dir": "/in",
            "user": "worker",
            "environment": {"MODE": "fast"},
            "variables": ["DOCKER_TEST_TOKEN"],
        }
        async with opened(**changed) as spawner:
            await spawner.spawn(order(program))
            await ended(spawner)
            output = await spawner.logs(POOL, ANN)

        assert [line for line in output.splitlines() if "can't create" not in line] == [
            *("from the host", "1000", "fast t0ken", "read-only", "done")
        ]

    async def test_a_source_that_does_not_exist_is_not_created(self, opened: Open, tmp_path: Path) -> None:
        async with opened(mounts=[f"{tmp_path}/missing:/in"]) as spawner:
            with pytest.raises(SpawnFailed, match="a mount is wrong; its source must exist on the daemon's host"):
                await spawner.spawn(order())

        assert not (tmp_path / "missing").exists()

    async def test_a_program_that_the_image_lacks_is_named(self, opened: Open) -> None:
        async with opened() as spawner:
            with pytest.raises(SpawnFailed, match="has no program drumbeat; install Drumbeat in the image"):
                await spawner.spawn(Order(pool_id=POOL, worker_id=ANN, slot=0, group_count=1))

            assert await spawner.list(POOL) == []

    async def test_a_missing_image_is_named(self, opened: Open) -> None:
        async with opened(image="nowhere/nothing:1") as spawner:
            with pytest.raises(SpawnFailed, match="the daemon does not have the image nowhere/nothing:1"):
                await spawner.spawn(order())

    async def test_a_registry_that_cannot_be_reached_is_told(self, opened: Open) -> None:
        async with opened(image="127.0.0.1:1/nothing:1", pull=PullPolicy.MISSING) as spawner:
            with pytest.raises(SpawnFailed, match=r"the daemon cannot reach the registry of 127\.0\.0\.1:1/") as no:
                await spawner.spawn(order())

        assert no.value.cause is SpawnCause.TRANSIENT

    async def test_an_unknown_network_is_named(self, opened: Open) -> None:
        async with opened(network="nowhere") as spawner:
            with pytest.raises(SpawnFailed, match="create the network, or correct the setting network"):
                await spawner.spawn(order())

            assert await spawner.list(POOL) == []

    async def test_secrets_are_in_the_environment_and_not_in_the_command(self, opened: Open, dockerd: DockerDaemon) -> None:
        async with opened() as spawner:
            secret = Order(
                pool_id=POOL, worker_id=ANN, slot=0, group_count=1, command=("sleep", "60"), environment={"PASSWORD": "s3cret"}
            )
            started = await spawner.spawn(secret)

            told = inspected(dockerd, started.ref)
        assert "PASSWORD=s3cret" in told["Config"]["Env"]
        assert "s3cret" not in str({**told, "Config": {**told["Config"], "Env": []}})


class TestLostAnswers:
    """Answers that never come: the container is looked for by its name."""

    class Losing(docker.APIClient):  # type: ignore[misc]
        """Serves requests, and loses the answers to some."""

        lost: frozenset[str] = frozenset()
        unserved: frozenset[str] = frozenset()

        def create_container_from_config(self, *arguments: Any) -> Any:
            return self._lose("create", lambda: super(TestLostAnswers.Losing, self).create_container_from_config(*arguments))

        def start(self, *arguments: Any) -> Any:
            return self._lose("start", lambda: super(TestLostAnswers.Losing, self).start(*arguments))

        def inspect_container(self, *arguments: Any) -> Any:
            return self._lose("inspect", lambda: super(TestLostAnswers.Losing, self).inspect_container(*arguments))

        def _lose(self, what: str, serve: Callable[[], Any]) -> Any:
            answer = None if what in self.unserved else serve()
            if what in self.lost | self.unserved:
                raise TimeoutError("timed out")
            return answer

    def losing(self, daemon: DockerDaemon, *, lost: Sequence[str] = (), unserved: Sequence[str] = ()) -> Callable[[], Any]:
        def connect() -> Any:
            client = self.Losing(base_url=daemon.url)
            client.lost, client.unserved = frozenset(lost), frozenset(unserved)
            return client

        return connect

    @pytest.mark.parametrize("what", ["create", "start"])
    async def test_a_lost_answer_is_found_by_name(self, opened: Open, dockerd: DockerDaemon, what: str) -> None:
        async with opened(connect=self.losing(dockerd, lost=[what])) as spawner:
            instance = await spawner.spawn(order(first=True))

            assert [(one.ref, one.state) for one in await spawner.list(POOL)] == [(instance.ref, InstanceState.RUNNING)]

    @pytest.mark.parametrize("what", ["create", "start"])
    async def test_what_was_not_found_stays_unknown_until_it_is_repeated(
        self, opened: Open, dockerd: DockerDaemon, what: str
    ) -> None:
        async with opened(connect=self.losing(dockerd, unserved=[what])) as spawner:
            with pytest.raises(SpawnAmbiguous, match=r"ann of p may have been started: .*no answer within .*; list the"):
                await spawner.spawn(order(first=True))

        async with opened() as later:
            instance = await later.spawn(order())
            assert [(one.ref, one.state) for one in await later.list(POOL)] == [(instance.ref, InstanceState.RUNNING)]

    async def test_where_looking_fails_too_it_stays_unknown(self, opened: Open, dockerd: DockerDaemon) -> None:
        async with opened(connect=self.losing(dockerd, lost=["create", "inspect"])) as spawner:
            with pytest.raises(SpawnAmbiguous):
                await spawner.spawn(order(first=True))


class TestStates:
    """Containers between their states."""

    async def test_what_a_dead_controller_created_is_started_by_the_next(self, opened: Open, dockerd: DockerDaemon) -> None:
        losing = TestLostAnswers().losing(dockerd, unserved=["start"])
        async with opened(connect=losing) as first:
            with pytest.raises(SpawnAmbiguous):
                await first.spawn(order(first=True))
            [created] = await first.list(POOL)
        assert (created.state, created.started_at) == (InstanceState.PENDING, None)

        async with opened() as second:
            assert (await second.spawn(order())).ref == created.ref
            assert [one.state for one in await second.list(POOL)] == [InstanceState.RUNNING]

    async def test_a_created_container_that_is_drained_never_starts(self, opened: Open, dockerd: DockerDaemon) -> None:
        async with opened(connect=TestLostAnswers().losing(dockerd, unserved=["start"])) as spawner:
            with pytest.raises(SpawnAmbiguous):
                await spawner.spawn(order(first=True))
            await spawner.drain(POOL, ANN)

            assert await spawner.list(POOL) == []

    async def test_a_container_of_the_same_name_that_is_not_ours_is_left_alone(
        self, opened: Open, dockerd: DockerDaemon
    ) -> None:
        async with opened() as spawner:
            name = (await spawner.spawn(order())).meta["container"]
            await spawner.terminate(POOL, ANN)
            dockerd.run("run", "--detach", "--init", "--name", name, dockerd.image, "sleep", "60")

            with pytest.raises(SpawnFailed, match="Drumbeat did not start it; rename or remove it") as no:
                await spawner.spawn(order())

            assert no.value.cause is SpawnCause.BAD_REQUEST
            assert await spawner.list(POOL) == []
        assert inspected(dockerd, name)["State"]["Running"]

    async def test_a_worker_that_somebody_removed_is_no_longer_listed(self, opened: Open, dockerd: DockerDaemon) -> None:
        async with opened() as spawner:
            started = await spawner.spawn(order())
            dockerd.run("rm", "--force", started.ref)

            assert await spawner.list(POOL) == []
            with pytest.raises(NotFound):
                await spawner.logs(POOL, ANN)
            await spawner.drain(POOL, ANN)
            await spawner.terminate(POOL, ANN)

    async def test_docker_stop_lets_a_worker_finish(self, opened: Open, dockerd: DockerDaemon) -> None:
        async with opened() as spawner:
            started = await spawner.spawn(order(programs.FINISHES))
            while "ready" not in await spawner.logs(POOL, ANN):
                await SystemClock().sleep(LOOK)
            await asyncio.to_thread(dockerd.run, "stop", started.ref)

            assert (await ended(spawner)).exit_code == 0

    async def test_a_worker_of_another_store_is_not_seen(self, opened: Open) -> None:
        async with opened() as spawner, opened(store="another store") as other:
            mine, theirs = await spawner.spawn(order()), await other.spawn(order())
            await other.terminate(POOL, ANN)

            assert mine.ref != theirs.ref
            assert [one.ref for one in await spawner.list(POOL)] == [mine.ref]


async def test_a_frozen_daemon_is_told_and_answers_again_later(opened: Open, dockerd: DockerDaemon) -> None:
    async with opened(timeout=timedelta(seconds=1)) as spawner:
        await spawner.list(POOL)
        dockerd.process.suspend()
        try:
            with pytest.raises(Unanswered, match="no answer within 1 s; check the daemon"):
                await spawner.list(POOL)
        finally:
            dockerd.process.resume()
        while True:
            try:
                assert await spawner.list(POOL) == []
                break
            except Unanswered:
                await SystemClock().sleep(LOOK)
