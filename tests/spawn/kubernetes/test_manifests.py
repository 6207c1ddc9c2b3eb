"""What is sent to Kubernetes: accepted by its schema and rules with every setting, and safe by default."""

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import certifi
import pytest
from kubernetes.aio.config import incluster_config

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import InvalidInput, InvalidSettings, SpawnCause, SpawnFailed
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import programs
from drumbeat.spawn.contract.starts import NEARLY_EQUAL, ODD_NAMES
from drumbeat.spawn.interface import VOLUME_PATH, InstanceState
from drumbeat.spawn.kubernetes import PERMISSIONS, KubernetesSettings, KubernetesSpawner, KubernetesVolume, Toleration, client
from drumbeat.spawn.kubernetes.manifests import job_manifest, job_name, read_name, secret_manifest, worker_selector
from spawn.kubernetes.checks import check_rules, check_shape
from spawn.kubernetes.conftest import P, W, order, settings_at, until
from spawn.kubernetes.kubelet import expanded
from spawn.kubernetes.server import ApiServer

PLAIN = KubernetesSettings(image="i")
FULL = KubernetesSettings(
    image="registry.example/drumbeat:1",
    image_pull_policy="Always",
    image_pull_secrets=["login"],
    service_account="worker",
    cpu="500m",
    cpu_limit="2",
    memory="1.5Gi",
    gpus=2,
    node_selector={"pool": "gpu"},
    tolerations=[Toleration(), Toleration(key="gpu", effect="NoSchedule"), Toleration(key="spot", value="true")],
    priority_class="low",
    runtime_class="gvisor",
    volumes=[KubernetesVolume(claim="data", path="/data"), KubernetesVolume(claim="models", path="/models", read_only=True)],
    environment={"A": "b"},
    labels={"team": "x"},
    annotations={"sidecar.istio.io/inject": "false"},
    max_runtime=timedelta(hours=8),
    read_only_root=True,
)


def problems(settings: KubernetesSettings, **changed: Any) -> list[str]:
    asked = replace(order(), **changed)
    job = job_manifest("s", asked, settings)
    secret = secret_manifest("j", "uid", "j-1", asked, settings, {"S": "t"})
    pairs = (("Job", job), ("Secret", secret))
    return [each for kind, body in pairs for check in (check_shape, check_rules) for each in check(kind, body)]


@pytest.mark.parametrize("settings", [PLAIN, FULL, replace(PLAIN, run_as_user=0)], ids=["plain", "full", "root"])
def test_the_schema_and_the_rules_accept_it(settings: KubernetesSettings) -> None:
    assert problems(settings) == []


@pytest.mark.parametrize("name", [*ODD_NAMES, *NEARLY_EQUAL, "..", "a/b", ""], ids=str)
def test_any_name_is_accepted_and_can_be_read_again(name: str) -> None:
    assert problems(PLAIN, pool_id=name, worker_id=name) == []
    job = job_manifest("s", replace(order(), pool_id=PoolId(name), worker_id=WorkerId(name)), PLAIN)
    for meta in (job["metadata"], job["spec"]["template"]["metadata"]):
        assert read_name(meta["annotations"]) == (name, name)


def test_the_name_is_always_the_same_and_another_for_another_store() -> None:
    assert job_name("s", (P, W)) == job_name("s", (P, W)) != job_name("t", (P, W))
    assert worker_selector("s", (P, W)) != worker_selector("t", (P, W))


def test_a_pod_starts_once_and_has_few_rights() -> None:
    job = job_manifest("s", order(), PLAIN)
    pod = job["spec"]["template"]["spec"]

    assert (job["spec"]["backoffLimit"], pod["restartPolicy"], job["spec"]["ttlSecondsAfterFinished"]) == (0, "Never", 3600)
    assert (pod["automountServiceAccountToken"], pod["terminationGracePeriodSeconds"]) == (False, 300)
    assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    [container] = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert "env" not in container


