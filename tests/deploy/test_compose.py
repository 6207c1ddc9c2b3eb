"""deploy/compose.yaml: what is published, which secrets there are, and in which order services start."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.given import ran

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "compose.yaml"
OURS = ("setup", "dashboard", "worker")
#: the keys of the Compose specification that this file may use
SERVICE_KEYS = frozenset(
    {
        *(
            "build",
            "cap_drop",
            "command",
            "depends_on",
            "entrypoint",
            "environment",
            "healthcheck",
            "image",
            "init",
            "networks",
        ),
        *("ports", "restart", "secrets", "security_opt", "stop_grace_period", "volumes"),
    }
)
DURATION = re.compile(r"(\d+(ms|s|m|h))+")


@pytest.fixture(scope="module")
def compose() -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def script(compose: Mapping[str, Any], secrets: Path) -> str:
    """The shell program that starts our services, with another folder of secrets."""
    shell, flags, program, name = compose["services"]["worker"]["entrypoint"]
    assert (shell, flags, name) == ("sh", "-ec", "drumbeat")
    return str(program).replace("$$", "$").replace("/run/secrets", str(secrets))


def test_the_file_has_only_what_the_specification_knows(compose: Mapping[str, Any]) -> None:
    assert set(compose) - {"x-drumbeat"} == {"name", "services", "secrets", "volumes", "networks"}
    assert set(compose["services"]) == {"postgres", *OURS}
    for name, service in compose["services"].items():
        assert set(service) <= SERVICE_KEYS, name
        health = service.get("healthcheck", {})
        assert all(DURATION.fullmatch(health.get(key, "1s")) for key in ("interval", "timeout", "start_period")), name
        assert all(isinstance(word, str) for word in service.get("command", [])), name
        assert set(service["networks"]) <= set(compose["networks"]), name
        assert set(service["secrets"]) <= set(compose["secrets"]), name
        assert set(service.get("depends_on", {})) <= set(compose["services"]), name


def test_images_have_exact_versions(compose: Mapping[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert re.fullmatch(r"[a-z-]+:\d+\.\d+(\.\d+)?(-[a-z]+)?", service["image"]), name


def test_only_the_dashboard_is_published_and_only_on_loopback(compose: Mapping[str, Any]) -> None:
    ports = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}

    assert ports == {"dashboard": ["127.0.0.1:8321:8321"]}
    assert compose["networks"]["store"]["internal"] is True
    assert [name for name, each in compose["services"].items() if "published" in each["networks"]] == ["dashboard"]


def test_secrets_are_files_that_are_not_in_the_repository(compose: Mapping[str, Any]) -> None:
    assert {each["file"] for each in compose["secrets"].values()} == {"secrets/postgres_password", "secrets/drumbeat_token"}
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text().split()
    text = FILE.read_text(encoding="utf-8")
    for found in re.findall(r"(?i)(?:password|token)\w*[:=][ \t]*(.*)", text):
        assert re.match(r'/run/secrets/|"?\$\$\(cat /run/secrets/|secrets/|$', found.strip('"')), found
    assert compose["services"]["dashboard"]["secrets"] == ["postgres_password", "drumbeat_token"]
    assert "drumbeat_token" not in compose["services"]["worker"]["secrets"], "workers run other people's code"


def test_services_start_in_order_and_tell_their_health(compose: Mapping[str, Any]) -> None:
    services = compose["services"]

    assert services["setup"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in ("dashboard", "worker"):
        assert services[name]["depends_on"] == {"setup": {"condition": "service_completed_successfully"}}
    assert all(services[name]["healthcheck"]["test"][0] == "CMD" for name in ("postgres", "dashboard"))


def test_our_services_have_few_rights(compose: Mapping[str, Any]) -> None:
    for name in OURS:
        service = compose["services"][name]
        assert (service["init"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["build"]["dockerfile"] == "deploy/Dockerfile"
        assert (FILE.parent / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def run(program: str, folder: Path, *words: str) -> str:
    """Run the program with a command ``drumbeat`` that prints its arguments and its settings."""
    fake = folder / "bin" / "drumbeat"
    fake.parent.mkdir(exist_ok=True)
    fake.write_text('#!/bin/sh\necho "$*|$DRUMBEAT_STORE|$DRUMBEAT_TOKEN"\n[ "$2" != status ]\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-ec", program, "drumbeat", *words], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_process_gets_its_secrets_by_its_environment(compose: Mapping[str, Any], tmp_path: Path) -> None:
    (tmp_path / "postgres_password").write_text("abc123\n")
    program, url = script(compose, tmp_path), "postgresql://drumbeat:abc123@postgres:5432/drumbeat"

    assert run(program, tmp_path, "pool", "work", "jobs") == f"pool work jobs|{url}|\n"
    (tmp_path / "drumbeat_token").write_text("t0ken\n")
    assert run(program, tmp_path, "serve", "--host", "0.0.0.0") == f"serve --host 0.0.0.0|{url}|t0ken\n"


def test_the_setup_makes_the_store_and_the_pool(compose: Mapping[str, Any], tmp_path: Path) -> None:
    (tmp_path / "postgres_password").write_text("abc123\n")

    asked = [line.partition("|")[0] for line in run(script(compose, tmp_path), tmp_path, "setup").splitlines()]

    assert asked == ["store init", "pool create jobs --handler command:wc -w --mode loop"]


def test_the_commands_work_on_a_real_database(compose: Mapping[str, Any], tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "postgres_password").write_text("unused\n")
    program = re.sub(r'DRUMBEAT_STORE="[^"]*"', f'DRUMBEAT_STORE="{postgres_url}"', script(compose, tmp_path))
    command = tmp_path / "bin" / "drumbeat"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m drumbeat "$@"\n')
    command.chmod(0o755)

    def container(*words: str) -> None:
        environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
        subprocess.run(["sh", "-ec", program, "drumbeat", *words], env=environment, cwd=tmp_path, check=True)

    container("setup")
    container("setup")
    container("pool", "push", "jobs", '"count these words"')
    container(*compose["services"]["worker"]["command"], "--drain")

    told = ran("pool", "status", "jobs", "--json", cwd=tmp_path, DRUMBEAT_STORE=postgres_url)
    assert json.loads(told.output)["jobs"]["done"] == 1
