"""The health checks of the image, of the Compose file and of the Helm chart, against real processes."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from cli.given import eventually, started
from deploy.test_chart import FULL, rendered
from servers.places import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
PORT = "8321"


def of_the_image() -> Sequence[str]:
    [found] = re.findall(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    words: Sequence[str] = json.loads(found)
    return words


def of_the_compose_file() -> Sequence[str]:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    words: Sequence[str] = services["dashboard"]["healthcheck"]["test"][1:]
    return words


def is_healthy(check: Sequence[str], port: int) -> bool:
    program, *words = check
    assert program == "python"
    assert PORT in " ".join(words)
    changed = [word.replace(PORT, str(port)) for word in words]
    return subprocess.run([sys.executable, *changed], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("check", [of_the_image(), of_the_compose_file()], ids=["image", "compose"])
def test_a_server_is_healthy_once_it_answers(check: Sequence[str], tmp_path: Path) -> None:
    port = free_port()
    store = {"DRUMBEAT_STORE": f"sqlite:///{tmp_path}/x.db", "DRUMBEAT_TOKEN": "t" * 40}

    assert not is_healthy(check, port)
    with started("serve", "--port", str(port), cwd=tmp_path, **store) as server:
        eventually(lambda: is_healthy(check, port), "the server is healthy")
        server.terminate()
        server.communicate(timeout=60)


def test_a_controller_is_alive_while_it_makes_beats(tmp_path: Path) -> None:
    container = rendered(**FULL)["Deployment", "beat-fleet-render"]["spec"]["template"]["spec"]["containers"][0]
    state, probe = tmp_path / "state", container["livenessProbe"]["exec"]["command"]
    given = {"DRUMBEAT_STORE": f"sqlite:///{tmp_path}/x.db", "DRUMBEAT_STATE_DIR": str(state)}

    def is_alive() -> bool:
        words = [word.replace("/var/lib/drumbeat", str(state)) for word in probe[1:]]
        return subprocess.run([sys.executable, *words], capture_output=True, check=False).returncode == 0

    def is_hung() -> bool:
        os.utime(state / "controller-render", (1, 1))
        return not is_alive()

    with started("fleet", "create", "render", cwd=tmp_path, **given) as created:
        assert created.wait(60) == 0
    assert not is_alive()
    with started("fleet", "run", "render", "--every", "100ms", cwd=tmp_path, **given) as controller:
        eventually(is_alive, "the controller makes beats")
        os.utime(state / "controller-render", (1, 1))
        eventually(is_alive, "the next beat renews the time")
        controller.send_signal(signal.SIGSTOP)
        eventually(is_hung, "a controller without beats is noticed")
        controller.send_signal(signal.SIGCONT)
        controller.terminate()
        controller.communicate(timeout=60)
    assert not is_alive()