def test_the_settings_arrive() -> None:
    job = job_manifest("s", order(), FULL)
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]

    assert job["spec"]["activeDeadlineSeconds"] == 8 * 3600
    assert container["resources"] == {
        "requests": {"cpu": "500m", "memory": "1.5Gi"},
        "limits": {"cpu": "2", "memory": "1.5Gi", "nvidia.com/gpu": "2"},
    }
    assert [each["operator"] for each in pod["tolerations"]] == ["Exists", "Exists", "Equal"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/data", "/models", "/tmp"]
    assert VOLUME_PATH in secret_manifest("j", "u", "j-1", order(), FULL, {})["data"]


def test_the_worker_gets_its_arguments_unless_the_start_request_has_a_command() -> None:
    [container] = job_manifest("s", replace(order(), command=()), PLAIN)["spec"]["template"]["spec"]["containers"]

    assert container["command"][:4] == ["drumbeat", "worker", "--run-id", "p"]


@pytest.mark.parametrize("word", ["kill -9 $$", "$(touch hacked)", "$", "$$$", "a$b", "$(A)", "$((1 + 2))", "ü$ü", "$("])
def test_a_dollar_sign_arrives_as_it_is(word: str) -> None:
    [container] = job_manifest("s", replace(order(), command=(word,)), PLAIN)["spec"]["template"]["spec"]["containers"]

    assert expanded(container["command"][0], {"A": "wrong"}) == word


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"image": " "}, "an image, got none"),
        ({"namespace": "No_Name"}, "a namespace's name, got 'No_Name'"),
        ({"cpu": "two"}, "cpu such as 500m or 2, got 'two'"),
        ({"cpu_limit": "1.5m"}, "cpu_limit"),
        ({"memory": "1GB"}, "memory such as 512Mi or 2Gi, got '1GB'"),
        ({"gpus": -1}, "gpus of 0 or more"),
        ({"run_as_user": -1}, "run_as_user"),
        ({"grace": timedelta()}, "a grace of 1 s or more"),
        ({"max_runtime": timedelta()}, "max_runtime of 1 s or more"),
        ({"price_per_hour": -1.0}, "price_per_hour"),
        ({"page_size": 0}, "page_size"),
        ({"kubeconfig": Path("/nowhere/config")}, "no file /nowhere/config"),
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        KubernetesSettings(**{"image": "i", **given})


def test_a_volume_needs_an_absolute_path() -> None:
    with pytest.raises(InvalidSettings, match="volume data: expected an absolute path, got 'data'"):
        KubernetesVolume(claim="data", path="data")


async def test_a_kubeconfig_without_the_context_is_told(server: ApiServer, tmp_path: Path) -> None:
    async with KubernetesSpawner(settings_at(tmp_path, context="other"), {}, "s") as spawner:
        with pytest.raises(
            InvalidSettings, match=r"expected a kubeconfig that names a cluster, got: .*other.*; set kubeconfig or"
        ):
            await spawner.list(P)


async def test_a_label_that_kubernetes_refuses_is_told(server: ApiServer, tmp_path: Path) -> None:
    async with KubernetesSpawner(settings_at(tmp_path, labels={"team": "a b"}), {}, "s") as spawner:
        with pytest.raises(SpawnFailed, match=r"worker w of p: .*create jobs failed \(HTTP 422\): .*'a b'") as failed:
            await spawner.spawn(order())

    assert failed.value.cause is SpawnCause.BAD_REQUEST


async def test_in_a_pod_its_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("of-the-pod")
    (tmp_path / "namespace").write_text("own\n")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", certifi.where())
    monkeypatch.setattr(client, "_NAMESPACE_FILE", tmp_path / "namespace")
    found = client.KubernetesClient(PLAIN, SystemClock())

    async with await found._connected() as api:
        assert (api.configuration.host, found.namespace) == ("https://10.0.0.1:443", "own")
        assert api.configuration.api_key == {"BearerToken": "bearer of-the-pod"}


async def test_a_closed_spawner_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="async with"):
        await KubernetesSpawner(PLAIN, {}, "s").spawn(order())


async def test_every_permission_is_needed_and_no_other(server: ApiServer, tmp_path: Path) -> None:
    async with KubernetesSpawner(settings_at(tmp_path), {}, "s") as spawner:
        await spawner.spawn(order())
        await until(spawner, InstanceState.RUNNING)
        await spawner.logs(P, W)
        await spawner.drain(P, W)
        await until(spawner, InstanceState.EXITED)
        await spawner.terminate(P, W)
        server.cluster.unschedulable = "no node"
        await spawner.spawn(order())
        await until(spawner, InstanceState.PENDING)
        await spawner.drain(P, W)
        await spawner.terminate(P, W)
        server.cluster.unschedulable = None
        await spawner.spawn(order(program=programs.STUBBORN))  # one whose pod is still there after its Job was deleted
        await until(spawner, InstanceState.RUNNING)
        await spawner.terminate(P, W)
        await spawner._client.failed_pods()

    used = {(call.group, f"{call.resource}/{call.part}".strip("/"), call.verb) for call in server.calls}
    assert used == {(*key, verb) for key, verbs in PERMISSIONS.items() for verb in verbs}


def test_without_the_extra_the_install_command_is_named() -> None:
    program = "import sys; sys.modules['kubernetes'] = None; import drumbeat.spawn.kubernetes"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "the Kubernetes spawner needs an optional dependency; run: pip install 'drumbeat[kubernetes]'" in done.stderr
