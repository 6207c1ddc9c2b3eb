"""The simulator lets nothing pass that RunPod's schema forbids."""

import json
from typing import Any

import pytest

from spawn.runpod.rig import VARIABLES, LeapingClock
from spawn.runpod.schema import SCHEMA_FILE, OpenApi, find_schema
from spawn.runpod.simulator import KEY, RunPodSimulator

POD: dict[str, Any] = {"name": "n", "image": "i", "gpu": {"id": "RTX 4090"}}
HEADERS = {"authorization": f"Bearer {KEY}"}


@pytest.fixture
def schema() -> OpenApi:
    found = find_schema()
    if found is None:
        pytest.skip(f"RunPod's schema is not at {SCHEMA_FILE}")
    return found


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, None),
        ({"bogus": 1}, "$: additional properties 'bogus' not allowed"),
        ({"name": ""}, "$.name: too short"),
        ({"name": None}, "$.name: expected string"),
        ({"image": None}, "$.image: expected string"),
        ({"gpu": {"count": 1}}, "$.gpu: 'id' is required"),
        ({"gpu": {"id": "x", "count": 0}}, "$.gpu.count: below 1"),
        ({"gpu": {"id": "x", "minCudaVersion": "12"}}, "$.gpu.minCudaVersion: does not match"),
        ({"gpu": {"id": "x", "extra": 1}}, "$.gpu: additional properties 'extra' not allowed"),
        ({"cloud": "MOON"}, "$.cloud: expected one of"),
        ({"env": {"A": 1}}, "$.env.A: expected string"),
        ({"mounts": {"persistent": {"size": 5, "path": "/x"}}}, "$.mounts.persistent.size: below 10"),
        ({"mounts": {"network": [{"volumeId": "a", "path": "b"}] * 2}}, "$.mounts.network: has 2 items"),
    ],
    ids=str,
)
async def test_a_creation_is_checked(schema: OpenApi, change: dict[str, Any], wrong: str | None) -> None:
    simulator = RunPodSimulator(LeapingClock())

    answer = await simulator.answer("POST", "/v2/pods", HEADERS, json.dumps({**POD, **change}).encode())

    assert answer is not None
    assert answer.status == (201 if wrong is None else 422)
    assert len(simulator.violations) == (0 if wrong is None else 1)
    assert all(str(wrong) in each for each in simulator.violations)


async def test_an_image_is_needed_unless_there_is_a_template(schema: OpenApi) -> None:
    simulator = RunPodSimulator(LeapingClock())
    for template, status in (({}, 422), ({"templateId": "t"}, 201)):
        body = json.dumps({"name": "n", "gpu": {"id": "RTX 4090"}, **template}).encode()
        answer = await simulator.answer("POST", "/v2/pods", HEADERS, body)
        assert answer is not None
        assert answer.status == status


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/v2/pods?page=2", 422),
        ("GET", "/v2/pods?includeClusterPods=maybe", 422),
        ("GET", "/v2/pods?includeClusterPods=true", 200),
        ("GET", "/v2/catalog/gpus?include=STOCK&product=POD", 422),
        ("GET", "/v2/catalog/gpus?include=AVAILABILITY", 400),
        ("GET", "/v2/catalog/gpus?include=AVAILABILITY&product=POD&count=none", 422),
        ("GET", "/v2/nothing", 404),
        ("GET", "/v2/pods/nobody", 404),
        ("GET", "/v2/network-volumes/none", 404),
        ("GET", "/v2/network-volumes/none?page=2", 422),
    ],
)
async def test_a_query_is_checked(schema: OpenApi, method: str, target: str, status: int) -> None:
    answer = await RunPodSimulator(LeapingClock()).answer(method, target, HEADERS, b"")

    assert answer is not None
    assert answer.status == status


@pytest.mark.parametrize(
    ("body", "status", "size"),
    [
        ({"size": 150}, 200, 150),
        ({"size": 100}, 200, 100),
        ({"size": 99}, 400, 100),
        ({"size": 5}, 422, 100),
        ({"size": 4097}, 422, 100),
        ({"size": "150"}, 422, 100),
        ({"size": 150, "dataCenter": "EU-2"}, 422, 100),
        ({}, 422, 100),
    ],
    ids=str,
)
async def test_a_new_size_of_a_volume_is_checked(schema: OpenApi, body: dict[str, Any], status: int, size: int) -> None:
    simulator = RunPodSimulator(LeapingClock(), volumes={"vol1": 100})

    answer = await simulator.answer("PATCH", "/v2/network-volumes/vol1", HEADERS, json.dumps(body).encode())

    assert answer is not None
    assert (answer.status, simulator.volumes) == (status, {"vol1": size})


async def test_without_the_schema_everything_else_still_works() -> None:
    simulator = RunPodSimulator(LeapingClock(), schema=None)

    answer = await simulator.answer("POST", "/v2/pods", HEADERS, json.dumps({**POD, "bogus": 1}).encode())

    assert answer is not None
    assert answer.status == 201
    assert len(simulator.alive()) == 1
    assert VARIABLES["RUNPOD_API_KEY"] == simulator.key
