"""The health checks of the image and of the Compose file, against a real server that wants a token."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from cli.given import eventually, started
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
