"""Races of the Docker spawner, with a client of the SDK that answers when the test lets it."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from drumbeat.core.errors import SpawnCause, SpawnFailed
from drumbeat.spawn.docker import DockerSettings, DockerSpawner
from drumbeat.spawn.docker.containers import GPU_LABEL
from spawn.docker.fake_daemon import ANN, ORDER, POOL

MINE, THEIRS = "a" * 64, "b" * 64


class Scripted:
    """A client of the SDK: what it lists, in order, and when it creates."""

    timeout = 1.0

    def __init__(self, *listed: Sequence[Mapping[str, Any]]) -> None:
        self.listed = list(listed)
        self.removed: list[str] = []
        self.started: list[str] = []
        self.asked, self.may_create = threading.Event(), threading.Event()
        self.may_create.set()
        self.created = False

    def containers(self, **_: Any) -> Sequence[Mapping[str, Any]]:
        return self.listed.pop(0)

    def create_container_from_config(self, *_: Any) -> Mapping[str, str]:
        self.asked.set()
        assert self.may_create.wait(60)
        self.created = True
        return {"Id": MINE}

    def start(self, identifier: str) -> None:
        self.started.append(identifier)

    def remove_container(self, identifier: str, **_: Any) -> None:
        self.removed.append(identifier)

    def inspect_container(self, identifier: str) -> Mapping[str, Any]:
        return {"Id": identifier, "Name": "x", "State": {"Status": "created"}, "Config": {}}

    def head(self, *_: Any, **__: Any) -> Any:
        return type("Answer", (), {"status_code": 200})

    def _url(self, *words: str) -> str:
        return "/".join(words)

    def close(self) -> None: ...


def opened(client: Scripted, **changed: Any) -> DockerSpawner:
    return DockerSpawner(DockerSettings(image="x", **changed), {}, "s", connect=lambda: client)


async def test_a_cancelled_creation_is_awaited() -> None:
    client = Scripted()
    client.may_create.clear()
    async with opened(client) as spawner:
        async with asyncio.TaskGroup() as group:
            start = group.create_task(spawner.spawn(ORDER))
            await asyncio.to_thread(client.asked.wait)
            start.cancel()
            await asyncio.sleep(0)
            assert not start.done()
            client.may_create.set()

        assert start.cancelled()
        assert (client.created, client.started) == (True, [])


@pytest.mark.parametrize(
    ("settings", "other"),
    [({"slots": 1}, {}), ({"gpus": 1, "gpu_ids": ["0"]}, {GPU_LABEL: "0"})],
)
async def test_a_slot_that_another_controller_took_meanwhile_is_given_up(
    settings: Mapping[str, Any], other: Mapping[str, str]
) -> None:
    both = [{"Id": MINE, "Labels": {}}, {"Id": THEIRS, "Labels": other}]
    client = Scripted([], both)
    async with opened(client, **settings) as spawner:
        with pytest.raises(SpawnFailed, match="another controller started a worker at the same time") as refused:
            await spawner.spawn(ORDER)

    assert refused.value.cause is SpawnCause.NO_CAPACITY
    assert (client.removed, client.started) == ([MINE], [])


async def test_a_free_slot_is_taken() -> None:
    client = Scripted([{"Id": THEIRS, "Labels": {}}], [{"Id": MINE, "Labels": {}}, {"Id": THEIRS, "Labels": {}}])
    async with opened(client, slots=2) as spawner:
        await spawner.spawn(ORDER)

    assert (client.removed, client.started) == ([], [MINE])


async def test_an_answer_to_the_creation_that_was_lost_is_looked_for_by_name() -> None:
    class Losing(Scripted):
        def create_container_from_config(self, *_: Any) -> Any:
            self.created = True
            raise TimeoutError("timed out")

        def inspect_container(self, identifier: str) -> Mapping[str, Any]:
            return {**super().inspect_container(MINE), "Config": {"Labels": spawner._labels((POOL, ANN))}}

    client = Losing()
    async with opened(client) as spawner:
        instance = await spawner.spawn(ORDER)

    assert (client.created, client.started) == (True, [MINE])
    assert MINE.startswith(instance.ref)
