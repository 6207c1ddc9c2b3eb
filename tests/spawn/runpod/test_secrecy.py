"""The API key and the worker's environment appear nowhere but in the calls that need them."""

import logging
import traceback

import pytest

from drumbeat.core.errors import InvalidSettings, SpawnError
from drumbeat.spawn.runpod import RunPodSettings, RunPodSpawner
from spawn.runpod.faults import Answers, Fault, Invents, Loses
from spawn.runpod.rig import ANN, POOL, STORE, order, rigged
from spawn.runpod.simulator import KEY

SECRETS = (KEY, "hunter2secret", STORE["DRUMBEAT_STORE"])
ECHO = f"Bearer {KEY} with {STORE['DRUMBEAT_STORE']} is not welcome"


@pytest.mark.parametrize(
    "fault",
    [
        *(
            Answers(operation="createPod", status=status, detail=ECHO, times=9)
            for status in (400, 401, 402, 403, 422, 429, 500, 502)
        ),
        Loses(operation="createPod"),
        Loses(operation="createPod", done=False),
        Answers(operation="listPods", status=503, detail=f"key {KEY}", times=9),
        Answers(operation="listGpuTypes", status=403, detail=f"key {KEY}"),
        Answers(operation="createPod", status=201, body=KEY.encode()),
        Invents(names=["drumbeat.p.ann"]),
    ],
    ids=lambda fault: f"{type(fault).__name__}-{getattr(fault, 'status', '')}-{fault.operation}",
)
async def test_no_secret_is_logged_or_raised(fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = []
    async with rigged() as rig:
        rig.simulator.faults.append(fault)
        for call in (rig.spawner.spawn(order()), rig.spawner.list(POOL), rig.spawner.terminate(POOL, ANN)):
            try:
                said.append(repr(await call))
            except SpawnError as exc:
                said.append("".join(traceback.format_exception(exc)))
        said.append(repr(rig.spawner))

    everything = caplog.text + "\n".join(said)
    assert [secret for secret in SECRETS if secret in everything] == []
    assert rig.simulator.calls
    assert all(KEY not in str(call.body) for call in rig.simulator.calls)


@pytest.mark.parametrize("key", [None, "", "  ", "two words", "new\nline", "schlüssel"])
def test_a_key_that_cannot_be_used_is_refused_without_being_shown(key: str | None) -> None:
    variables = {} if key is None else {"RUNPOD_API_KEY": key}

    with pytest.raises(InvalidSettings, match="RUNPOD_API_KEY") as caught:
        RunPodSpawner(RunPodSettings(image="i", max_price_per_hour=1), {}, variables=variables)

    assert not key or not key.strip() or key not in str(caught.value)


async def test_a_wrong_key_is_told_apart() -> None:
    async with rigged() as rig:
        rig.simulator.key = "another"

        with pytest.raises(SpawnError, match="401") as caught:
            await rig.spawner.list(POOL)

        assert caught.value.cause == "auth"
