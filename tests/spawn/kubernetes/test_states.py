"""What becomes of a worker is told: running, ended with a code, or not able to start, and why."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumbeat.core.errors import NotFound
from drumbeat.spawn.contract import alive, programs
from drumbeat.spawn.interface import InstanceState
from drumbeat.spawn.kubernetes import KubernetesSpawner
from drumbeat.spawn.kubernetes.objects import KubernetesJob, KubernetesPod
from drumbeat.spawn.kubernetes.states import worker_instance
from spawn.kubernetes.cluster import Cluster
from spawn.kubernetes.conftest import LeapingClock, P, W, order, settings_at, until
from spawn.kubernetes.server import ApiServer, served, write_kubeconfig

META = {"name": "x", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
OWNED = {**META, "ownerReferences": [{"kind": "Job", "uid": "job", "name": "x", "apiVersion": "batch/v1"}]}
STARTED = "2026-01-01T00:00:05Z"


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "sidecar", "state": {}}, {"name": "worker", "state": state}]


@pytest.mark.parametrize(
    ("status", "state", "code", "reason", "problem"),
    [
        ({"phase": "Pending"}, "pending", None, None, None),
        (
            {"phase": "Pending", "containerStatuses": container(waiting={"reason": "ContainerCreating"})},
            "pending",
            None,
            None,
            None,
        ),
        (
            {
                "phase": "Pending",
                "containerStatuses": container(waiting={"reason": "ImagePullBackOff", "message": "not\nfound"}),
            },
            "pending",
            None,
            "ImagePullBackOff",
            "its image cannot be pulled: ImagePullBackOff: not found",
        ),
        (
            {
                "phase": "Pending",
                "containerStatuses": container(waiting={"reason": "CreateContainerConfigError", "message": "no x"}),
            },
            "pending",
            None,
            "CreateContainerConfigError",
            "its container cannot be created: CreateContainerConfigError: no x",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]},
            "pending",
            None,
            "Unschedulable",
            "no node can run it: 0/3 nodes",
        ),
        ({"phase": "Running", "containerStatuses": container(running={"startedAt": STARTED})}, "running", None, None, None),
        (
            {"phase": "Failed", "reason": "DeadlineExceeded", "containerStatuses": container(running={"startedAt": STARTED})},
            "running",
            None,
            "DeadlineExceeded",
            None,
        ),
        (
            {"phase": "Succeeded", "containerStatuses": container(terminated={"exitCode": 0, "reason": "Completed"})},
            "exited",
            0,
            "Completed",
            None,
        ),
        (
            {"phase": "Failed", "containerStatuses": container(terminated={"exitCode": 3, "reason": "Error"})},
            "exited",
            3,
            "Error",
            None,
        ),
        (
            {"phase": "Failed", "containerStatuses": container(terminated={"exitCode": 137, "reason": "OOMKilled"})},
            "exited",
            137,
            "OOMKilled",
            "it used more memory than its limit: OOMKilled; raise memory in the settings",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            "exited",
            None,
            "Evicted",
            "its pod was ended: Evicted: low on memory",
        ),
        (
            {
                "phase": "Failed",
                "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
                "containerStatuses": container(terminated={"exitCode": 143, "reason": "Error"}),
            },
            "exited",
            143,
            "PreemptionByScheduler",
            "its pod was ended: PreemptionByScheduler",
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": container(terminated={"exitCode": 128, "reason": "StartError", "message": "no such file"}),
            },
            "exited",
            128,
            "StartError",
            "its command cannot be run: no such file",
        ),
    ],
)
def test_a_pod_tells_the_state(status: Any, state: str, code: int | None, reason: str | None, problem: str | None) -> None:
    pod = msgspec.convert({"metadata": OWNED, "status": status}, KubernetesPod)
    job = msgspec.convert({"metadata": {**META, "uid": "job"}}, KubernetesJob)

    instance = worker_instance((P, W), job, [pod], price=0.5)

    assert (instance.ref, instance.state, instance.exit_code, instance.price_per_hour) == ("job", state, code, 0.5)
    assert (instance.meta.get("reason"), instance.meta.get("problem")) == (reason, problem)
    assert instance.state is not InstanceState.RUNNING or instance.started_at is not None


def test_a_job_that_failed_without_a_pod_has_exited() -> None:
    ended = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
    job = msgspec.convert({"metadata": META, "status": {"conditions": [ended]}}, KubernetesJob)

    instance = worker_instance((P, W), job, [], price=0)

    assert instance.state is InstanceState.EXITED
    assert instance.meta["problem"] == "its Job ended: DeadlineExceeded: too long"


class TestInACluster:
    @pytest.fixture
    def clock(self) -> LeapingClock:
        return LeapingClock()

    @pytest.fixture
    async def spawner(self, server: ApiServer, tmp_path: Path, clock: LeapingClock) -> AsyncIterator[KubernetesSpawner]:
        store = {"DRUMBEAT_STORE": "postgresql://s3cret@db"}
        async with KubernetesSpawner(settings_at(tmp_path), store, "s", clock) as spawner:
            yield spawner
            for one in await spawner.list(P):
                await spawner.terminate(P, one.worker_id)

    async def test_an_image_that_is_missing(self, server: ApiServer, spawner: KubernetesSpawner) -> None:
        server.cluster.broken_images["drumbeat/worker:1"] = "ErrImagePull: manifest unknown"
        await spawner.spawn(order())

        while "problem" not in (shown := await spawner.list(P))[0].meta:
            pass

        assert shown[0].meta["problem"] == "its image cannot be pulled: ErrImagePull: manifest unknown"
        with pytest.raises(NotFound, match="worker w of p has no log: its image cannot be pulled"):
            await spawner.logs(P, W)

    async def test_a_worker_that_has_not_started_is_drained_by_its_job(
        self, server: ApiServer, spawner: KubernetesSpawner
    ) -> None:
        server.cluster.unschedulable = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
        await spawner.spawn(order())
        [waiting] = await spawner.list(P)
        assert waiting.meta["problem"].startswith("no node can run it: 0/3 nodes are available")

        await spawner.drain(P, W)

        ended = await until(spawner, InstanceState.EXITED)
        assert (ended.exit_code, ended.meta["reason"]) == (None, "DeadlineExceeded")

    async def test_a_pod_that_a_quota_forbids(self, server: ApiServer, spawner: KubernetesSpawner, clock: LeapingClock) -> None:
        server.cluster.no_pods = "pods is forbidden: exceeded quota: small, requested: cpu=8, used: 0, limited: 4"
        await spawner.spawn(order())
        assert "problem" not in (await spawner.list(P))[0].meta
        clock.leapt += timedelta(seconds=10)

        [waiting] = await spawner.list(P)

        assert (waiting.state, waiting.meta["problem"].partition(": pods")[0]) == ("pending", "its pod cannot be created")

    async def test_a_pod_that_was_evicted_has_exited(self, server: ApiServer, spawner: KubernetesSpawner) -> None:
        await spawner.spawn(order())
        running = await until(spawner, InstanceState.RUNNING)
        with server.cluster.lock:
            [pod] = server.cluster.objects["pods"].values()
            server.cluster.evict(pod)

        ended = await until(spawner, InstanceState.EXITED)

        assert (ended.ref, ended.meta["reason"]) == (running.ref, "Evicted")

    async def test_a_pod_that_was_deleted_by_somebody_ends_the_worker(
        self, server: ApiServer, spawner: KubernetesSpawner
    ) -> None:
        await spawner.spawn(order())
        await until(spawner, InstanceState.RUNNING)
        with server.cluster.lock:
            [pod] = server.cluster.objects["pods"].values()
            server.cluster.delete_pod(pod)

        ended = await until(spawner, InstanceState.EXITED)

        assert ended.meta["reason"] == "BackoffLimitExceeded"
        again = await spawner.spawn(order())
        assert (await until(spawner, InstanceState.RUNNING)).ref == again.ref != ended.ref

    async def test_a_worker_that_an_older_cluster_starts_again_runs_and_can_be_terminated(self, tmp_path: Path) -> None:
        with served(Cluster(tmp_path, recreates=True)) as (server, url):
            write_kubeconfig(tmp_path / "kubeconfig", url)
            async with KubernetesSpawner(settings_at(tmp_path), {}, "s") as spawner:
                first = await spawner.spawn(order())
                await until(spawner, InstanceState.RUNNING)
                with server.cluster.lock:
                    [pod] = server.cluster.objects["pods"].values()
                    server.cluster.delete_pod(pod)
                while pod["metadata"]["name"] in server.cluster.objects["pods"] or not server.cluster.objects["pods"]:
                    await spawner.list(P)
                assert (await until(spawner, InstanceState.RUNNING)).ref == first.ref

                await spawner.drain(P, W)
                assert (await until(spawner, InstanceState.EXITED)).exit_code == 0
                await spawner.terminate(P, W)

                assert await spawner.list(P) == []

    async def test_a_worker_is_ended_after_its_longest_time(self, server: ApiServer, tmp_path: Path) -> None:
        settings = settings_at(tmp_path, max_runtime=timedelta(seconds=4))
        async with KubernetesSpawner(settings, {}, "s") as spawner:
            await spawner.spawn(order())

            ended = await until(spawner, InstanceState.EXITED)

            assert ended.meta["problem"] == "its Job ended: DeadlineExceeded: Job was active longer than specified deadline"
            await spawner.terminate(P, W)

    async def test_an_ended_worker_keeps_its_exit_code_and_its_log(self, spawner: KubernetesSpawner) -> None:
        await spawner.spawn(order(W, "3", program=programs.EXITS))

        ended = await until(spawner, InstanceState.EXITED)

        assert (ended.exit_code, await spawner.logs(P, W)) == (3, "leaving\n")

    async def test_an_ended_worker_is_deleted_with_its_secret_after_a_while(self, server: ApiServer, tmp_path: Path) -> None:
        settings = settings_at(tmp_path, keep_ended=timedelta(seconds=1))
        async with KubernetesSpawner(settings, {}, "s") as spawner:
            await spawner.spawn(order(W, "3", program=programs.EXITS))

            while any(server.cluster.objects.values()):
                await spawner.list(P)

            assert await spawner.list(P) == []

    async def test_the_environment_is_in_the_secret_alone(self, server: ApiServer, spawner: KubernetesSpawner) -> None:
        await spawner.spawn(order(PASSWORD="s3cret too"))
        await until(spawner, InstanceState.RUNNING)
        await spawner.drain(P, W)
        await until(spawner, InstanceState.EXITED)
        await spawner.terminate(P, W)

        said = [call for call in server.calls if "s3cret" in str((call.body, call.query, call.name))]
        assert said == [], "the Secret itself has it in base64"
        [secret] = server.asked("create secrets")
        assert {"DRUMBEAT_STORE", "PASSWORD"} <= set(secret.body["data"])
        while server.cluster.objects["secrets"]:
            await spawner.list(P)
        assert alive(await spawner.list(P)) == []
