"""Answers that are lost, late, old or refused: a worker is started once, and nothing is left of one that is not started."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.core.errors import SpawnAmbiguous, SpawnCause, SpawnError, SpawnFailed, Unanswered
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import alive
from drumbeat.spawn.interface import InstanceState
from drumbeat.spawn.kubernetes import KubernetesSpawner, manifests
from spawn.kubernetes.cluster import Cluster
from spawn.kubernetes.conftest import LeapingClock, P, W, order, settings_at, until
from spawn.kubernetes.faults import Answers, Delays, Expires, Fault, Loses, Omits
from spawn.kubernetes.server import ApiServer, served, write_kubeconfig


@pytest.fixture
def clock() -> LeapingClock:
    return LeapingClock()


@pytest.fixture
async def spawner(server: ApiServer, tmp_path: Path, clock: LeapingClock) -> AsyncIterator[KubernetesSpawner]:
    async with KubernetesSpawner(settings_at(tmp_path, page_size=2), {}, "s", clock) as spawner:
        yield spawner
        server.faults.clear()
        for one in await spawner.list(P):
            await spawner.terminate(P, one.worker_id)


class TestStarts:
    @pytest.mark.parametrize(
        "fault",
        [
            Loses(operation="create jobs"),
            Loses(operation="create jobs", done=False),
            Answers(operation="create jobs", status=500, done=True),
            Answers(operation="create jobs", status=504, done=True, times=2),
            Loses(operation="create secrets"),
            Answers(operation="create secrets", status=503),
            Loses(operation="patch jobs"),
            Answers(operation="patch jobs", status=500, done=True),
            Loses(operation="get jobs", times=2),
            Loses(operation="list pods", times=2),
        ],
        ids=str,
    )
    async def test_a_start_without_an_answer_is_found_by_its_name(
        self, server: ApiServer, spawner: KubernetesSpawner, fault: Fault
    ) -> None:
        server.faults.append(fault)

        instance = await spawner.spawn(order())

        assert (await until(spawner, InstanceState.RUNNING)).ref == instance.ref
        assert [job["metadata"]["uid"] for job in server.cluster.objects["jobs"].values()] == [instance.ref]
        assert len(server.cluster.objects["secrets"]) == 1

    async def test_a_start_that_never_gets_an_answer_may_have_started_it(
        self, server: ApiServer, spawner: KubernetesSpawner
    ) -> None:
        server.faults.append(Loses(operation="create jobs", times=3))

        with pytest.raises(SpawnAmbiguous, match="worker w of p may have been started"):
            await spawner.spawn(order())

        assert alive(await spawner.list(P)) == [W]
        await spawner.spawn(order())
        await until(spawner, InstanceState.RUNNING)
        assert len(server.cluster.objects["jobs"]) == 1

    @pytest.mark.parametrize("status", [401, 403, 429])
    async def test_a_worker_that_runs_already_is_adopted_though_no_more_are_allowed(
        self, server: ApiServer, spawner: KubernetesSpawner, status: int
    ) -> None:
        before = await spawner.spawn(order())
        server.faults.append(Answers(operation="create jobs", status=status, times=9))

        assert (await spawner.spawn(order())).ref == before.ref
        with pytest.raises(SpawnFailed):
            await spawner.spawn(order("other"))

    @pytest.mark.parametrize("is_first", [False, True])
    async def test_a_worker_that_may_run_is_not_called_failed_if_it_cannot_be_looked_for(
        self, server: ApiServer, spawner: KubernetesSpawner, is_first: bool
    ) -> None:
        await spawner.spawn(order())
        server.faults += [Answers(operation=each, status=401, times=9) for each in ("create jobs", "get jobs")]

        with pytest.raises(SpawnFailed if is_first else SpawnAmbiguous):
            await spawner.spawn(replace(order(), is_first=is_first))

    async def test_a_worker_that_may_run_is_not_called_failed_if_the_cluster_is_down(self, tmp_path: Path) -> None:
        with served(Cluster(tmp_path)) as (_, url):
            write_kubeconfig(tmp_path / "kubeconfig", url)
        async with KubernetesSpawner(settings_at(tmp_path), {}, "s") as spawner:
            with pytest.raises(SpawnAmbiguous, match="w of p was not started again, because it might already be running"):
                await spawner.spawn(order())
            with pytest.raises(SpawnFailed):
                await spawner.spawn(replace(order(), is_first=True))

    async def test_a_worker_whose_controller_died_before_its_secret_gets_it_from_the_next(
        self, server: ApiServer, spawner: KubernetesSpawner, tmp_path: Path, clock: LeapingClock
    ) -> None:
        await spawner._client.create_job(manifests.job_manifest("s", order(), settings_at(tmp_path)))
        [waiting] = await spawner.list(P)
        clock.leapt += timedelta(minutes=1)
        [given_up] = await spawner.list(P)
        assert (waiting.state, given_up.state) == (InstanceState.PENDING, InstanceState.EXITED)
        assert given_up.meta["problem"] == "its start was not completed; start it again, or terminate it"
        assert server.cluster.objects["pods"] == {}

        instance = await spawner.spawn(order())

        assert instance.state is InstanceState.PENDING
        assert (await until(spawner, InstanceState.RUNNING)).ref == instance.ref == waiting.ref

    async def test_nothing_runs_if_the_secret_gets_no_answer(self, server: ApiServer, spawner: KubernetesSpawner) -> None:
        server.faults += [Loses(operation="create secrets", times=3), Answers(operation="delete jobs", status=500, times=3)]

        with pytest.raises(SpawnFailed, match="create secrets"):
            await spawner.spawn(order())

        assert server.cluster.objects["pods"] == {}
        await spawner.spawn(order())
        await until(spawner, InstanceState.RUNNING)
        assert len(server.cluster.objects["pods"]) == 1

    async def test_a_job_that_is_not_started_is_drained_by_deleting_it(
        self, server: ApiServer, spawner: KubernetesSpawner, tmp_path: Path
    ) -> None:
        await spawner._client.create_job(manifests.job_manifest("s", order(), settings_at(tmp_path)))

        await spawner.drain(P, W)

        assert await spawner.list(P) == []

    async def test_too_many_calls_start_nothing(self, server: ApiServer, spawner: KubernetesSpawner) -> None:
        server.faults.append(Answers(operation="create jobs", status=429, headers=(("Retry-After", "60"),)))

        with pytest.raises(SpawnFailed, match="too many API calls") as failed:
            await spawner.spawn(order())

        assert (failed.value.cause, failed.value.retry_after) == (SpawnCause.RATE_LIMITED, timedelta(minutes=1))
        assert await spawner.list(P) == []

    async def test_nothing_is_left_if_the_secret_is_refused(self, server: ApiServer, spawner: KubernetesSpawner) -> None:
        server.permissions["", "secrets"].clear()

        with pytest.raises(
            SpawnFailed, match=r"worker w of p: .*: ann lacks the verb create on secrets in namespace work"
        ) as failed:
            await spawner.spawn(order())

        assert failed.value.cause is SpawnCause.AUTH
        assert (server.cluster.objects["jobs"], server.cluster.objects["pods"]) == ({}, {})

    @pytest.mark.parametrize(
        ("environment", "said"), [({"A B": "1"}, "got 'A B'"), ({"A": "x" * 1_100_000}, "at most 1 MiB, got 1100000 bytes")]
    )
    async def test_an_environment_that_would_not_arrive_is_refused(
        self, server: ApiServer, spawner: KubernetesSpawner, environment: dict[str, str], said: str
    ) -> None:
        with pytest.raises(SpawnFailed, match=said):
            await spawner.spawn(order(**environment))

        assert server.calls == []


class TestLists:
    async def test_a_list_is_read_page_by_page(self, server: ApiServer, spawner: KubernetesSpawner) -> None:
        workers = [WorkerId(f"w{n}") for n in range(5)]
        for each in workers:
            await spawner.spawn(order(each))

        assert alive(await spawner.list(P)) == workers
        assert sum("continue" in call.query for call in server.asked("list jobs")) == 2

    async def test_a_list_whose_pages_expired_is_begun_again(self, server: ApiServer, spawner: KubernetesSpawner) -> None:
        workers = [WorkerId(f"w{n}") for n in range(3)]
        for each in workers:
            await spawner.spawn(order(each))
        server.faults.append(Expires(operation="list jobs", times=2))

        assert alive(await spawner.list(P)) == workers

    async def test_a_list_that_always_expires_is_no_list(self, server: ApiServer, spawner: KubernetesSpawner) -> None:
        for n in range(3):
            await spawner.spawn(order(f"w{n}"))
        server.faults.append(Expires(operation="list pods", times=100))

        with pytest.raises(Unanswered, match="too old"):
            await spawner.list(P)

    async def test_workers_that_an_old_list_lacks_are_looked_up_by_their_names(
        self, server: ApiServer, spawner: KubernetesSpawner
    ) -> None:
        workers = [WorkerId(f"w{n:02}") for n in range(20)]
        for each in workers:
            await spawner._client.create_job(manifests.job_manifest("s", order(each), settings_at(server.cluster.folder)))
        assert alive(await spawner.list(P)) == workers
        server.faults += [Omits(operation="list jobs"), Omits(operation="list pods")]

        assert alive(await spawner.list(P)) == workers

    async def test_workers_that_are_gone_are_not_all_looked_up(self, server: ApiServer, spawner: KubernetesSpawner) -> None:
        for n in range(20):
            await spawner._client.create_job(manifests.job_manifest("s", order(f"w{n}"), settings_at(server.cluster.folder)))
        await spawner.list(P)
        with server.cluster.lock:
            server.cluster.objects["jobs"].clear()

        assert await spawner.list(P) == []
        assert len(server.asked("get jobs")) == 16

    async def test_a_worker_whose_job_was_deleted_by_somebody_is_gone(
        self, server: ApiServer, spawner: KubernetesSpawner
    ) -> None:
        await spawner.spawn(order())
        await until(spawner, InstanceState.RUNNING)
        with server.cluster.lock:
            [job] = server.cluster.objects["jobs"].values()
            server.cluster.delete_job(job, "Foreground")

        while await spawner.list(P):
            pass
        assert server.cluster.objects == {"jobs": {}, "pods": {}, "secrets": {}, "events": {}}

    @pytest.mark.parametrize(
        "fault",
        [
            Loses(operation="list jobs", times=2),
            Answers(operation="list pods", status=500, times=2),
            Answers(operation="list jobs", status=429, headers=(("Retry-After", "3"),)),
        ],
        ids=str,
    )
    async def test_a_short_outage_is_waited_for(
        self, server: ApiServer, spawner: KubernetesSpawner, clock: LeapingClock, fault: Fault
    ) -> None:
        await spawner.spawn(order())
        clock.pauses.clear()
        server.faults.append(fault)

        assert alive(await spawner.list(P)) == [W]
        assert clock.pauses[0] == (3.0 if isinstance(fault, Answers) and fault.status == 429 else 0.2)

    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            (Answers(status=503, times=9), r"list jobs failed \(HTTP 503\): on command"),
            (Answers(status=429, times=9, headers=(("Retry-After", "600"),)), "too many API calls"),
            (Answers(status=200, body=b"<html>", times=9), "expected an answer as in its API schema"),
            (Loses(times=9), "list jobs: "),
        ],
        ids=str,
    )
    async def test_a_long_outage_is_told(self, server: ApiServer, spawner: KubernetesSpawner, fault: Fault, said: str) -> None:
        server.faults.append(fault)

        with pytest.raises(Unanswered, match=said) as failed:
            await spawner.list(P)

        assert "\n" not in str(failed.value)

    async def test_no_answer_in_time(self, server: ApiServer, tmp_path: Path, clock: LeapingClock) -> None:
        server.faults.append(Delays(by=timedelta(seconds=0.5), times=3))
        settings = settings_at(tmp_path, timeout=timedelta(seconds=0.1))
        async with KubernetesSpawner(settings, {}, "s", clock) as spawner:
            with pytest.raises(Unanswered, match=r"Kubernetes at http://127.0.0.1:\d+: no answer to list jobs within 0.1 s"):
                await spawner.list(P)


class TestEnds:
    @pytest.mark.parametrize("operation", ["delete jobs", "delete pods", "list pods", "get jobs"])
    async def test_an_end_without_an_answer_is_repeated(
        self, server: ApiServer, spawner: KubernetesSpawner, operation: str
    ) -> None:
        await spawner.spawn(order())
        await until(spawner, InstanceState.RUNNING)
        server.faults.append(Loses(operation=operation))

        await spawner.terminate(P, W)

        assert (server.cluster.objects["jobs"], server.cluster.objects["pods"]) == ({}, {})

    async def test_a_pod_whose_node_is_down_is_told(self, server: ApiServer, spawner: KubernetesSpawner) -> None:
        await spawner.spawn(order())
        await until(spawner, InstanceState.RUNNING)
        server.cluster.node_is_down = True

        with pytest.raises(SpawnError, match=r"expected its pod to end within 60 s, but it still exists \(node: node-1\)"):
            await spawner.terminate(P, W)

        assert alive(await spawner.list(P)) == [W], "it may still run"
        server.cluster.node_is_down = False
        with server.cluster.lock:
            [pod] = server.cluster.objects["pods"].values()
            del pod["metadata"]["deletionGracePeriodSeconds"]
        await spawner.terminate(P, W)

    async def test_another_end_does_not_end_the_next_instance(
        self, server: ApiServer, spawner: KubernetesSpawner, tmp_path: Path
    ) -> None:
        first = await spawner._client.create_job(manifests.job_manifest("s", order(), settings_at(tmp_path)))
        assert first is not None
        await spawner.terminate(P, W)
        second = await spawner.spawn(order())

        await spawner._end((P, W), first)

        assert (await until(spawner, InstanceState.RUNNING)).ref == second.ref


class TestAccess:
    async def test_a_token_that_was_renewed_is_read_again(
        self, server: ApiServer, spawner: KubernetesSpawner, tmp_path: Path
    ) -> None:
        await spawner.list(P)
        server.tokens = {"renewed"}
        url = spawner._client._api.configuration.host if spawner._client._api else ""
        write_kubeconfig(tmp_path / "kubeconfig", url, "renewed")

        assert await spawner.list(P) == []

    async def test_a_token_that_has_expired(self, server: ApiServer, spawner: KubernetesSpawner) -> None:
        server.tokens = {"renewed"}

        with pytest.raises(
            Unanswered, match=r"does not accept the credentials \(HTTP 401\): the token .* has expired"
        ) as failed:
            await spawner.list(P)
        with pytest.raises(SpawnFailed, match="log in again"):
            await spawner.spawn(replace(order(), is_first=True))

        assert failed.value.cause is SpawnCause.AUTH
        server.tokens = {"t0ken-of-the-simulator"}

    @pytest.mark.parametrize("verb", ["create", "get", "patch", "delete"])
    async def test_a_missing_permission_is_named(self, server: ApiServer, spawner: KubernetesSpawner, verb: str) -> None:
        if verb != "create":
            await spawner.spawn(order(program="sleep 60"))
            server.cluster.broken_images["drumbeat/worker:1"] = "ErrImagePull: x"
        server.permissions["batch", "jobs"].discard(verb)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "create": lambda: spawner.spawn(order()),
            "get": lambda: spawner.drain(P, W),
            "patch": lambda: spawner._client.shorten_job(manifests.job_name("s", (P, W))),
            "delete": lambda: spawner.terminate(P, W),
        }

        with pytest.raises(SpawnError, match=rf"ann lacks the verb {verb} on jobs \(batch\) in namespace work") as failed:
            await calls[verb]()

        assert failed.value.cause is SpawnCause.AUTH
        server.permissions["batch", "jobs"].add(verb)

    async def test_a_quota_that_is_used_up(self, server: ApiServer, spawner: KubernetesSpawner) -> None:
        message = 'jobs.batch "x" is forbidden: exceeded quota: small, requested: count/jobs.batch=1, used: 3, limited: 3'
        server.faults.append(Answers(operation="create jobs", status=403, reason="Forbidden", message=message))

        with pytest.raises(SpawnFailed, match="the quota of namespace work is used up: small, requested") as failed:
            await spawner.spawn(order())

        assert failed.value.cause is SpawnCause.NO_CAPACITY

    async def test_a_namespace_that_is_not_there(self, server: ApiServer, tmp_path: Path) -> None:
        async with KubernetesSpawner(settings_at(tmp_path, namespace="nowhere"), {}, "s") as spawner:
            with pytest.raises(
                SpawnFailed, match="there is no namespace nowhere; create it: kubectl create namespace"
            ) as failed:
                await spawner.spawn(order())

        assert failed.value.cause is SpawnCause.BAD_REQUEST

    async def test_a_cluster_that_cannot_be_reached(self, tmp_path: Path, clock: LeapingClock) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{taken.getsockname()[1]}")
            async with KubernetesSpawner(settings_at(tmp_path), {}, "s", clock) as spawner:
                with pytest.raises(Unanswered, match=r"cannot connect: .*; check the network and the context"):
                    await spawner.list(P)
                with pytest.raises(SpawnFailed, match="cannot connect") as failed:
                    await spawner.spawn(replace(order(), is_first=True))

        assert failed.value.cause is SpawnCause.TRANSIENT
