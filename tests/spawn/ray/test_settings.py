"""Settings of the Ray engine, and what happens over a real socket."""

from datetime import timedelta
from typing import Any

import pytest

from drumbeat.composition.engine_settings import read_settings
from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import InvalidInput, InvalidSettings, Unanswered
from drumbeat.spawn.ray import RayRuntimeEnv, RaySettings, RaySpawner
from servers.places import free_port
from spawn.ray.fake_ray import TOKEN, FakeRay
from spawn.ray.rig import POOL, STORE, order_for
from spawn.runpod.wire import served


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"address": "ray://head:10001"}, "not ray://"),
        ({"address": "head:8265"}, "http://head:8265"),
        ({"address": "http://u:p@head:8265"}, "without user, password"),
        ({"token_variable": "not a name"}, "does not belong in this file"),
        ({"num_gpus": -1}, "0 or more"),
        ({"resources": {"fast": -1.0}}, "fast"),
        ({"slots": 0}, "slots of 1 or more"),
        ({"price_per_hour": -0.1}, "price_per_hour"),
        ({"python": ""}, "Python"),
        ({"runtime_env": {"working_dir": "./app"}}, "URL of a .zip file"),
        ({"runtime_env": {"env_vars": ["A=b"]}}, "names of environment variables"),
        ({"runtime_env": {"conda": "x"}}, "conda"),
        ({"token": "x"}, "token_variable"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        read_settings(RaySettings, given, "engine r")


def test_settings_are_read_from_a_table() -> None:
    table = {"address": "https://head", "num_gpus": 1, "timeout": "5s", "runtime_env": {"pip": ["x"]}}

    found = read_settings(RaySettings, table, "engine r")

    assert found == RaySettings(
        address="https://head", num_gpus=1.0, timeout=timedelta(seconds=5), runtime_env=RayRuntimeEnv(pip=("x",))
    )


async def test_a_token_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(InvalidInput, match="RAY_AUTH_TOKEN"):
        async with RaySpawner(RaySettings(), STORE, "store", variables={"RAY_AUTH_TOKEN": "two words"}):
            pass


async def test_a_spawner_that_is_not_open_says_so() -> None:
    with pytest.raises(InvalidInput, match="async with RaySpawner"):
        await RaySpawner(RaySettings(), STORE, "store", variables={}).list(POOL)


async def test_a_worker_is_started_over_a_real_socket() -> None:
    ray = FakeRay(SystemClock(), starts=True)
    async with served(ray) as address:
        settings = RaySettings(address=address)
        async with RaySpawner(settings, STORE, "store", variables={"RAY_AUTH_TOKEN": TOKEN}) as spawner:
            await spawner.spawn(order_for())

            assert len(await spawner.list(POOL)) == 1


async def test_a_head_that_is_down_is_told() -> None:
    settings = RaySettings(address=f"http://127.0.0.1:{free_port()}")
    async with RaySpawner(settings, STORE, "store", variables={}) as spawner:
        with pytest.raises(Unanswered, match=r"did not answer: ConnectError.*check that the head runs"):
            await spawner.list(POOL)
