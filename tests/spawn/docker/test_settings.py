"""The settings of a Docker engine: what is refused, and what becomes of them in a request to the daemon."""

from pathlib import Path
from typing import Any

import pytest

from drumbeat.composition.engine_settings import read_settings
from drumbeat.core.errors import InvalidSettings
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.docker import DockerSettings, DockerSpawner, PullPolicy
from drumbeat.spawn.docker.containers import ContainerPlan, search_path, taken_gpus
from drumbeat.spawn.docker.settings import size_in_bytes
from drumbeat.spawn.interface import Order

ORDER = Order(pool_id=PoolId("jobs"), worker_id=WorkerId("ann"), slot=2, group_count=5)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"image": " "}, "expected the name of an image"),
        ({"command": ()}, "expected a command of one word or more"),
        ({"base_url": "ssh://host"}, "forward its socket"),
        ({"base_url": "host:2375"}, "expected a daemon at unix://PATH or tcp://HOST:PORT"),
        ({"mounts": ["/data"]}, "expected a mount HOST:CONTAINER"),
        ({"mounts": ["/data:data"]}, "expected a mount HOST:CONTAINER"),
        ({"mounts": ["/data:/data:rx"]}, "expected a mount HOST:CONTAINER"),
        ({"mounts": ["./data:/data"]}, "expected an absolute path before the colon"),
        ({"mounts": ["~/data:/data"]}, "expected an absolute path before the colon"),
        ({"gpus": -1}, 'expected gpus of 0 or more, or "all", got -1'),
        ({"gpus": "some"}, "expected gpus of 0 or more, or \"all\", got 'some'"),
        ({"gpu_ids": ["0"]}, "expected gpus of 1 or more with gpu_ids"),
        ({"gpus": 3, "gpu_ids": ["0", "1"]}, "expected 3 gpu_ids or more, got 2"),
        ({"cpus": -1.0}, "expected cpus of 0 or more"),
        ({"memory": "8 gigs"}, "expected a size such as 512m or 8g, got '8 gigs'"),
        ({"slots": 0}, "expected slots of 1 or more"),
        ({"price_per_hour": -1.0}, "expected a price_per_hour of 0 or more"),
        ({"labels": {"drumbeat.pool": "x"}}, r"expected labels without the prefix drumbeat\., got drumbeat.pool"),
        ({"variables": ["A=B"]}, "expected names of environment variables, got 'A=B'"),
        ({"tls_folder": Path("/nowhere")}, "expected a ca.pem in tls_folder"),
    ],
)
def test_settings_that_cannot_work_are_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        DockerSettings(**{"image": "worker:1", **changed})


def test_a_folder_of_certificates_may_be_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ca.pem").touch()

    assert DockerSettings(image="worker:1", tls_folder=Path("~")).tls_folder == Path("~")


@pytest.mark.parametrize(("gpus", "count"), [(0, 0), (2, 2), ("2", 2), ("all", -1)])
def test_gpus_are_a_number_or_all(gpus: int | str, count: int) -> None:
    settings = read_settings(DockerSettings, {"image": "x", "gpus": gpus}, "engine box")

    assert settings.gpu_count == count


def test_gpus_of_another_type_are_refused() -> None:
    with pytest.raises(InvalidSettings, match=r"engine box: expected gpus to be a whole number or a text, got 1\.5"):
        read_settings(DockerSettings, {"image": "x", "gpus": 1.5}, "engine box")


@pytest.mark.parametrize(("text", "size"), [("", 0), ("512", 512), ("64k", 65536), ("1.5g", 3 << 29), ("8GB", 8 << 30)])
def test_sizes_are_read_as_docker_reads_them(text: str, size: int) -> None:
    assert size_in_bytes(text) == size


def test_every_setting_reaches_the_request() -> None:
    settings = DockerSettings(
        image="worker:1",
        mounts=["/data:/in:ro", "cache:/cache"],
        working_dir="/in",
        user="1000:1000",
        gpus=2,
        cpus=1.5,
        memory="8g",
        shm_size="1g",
        network="host",
        extra_hosts={"db": "host-gateway"},
        labels={"team": "ml"},
        environment={"MODE": "fast"},
        log_size="20m",
    )
    plan = ContainerPlan(order=ORDER, labels={"drumbeat.pool": "jobs"}, environment={"DRUMBEAT_STORE": "postgresql://db"})

    assert plan.request(settings) == {
        "Image": "worker:1",
        "Entrypoint": ["drumbeat"],
        "Cmd": [
            *("worker", "--run-id", "jobs", "--worker-id", "ann"),
            *("--worker-group-id", "2", "--worker-group-count", "5"),
        ],
        "Env": ["MODE=fast", "DRUMBEAT_STORE=postgresql://db", "DRUMBEAT_POOL_ID=jobs", "DRUMBEAT_WORKER_ID=ann"],
        "Labels": {"team": "ml", "drumbeat.pool": "jobs"},
        "User": "1000:1000",
        "WorkingDir": "/in",
        "StopSignal": "SIGTERM",
        "StopTimeout": 30,
        "HostConfig": {
            "Init": True,
            "RestartPolicy": {"Name": "no"},
            "Mounts": [
                {"Type": "bind", "Source": "/data", "Target": "/in", "ReadOnly": True},
                {"Type": "volume", "Source": "cache", "Target": "/cache", "ReadOnly": False},
            ],
            "NanoCpus": 1_500_000_000,
            "Memory": 8 << 30,
            "ShmSize": 1 << 30,
            "NetworkMode": "host",
            "ExtraHosts": ["db:host-gateway"],
            "DeviceRequests": [{"Count": 2, "Capabilities": [["gpu"]]}],
            "LogConfig": {"Type": "json-file", "Config": {"max-size": str(10 << 20), "max-file": "2"}},
        },
    }


def test_little_is_said_where_nothing_is_set() -> None:
    request = ContainerPlan(order=ORDER, labels={}).request(DockerSettings(image="worker:1", log_size=""))

    assert set(request) == {"Image", "Entrypoint", "Cmd", "Env", "Labels", "StopSignal", "StopTimeout", "HostConfig"}
    assert request["HostConfig"] == {"Init": True, "RestartPolicy": {"Name": "no"}}


def test_chosen_gpus_are_asked_for_by_their_ids_and_remembered_in_a_label() -> None:
    request = ContainerPlan(order=ORDER, labels={}, gpu_ids=["1", "3"]).request(DockerSettings(image="x", gpus=2))

    assert request["HostConfig"]["DeviceRequests"] == [{"DeviceIDs": ["1", "3"], "Capabilities": [["gpu"]]}]
    assert taken_gpus([{"Labels": request["Labels"]}, {"Labels": None}, {}]) == {"1", "3"}


def test_a_worker_gets_the_named_variables_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "t0ken")
    settings = DockerSettings(image="x", variables=["HF_TOKEN"])

    assert vars(DockerSpawner(settings, {"A": "1"}, "s"))["_environment"] == {"A": "1", "HF_TOKEN": "t0ken"}
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(InvalidSettings, match="expected the environment variable HF_TOKEN, got none"):
        DockerSpawner(settings, {}, "s")


def test_the_pull_policy_is_read_by_name() -> None:
    assert read_settings(DockerSettings, {"image": "x", "pull": "never"}, "engine box").pull is PullPolicy.NEVER


@pytest.mark.parametrize(
    ("variables", "folders"),
    [(["A=1", "PATH=/opt/bin:/bin"], ["/opt/bin", "/bin"]), (["PATH=/a", "PATH=/b"], ["/b"])],
)
def test_programs_are_looked_for_in_the_path_of_the_container(variables: list[str], folders: list[str]) -> None:
    assert search_path(variables) == folders
    assert "/usr/local/bin" in search_path([])
